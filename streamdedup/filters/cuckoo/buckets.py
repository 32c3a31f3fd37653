"""Operations on one bucket of a cuckoo table, or on the two buckets of a fingerprint. A free cell is 0.

Cells are packed to the bit. The cells of a group, as many as fit into one word, are compared together and
without branches, so the processor can work on many buckets at once.
"""

from typing import NamedTuple

import numpy as np

from streamdedup.filters.packed_cells import NOWHERE, mask, read, write
from streamdedup.filters.places import reach_of
from streamdedup.filters.probes import partner
from streamdedup.filters.sizing import CUCKOO_CELLS
from streamdedup.instructions import bits_set
from streamdedup.kernel import Words, inlined, kernel, unpacked

_CELLS, _1, _0 = np.uint64(CUCKOO_CELLS), np.uint64(1), np.uint64(0)


class CuckooLayout(NamedTuple):
    """The sizes of a table, as its kernels need them."""

    buckets: np.uint64
    bits: np.uint64  # the width of a cell
    group: np.uint64  # how many cells a group has: 4, 2 or 1
    ones: np.uint64  # the lowest bit of each cell of a group
    searched: np.uint64  # no search begins if this many cells are in use
    capacity: np.uint64  # how many cells are in use at capacity
    bucket_bits: np.uint64  # these three as in `places.Buckets`
    reach: np.uint64
    marks: np.uint64


FIELDS = len(CuckooLayout._fields)


def layout_fields(buckets: int, bits: int, searched: int, capacity: int) -> Words:
    """Return the fields of a `CuckooLayout` as an array. In a kernel, `layout_of` makes the `CuckooLayout` of it."""
    group = next(n for n in (4, 2, 1) if n * bits <= 64)
    ones = sum(1 << i * bits for i in range(group))
    of_buckets = CUCKOO_CELLS * bits, reach_of(CUCKOO_CELLS, bits), (1 << bits) - 1
    return np.array([buckets, bits, group, ones, searched, capacity, *of_buckets], dtype=np.uint64)


@inlined
def layout_of(fields: Words) -> CuckooLayout:
    """Return the `CuckooLayout` of these fields."""
    return CuckooLayout(*unpacked(fields, FIELDS))


@inlined
def get(words: Words, layout: CuckooLayout, cell: np.uint64) -> np.uint64:
    """Return the content of a cell: a fingerprint, or 0 if the cell is free."""
    return read(words, cell * layout.bits) & mask(layout.bits)


@inlined
def put(words: Words, layout: CuckooLayout, cell: np.uint64, mark: np.uint64) -> None:
    """Overwrite a cell."""
    write(words, cell * layout.bits, layout.bits, mark)


@inlined
def find(words: Words, layout: CuckooLayout, bucket: np.uint64, mark: np.uint64) -> np.uint64:
    """Return the first cell of a bucket that holds `mark`, NOWHERE if none does. A `mark` of 0 finds a free cell."""
    first, found = bucket * _CELLS, NOWHERE
    cell = first + _CELLS
    while cell > first:  # from the last group to the first, so that the first match wins
        cell -= layout.group
        holding = _holding(words, layout, cell, mark)
        before = ~holding & (holding - _1) & (layout.ones << (layout.bits - _1))
        at = cell + bits_set(before)
        found = at if holding != _0 else found
    return np.uint64(found)


@inlined
def held(
    words: Words, layout: CuckooLayout, mark: np.uint64, one: np.uint64, other: np.uint64
) -> bool:
    """Return whether one of the two buckets holds `mark`."""
    return bool((_holds(words, layout, one, mark) | _holds(words, layout, other, mark)) != _0)


@inlined
def spare_cell(words: Words, layout: CuckooLayout, one: np.uint64, other: np.uint64) -> np.uint64:
    """Return a free cell of the emptier bucket; NOWHERE if both buckets are full.

    The choice of the emptier bucket delays the moment from which on searches are needed.
    """
    emptier = one if free(words, layout, one) >= free(words, layout, other) else other
    return find(words, layout, emptier, _0)


@inlined
def free(words: Words, layout: CuckooLayout, bucket: np.uint64) -> np.uint64:
    """Return how many cells of a bucket are free."""
    return np.uint64(_count(words, layout, bucket, _0))


@inlined
def _count(words: Words, layout: CuckooLayout, bucket: np.uint64, mark: np.uint64) -> np.uint64:
    """Return how many cells of a bucket hold `mark`."""
    cell, count = bucket * _CELLS, _0
    end = cell + _CELLS
    while cell < end:
        holding = _holding(words, layout, cell, mark)
        count += bits_set(holding)
        cell += layout.group
    return count


@inlined
def _holds(words: Words, layout: CuckooLayout, bucket: np.uint64, mark: np.uint64) -> np.uint64:
    """Return a number that is not 0 if a cell of the bucket holds `mark`."""
    cell, holding = bucket * _CELLS, _0
    end = cell + _CELLS
    while cell < end:
        holding |= _holding(words, layout, cell, mark)
        cell += layout.group
    return holding


@inlined
def _holding(words: Words, layout: CuckooLayout, cell: np.uint64, mark: np.uint64) -> np.uint64:
    """Return the highest bit of each cell that holds `mark`, in the group that begins at `cell`.

    All cells of the group are compared at once (Lamport 1975).
    """
    differing = read(words, cell * layout.bits) ^ (mark * layout.ones)
    highest = layout.ones << (layout.bits - _1)
    lower = highest - layout.ones
    return ~(((differing & lower) + lower) | differing) & highest


@kernel
def free_cells(words: Words, fields: Words, start: int, end: int) -> np.uint64:
    """Return how many cells are free in the buckets from `start` to `end`, `end` excluded."""
    layout, count = layout_of(fields), _0
    for bucket in range(start, end):
        count += free(words, layout, np.uint64(bucket))
    return count


@kernel
def held_as_often(words: Words, others: Words, fields: Words, start: int, end: int) -> bool:
    """Return whether `others` holds each fingerprint of `words` as often in its two buckets as `words` does.

    It looks at the buckets of `words` from `start` to `end`, `end` excluded. If this is true of all buckets, and both
    tables have as many cells in use, they hold the same.
    """
    layout = layout_of(fields)
    for i in range(start, end):
        one = np.uint64(i)
        for j in range(_CELLS):
            mark = get(words, layout, one * _CELLS + np.uint64(j))
            if mark == _0:
                continue
            other = partner(mark, one, layout.buckets)
            mine, theirs = _count(words, layout, one, mark), _count(others, layout, one, mark)
            if other != one:
                mine += _count(words, layout, other, mark)
                theirs += _count(others, layout, other, mark)
            if mine != theirs:
                return False
    return True
