"""What is done with one bucket of a cuckoo table, or with the two that a fingerprint may be in. A free cell is 0.

Cells are packed to the bit; those of a group, as many as one word takes, are looked at together, without branches:
whoever asks many buckets need not wait for each.
"""

from typing import NamedTuple

import numpy as np

from streamdedup.filters.memory import Words
from streamdedup.filters.packing import lanes_set, mask, read, write
from streamdedup.filters.probing import finalised, high_word
from streamdedup.filters.sizing import CUCKOO_CELLS
from streamdedup.kernel import inlined, kernel

NOWHERE = ~np.uint64(0)  # no cell
_CELLS, _1, _0 = np.uint64(CUCKOO_CELLS), np.uint64(1), np.uint64(0)


class Layout(NamedTuple):
    """The sizes of a table, as its kernels need them."""

    buckets: np.uint64
    bits: np.uint64  # of a cell
    group: np.uint64  # cells: 4, 2 or 1
    ones: np.uint64  # the lowest bit of each cell of a group
    searched: np.uint64  # how many cells may be in use for a search to be worth it


def layout_fields(buckets: int, bits: int, searched: int) -> Words:
    """The fields of a `Layout`, which `layout_of` makes of them in a kernel."""
    group = next(n for n in (4, 2, 1) if n * bits <= 64)
    ones = sum(1 << i * bits for i in range(group))
    return np.array([buckets, bits, group, ones, searched], dtype=np.uint64)


@inlined
def layout_of(fields: Words) -> Layout:
    """One array is passed to a kernel sooner than five numbers."""
    return Layout(fields[0], fields[1], fields[2], fields[3], fields[4])


@inlined
def fingerprint_of(b: np.uint64, layout: Layout) -> np.uint64:
    """1 to 2^bits - 1, each as likely; the bucket comes from the digest's other word."""
    return high_word(b, mask(layout.bits)) + _1


@inlined
def partner(mark: np.uint64, bucket: np.uint64, layout: Layout) -> np.uint64:
    """The other bucket of a fingerprint: the sum of the two depends on it alone."""
    total = high_word(finalised(mark), layout.buckets)
    return np.uint64(total - bucket if total >= bucket else total + (layout.buckets - bucket))


@inlined
def get(words: Words, layout: Layout, cell: np.uint64) -> np.uint64:
    """What is in a cell."""
    return read(words, cell * layout.bits) & mask(layout.bits)


@inlined
def put(words: Words, layout: Layout, cell: np.uint64, mark: np.uint64) -> None:
    """Write over a cell."""
    write(words, cell * layout.bits, layout.bits, mark)


@inlined
def find(words: Words, layout: Layout, bucket: np.uint64, mark: np.uint64) -> np.uint64:
    """The first cell of a bucket that holds `mark` (0: is free); NOWHERE if none does."""
    first, found = bucket * _CELLS, NOWHERE
    cell = first + _CELLS
    while cell > first:  # from the last group to the first
        cell -= layout.group
        holding = _holding(words, layout, cell, mark)
        before = ((holding & (~holding + _1)) - _1) & (layout.ones << (layout.bits - _1))
        at = cell + lanes_set(before, layout.ones, layout.bits, layout.group)
        found = at if holding != _0 else found
    return np.uint64(found)


@inlined
def held(words: Words, layout: Layout, mark: np.uint64, one: np.uint64, other: np.uint64) -> bool:
    """Whether one of the buckets has it."""
    return bool((_holds(words, layout, one, mark) | _holds(words, layout, other, mark)) != _0)


@inlined
def spare_cell(words: Words, layout: Layout, one: np.uint64, other: np.uint64) -> np.uint64:
    """A free cell of the emptier bucket, which puts off the searches; NOWHERE if both are full."""
    emptier = one if free(words, layout, one) >= free(words, layout, other) else other
    return find(words, layout, emptier, _0)


@inlined
def free(words: Words, layout: Layout, bucket: np.uint64) -> np.uint64:
    """How many cells of a bucket are free."""
    cell, count = bucket * _CELLS, _0
    end = cell + _CELLS
    while cell < end:
        holding = _holding(words, layout, cell, _0)
        count += lanes_set(holding, layout.ones, layout.bits, layout.group)
        cell += layout.group
    return count


@inlined
def _holds(words: Words, layout: Layout, bucket: np.uint64, mark: np.uint64) -> np.uint64:
    """Not 0 where a cell of the bucket holds `mark`."""
    cell, holding = bucket * _CELLS, _0
    end = cell + _CELLS
    while cell < end:
        holding |= _holding(words, layout, cell, mark)
        cell += layout.group
    return holding


@inlined
def _holding(words: Words, layout: Layout, cell: np.uint64, mark: np.uint64) -> np.uint64:
    """The highest bit of each cell, in the group from `cell` on, that holds `mark`, all at once (Lamport 1975)."""
    differing = read(words, cell * layout.bits) ^ (mark * layout.ones)
    highest = layout.ones << (layout.bits - _1)
    lower = highest - layout.ones
    return ~(((differing & lower) + lower) | differing) & highest


@kernel
def free_cells(words: Words, fields: Words, start: int, end: int) -> np.uint64:
    """How many cells of the buckets from `start` to `end` are free."""
    layout, count = layout_of(fields), _0
    for bucket in range(start, end):
        count += free(words, layout, np.uint64(bucket))
    return count
