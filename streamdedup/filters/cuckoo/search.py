"""Room in full buckets of a cuckoo table, by moving fingerprints to their other buckets.

It is searched for breadth first, and only along the way that was found are fingerprints moved: a search that fails has
changed nothing. No chance: additions repeat.
"""

import numpy as np

from streamdedup.filters.cuckoo.buckets import NOWHERE, Layout, find, get, partner, put
from streamdedup.filters.memory import Words
from streamdedup.filters.sizing import CUCKOO_CELLS
from streamdedup.kernel import inlined, kernel

SEARCH_MAX = 500  # buckets: as many as the paper's kicks

BUCKET, WAY = 0, 1  # what stands in a row of the queue
_CELLS, _3, _2, _0 = np.uint64(CUCKOO_CELLS), np.uint64(3), np.uint64(2), np.uint64(0)


def search_queue() -> Words:
    """The memory of a search."""
    return np.zeros((SEARCH_MAX, 2), dtype=np.uint64)


@kernel
def make_room(
    words: Words, layout: Layout, queue: Words, one: np.uint64, other: np.uint64
) -> tuple[np.uint64, int]:
    """The cell of one of two full buckets that may be written over, or NOWHERE, and how many buckets were searched.

    The queue holds full buckets, and the cell (by its place in the queue) that leads to each.
    """
    queue[0, BUCKET], queue[1, BUCKET] = one, other
    length = 2
    for node in range(SEARCH_MAX):
        bucket = queue[node, BUCKET]
        for i in range(CUCKOO_CELLS):
            way = np.uint64(node) * _CELLS + np.uint64(i)
            mark = get(words, layout, bucket * _CELLS + np.uint64(i))
            next_ = partner(mark, bucket, layout)
            cell = find(words, layout, next_, _0)
            if cell != NOWHERE:
                return _shift(words, layout, queue, way, cell), length
            if length == SEARCH_MAX:
                return NOWHERE, length
            queue[length, BUCKET], queue[length, WAY] = next_, way
            length += 1
    return NOWHERE, length


@inlined
def _shift(
    words: Words, layout: Layout, queue: Words, way: np.uint64, free: np.uint64
) -> np.uint64:
    """Move along the way, from its end: each fingerprint into the cell behind it. The first cell, now spare.

    No bucket is met twice, since breadth first finds a shortest way.
    """
    while True:
        node = way >> _2
        cell = queue[node, BUCKET] * _CELLS + (way & _3)
        put(words, layout, free, get(words, layout, cell))
        if node < _2:
            return np.uint64(cell)
        free, way = cell, queue[node, WAY]
