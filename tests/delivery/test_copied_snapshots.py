"""Snapshots of filters whose cells move: a copy is made beside the loop, and holds up nothing but admissions."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from streamdedup.snapshot.copied import Copy
from streamdedup.testing import Thread
from streamdedup.threads import COPIES_MAX
from tests import memory
from tests.local import Start
from tests.memory import over

LINGERS_S = 5.0
IN_FLIGHT = 2
BATCH = 10
MOVING = ["cuckoo", "dlcbf", "dleft", "exact", "counting", "window"]

_take = Copy.take


class Stage(memory.Stage):
    """Partitions whose filters, of a kind whose cells move, are saved each second."""

    def __init__(self, directory: Path, start: Start, partitions: int = 1) -> None:
        super().__init__(directory, start, partitions)
        self.config["snapshot"]["interval_s"] = 1.0
        self.config["delivery"] |= {"batch_events_max": BATCH, "max_in_flight": IN_FLIGHT}
        self.hold("cuckoo")

    def hold(self, kind: str) -> None:
        """Have filters of that kind."""
        self.config["filter"] = {"kind": kind, "capacity": 10_000, "error_rate": 1e-6}

    def send(self, start: int, stop: int) -> None:
        """Append an event of each key to each partition of the input."""
        partitions = range(self.deployment.partitions)
        keys = (b"%d" % number for number in range(start, stop))
        self.broker.produce(self.source, [(p, key, b"value") for key in keys for p in partitions])


def _slow(monkeypatch: pytest.MonkeyPatch, began: Callable[[], None] = lambda: None) -> None:
    def take(self: Copy, buffers: Sequence[memoryview]) -> None:
        began()
        Thread.linger(LINGERS_S)
        _take(self, buffers)

    monkeypatch.setattr(Copy, "take", take)


@pytest.mark.parametrize("kind", MOVING)
@over(Stage)
async def test_a_copy_holds_up_only_admissions(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """While it is made, events are judged and committed, until as many transactions wait as may be in flight."""
    stage.hold(kind)
    copying = asyncio.Event()
    _slow(monkeypatch, copying.set)
    stage.send(0, 100)
    async with stage.start() as worker:
        await worker.consumed(100)
        await copying.wait()
        stage.send(100, 500)
        stage.send(90, 100)
        await asyncio.sleep(LINGERS_S / 2)
        (delivery,) = worker.worker.deliveries.values()
        assert delivery.shard is not None
        assert worker.tally.consumed == 100, "admitted while the filter is copied"
        # One transaction is committed and waits to be admitted; the next one is decided, and waits for it.
        assert delivery.shard.pending == IN_FLIGHT * BATCH
        await worker.consumed(100 + 410)
        await worker.logged("snapshot_saved")
    keys = [event.key for event in stage.broker.log(stage.sink, 0).committed()]
    assert sorted(map(str, keys)) == sorted(str(b"%d" % number) for number in range(500))


@over(partial(Stage, partitions=6))
async def test_at_most_two_copies_are_in_memory(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    stage.send(0, 20)
    async with stage.start() as worker:
        await worker.consumed(20 * 6)
        memories = [delivery._memory for delivery in worker.worker.deliveries.values()]
        await asyncio.gather(*(memory.save(again=True) for memory in memories))
    assert max(most) == COPIES_MAX
    assert not alive


@over(Stage)
async def test_without_memory_for_a_copy_the_save_is_put_off(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, as a warning once that is so again and again; events flow, and a later save succeeds."""
    make, fails = Copy.__init__, [True] * 4

    def made(self: Copy, sizes: Sequence[int]) -> None:
        if fails:
            fails.pop()
            raise MemoryError(f"{sum(sizes)} bytes")
        make(self, sizes)

    monkeypatch.setattr(Copy, "__init__", made)
    stage.send(0, 20)
    async with stage.start() as worker:
        await worker.logged("snapshot_saved")
    lines = worker.lines("snapshot_postponed")
    assert [line["log_level"] for line in lines] == ["info", "info", "warning", "warning"]
    assert all("there is no memory" in line["reason"] for line in lines)


@pytest.mark.parametrize("sizes", [[], [0], [1], [5000, 0, 3 << 20]])
def test_a_copy_is_what_it_was_made_of(sizes: list[int]) -> None:
    """Whatever is done to the buffers later. What was given back is lost; without memory, a save has to wait."""
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
    with pytest.raises(MemoryError, match="bytes for a copy"):
        Copy([1 << 60])
