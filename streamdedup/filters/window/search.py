"""Make room in two full buckets of a window, by moving live cells to their other buckets.

The search is breadth first, and prefetches all buckets that a bucket leads to before it looks at the first of them.
Nothing is random: the same additions give the same table.
"""

import numpy as np

from streamdedup.filters.packed_cells import NOWHERE
from streamdedup.filters.places import prefetch_bucket
from streamdedup.filters.probes import partner
from streamdedup.filters.sizing import WINDOW_CELLS
from streamdedup.filters.window.cells import (
    CELLS,
    WHOLE_BITS,
    WindowLayout,
    first_cell,
    free_in,
    get,
    put,
)
from streamdedup.kernel import Words, inlined

SEARCH_MAX = 500  # the most buckets that a search looks at

BUCKET, WAY = 0, 1  # the columns of the queue
_2, _0 = np.uint64(2), np.uint64(0)


def search_queue() -> Words:
    """The memory that a search needs."""
    return np.zeros((SEARCH_MAX, 2), dtype=np.uint64)


@inlined
def prefetch_around(words: Words, layout: WindowLayout, one: np.uint64, other: np.uint64) -> None:
    """If both buckets are full, prefetch those that a search looks at first.

    Only if cells have 32 bits: to look into other buckets takes longer than it saves.
    """
    if layout.bits != WHOLE_BITS:
        return
    if (free_in(words, layout, one) | free_in(words, layout, other)) == _0:
        for i in range(WINDOW_CELLS):
            content = get(words, layout, one * CELLS + np.uint64(i))
            prefetch_bucket(words, layout, partner(content >> layout.tag_bits, one, layout.buckets))


@inlined
def make_room(
    words: Words, layout: WindowLayout, queue: Words, one: np.uint64, other: np.uint64
) -> tuple[np.uint64, np.uint64, int]:
    """Free a cell of one of two full buckets by moving others.

    Returns the cell that may now be overwritten, or NOWHERE; the former content of the free cell that was taken; and
    how many buckets were searched. A row of the queue has a bucket, and the cell that leads to it, as 8 times the
    queue's row plus the cell's number.
    """
    queue[0, BUCKET], queue[1, BUCKET] = one, other
    length = 2
    for node in range(SEARCH_MAX):
        start, bucket = length, queue[node, BUCKET]
        for i in range(min(WINDOW_CELLS, SEARCH_MAX - length)):
            content = get(words, layout, bucket * CELLS + np.uint64(i))
            next_ = partner(content >> layout.tag_bits, bucket, layout.buckets)
            prefetch_bucket(words, layout, next_)
            queue[length, BUCKET] = next_
            queue[length, WAY] = np.uint64(node) * CELLS + np.uint64(i)
            length += 1
        for row in range(start, length):
            free = free_in(words, layout, queue[row, BUCKET])
            if free != _0:
                cell = first_cell(queue[row, BUCKET], free)
                taken = get(words, layout, cell)
                return _shift(words, layout, queue, queue[row, WAY], cell), taken, row
        if start == length:
            break
    return NOWHERE, _0, length


@inlined
def _shift(
    words: Words, layout: WindowLayout, queue: Words, way: np.uint64, free: np.uint64
) -> np.uint64:
    """Move each cell of the path into the next one, from the end of the path on. Returns the first cell of the path.

    `way` is the last cell of the path and `free` the free cell that it leads to.
    """
    while True:
        node = way // CELLS
        cell = queue[node, BUCKET] * CELLS + way % CELLS
        put(words, layout, free, get(words, layout, cell))
        if node < _2:
            return np.uint64(cell)
        free, way = cell, queue[node, WAY]
