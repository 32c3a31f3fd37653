"""The duplicates rule: a key passes when the filter has not seen it, and once within what is judged together.

Nothing is added here: a digest enters the filter only when its event is known to be in the output.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.filters.base import Filter, Mask
from streamdedup.kernel import kernel
from streamdedup.keys.hashing import Digests

_EMPTY = -1


def unseen(seen: Filter, digests: Digests, pending: Digests | None = None) -> Mask:
    """True, shape (n,), where neither `seen` nor `pending` (p, 2) has the digest and no row before it is equal."""
    fresh = ~seen.contains_many(digests)
    if pending is not None and len(pending):
        together = np.concatenate((pending, digests))
        candidates = np.concatenate((np.ones(len(pending), dtype=np.bool_), fresh))
        _keep_first(together, candidates, _table(len(together)))
        return candidates[len(pending) :]
    _keep_first(digests, fresh, _table(len(digests)))
    return fresh


def warm_up(empty: Filter) -> None:
    """Compile, or load from the cache, the kernels of this rule and of `empty`'s kind, which stays empty."""
    none = np.empty((0, 2), dtype=np.uint64)
    empty.add_many(none)
    unseen(empty, none)


def rows_that_fit(fresh: Mask, room: int) -> int:
    """How many rows can be taken before more than `room` of them are fresh."""
    rows, room = np.flatnonzero(fresh), max(room, 0)  # an overfull filter has room below 0
    return len(fresh) if len(rows) <= room else int(rows[room])


def _table(rows: int) -> npt.NDArray[np.int64]:
    """An empty open-addressing table that `rows` leave half empty."""
    return np.full(1 << max(4, (2 * rows).bit_length()), _EMPTY, dtype=np.int64)


@kernel
def _keep_first(digests: Digests, fresh: Mask, table: npt.NDArray[np.int64]) -> None:
    """Clear `fresh` where an earlier fresh row is equal; `table` is open addressing with linear probing."""
    mask = np.uint64(len(table) - 1)
    for row in range(digests.shape[0]):
        if not fresh[row]:
            continue
        slot = digests[row, 0] & mask
        while table[slot] >= 0:
            other = table[slot]
            if digests[other, 0] == digests[row, 0] and digests[other, 1] == digests[row, 1]:
                fresh[row] = False
                break
            slot = (slot + np.uint64(1)) & mask
        if fresh[row]:
            table[slot] = row
