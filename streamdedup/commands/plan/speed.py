"""How fast each kind is on this machine, in about a tenth of a second a kind, and how long a copy of a table takes.

Additions go into a nearly empty table of the planned size, up to TABLE_BYTES_MAX, so that they meet the memory as the
filter will; what they take longer as a table fills is measured on a small one. Time is that of this thread, in parts of
which the best is taken: other work on the machine only ever adds.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from streamdedup.commands.plan.sizes import ENTRIES, size_of
from streamdedup.filters import build, kind_of
from streamdedup.filters.memory import touch_pages
from streamdedup.keys.hashing import Digests, Hash

TABLE_BYTES_MAX = 64 << 20
ROWS = 1 << 16  # of a measurement: some milliseconds
PARTS_OF_ROWS = 8
ROUNDS = 2
COPIED_BYTES = 64 << 20  # beyond what an allocator keeps: a table's pages, too, are new


@dataclass(frozen=True)
class Speed:
    """Nanoseconds a key of a batch: added, as a mean from empty to capacity, and looked up, where it is there."""

    add_ns: float
    contains_ns: float


def measured(kind: str, capacity: int, error_rate: float) -> Speed:
    """The speed of a filter of `kind` for `capacity` keys. A static kind is built of few keys, and `add` is that."""
    if "static" in ENTRIES[kind].abilities:
        return _of_list(kind, error_rate)
    small = min(ROWS, _fitting(kind, capacity, error_rate))
    large = max(small, _fitting(kind, capacity, error_rate))
    _filled(kind, small, error_rate, _digests()[:1])  # compiled here, rather than timed
    filling = np.minimum.reduce([_filling(kind, small, error_rate) for _ in range(ROUNDS)])
    slower_ns = max(0.0, float(filling.mean() - filling[: PARTS_OF_ROWS // 4].min()))
    add, contains = _filled(kind, large, error_rate, _digests()[:large])
    return Speed(min(add) + slower_ns, min(contains))


@cache
def copy_s_a_byte() -> float:
    """Seconds that a copy of a byte takes into new memory: what a worker stands still for, to save most kinds."""
    table = np.ones(COPIED_BYTES, dtype=np.uint8).data
    return min(_seconds(bytearray, table) for _ in range(ROUNDS)) / COPIED_BYTES


@cache
def _digests() -> Digests:
    return np.random.default_rng(0).integers(0, 1 << 64, (4 * ROWS, 2), dtype=np.uint64)


def _fitting(kind: str, capacity: int, error_rate: float) -> int:
    """The keys of a table to measure with: `capacity`, but not few, and no more than TABLE_BYTES_MAX take."""
    most = capacity * TABLE_BYTES_MAX / size_of(kind, capacity, error_rate).size_bytes
    return max(1, int(min(max(capacity, ROWS), most)))


def _filling(
    kind: str, capacity: int, error_rate: float
) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Nanoseconds an addition of each part of what fills a table of `capacity`."""
    return np.array(_filled(kind, capacity, error_rate, _digests()[:capacity])[0])


def _filled(
    kind: str, capacity: int, error_rate: float, digests: Digests
) -> tuple[list[float], list[float]]:
    """Nanoseconds an addition, then a look-up, of each part of `digests`, in a table for `capacity` keys."""
    options = size_of(kind, capacity, error_rate).options
    filter_ = build({"kind": kind, "capacity": capacity, "error_rate": error_rate, **options})
    for table in filter_.buffers():
        touch_pages(table)
    feed = ENTRIES[kind].feed
    return (
        [_ns(partial(feed, filter_), part) for part in _parts(digests)],
        [_ns(filter_.contains_many, part) for part in _parts(digests)],
    )


def _of_list(kind: str, error_rate: float) -> Speed:
    digests, hash_, made = _digests(), Hash(), list[Any]()

    def make(rows: Digests) -> None:
        made.append(kind_of(kind).from_digests(rows, error_rate, hash_))

    make(digests[:1])
    made[0].contains_many(digests[:1])
    add_ns = _ns(make, digests)
    return Speed(add_ns, min(_ns(made[1].contains_many, part) for part in _parts(digests)))


def _parts(digests: Digests) -> Iterator[Digests]:
    return iter(np.array_split(digests, min(PARTS_OF_ROWS, len(digests))))


def _ns(call: Callable[[Digests], object], rows: Digests) -> float:
    return _seconds(call, rows) * 1e9 / len(rows)


def _seconds(call: Callable[..., object], *given: object) -> float:
    started = time.thread_time()
    call(*given)
    return time.thread_time() - started
