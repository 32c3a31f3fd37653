"""Finds digests in sorted rows that are read in blocks: the kernels of `sorted_digests`.

They are apart from it, so that a change of the code that reads files leaves the compiled kernels in use.
"""

import numpy as np

from streamdedup.events import Integers
from streamdedup.filters.base import Mask
from streamdedup.filters.exact.digest_map import first_not_below, is_at, is_below
from streamdedup.kernel import kernel
from streamdedup.keys.hashing import Digests, checked, frozen

BLOCK_ROWS = 256

_1 = np.uint64(1)


def warm_up() -> None:
    """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
    rows = checked(np.zeros((1, 2), dtype=np.uint64))
    blocks, ends = np.zeros(1, dtype=np.int64), frozen(np.ones(1), np.int64)
    locate(rows, rows, blocks)
    search(rows, ends, frozen(blocks, np.int64), rows, np.zeros(1, dtype=np.bool_))


@kernel
def is_ascending(last: Digests, rows: Digests) -> bool:
    """Return whether each of `rows` is above the row before it, and the first above `last` (0 or 1, 2)."""
    for row in range(np.uint64(rows.shape[0])):
        if row:
            a, b = rows[row - _1, 0], rows[row - _1, 1]
        elif last.shape[0]:
            a, b = last[0, 0], last[0, 1]
        else:
            continue
        at = np.uint64(row)
        if is_below(rows, at, a, b) or is_at(rows, at, a, b):
            return False
    return True


@kernel
def locate(firsts: Digests, digests: Digests, blocks: Integers) -> None:
    """Write for each digest the last block that begins with it or below it, or 0, into `blocks`."""
    for row in range(digests.shape[0]):
        a, b = digests[row, 0], digests[row, 1]
        at = first_not_below(firsts, np.uint64(0), np.uint64(firsts.shape[0]), a, b)
        if not is_at(firsts, at, a, b) and at:
            at -= _1
        blocks[row] = np.int64(at)


@kernel
def search(rows: Digests, ends: Integers, places: Integers, digests: Digests, found: Mask) -> None:
    """Set `found` for each digest that is in its block.

    `places[i]` is the number of its block among those in `rows`, and `ends` is the number of rows of each block.
    """
    for row in range(digests.shape[0]):
        a, b = digests[row, 0], digests[row, 1]
        start = np.uint64(places[row] * BLOCK_ROWS)
        end = start + np.uint64(ends[places[row]])
        at = first_not_below(rows, start, end, a, b)
        found[row] = at < end and is_at(rows, at, a, b)
