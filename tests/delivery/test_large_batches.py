"""Large record batches: so many are in memory at a time, over all partitions, and a place is always given back.

The broker in memory has no record batches. So a source stands in for them: so many consecutive offsets are one.
"""

import asyncio
import gc
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import RequestTimedOutError
from typing_extensions import override

from streamdedup.delivery.lifecycle import _release
from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch
from streamdedup.kafka import large as large_module
from streamdedup.kafka.large import LargeBatches
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.source import MemorySource
from streamdedup.testing.writer import MemoryWriter
from tests.deployment import Deployment, keyed
from tests.local import LocalWorker, Start, on_virtual_clock

PARTITIONS = 6
EVENTS = 5  # of a large record batch
BATCHES = 8  # of each partition
ALL = PARTITIONS * BATCHES * EVENTS
DECODE_S = 0.5


class Stage:
    """Workers over an input that has large record batches only; `live` are those that are decoded."""

    def __init__(
        self, directory: Path, start: Start, monkeypatch: pytest.MonkeyPatch, most: int
    ) -> None:
        monkeypatch.setattr(LargeBatches.__init__, "__defaults__", (most,))
        self.deployment = Deployment("memory:1", directory, partitions=PARTITIONS)
        self.broker = MemoryBroker()
        for name in (self.deployment.source, self.deployment.sink):
            self.broker.create_topic(name, PARTITIONS)
        self._start = start
        self.live: set[Whole] = set()
        self.most_live = 0
        self.given_back_early = 0  # without the commit of all events
        self._pending: dict[tuple[MemorySource, int, int], Whole] = {}
        self._read = MemorySource.read

        async def reading(source: MemorySource, *given: Any) -> EventBatch | PendingDecode | None:
            return await self._reading(source, *given)

        monkeypatch.setattr(MemorySource, "read", reading)

    def start(self) -> LocalWorker:
        """Start a worker."""
        return self._start(self.deployment, connect=connected_to(self.broker))

    def feed(self) -> None:
        """Append different events to all partitions."""
        events = [(p, key, value) for p, key, value, *_ in keyed(range(ALL), PARTITIONS)]
        self.broker.produce(self.deployment.source, events)

    def committed(self, partition: int) -> int:
        """The group's offset."""
        group = self.deployment.config["kafka"]["group_id"]
        return self.broker.committed(group, self.deployment.source).get(partition) or 0

    @property
    def is_done(self) -> bool:
        """Whether all of the input is committed."""
        return all(self.committed(p) == BATCHES * EVENTS for p in range(PARTITIONS))

    def check_output(self) -> None:
        """Each event is there once, and nothing is in memory."""
        logs = self.broker.read_all(self.deployment.sink)
        assert Counter(e.key for one in logs for e in one) == Counter(
            key for _, key, *_ in keyed(range(ALL), PARTITIONS)
        )
        assert not self.live

    async def _reading(
        self, source: MemorySource, partition: int, *given: Any
    ) -> EventBatch | PendingDecode | None:
        position = source.position(partition)
        number = position // EVENTS
        whole = self._pending.setdefault(
            (source, partition, number), Whole(self, partition, number)
        )
        if number < BATCHES and whole not in self.live:
            await asyncio.sleep(0)
            return whole
        batch = await self._read(source, partition, *given)
        if batch is None or batch.next_offset <= whole.last_offset + 1:
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
        stage.most_live = max(stage.most_live, len(stage.live))
        await asyncio.sleep(DECODE_S)

    @override
    def drop(self, then: Callable[[], None]) -> None:
        self._stage.given_back_early += self._stage.committed(self._partition) <= self.last_offset
        self._stage.live.discard(self)
        then()


Play = Callable[[Callable[[Stage], Coroutine[Any, Any, None]], int], None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run a scene with so many places, on a virtual clock."""

    def playing(scene: Callable[[Stage], Coroutine[Any, Any, None]], most: int) -> None:
        on_virtual_clock(lambda start: scene(Stage(tmp_path, start, monkeypatch, most)))

    return playing


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("most", [1, 2])
def test_so_many_large_batches_are_in_memory_until_they_are_committed(
    play: Play, most: int, guarantee: str
) -> None:
    """However many partitions have nothing else; all pass once, and nobody waits for ever."""

    async def scene(stage: Stage) -> None:
        stage.deployment.config["delivery"]["guarantee"] = guarantee
        stage.feed()
        async with stage.start() as worker:
            await worker.until(lambda: stage.is_done, "committed end")
        assert not worker.lines("doubt")
        assert stage.most_live == most
        assert stage.given_back_early == 0
        stage.check_output()

    play(scene, most)


def test_a_shard_that_waits_for_a_place_says_so(play: Play) -> None:
    """With for how long; once it goes on, it does not."""

    async def scene(stage: Stage) -> None:
        stage.feed()
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

    play(scene, 1)


def test_a_doubt_gives_the_place_back(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shard goes on after it, and so do the others meanwhile."""
    settle, failing = MemoryWriter.settle, Counter[int]()

    async def failing_at_first(writer: MemoryWriter, expected: int | None) -> int | None:
        failing[writer._partition] += 1
        if failing[writer._partition] % 3 == 1:
            raise RequestTimedOutError
        return await settle(writer, expected)

    monkeypatch.setattr(MemoryWriter, "settle", failing_at_first)

    async def scene(stage: Stage) -> None:
        stage.feed()
        async with stage.start() as worker:
            await worker.until(lambda: stage.is_done, "committed end")
        assert len(worker.lines("doubt")) >= PARTITIONS
        assert stage.given_back_early >= PARTITIONS
        assert stage.most_live == 1
        stage.check_output()

    play(scene, 1)


def test_a_stopped_shard_gives_its_place_back(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on for as long as it is stopped."""
    settle = MemoryWriter.settle

    async def refused(writer: MemoryWriter, expected: int | None) -> int | None:
        if writer._partition == 0:
            raise DeliveryError("an operator must look at it")
        return await settle(writer, expected)

    monkeypatch.setattr(MemoryWriter, "settle", refused)

    async def scene(stage: Stage) -> None:
        stage.feed()
        async with stage.start() as worker:
            await worker.logged("shard_stopped")
            await worker.until(
                lambda: all(stage.committed(p) == BATCHES * EVENTS for p in range(1, PARTITIONS)),
                "committed end of the others",
            )
            assert not stage.live
        assert stage.committed(0) == 0

    play(scene, 1)


def test_a_shard_that_leaves_gives_its_place_back(play: Play) -> None:
    """With every rebalance, while others wait for it: whoever leaves holds nobody up."""

    async def scene(stage: Stage) -> None:
        stage.feed()
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

    play(scene, 1)


def test_a_worker_that_drains_waits_for_no_place(play: Play) -> None:
    """Shards that wait for one end at once."""

    async def scene(stage: Stage) -> None:
        stage.feed()
        async with stage.start() as worker:
            await worker.until(lambda: stage.live, "large batch")
            begun_at = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - begun_at < 5 * DECODE_S
        assert not stage.live
        async with stage.start() as worker:
            await worker.until(lambda: stage.is_done, "committed end")
        stage.check_output()

    play(scene, 1)


class Slow(PendingDecode):
    """A record batch whose decoding ends when it is told to, in a thread that nobody can end earlier."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._pieces = None
        self.ends = asyncio.Event()

    @override
    async def done(self) -> None:
        self._task = asyncio.ensure_future(self.ends.wait())
        await asyncio.wait([self._task])


async def test_a_place_is_held_until_the_thread_that_decodes_has_ended() -> None:
    """A cancellation does not end it."""
    places, slow, next_one = LargeBatches(1), Slow(), Slow()
    next_one.ends.set()

    async def hold(large: PendingDecode) -> None:
        async with places.decoded("a", large) as is_decoded:
            assert is_decoded

    task = asyncio.create_task(hold(slow))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    waiting = asyncio.create_task(hold(next_one))
    await asyncio.wait([waiting], timeout=0.05)
    assert not waiting.done()
    slow.ends.set()
    await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancelled_wait_takes_no_place(turns: int) -> None:
    """At whatever moment it is cancelled, and if another gives its place back at that moment."""
    places, unless, done = LargeBatches(1), asyncio.Event(), Slow()
    done.ends.set()
    first = await places._place("first", None)
    assert first
    waits = [asyncio.create_task(places._place(name, unless)) for name in "abc"]
    await asyncio.sleep(0.01)
    places._free.release()
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in waits:
        task.cancel()
    results = await asyncio.gather(*waits, return_exceptions=True)
    for taken in results:
        if taken is True:
            places._free.release()
    await asyncio.wait_for(places._place("last", unless), 5)
    assert places._free.locked()
    unless.set()
    assert not await places._place("late", unless)
    assert not places._waiting


class Held:
    """An object that can be watched."""


def test_an_error_that_is_kept_keeps_no_events() -> None:
    """A stopped shard has its error, which would have the events of the calls that it ended."""
    watched: list[weakref.ref[Held]] = []

    def inner() -> None:
        held = Held()
        watched.append(weakref.ref(held))
        raise ValueError

    def outer() -> None:
        held = Held()
        watched.append(weakref.ref(held))
        try:
            inner()
        except ValueError as error:
            raise KeyError from error

    try:
        outer()
    except KeyError as error:
        kept = error
    gc.collect()
    assert all(one() is not None for one in watched)
    _release(kept)
    assert all(one() is None for one in watched)
    assert traceback.format_exception(kept)


def test_the_documented_number_holds() -> None:
    """So many there are by default."""
    assert large_module.LARGE_MAX == 2
