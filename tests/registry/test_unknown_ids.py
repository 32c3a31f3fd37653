"""Claims about events that name schemas which nobody has: they cost a worker a bounded time; over a played registry."""

import pytest

from streamdedup.keys.formats.schema_registry import NUMBER_MAX
from streamdedup.keys.formats.schemas import GIVEN_UP_MAX
from streamdedup.registry.unknown import SHARE, UNKNOWN_S, Unknown
from tests.keys.avro import framed
from tests.memory import over
from tests.registry.test_workers import Stage, played, value

__all__ = ["played"]  # a fixture


def unknown(number: int) -> bytes:
    """Return an event of a schema that the registry does not have."""
    return framed(number, b"\2x")


def test_the_allowance_is_of_all_ids_together() -> None:
    """While one waits, or several, it shrinks by the time that passes; then it grows by a share of that."""
    allowance = Unknown()
    assert allowance.begin(100) == 100 + UNKNOWN_S
    assert allowance.begin(130) == 100 + UNKNOWN_S
    allowance.end(140)
    allowance.end(150)
    assert allowance.left_s(150) == pytest.approx(UNKNOWN_S - 50)
    assert allowance.left_s(200) == pytest.approx(UNKNOWN_S - 50 + 50 * SHARE)
    assert allowance.begin(1e9) == 1e9 + UNKNOWN_S
    allowance.end(2e9)
    assert allowance.begin(2e9) == 2e9


def test_ids_that_were_given_up_are_bounded() -> None:
    """The first are forgotten."""
    ids = Unknown()
    for number in range(GIVEN_UP_MAX + 5):
        ids.give_up(number)
    assert [ids.is_given_up(number) for number in (4, 5, GIVEN_UP_MAX + 4)] == [False, True, True]
    ids.found(5)
    assert not ids.is_given_up(5)


@over(Stage)
async def test_many_unknown_ids_hold_a_partition_no_longer_than_one(stage: Stage) -> None:
    """One after the other; their allowance comes back slowly, and what follows them passes."""
    async with stage.start() as worker:
        await worker.live()
        clock = worker.task.get_loop().time
        began_s = clock()
        for number in range(30):
            stage.write(unknown(1_000 + number), value(1, f"{number}"))
            await worker.consumed(2 * number + 2)
        assert clock() - began_s <= 2 * UNKNOWN_S
        assert len(stage.values) == len(stage.reasons()) == 30
        lines = worker.lines("schema_given_up")
        assert 1 <= len(lines) < 5
        assert sum(line["given_up"] for line in lines) <= 30


@over(Stage)
async def test_a_number_that_no_registry_can_have_is_not_asked_for(stage: Stage) -> None:
    """Confluent's answers such a path as if it were no registry, which would stop the partition."""
    stage.write(unknown(NUMBER_MAX + 1), unknown(0), unknown(2**32 - 1), value(1, "a"))
    async with stage.start() as worker:
        await worker.live()
        began_s = worker.task.get_loop().time()
        await worker.consumed(4)
        assert worker.task.get_loop().time() - began_s < UNKNOWN_S
    assert stage.client.asked == [1]
    assert (len(stage.values), len(stage.reasons())) == (1, 3)
