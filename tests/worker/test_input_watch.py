"""Claims about an open transaction on the input: one line, when it has lasted, and again only at another offset."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from streamdedup.events import Fingerprint
from streamdedup.metrics.counts import Meters
from streamdedup.server.findings import active
from streamdedup.server.pulse import Pulse
from streamdedup.server.status import Phase, Status
from streamdedup.worker.input_watch import TURN_S, InputWatch
from tests.worker.beside import lines_beside

AFTER_S = 60
FIRST = Fingerprint(offset=5, producer_id=7, epoch=1, crc=0, stamped_ms=0)


class Input:
    """Partition 0, as a member reads it, and who wrote its batches."""

    def __init__(self) -> None:
        self.held: int | None = None
        self.first: Fingerprint | Exception | None = FIRST
        self.partitions = {0: True}  # whether it is read
        self.status = Status("events", {}, Meters())
        this: Any = self
        self.watch = InputWatch(this, this, self.status, AFTER_S, lambda: self.partitions)

    def held_at(self, partition: int) -> int | None:
        """As a source."""
        assert partition == 0
        return self.held

    async def batch_at(self, topic: str, partition: int, offset: int) -> Fingerprint | None:
        """As a cluster."""
        assert (topic, partition, offset) == ("events", 0, self.held)
        if isinstance(self.first, Exception):
            raise self.first
        return self.first


def watched(scene: Callable[[Input], Coroutine[Any, Any, None]]) -> list[Any]:
    """Run `scene` beside the watch, on a virtual clock; the lines."""
    return lines_beside(Input, scene)


def said(of: Input) -> str:
    """What the page of the worker warns of."""
    source: Any = SimpleNamespace(epoch=-1, assigned=frozenset({0}), refused_since=None)
    of.status.phase, of.status.source = Phase.SERVING, source
    return "\n".join(found.text for found in active(of.status, Pulse()).others)


@pytest.mark.finding("input-transaction-open")
def test_one_that_lasts_is_said_once_and_its_end_too() -> None:
    """With partition, offset and producer, and what to do; it stays in the status for as long as it lasts."""

    async def scene(of: Input) -> None:
        of.held = 5
        await asyncio.sleep(AFTER_S - 2 * TURN_S)
        assert of.status.held == {}
        await asyncio.sleep(AFTER_S)
        assert of.status.held[0].offset == 5
        assert "producer id 7" in of.status.held[0].whose
        assert "a transaction of producer id 7" in said(of)
        of.held = None
        await asyncio.sleep(2 * TURN_S)
        assert of.status.held == {}

    opened, ended = watched(scene)
    assert (opened["event"], opened["log_level"]) == ("input_transaction_open", "warning")
    assert (opened["partition"], opened["offset"], opened["producer_id"]) == (0, 5, 7)
    assert "abort --topic events --partition 0 --start-offset 5" in opened["remedy"]
    assert (ended["event"], ended["log_level"]) == ("input_transaction_ended", "info")


def test_a_producer_of_many_transactions_is_not_said() -> None:
    """Each keeps the partition for a moment, and the next is another one."""

    async def scene(of: Input) -> None:
        for offset in range(3 * AFTER_S):
            of.held = offset
            await asyncio.sleep(TURN_S)

    assert watched(scene) == []


def test_a_shard_that_does_not_read_is_not_held() -> None:
    """What its last fetch showed is old by then."""

    async def scene(of: Input) -> None:
        of.held, of.partitions[0] = 5, False
        await asyncio.sleep(3 * AFTER_S)

    assert watched(scene) == []


def test_a_doubt_in_between_is_no_end() -> None:
    """The shard fences, and comes to stand at the same offset: it was said already."""

    async def scene(of: Input) -> None:
        of.held = 5
        await asyncio.sleep(2 * AFTER_S)
        of.partitions[0], of.held = False, None
        await asyncio.sleep(10)
        of.partitions[0], of.held = True, 5
        await asyncio.sleep(2 * AFTER_S)
        of.partitions.clear()  # it went to another member
        await asyncio.sleep(10)
        assert of.status.held == {}

    (opened,) = watched(scene)
    assert opened["event"] == "input_transaction_open"


def test_a_broker_that_does_not_say_whose_it_is_hides_nothing() -> None:
    """The line comes without the producer."""

    async def scene(of: Input) -> None:
        of.held, of.first = 5, ConnectionError()
        await asyncio.sleep(2 * AFTER_S)
        assert of.status.held[0].whose == ""

    (opened,) = watched(scene)
    assert (opened["offset"], opened["producer_id"]) == (5, None)
