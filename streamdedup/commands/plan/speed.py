"""How fast each kind is on this machine, in about 0.1 s for each kind, and how long a copy of a table takes.

Additions go into a nearly empty table of the planned size, up to TABLE_BYTES_MAX, so that memory is accessed as in the
real filter. How much slower they become as a table fills is measured on a small one. Time is that of this thread, in
parts, of which the best is taken, because other work on the machine can only add time.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from streamdedup.commands.plan.sizes import size_of
from streamdedup.filters import STATIC, build, kind_of
from streamdedup.filters.memory import touch_pages
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.snapshot.copied import Copy

TABLE_BYTES_MAX = 64 << 20
ROWS = 1 << 16  # keys in one measurement, which takes some milliseconds
PARTS_OF_ROWS = 8
ROUNDS = 2
# More than an allocator keeps for reuse. So the copy's pages are new, like those of the copy of a table.
COPIED_BYTES = 64 << 20


@dataclass(frozen=True)
class Speed:
    """Nanoseconds for a key in a batch: to add it, as a mean from empty to capacity; to look up one that is present."""

    add_ns: float
    contains_ns: float


def measured(kind: str, capacity: int, error_rate: float) -> Speed:
    """Measure a filter of `kind` for `capacity` keys. A static kind is built from a few keys, and that is its `add`."""
    if kind in STATIC:
        return _of_list(kind, error_rate)
    small = min(ROWS, _fitting(kind, capacity, error_rate))
    large = max(small, _fitting(kind, capacity, error_rate))
    _filled(kind, small, error_rate, _digests()[:1])  # compile now, so that compiling is not timed
    filling = np.minimum.reduce([_filling(kind, small, error_rate) for _ in range(ROUNDS)])
    slower_ns = max(0.0, float(filling.mean() - filling[: PARTS_OF_ROWS // 4].min()))
    add, contains = _filled(kind, large, error_rate, _digests()[:large])
    return Speed(min(add) + slower_ns, min(contains))


@cache
def copy_s_a_byte() -> float:
    """Seconds to copy a byte as a snapshot does. For most kinds, the commits of a partition wait for such a copy."""
    table, copy = np.ones(COPIED_BYTES, dtype=np.uint8).data, Copy([COPIED_BYTES])
    return min(_seconds(copy.take, [table]) for _ in range(ROUNDS)) / COPIED_BYTES


@cache
def _digests() -> Digests:
    return np.random.default_rng(0).integers(0, 1 << 64, (4 * ROWS, 2), dtype=np.uint64)


def _fitting(kind: str, capacity: int, error_rate: float) -> int:
    """Return the keys of a table to measure with: `capacity`, but not too few, and within TABLE_BYTES_MAX."""
    most = capacity * TABLE_BYTES_MAX / size_of(kind, capacity, error_rate).size_bytes
    return max(1, int(min(max(capacity, ROWS), most)))


def _filling(
    kind: str, capacity: int, error_rate: float
) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Return the nanoseconds of an addition, for each part of the digests that fill a table of `capacity`."""
    return np.array(_filled(kind, capacity, error_rate, _digests()[:capacity])[0])


def _filled(
    kind: str, capacity: int, error_rate: float, digests: Digests
) -> tuple[list[float], list[float]]:
    """Return the nanoseconds of an addition, then of a look-up, for each part of `digests`.

    The table is made for `capacity` keys.
    """
    options = size_of(kind, capacity, error_rate).options
    filter_ = build({"kind": kind, "capacity": capacity, "error_rate": error_rate, **options})
    for table in filter_.buffers():
        touch_pages(table)
    return (
        [_ns(filter_.add_many, part) for part in _parts(digests)],
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
