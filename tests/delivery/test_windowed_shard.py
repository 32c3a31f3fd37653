"""Claims about a shard whose filter forgets or grows: its verdicts, and that its state is the fold of its output.

The model of a window is exact: the newest generation that holds each key, and the watermark.
"""

import asyncio
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.events import NO_TIMESTAMP, Column, Verdict
from streamdedup.filters.window.window import Window
from streamdedup.keys.extract import Keys
from streamdedup.settings import load
from streamdedup.snapshot import Snapshot, Store
from tests.broker.base import DEADLINE_S
from tests.delivery.deciding import decided, folded
from tests.delivery.test_shard import admit
from tests.snapshot.shelf import IDENTITY

PASS, DUPLICATE, BLOCKED, MALFORMED, REJECTED = Verdict
RETENTION, GENERATIONS, SLOT = 700, 8, 100
CAPACITY = 2000

Moment = tuple[bytes, int]
moments = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"d"]),
        st.integers(-1500, 3000).filter(lambda at: at != NO_TIMESTAMP),
    ),
    max_size=40,
)
cuts = st.lists(st.integers(0, 40), max_size=8)


def window(**options: Any) -> Window:
    """A window over event times with hardly any false positives."""
    jump = {"max_jump": SLOT} | options
    return Window(CAPACITY, 1e-9, retention=RETENTION, generations=GENERATIONS, **jump)


def shard_of(seen: Any, *, stop_when_full: bool = True) -> Shard:
    """A shard over `seen`."""
    return Shard(0, seen, stop_when_full=stop_when_full)


def parts(stream: Sequence[Moment], where: Sequence[int]) -> list[tuple[Keys, Any]]:
    """The stream cut into batches, as extraction gives them: keys and times."""
    bounds = [0, *sorted(min(cut, len(stream)) for cut in where), len(stream)]
    batches = [stream[start:end] for start, end in pairwise(bounds)]
    return [
        (
            Keys(Column.of([key for key, _ in batch]), {}, (), ()),
            np.array([at for _, at in batch], dtype=np.int64),
        )
        for batch in batches
    ]


def column(moment: Moment) -> tuple[Column, Any]:
    """One event as a fold takes it: its key and its time."""
    key, time_ms = moment
    return Column.of([key]), np.array([time_ms], dtype=np.int64)


@dataclass
class Model:
    """What a window must decide, event by event."""

    late: str = "pass"
    max_jump: int = SLOT
    watermark: int | None = None
    held: dict[bytes, int] = field(default_factory=dict)

    def verdict(self, key: bytes, at: int) -> Verdict:
        """Of the next event; what passes in time is remembered."""
        if self.watermark is None:
            self.watermark = at
        reach = max(self.watermark, min(at, self.watermark + self.max_jump))
        if self.held.get(key, -99) > max(self.watermark, at) // SLOT - GENERATIONS:
            return DUPLICATE
        if at // SLOT <= self.watermark // SLOT - GENERATIONS:
            return PASS if self.late == "pass" else BLOCKED
        self.watermark = reach
        self.held[key] = min(at // SLOT, self.watermark // SLOT)
        return PASS


@settings(deadline=None)
@given(
    moments,
    cuts,
    st.sampled_from(["pass", "drop"]),
    st.sampled_from([SLOT, RETENTION, None]),
    st.lists(st.tuples(st.booleans(), st.booleans()), max_size=9),
)
def test_verdicts_are_those_of_the_events_times(
    stream: list[Moment],
    where: list[int],
    late: str,
    jump: int | None,
    commits: list[tuple[bool, bool]],
) -> None:
    """However the stream is cut, and whether batches are committed one by one, together or later on: decided alike."""
    shard, model = shard_of(window(late=late, max_jump=jump)), Model(late, jump or 10**9)
    for row, (keys, times) in enumerate(parts(stream, where)):
        got = decided(shard, keys, times).verdicts.tolist()
        expected = [
            model.verdict(key or b"", at) for key, at in zip(keys.keys, times.tolist(), strict=True)
        ]
        assert got == expected
        assert shard.watermark == model.watermark
        seals, admits = commits[row] if row < len(commits) else (False, False)
        if seals:
            shard.seal()
        if admits:
            admit(shard, row + 1)
    assert not shard.moving


# --- growth ---


def growing(capacity: int = 100) -> Any:
    """A filter that may grow from `capacity` keys on."""
    return filters.build(
        {"kind": "bloom", "capacity": capacity, "error_rate": 1e-9, "on_full": "grow"}
    )


def test_a_shard_says_when_its_filter_needs_memory() -> None:
    """Before a batch that may need a further stage is judged, the shard asks for it; then none is made on the loop."""
    shard = shard_of(growing(100))
    for start in range(0, 280, 40):
        ((keys, times),) = parts([(b"%d" % i, 0) for i in range(start, start + 40)], [])
        if asked := shard.grows_within(40):
            shard.grow()
        before = shard.filter.size_bytes
        assert not shard.grows_within(40)
        assert (decided(shard, keys, times).verdicts == PASS).all()
        admit(shard, start)
        assert shard.filter.size_bytes == before
        assert asked == (start in (80, 280)), start
    assert len(shard.filter) == 280


# --- snapshots of what changes otherwise than by bits ---


class _Waiting:
    """The file system of `os`, whose writes of chunks wait until they may go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        """As `os.write`; after the first, when all may go on."""
        if self.begun.is_set():
            assert self.go_on.wait(DEADLINE_S)
        self.begun.set()
        return os.write(fd, data)


def _snapshots(directory: Path, fs: Any) -> ShardSnapshots:
    config = directory / "config.yaml"
    config.write_text(
        "kafka: {bootstrap_servers: 'localhost:9092', group_id: g}\nsource: {topic: in}\n"
        "key: {from: key}\nfilter: {capacity: 10}\nsink: {topic: out}\n"
        f"snapshot: {{directory: {directory}}}\n"
    )
    snapshots = ShardSnapshots(load(config, environ={}), 0, structlog.get_logger())
    snapshots._store = Store(directory, group="g", topic="out", partition=0, fs=fs)
    return snapshots


async def undoubted(_snapshot: Snapshot) -> None:
    """Any log is the right one."""


async def test_a_copy_that_spans_a_change_is_void(tmp_path: Path) -> None:
    """While the file is written the filter changes with more than bits: it is written anew, and holds one state."""
    seen = growing(1_000_000)
    shard, fs = shard_of(seen, stop_when_full=False), _Waiting()
    for _ in folded(shard, *column((b"old", 0)), 5):
        pass
    snapshots = _snapshots(tmp_path, fs)
    saving = asyncio.create_task(snapshots.save(shard, IDENTITY))
    await asyncio.to_thread(fs.begun.wait)
    layout = seen.layout
    for _ in folded(shard, *column((b"new", 20)), 6):
        pass
    seen._append()
    assert seen.layout > layout
    fs.go_on.set()
    await saving
    loaded = await snapshots.load(IDENTITY, 10, undoubted)
    assert loaded is not None
    assert loaded.label == 6
    assert loaded.filter.header() == seen.header()
    assert all(
        bytes(one) == bytes(other)
        for one, other in zip(loaded.filter.buffers(), seen.buffers(), strict=True)
    )
