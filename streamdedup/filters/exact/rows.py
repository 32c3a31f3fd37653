"""What is done with fingerprints in the table of an exact set: add, look up, remove, in batches or one alone.

Their homes are asked of the memory some rows ahead, so that their misses overlap.
"""

import numpy as np

from streamdedup.filters.base import Mask
from streamdedup.filters.keyed import KEYS
from streamdedup.filters.memory import Counts, Words
from streamdedup.filters.probing import high_word
from streamdedup.kernel import inlined, kernel, prefetch
from streamdedup.keys.hashing import Digests

ROOM = 1  # in `counts`, after the keys: how many there may be before the table grows
NEW, THERE, NO_ROOM = 1, 0, -1
ROWS_TOGETHER = 64

_0, _1 = np.uint64(0), np.uint64(1)


@kernel
def add_rows(
    table: Words,
    width: np.uint64,
    slots: np.uint64,
    counts: Counts,
    digests: Digests,
    fresh: Mask,
) -> int:
    """How many rows were done before there was no room."""
    homes = np.empty(ROWS_TOGETHER, dtype=np.uint64)
    for first in range(0, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(table, width, slots, digests[first:stop], homes)
        for i in range(first, stop):
            a, b = max(digests[i, 0], _1), digests[i, 1]
            said = _insert(table, width, homes[i - first], a, b, counts)
            if said == NO_ROOM:
                return i
            fresh[i] = said == NEW
    return int(digests.shape[0])


@kernel
def contains_rows(
    table: Words, width: np.uint64, slots: np.uint64, digests: Digests, present: Mask
) -> None:
    """Whether each is in it."""
    homes = np.empty(ROWS_TOGETHER, dtype=np.uint64)
    for first in range(0, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(table, width, slots, digests[first:stop], homes)
        for i in range(first, stop):
            a, b = max(digests[i, 0], _1), digests[i, 1]
            present[i] = _is(table, width, _seek(table, width, homes[i - first], a, b), a, b)


@kernel
def remove_rows(
    table: Words,
    width: np.uint64,
    slots: np.uint64,
    counts: Counts,
    digests: Digests,
    gone: Mask,
) -> None:
    """Whether each was in it, and is not any more."""
    homes = np.empty(ROWS_TOGETHER, dtype=np.uint64)
    for first in range(0, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(table, width, slots, digests[first:stop], homes)
        for i in range(first, stop):
            a, b = max(digests[i, 0], _1), digests[i, 1]
            gone[i] = _take(table, width, slots, homes[i - first], a, b, counts)


@kernel
def add_row(
    table: Words, width: np.uint64, slots: np.uint64, a: int, b: int, counts: Counts
) -> int:
    """NEW, THERE, or NO_ROOM: then nothing was changed."""
    first = max(np.uint64(a), _1)
    return _insert(table, width, home(width, slots, first), first, np.uint64(b), counts)


@kernel
def contains_row(table: Words, width: np.uint64, slots: np.uint64, a: int, b: int) -> bool:
    """Whether it is in it."""
    first, second = max(np.uint64(a), _1), np.uint64(b)
    at = _seek(table, width, home(width, slots, first), first, second)
    return _is(table, width, at, first, second)


@kernel
def remove_row(
    table: Words, width: np.uint64, slots: np.uint64, a: int, b: int, counts: Counts
) -> bool:
    """Whether it was in it, and is not any more."""
    first, second = max(np.uint64(a), _1), np.uint64(b)
    return _take(table, width, slots, home(width, slots, first), first, second, counts)


@inlined
def home(width: np.uint64, slots: np.uint64, a: np.uint64) -> np.uint64:
    """The word at which a fingerprint would stand in an empty table."""
    return high_word(a, slots) * width


@inlined
def _locate(
    table: Words, width: np.uint64, slots: np.uint64, digests: Digests, homes: Words
) -> None:
    for i in range(digests.shape[0]):
        homes[i] = home(width, slots, digests[i, 0])
        prefetch(table, homes[i])


@inlined
def _seek(table: Words, width: np.uint64, at: np.uint64, a: np.uint64, b: np.uint64) -> np.uint64:
    """From its home on, the first slot that is empty or whose fingerprint is not below (a, b).

    0 - 1 is the greatest uint64, so an empty slot ends the search; the last of the tail is always empty.
    """
    while table[at] - _1 < a - _1 or (width != _1 and table[at] == a and table[at + _1] < b):
        at += width
    return at


@inlined
def _is(table: Words, width: np.uint64, at: np.uint64, a: np.uint64, b: np.uint64) -> bool:
    return bool(table[at] == a and (width == _1 or table[at + _1] == b))


@inlined
def _insert(
    table: Words, width: np.uint64, at: np.uint64, a: np.uint64, b: np.uint64, counts: Counts
) -> int:
    """NEW, THERE, or NO_ROOM: then nothing was changed. `at` is its home."""
    at = _seek(table, width, at, a, b)
    if _is(table, width, at, a, b):
        return THERE
    if counts[KEYS] >= counts[ROOM]:
        return NO_ROOM
    free = at
    while table[free] != _0:
        free += width
    if free + width == np.uint64(table.shape[0]):
        return NO_ROOM
    while free > at:
        free -= _1
        table[free + width] = table[free]
    table[at] = a
    if width != _1:
        table[at + _1] = b
    counts[KEYS] += 1
    return NEW


@inlined
def _take(
    table: Words,
    width: np.uint64,
    slots: np.uint64,
    at: np.uint64,
    a: np.uint64,
    b: np.uint64,
    counts: Counts,
) -> bool:
    """Whether it was there. Those behind it that are not at home move up by one: no tombstones. `at` is its home."""
    at = _seek(table, width, at, a, b)
    if not _is(table, width, at, a, b):
        return False
    next_ = at + width
    while table[next_] != _0 and home(width, slots, table[next_]) < next_:
        for i in range(next_, next_ + width):
            table[i - width] = table[i]
        next_ += width
    for i in range(next_ - width, next_):
        table[i] = _0
    counts[KEYS] -= 1
    return True
