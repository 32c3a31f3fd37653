"""Add, look up and remove fingerprints in the table of an exact set, in batches or one alone.

The kernels prefetch the homes of ROWS_TOGETHER rows before they work on the first of them, so that the
cache misses overlap.
"""

import numpy as np

from streamdedup.filters.base import Mask
from streamdedup.filters.digest_filter import KEYS
from streamdedup.filters.memory import Counts
from streamdedup.filters.probes import high_word
from streamdedup.filters.strain import CREDIT, STRAIN, STRAIN_MAX, charge, refuse
from streamdedup.instructions import prefetch
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import Digests

# Index in `counts` of the number of keys at which the table grows, after that of the keys.
ROOM = 1
NEW, THERE, NO_ROOM, REFUSED = 1, 0, -1, -2
ROWS_TOGETHER = 64
STEPS = 16  # a search that takes more of them goes on in strides

_0, _1, _STEPS = np.uint64(0), np.uint64(1), np.uint64(STEPS)


@kernel
def add_rows(
    table: Words,
    width: np.uint64,
    slots: np.uint64,
    counts: Counts,
    digests: Digests,
    fresh: Mask,
) -> int:
    """Add all rows. Write into `fresh` whether each was absent.

    Return how many rows are done: fewer than all if the next one is refused, or the table has no room for it.
    """
    homes = np.empty(ROWS_TOGETHER, dtype=np.uint64)
    for first in range(0, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(table, width, slots, digests[first:stop], homes)
        for i in range(first, stop):
            a, b = max(digests[i, 0], _1), digests[i, 1]
            said = _insert(table, width, homes[i - first], a, b, counts)
            if said < THERE:
                return i
            fresh[i] = said == NEW
    return int(digests.shape[0])


@kernel
def contains_rows(
    table: Words, width: np.uint64, slots: np.uint64, digests: Digests, present: Mask
) -> None:
    """Write into `present` whether each digest is present."""
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
    """Remove each digest. Write into `gone` whether it was present."""
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
    """Add one digest. Return NEW or THERE; or, without any change, NO_ROOM or REFUSED."""
    first = max(np.uint64(a), _1)
    return _insert(table, width, home(width, slots, first), first, np.uint64(b), counts)


@kernel
def contains_row(table: Words, width: np.uint64, slots: np.uint64, a: int, b: int) -> bool:
    """Return whether one digest is present."""
    first, second = max(np.uint64(a), _1), np.uint64(b)
    at = _seek(table, width, home(width, slots, first), first, second)
    return _is(table, width, at, first, second)


@kernel
def remove_row(
    table: Words, width: np.uint64, slots: np.uint64, a: int, b: int, counts: Counts
) -> bool:
    """Remove one digest. Return whether it was present."""
    first, second = max(np.uint64(a), _1), np.uint64(b)
    return _take(table, width, slots, home(width, slots, first), first, second, counts)


@inlined
def home(width: np.uint64, slots: np.uint64, a: np.uint64) -> np.uint64:
    """Return the word at which the fingerprint that begins with `a` would be in an otherwise empty table."""
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
    """Return the first slot from `at` on that is empty, or whose fingerprint is not below (a, b).

    The search for (a, b) begins at its home. Fingerprints ascend, and none is beyond its home if a slot
    between the two is empty. So if one beyond the home of (a, b) is below (a, b), then so are all between the
    two, and a long search can go on in strides, and then by halves.
    """
    near = at + _STEPS * width
    while at < near and _below(table, width, at, a, b):
        at += width
    return at if at < near else _seek_far(table, width, at, a, b)


@inlined
def _seek_far(
    table: Words, width: np.uint64, at: np.uint64, a: np.uint64, b: np.uint64
) -> np.uint64:
    """Go on with a search from slot `at` on, in twice as many steps as there are digits in its length."""
    last, stride = np.uint64(table.shape[0]) - width, width
    if at >= last or not _below(table, width, at, a, b):
        return min(at, last)
    while at + stride < last and _below(table, width, at + stride, a, b):
        at += stride
        stride += stride
    end = min(at + stride, last)  # the last slot of the tail is always empty
    while end - at > width:  # which is 1 or 2 words, so the shift gives half of the slots
        middle = at + ((end - at) >> width) * width
        if _below(table, width, middle, a, b):
            at = middle
        else:
            end = middle
    return end


@inlined
def _below(table: Words, width: np.uint64, at: np.uint64, a: np.uint64, b: np.uint64) -> bool:
    """Return whether a slot is not empty, and its fingerprint is below (a, b).

    The test compares the words less 1: 0 - 1 is the greatest uint64, so an empty slot is not below.
    """
    return bool(table[at] - _1 < a - _1 or (width != _1 and table[at] == a and table[at + _1] < b))


@inlined
def _is(table: Words, width: np.uint64, at: np.uint64, a: np.uint64, b: np.uint64) -> bool:
    return bool(table[at] == a and (width == _1 or table[at + _1] == b))


@inlined
def _insert(
    table: Words, width: np.uint64, at: np.uint64, a: np.uint64, b: np.uint64, counts: Counts
) -> int:
    """Add a fingerprint, whose home is `at`. Return NEW or THERE.

    Returns NO_ROOM, and changes nothing, if there is no room for it; REFUSED if the next empty slot is too far
    from its home (`filters.strain`).
    """
    own = at
    at = _seek(table, width, at, a, b)
    if _is(table, width, at, a, b):
        return THERE
    if counts[KEYS] >= counts[ROOM]:
        return NO_ROOM
    free = at
    farthest = own + np.uint64(STRAIN_MAX + counts[CREDIT] - counts[STRAIN]) * width
    while table[free] != _0 and free <= farthest:
        free += width
    if free > farthest:
        refuse(counts)
        return REFUSED
    if free + width == np.uint64(table.shape[0]):
        return NO_ROOM
    charge(counts, int(np.int64((free - own) >> (width - _1))) + 1)
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
    """Remove a fingerprint, whose home is `at`. Return whether it was present.

    The fingerprints after it that are not at their homes move back by one slot, so there are no tombstones.
    """
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
