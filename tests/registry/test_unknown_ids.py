"""Claims about events that name schemas which nobody has: they cost a worker a bounded time; over a played registry."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from streamdedup.delivery import schemas as delivery
from streamdedup.keys.formats import schemas as formats
from streamdedup.keys.formats.schema_registry import NUMBER_MAX, VALUE_HEADER
from streamdedup.keys.formats.schemas import GIVEN_UP_MAX
from streamdedup.registry.client import RegistryAwayError
from streamdedup.registry.registry import ASK_AGAIN_S
from streamdedup.registry.unknown import SHARE, UNKNOWN_S, Unknown
from tests.keys.avro import framed
from tests.registry.test_workers import Scene, Stage, play, value

__all__ = ["play"]  # a fixture


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


def test_many_unknown_ids_hold_a_partition_no_longer_than_one(
    play: Callable[[Scene], None],
) -> None:
    """One after the other; their allowance comes back slowly, and what follows them passes."""

    async def scene(stage: Stage) -> None:
        async with stage.start() as worker:
            await worker.live()
            clock = worker.task.get_loop().time
            began_s = clock()
            for number in range(30):
                stage.feed(unknown(1_000 + number), value(1, f"{number}"))
                await worker.consumed(2 * number + 2)
            assert clock() - began_s <= 2 * UNKNOWN_S
            assert len(stage.output()) == len(stage.reasons()) == 30
            lines = worker.lines("schema_given_up")
            assert 1 <= len(lines) < 5
            assert sum(line["given_up"] for line in lines) <= 30

    play(scene)


def test_a_number_that_no_registry_can_have_is_not_asked_for(play: Callable[[Scene], None]) -> None:
    """Confluent's answers such a path as if it were no registry, which would stop the partition."""

    async def scene(stage: Stage) -> None:
        stage.feed(unknown(NUMBER_MAX + 1), unknown(0), unknown(2**32 - 1), value(1, "a"))
        async with stage.start() as worker:
            await worker.live()
            began_s = worker.task.get_loop().time()
            await worker.consumed(4)
            assert worker.task.get_loop().time() - began_s < UNKNOWN_S
        assert stage.client.asked == [1]
        assert (len(stage.output()), len(stage.reasons())) == (1, 3)

    play(scene)


def test_of_very_many_ids_the_smallest_are_asked_for(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And more as long as some are found; so 10,000 schemas of a topic are all read."""
    monkeypatch.setattr(delivery, "ASKED_MAX", 2)

    async def scene(stage: Stage) -> None:
        stage.client.schemas |= {7: stage.client.schemas[1]}
        stage.feed(*map(unknown, (2_000, 9, 8, 1_000)), framed(7, b"\2a"), value(1, "b"))
        await stage.start().through(6)
        assert sorted(set(stage.client.asked)) == [1, 7, 8, 9]
        assert (len(stage.output()), len(stage.reasons())) == (2, 4)

    play(scene)


def test_what_stands_for_guids_that_nobody_has_is_bounded(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those of a batch that are not asked for, because there are very many."""
    monkeypatch.setattr(delivery, "ASKED_MAX", 2)
    monkeypatch.setattr(formats, "GIVEN_UP_MAX", 6)
    held = list[int]()
    number_of = formats.Schemas.number_of

    def counted(schemas: formats.Schemas, guid: bytes) -> int:
        number = number_of(schemas, guid)
        held.append(len(schemas.guids))
        return number

    monkeypatch.setattr(formats.Schemas, "number_of", counted)

    async def scene(stage: Stage) -> None:
        log = stage.broker.log(stage.deployment.source, 0)
        async with stage.start() as worker:
            for turn in range(8):
                guids = (UUID(int=turn << 64 | at) for at in range(1, 6))
                headers = [((VALUE_HEADER, b"\1" + guid.bytes),) for guid in guids]
                log.append([(stage.broker.now_ms(), None, b"\2x", each) for each in headers], None)
                await worker.consumed(5 * turn + 5)
        assert len(stage.reasons()) == 40
        assert max(held) <= 6 + 2 * 5

    play(scene)


def test_ids_beyond_a_bound_are_forgotten(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked for again if they come again, and nothing waits for them."""
    monkeypatch.setattr(formats, "GIVEN_UP_MAX", 2)

    async def scene(stage: Stage) -> None:
        async with stage.start() as worker:
            for at, number in enumerate((11, 12, 13, 11)):
                stage.feed(unknown(number))
                await worker.consumed(at + 1)
            assert len(stage.reasons()) == 4
            assert stage.client.asked[-1] == 11

    play(scene)


def test_one_timer_asks_again_for_all(play: Callable[[Scene], None]) -> None:
    """However many ids were given up, at different times, none is asked for more often than once a minute."""

    async def scene(stage: Stage) -> None:
        ids = range(100, 110)
        async with stage.start() as worker:
            stage.feed(unknown(ids[0]))
            await worker.consumed(1)  # uses up what events may wait
            for at, number in enumerate(ids[1:], 2):
                stage.feed(unknown(number))
                await worker.consumed(at)
                await asyncio.sleep(5)
            stage.client.asked.clear()
            for turn in range(1, 13):
                stage.feed(*map(unknown, ids))
                await worker.consumed(10 + 10 * turn)
                await asyncio.sleep(2 * ASK_AGAIN_S / 12)
            assert max(map(stage.client.asked.count, ids)) <= 3

    play(scene)


def test_a_registry_that_goes_away_meanwhile_is_not_asked_at_once_again(
    play: Callable[[Scene], None],
) -> None:
    """After the allowance is used up, it is still waited for with back-off."""

    async def scene(stage: Stage) -> None:
        async with stage.start() as worker:
            await worker.live()
            stage.feed(unknown(99))
            await worker.logged("schema_unknown")
            stage.client.error = RegistryAwayError("status 503")
            await asyncio.sleep(4 * UNKNOWN_S)
            asked = len(stage.client.asked)
            await asyncio.sleep(UNKNOWN_S)
            assert len(stage.client.asked) < asked + 20
            stage.client.error = None
            await worker.consumed(1)

    play(scene)
