"""Operations on one bucket of a d-left table. Its cells in use come first; all bits of a free cell are 0.

The remainders of a run are compared together and without branches, so the processor can work on many
buckets at once.
"""

import numpy as np

from streamdedup.filters.dleft.shape import DLeftLayout, layout_of
from streamdedup.filters.memory import Counts
from streamdedup.filters.packed_cells import mask, read, write
from streamdedup.instructions import bits_set
from streamdedup.kernel import Words, inlined, kernel

NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)
_12, _2, _1, _0 = np.uint64(12), np.uint64(2), np.uint64(1), np.uint64(0)
_PAIRS, _FOURS, _SUM_OF_FOURS, _FOUR = (np.uint64(i) for i in (0x5555, 0x3333, 0x1111, 0xF))


@inlined
def matches(
    words: Words, layout: DLeftLayout, bucket: np.uint64, run: np.uint64, remainder: np.uint64
) -> np.uint64:
    """Return the highest bits of the lanes of a run that have the remainder; 0 if none has it.

    The lowest bit in the result is right; the higher ones may be wrong. For in (x - ones) & ~x the highest
    bit of a lane is set if that lane of x is 0, and otherwise only above such a lane.
    """
    at = _remainder(layout, bucket, run * layout.lanes)
    difference = read(words, at) ^ (remainder * layout.ones)
    return (difference - layout.ones) & ~difference & _tops(layout, run)


@inlined
def holding(
    words: Words, layout: DLeftLayout, bucket: np.uint64, remainder: np.uint64
) -> np.uint64:
    """Return a number that is not 0 if a cell has the remainder.

    The cell is in use; if the remainder is 0, it may also be a free one.
    """
    found = _0
    for run in range(layout.runs):
        found |= matches(words, layout, bucket, np.uint64(run), remainder)
    return found


@inlined
def find(words: Words, layout: DLeftLayout, bucket: np.uint64, remainder: np.uint64) -> np.uint64:
    """Return the first cell in use that has the remainder; NOWHERE if none has it."""
    cell = NOWHERE
    run = _0
    while run < layout.runs and cell == NOWHERE:
        match = matches(words, layout, bucket, run, remainder)
        if match != _0:
            before = ~match & (match - _1) & layout.tops
            cell = run * layout.lanes + bits_set(before)
        run += _1
    return cell if cell < load(words, layout, bucket) else NOWHERE


@inlined
def load(words: Words, layout: DLeftLayout, bucket: np.uint64) -> np.uint64:
    """Return how many cells of the bucket are in use."""
    if layout.counter_bits != _0:
        in_use = _counters_in_use(words, layout, bucket)
    else:
        in_use = _remainders_in_use(words, layout, bucket)
    return in_use


@inlined
def _counters_in_use(words: Words, layout: DLeftLayout, bucket: np.uint64) -> np.uint64:
    """Return how many of the bucket's counters, of two bits each, are not 0."""
    counters = read(words, bucket * layout.bucket_bits) & mask(layout.cells << _1)
    pairs = (counters | (counters >> _1)) & _PAIRS
    fours = (pairs & _FOURS) + ((pairs >> _2) & _FOURS)
    return ((fours * _SUM_OF_FOURS) >> _12) & _FOUR


@inlined
def _remainders_in_use(words: Words, layout: DLeftLayout, bucket: np.uint64) -> np.uint64:
    """Return how many of the bucket's remainders are not 0.

    A lane of r bits is not 0 if its highest bit is set, or if the sum of its other bits and 2^(r-1) - 1
    carries into the highest bit. `tops` collects these bits.
    """
    below, in_use = layout.tops - layout.ones, _0
    for i in range(layout.runs):
        run = np.uint64(i)
        lanes = read(words, _remainder(layout, bucket, run * layout.lanes))
        tops = (((lanes & below) + below) | lanes) & _tops(layout, run)
        in_use += bits_set(tops)
    return in_use


@inlined
def fill_cell(
    words: Words, layout: DLeftLayout, bucket: np.uint64, cell: np.uint64, remainder: np.uint64
) -> None:
    """Write a remainder into the first free cell, `cell`, as its first addition."""
    write(words, _remainder(layout, bucket, cell), layout.remainder_bits, remainder)
    write(words, _counter(layout, bucket, cell), layout.counter_bits, _1)


@inlined
def free_cell(words: Words, layout: DLeftLayout, bucket: np.uint64, cell: np.uint64) -> None:
    """Remove the content of a cell in use: the last cell in use moves there."""
    last = load(words, layout, bucket) - _1
    remainder = read(words, _remainder(layout, bucket, last))
    write(words, _remainder(layout, bucket, cell), layout.remainder_bits, remainder)
    count = read(words, _counter(layout, bucket, last))
    write(words, _counter(layout, bucket, cell), layout.counter_bits, count)
    write(words, _remainder(layout, bucket, last), layout.remainder_bits, _0)
    write(words, _counter(layout, bucket, last), layout.counter_bits, _0)


@inlined
def count_up(words: Words, layout: DLeftLayout, bucket: np.uint64, cell: np.uint64) -> bool:
    """Count the cell up. A cell at the highest count stays there for good.

    Return False if cells have no counter.
    """
    at, highest = _counter(layout, bucket, cell), mask(layout.counter_bits)
    count = read(words, at) & highest
    if count < highest:
        write(words, at, layout.counter_bits, count + _1)
    return bool(highest != _0)


@inlined
def count_down(words: Words, layout: DLeftLayout, bucket: np.uint64, cell: np.uint64) -> bool:
    """Count the cell down, unless it is at the highest count.

    Return False, without any change, if the cell stands for one addition, so that the caller must free it.
    """
    at, highest = _counter(layout, bucket, cell), mask(layout.counter_bits)
    count = read(words, at) & highest
    if _1 < count < highest:
        write(words, at, layout.counter_bits, count - _1)
    return bool(count > _1)


@inlined
def _tops(layout: DLeftLayout, run: np.uint64) -> np.uint64:
    return np.uint64(layout.tops if run + _1 < layout.runs else layout.tops_last)


@inlined
def _counter(layout: DLeftLayout, bucket: np.uint64, cell: np.uint64) -> np.uint64:
    """Return the bit at which the cell's counter begins."""
    return np.uint64(bucket * layout.bucket_bits + cell * layout.counter_bits)


@inlined
def _remainder(layout: DLeftLayout, bucket: np.uint64, cell: np.uint64) -> np.uint64:
    """Return the bit at which the cell's remainder begins."""
    counters = layout.cells * layout.counter_bits
    return np.uint64(bucket * layout.bucket_bits + counters + cell * layout.remainder_bits)


@kernel
def census(words: Words, fields: Words, start: int, stop: int, loads: Counts) -> bool:
    """Count buckets from `start` to `stop`, `stop` excluded, by their number of cells in use, into `loads`.

    Return False at the first bucket that has a cell in use after a free one, or a free one that is not 0.
    """
    layout = layout_of(fields)
    for i in range(start, stop):
        bucket = np.uint64(i)
        in_use = load(words, layout, bucket)
        for j in range(layout.cells):
            cell = np.uint64(j)
            remainder = read(words, _remainder(layout, bucket, cell)) & mask(layout.remainder_bits)
            count = read(words, _counter(layout, bucket, cell)) & mask(layout.counter_bits)
            taken = (count if layout.counter_bits != _0 else remainder) != _0
            if taken != (cell < in_use) or (not taken and remainder != _0):
                return False
        loads[in_use] += 1
    return True
