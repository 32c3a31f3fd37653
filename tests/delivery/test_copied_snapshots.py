"""Snapshots of filters whose cells move: a copy is made beside the loop, and holds up nothing but admissions."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamdedup.filters import build
from streamdedup.filters.base import Addable
from streamdedup.snapshot.copied import Copy
from streamdedup.snapshot.files import load
from streamdedup.snapshot.store import Store
from streamdedup.testing import MemoryBroker, Thread, connected_to
from streamdedup.threads import COPIES_MAX
from tests.deployment import Deployment
from tests.local import Start, on_virtual_clock

LINGERS_S = 5.0
IN_FLIGHT = 2
BATCH = 10
MOVING = ["cuckoo", "dlcbf", "dleft", "exact", "counting"]

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
            _feed(deployment, broker, 90, 500)
            await asyncio.sleep(LINGERS_S / 2)
            (delivery,) = worker.worker.deliveries.values()
            assert delivery.shard is not None
            assert worker.tally.consumed == 100, "admitted while the filter is copied"
            # One transaction is committed and waits; the others are decided, and wait for it.
            assert BATCH < delivery.shard.pending <= (IN_FLIGHT + 1) * BATCH
            await worker.consumed(100 + 410)
            await worker.logged("snapshot_saved")
        assert sorted(key for events in broker.read_all(deployment.sink) for key in _keys(events))
        keys = [key for events in broker.read_all(deployment.sink) for key in _keys(events)]
        assert sorted(keys) == sorted(b"%d" % number for number in range(500))

    on_virtual_clock(scene)


def _keys(events: Sequence[Any]) -> list[bytes]:
    return [event.key for event in events]


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
            saved = worker.lines("snapshot_saved")
        assert len(saved) > 2
        for line, path in zip(saved[-2:], sorted(deployment.snapshots.rglob("*.snapshot"))[-3:]):
            _check(path, broker, deployment, line["label"])

    on_virtual_clock(scene)


def _lingering(self: Copy, buffers: Sequence[memoryview]) -> None:
    Thread.linger(0.4)
    _take(self, buffers)


def _check(path: Path, broker: MemoryBroker, deployment: Deployment, label: int) -> None:
    seen = load(path)
    assert isinstance(seen, Addable)
    held = {
        event.key for event in broker.log(deployment.sink, 0).events() if event.offset < label
    }
    assert len(seen) == len(held)
    assert all(key in seen for key in held)
