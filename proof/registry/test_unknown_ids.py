"""Claims about events that name schemas which nobody has: bounds, one timer, and a registry that goes away."""

import asyncio
from uuid import UUID

import pytest

from streamdedup.delivery import schemas as delivery
from streamdedup.kafka.records.records import Record
from streamdedup.keys.formats import schemas as formats
from streamdedup.keys.formats.schema_registry import VALUE_HEADER
from streamdedup.registry.client import RegistryAwayError
from streamdedup.registry.registry import ASK_AGAIN_S
from streamdedup.registry.unknown import UNKNOWN_S
from tests.keys.avro import framed
from tests.memory import over
from tests.registry.test_unknown_ids import unknown
from tests.registry.test_workers import Stage, played, value

__all__ = ["played"]  # a fixture


@over(Stage)
async def test_of_very_many_ids_the_smallest_are_asked_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And more as long as some are found; so 10,000 schemas of a topic are all read."""
    monkeypatch.setattr(delivery, "ASKED_MAX", 2)
    stage.client.schemas |= {7: stage.client.schemas[1]}
    stage.write(*map(unknown, (2_000, 9, 8, 1_000)), framed(7, b"\2a"), value(1, "b"))
    await stage.ended(6)
    assert sorted(set(stage.client.asked)) == [1, 7, 8, 9]
    assert (len(stage.values), len(stage.reasons())) == (2, 4)


@over(Stage)
async def test_what_stands_for_guids_that_nobody_has_is_bounded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
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
    log = stage.broker.log(stage.source, 0)
    async with stage.start() as worker:
        for turn in range(8):
            guids = (UUID(int=turn << 64 | at) for at in range(1, 6))
            headers = [((VALUE_HEADER, b"\1" + guid.bytes),) for guid in guids]
            log.append(
                [Record.of(stage.broker.now_ms(), None, b"\2x", each) for each in headers], None
            )
            await worker.consumed(5 * turn + 5)
    assert len(stage.reasons()) == 40
    assert max(held) <= 6 + 2 * 5


@over(Stage)
async def test_one_timer_asks_again_for_all(stage: Stage) -> None:
    """However many ids were given up, at different times, none is asked for more often than once a minute."""
    ids = range(100, 110)
    async with stage.start() as worker:
        stage.write(unknown(ids[0]))
        await worker.consumed(1)  # uses up what events may wait
        for at, number in enumerate(ids[1:], 2):
            stage.write(unknown(number))
            await worker.consumed(at)
            await asyncio.sleep(5)
        stage.client.asked.clear()
        for turn in range(1, 13):
            stage.write(*map(unknown, ids))
            await worker.consumed(10 + 10 * turn)
            await asyncio.sleep(2 * ASK_AGAIN_S / 12)
        assert max(map(stage.client.asked.count, ids)) <= 3


@over(Stage)
async def test_a_registry_that_goes_away_meanwhile_is_not_asked_at_once_again(stage: Stage) -> None:
    """After the allowance is used up, it is still waited for with back-off."""
    async with stage.start() as worker:
        await worker.live()
        stage.write(unknown(99))
        await worker.logged("schema_unknown")
        stage.client.error = RegistryAwayError("status 503")
        await asyncio.sleep(4 * UNKNOWN_S)
        asked = len(stage.client.asked)
        await asyncio.sleep(UNKNOWN_S)
        assert len(stage.client.asked) < asked + 20
        stage.client.error = None
        await worker.consumed(1)
