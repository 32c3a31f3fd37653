"""Make room in two full buckets of a cuckoo table, by moving fingerprints to their other buckets.

The search is breadth first, and prefetches all buckets that a bucket leads to before it looks at the first of them.
Fingerprints are moved only along the path that it found, so a search that fails has changed nothing. Nothing is random:
the same additions give the same table.
"""

import numpy as np

from streamdedup.filters.cuckoo.buckets import CuckooLayout, find, get, put
from streamdedup.filters.packed_cells import NOWHERE
from streamdedup.filters.places import prefetch_bucket
from streamdedup.filters.probes import partner
from streamdedup.filters.sizing import CUCKOO_CELLS
from streamdedup.kernel import Words, inlined

SEARCH_MAX = 500  # the most buckets that a search looks at: as many as the paper's kicks

BUCKET, WAY = 0, 1  # the columns of the queue
_CELLS = np.uint64(CUCKOO_CELLS)
_3, _2, _0 = (np.uint64(number) for number in (3, 2, 0))


def search_queue() -> Words:
    """Return the memory that a search needs."""
    return np.zeros((SEARCH_MAX, 2), dtype=np.uint64)


@inlined
def make_room(
    words: Words, layout: CuckooLayout, queue: Words, one: np.uint64, other: np.uint64, most: int
) -> tuple[np.uint64, int]:
    """Free a cell of one of two full buckets by moving fingerprints. Look at no more than `most` buckets.

    Return the cell that may now be overwritten, or NOWHERE if there is none, and how many buckets were
    searched. A row of the queue has a full bucket, and the cell that leads to it, as 4 times the queue's
    row plus the cell's number.
    """
    queue[0, BUCKET], queue[1, BUCKET] = one, other
    length = 2
    for node in range(most):
        bucket = queue[node, BUCKET]
        for i in range(CUCKOO_CELLS):
            mark = get(words, layout, bucket * _CELLS + np.uint64(i))
            prefetch_bucket(words, layout, partner(mark, bucket, layout.buckets))
        for i in range(CUCKOO_CELLS):
            way = np.uint64(node) * _CELLS + np.uint64(i)
            mark = get(words, layout, bucket * _CELLS + np.uint64(i))
            next_ = partner(mark, bucket, layout.buckets)
            cell = find(words, layout, next_, _0)
            if cell != NOWHERE:
                return _shift(words, layout, queue, way, cell), length
            if length == most:
                return NOWHERE, length
            queue[length, BUCKET], queue[length, WAY] = next_, way
            length += 1
    return NOWHERE, length


@inlined
def _shift(
    words: Words, layout: CuckooLayout, queue: Words, way: np.uint64, free: np.uint64
) -> np.uint64:
    """Move each fingerprint of the path into the next cell, from the end of the path on. Return its first cell.

    `way` is the last cell of the path and `free` the free cell that it leads to. No bucket comes twice,
    since breadth first search finds a shortest path.
    """
    while True:
        node = way >> _2
        cell = queue[node, BUCKET] * _CELLS + (way & _3)
        put(words, layout, free, get(words, layout, cell))
        if node < _2:
            return np.uint64(cell)
        free, way = cell, queue[node, WAY]
