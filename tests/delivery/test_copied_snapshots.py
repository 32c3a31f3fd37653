"""Snapshots of filters whose cells move: a copy is made beside the loop, and holds up nothing but admissions."""

import asyncio
import io
from collections.abc import Callable, Sequence, Sized
from pathlib import Path

import numpy as np
import pytest

from streamdedup.snapshot.copied import Copy
from streamdedup.snapshot.files import load
from streamdedup.snapshot.read import CopyingReader
from streamdedup.testing import MemoryBroker, Thread, connected_to
from streamdedup.threads import COPIES_MAX
from tests.deployment import Deployment
from tests.local import Start, on_virtual_clock

LINGERS_S = 5.0
IN_FLIGHT = 2
BATCH = 10
MOVING = ["cuckoo", "dlcbf", "dleft", "exact", "counting", "window"]

_take = Copy.take


def _deployment(directory: Path, partitions: int, kind: str) -> tuple[Deployment, MemoryBroker]:
    deployment = Deployment("memory:1", directory, partitions=partitions)
    deployment.config["filter"] = {"kind": kind, "capacity": 10_000, "error_rate": 1e-6}
    deployment.config["snapshot"]["interval_s"] = 1.0
    deployment.config["delivery"] |= {"batch_events_max": BATCH, "max_in_flight": IN_FLIGHT}
    broker = MemoryBroker()
    broker.create_topic(deployment.source, partitions)
    broker.create_topic(deployment.sink, partitions)
    return deployment, broker


def _feed(deployment: Deployment, broker: MemoryBroker, start: int, stop: int) -> None:
    partitions = range(deployment.partitions)
    for number in range(start, stop):
        broker.produce(deployment.source, [(p, b"%d" % number, b"value") for p in partitions])


def _slow(monkeypatch: pytest.MonkeyPatch, began: Callable[[], None] = lambda: None) -> None:
    def take(self: Copy, buffers: Sequence[memoryview]) -> None:
        began()
        Thread.linger(LINGERS_S)
        _take(self, buffers)

    monkeypatch.setattr(Copy, "take", take)


@pytest.mark.parametrize("kind", MOVING)
def test_a_copy_holds_up_only_admissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """While it is made, events are judged and committed, until as many transactions wait as may be in flight."""

    async def scene(start: Start) -> None:
        deployment, broker = _deployment(tmp_path, 1, kind)
        copying = asyncio.Event()
        _slow(monkeypatch, copying.set)
        _feed(deployment, broker, 0, 100)
        async with start(deployment, connect=connected_to(broker)) as worker:
            await worker.consumed(100)
            await copying.wait()
            _feed(deployment, broker, 100, 500)
            _feed(deployment, broker, 90, 100)
            await asyncio.sleep(LINGERS_S / 2)
            (delivery,) = worker.worker.deliveries.values()
            assert delivery.shard is not None
            assert worker.tally.consumed == 100, "admitted while the filter is copied"
            # One transaction is committed and waits to be admitted; the next one is decided, and waits for it.
            assert delivery.shard.pending == IN_FLIGHT * BATCH
            await worker.consumed(100 + 410)
            await worker.logged("snapshot_saved")
        keys = [event.key for event in broker.log(deployment.sink, 0).committed()]
        assert sorted(map(str, keys)) == sorted(str(b"%d" % number) for number in range(500))

    on_virtual_clock(scene)


@pytest.mark.parametrize("kind", MOVING)
def test_a_snapshot_holds_what_lies_below_its_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All of that, and nothing else, although events flow all the time."""

    async def scene(start: Start) -> None:
        deployment, broker = _deployment(tmp_path, 1, kind)
        monkeypatch.setattr(Copy, "take", _lingering)
        async with start(deployment, connect=connected_to(broker)) as worker:
            for first in range(0, 3_000, 50):
                _feed(deployment, broker, first, first + 50)
                await asyncio.sleep(0.1)
            await worker.consumed(3_000)
        snapshots = sorted(deployment.snapshots.rglob("*.snapshot"))
        assert len(snapshots) == 3
        for path in snapshots:
            _check(path, broker, deployment)

    on_virtual_clock(scene)


def _lingering(self: Copy, buffers: Sequence[memoryview]) -> None:
    Thread.linger(0.4)
    _take(self, buffers)


def _check(path: Path, broker: MemoryBroker, deployment: Deployment) -> None:
    """The snapshot holds the keys of the output below its label, and no others."""
    data = path.read_bytes()
    log = CopyingReader(next_bytes(data), len(data)).header.log
    assert log is not None
    seen = load(path)
    output = broker.log(deployment.sink, 0).committed()
    held = {event.key for event in output if event.offset < log.label}
    assert isinstance(seen, Sized) and len(seen) == len(held) > 0
    assert all(key is not None and key in seen for key in held)


def next_bytes(data: bytes) -> Callable[[memoryview], None]:
    """Return a function that fills a view with the next bytes of `data`."""
    stream = io.BytesIO(data)

    def read_into(view: memoryview) -> None:
        assert stream.readinto(view) == len(view)

    return read_into


def test_at_most_two_copies_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many partitions are saved at once, and however long the disk takes."""
    alive, most = set[int](), list[int]()
    make, give_back = Copy.__init__, Copy.give_back

    def made(self: Copy, sizes: Sequence[int]) -> None:
        alive.add(id(self))
        most.append(len(alive))
        Thread.linger(0.5)
        make(self, sizes)

    def given_back(self: Copy) -> None:
        Thread.linger(0.5)
        alive.remove(id(self))
        give_back(self)

    monkeypatch.setattr(Copy, "__init__", made)
    monkeypatch.setattr(Copy, "give_back", given_back)

    async def scene(start: Start) -> None:
        deployment, broker = _deployment(tmp_path, 6, "cuckoo")
        _feed(deployment, broker, 0, 20)
        async with start(deployment, connect=connected_to(broker)) as worker:
            await worker.consumed(20 * 6)
            memories = [delivery._memory for delivery in worker.worker.deliveries.values()]
            await asyncio.gather(*(memory.save(again=True) for memory in memories))

    on_virtual_clock(scene)
    assert max(most) == COPIES_MAX
    assert not alive


def test_without_memory_for_a_copy_the_save_is_put_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, as a warning once that is so again and again; events flow, and a later save succeeds."""
    make, fails = Copy.__init__, [True] * 4

    def made(self: Copy, sizes: Sequence[int]) -> None:
        if fails:
            fails.pop()
            raise MemoryError(f"{sum(sizes)} bytes")
        make(self, sizes)

    monkeypatch.setattr(Copy, "__init__", made)

    async def scene(start: Start) -> None:
        deployment, broker = _deployment(tmp_path, 1, "cuckoo")
        _feed(deployment, broker, 0, 20)
        async with start(deployment, connect=connected_to(broker)) as worker:
            await worker.logged("snapshot_saved")
        lines = worker.lines("snapshot_postponed")
        assert [line["log_level"] for line in lines] == ["info", "info", "warning", "warning"]
        assert all("there is no memory" in line["reason"] for line in lines)

    on_virtual_clock(scene)


@pytest.mark.parametrize("sizes", [[], [0], [1], [5000, 0, 3 << 20]])
def test_a_copy_is_what_it_was_made_of(sizes: list[int]) -> None:
    """Whatever is done to the buffers later. What was given back is lost."""
    random = np.random.default_rng(7)
    buffers = [random.integers(0, 256, size, dtype=np.uint8) for size in sizes]
    copy = Copy(sizes)
    copy.take([buffer.data for buffer in buffers])
    expected = [buffer.tobytes() for buffer in buffers]
    for buffer in buffers:
        buffer[:] = 0
    assert [bytes(view) for view in copy.buffers] == expected
    copy.give_back()
    assert not copy.buffers


def test_a_copy_that_cannot_be_had_is_a_memory_error() -> None:
    """That is what a save waits for."""
    with pytest.raises(MemoryError, match="bytes for a copy"):
        Copy([1 << 60])
