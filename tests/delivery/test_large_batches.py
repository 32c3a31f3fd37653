"""Large record batches: so many are in memory at a time, over all partitions, and a permit is always given back.

The broker in memory has no record batches. So a source stands in for them: so many consecutive offsets are one.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import RequestTimedOutError
from typing_extensions import override

from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch
from streamdedup.kafka import large as large_module
from streamdedup.kafka.base import Source
from streamdedup.kafka.large import LargeBatches
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.testing.writer import MemoryWriter
from tests import memory
from tests.deployment import keyed
from tests.local import Start
from tests.memory import over

PARTITIONS = 6
EVENTS = 5  # of a large record batch
BATCHES = 8  # of each partition
ALL = PARTITIONS * BATCHES * EVENTS
DECODE_S = 0.5


class Stage(memory.Stage):
    """Workers over an input whose first `large` record batches are large; `live` are those that are decoded."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start, PARTITIONS)
        self.large = BATCHES
        self.are_empty = False  # the large ones: as if compaction had removed their events
        self.live: set[Whole] = set()
        self.decoded = self.most_live = 0
        self.given_back_early = 0  # without the commit of all events
        self._pending: dict[tuple[Source, int, int], Whole] = {}
        self._read = Source.read

    def permit(
        self, monkeypatch: pytest.MonkeyPatch, most: int = 1, batches: int = BATCHES
    ) -> None:
        """Fill the input with so many batches, of which a worker may have `most` in memory."""

        async def reading(source: Source, *given: Any) -> EventBatch | PendingDecode | None:
            return await self._reading(source, *given)

        monkeypatch.setattr(LargeBatches.__init__, "__defaults__", (most,))
        monkeypatch.setattr(Source, "read", reading)
        self.feed(range(PARTITIONS * batches * EVENTS))

    def committed_in(self, partition: int) -> int:
        """The group's offset."""
        return self.broker.committed(self.deployment.group, self.source).get(partition, 0)

    @property
    def is_done(self) -> bool:
        """Whether all of the input is committed."""
        return all(self.committed_in(p) == BATCHES * EVENTS for p in range(PARTITIONS))

    def check_output(self) -> None:
        """Each event is there once, and nothing is in memory."""
        assert Counter(event.key for event in self.output) == Counter(
            key for _, key, *_ in keyed(range(ALL), PARTITIONS)
        )
        assert not self.live

    async def _reading(
        self, source: Source, partition: int, *given: Any
    ) -> EventBatch | PendingDecode | None:
        position = source.position(partition)
        number = position // EVENTS
        whole = self._pending.setdefault(
            (source, partition, number), Whole(self, partition, number)
        )
        if number >= self.large:
            return await self._read(source, partition, *given)
        if whole not in self.live:
            await asyncio.sleep(0)
            return whole
        if self.are_empty:
            source.go_to(partition, whole.last_offset + 1)
            return None
        batch = await self._read(source, partition, *given)
        if not isinstance(batch, EventBatch) or batch.next_offset <= whole.last_offset + 1:
            return batch
        source.go_to(partition, whole.last_offset + 1)
        return batch.head(whole.last_offset + 1 - position)


class Whole(PendingDecode):
    """A large record batch that takes some time to decode."""

    def __init__(self, stage: Stage, partition: int, number: int) -> None:
        self._stage, self._partition, self._number = stage, partition, number

    @property
    @override
    def last_offset(self) -> int:
        return (self._number + 1) * EVENTS - 1

    @override
    async def done(self) -> None:
        stage = self._stage
        stage.live.add(self)
        stage.decoded += 1
        stage.most_live = max(stage.most_live, len(stage.live))
        await asyncio.sleep(DECODE_S)

    @override
    def drop(self, then: Callable[[], None]) -> None:
        self._stage.given_back_early += (
            self._stage.committed_in(self._partition) <= self.last_offset
        )
        self._stage.live.discard(self)
        then()


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("most", [1, 2])
@over(Stage)
async def test_so_many_large_batches_are_in_memory_until_they_are_committed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, most: int, guarantee: str
) -> None:
    """However many partitions have nothing else; all pass once, and nobody waits for ever."""
    stage.deployment.config["delivery"]["guarantee"] = guarantee
    stage.permit(monkeypatch, most)
    async with stage.start() as worker:
        await worker.until(lambda: stage.is_done, "committed end")
    assert not worker.lines("doubt")
    assert stage.most_live == most
    assert stage.given_back_early == 0
    stage.check_output()


@over(Stage)
async def test_a_shard_that_waits_for_a_permit_says_so(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With for how long; once it goes on, it does not."""
    stage.permit(monkeypatch)
    async with stage.start() as worker:
        await worker.until(lambda: stage.live, "large batch")
        await asyncio.sleep(DECODE_S / 5)
        told = [d.memory_waits() for d in worker.worker.deliveries.values()]
        assert sum(one is not None for one in told) == PARTITIONS - 1
        assert {one for one in told if one} == {
            "waits until fewer large record batches are in memory, for 0 s now"
        }
        assert not any(d.memory_waits(60) for d in worker.worker.deliveries.values())
        await worker.until(lambda: stage.is_done, "committed end")
        assert not any(d.memory_waits() for d in worker.worker.deliveries.values())


@over(Stage)
async def test_a_doubt_gives_the_permit_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shard goes on after it, and so do the others meanwhile."""
    settle, failing = MemoryWriter.settle, Counter[int]()

    async def failing_at_first(writer: MemoryWriter, expected: int | None) -> int | None:
        failing[writer._partition] += 1
        if failing[writer._partition] % 3 == 1:
            raise RequestTimedOutError
        return await settle(writer, expected)

    monkeypatch.setattr(MemoryWriter, "settle", failing_at_first)
    stage.permit(monkeypatch)
    async with stage.start() as worker:
        await worker.until(lambda: stage.is_done, "committed end")
    assert len(worker.lines("doubt")) >= PARTITIONS
    assert stage.given_back_early >= PARTITIONS
    assert stage.most_live == 1
    stage.check_output()


@pytest.mark.finding("partition-stopped")
@over(Stage)
async def test_a_stopped_shard_gives_its_permit_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on for as long as it is stopped."""
    settle = MemoryWriter.settle

    async def refused(writer: MemoryWriter, expected: int | None) -> int | None:
        if writer._partition == 0:
            raise DeliveryError("an operator must look at it")
        return await settle(writer, expected)

    monkeypatch.setattr(MemoryWriter, "settle", refused)
    stage.permit(monkeypatch)
    async with stage.start() as worker:
        await worker.logged("shard_stopped")
        await worker.until(
            lambda: all(stage.committed_in(p) == BATCHES * EVENTS for p in range(1, PARTITIONS)),
            "committed end of the others",
        )
        assert not stage.live
    assert stage.committed_in(0) == 0


@over(Stage)
async def test_a_shard_that_leaves_gives_its_permit_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every rebalance, while others wait for it: whoever leaves holds nobody up."""
    stage.permit(monkeypatch)
    async with stage.start() as first:
        await first.until(lambda: stage.live, "large batch")
        for _ in range(2):
            async with stage.start() as second:
                await second.logged("assigned")
                await asyncio.sleep(3 * DECODE_S)
        await first.until(lambda: stage.is_done, "committed end")
    assert not first.lines("transactions_abandoned")
    assert not second.lines("transactions_abandoned")
    assert stage.most_live <= 2  # each worker has one
    stage.check_output()


@over(Stage)
async def test_a_transaction_after_a_large_batch_is_filled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what arrives within its interval, though the large batch before it keeps its permit."""
    settle, may_settle, transactions = MemoryWriter.settle, asyncio.Event(), Counter[int]()

    async def settling(writer: MemoryWriter, expected: int | None) -> int | None:
        transactions[writer._partition] += 1
        if transactions[writer._partition] > 1:  # the first has the start alone
            await may_settle.wait()
        return await settle(writer, expected)

    monkeypatch.setattr(MemoryWriter, "settle", settling)
    stage.config["delivery"] |= {"commit_interval_ms": 2_000, "max_in_flight": 4}
    stage.large = 1
    stage.permit(monkeypatch, PARTITIONS, batches=1)
    async with stage.start() as worker:
        await worker.until(lambda: set(transactions.values()) == {2}, "large batches")
        for _ in range(EVENTS):
            stage.feed(range(PARTITIONS))
            await asyncio.sleep(0.2)
        assert len(stage.live) == PARTITIONS
        may_settle.set()
        await worker.until(
            lambda: all(stage.committed_in(p) == 2 * EVENTS for p in range(PARTITIONS)),
            "committed end",
        )
    assert set(transactions.values()) == {3}


@over(Stage)
async def test_a_large_batch_without_events_gives_its_permit_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, before its position is committed: others wait for it."""
    stage.large, stage.are_empty = 1, True
    stage.permit(monkeypatch, batches=1)
    async with stage.start() as worker:
        await worker.until(lambda: stage.live, "large batch")
        begun_at = asyncio.get_running_loop().time()
        await worker.until(lambda: stage.decoded == PARTITIONS, "all of them")
        assert asyncio.get_running_loop().time() - begun_at < 2 * PARTITIONS * DECODE_S
        await worker.until(lambda: not stage.live, "permits")


def test_the_documented_number_holds() -> None:
    """So many there are by default."""
    assert large_module.LARGE_MAX == 2
