"""Which rows of a batch are equal: an open-addressing table of row numbers, at most half full, with linear probing.

A home comes from secret bits of the digest (`keys.multilinear`), so nobody can choose keys that meet in few homes.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.filters.base import Mask
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import Digests
from streamdedup.keys.multilinear import SecretWords, drawn_words, secret_bits, words_of

RowIndex = npt.NDArray[np.int64]

_EMPTY = -1
_NEXT = np.uint64(1)


def table_for(rows: int) -> RowIndex:
    """An empty table with room for `rows` rows."""
    return np.full(1 << max(4, (2 * rows).bit_length()), _EMPTY, dtype=np.int64)


def keep_first(digests: Digests, chosen: Mask) -> None:
    """Clear `chosen` (n,) for each of `digests` (n, 2) that equals an earlier chosen one."""
    _keep_first(digests, chosen, table_for(len(digests)), drawn_words())


@inlined
def place(words: SecretWords, digests: Digests, table: RowIndex, row: int) -> np.uint64:
    """The index in `table`, under its secret `words`, of the number of an equal row.

    If there is no equal row, this is the index at which the number of this row belongs, and the entry there is below 0.
    """
    a, b = digests[row, 0], digests[row, 1]
    mask = np.uint64(table.shape[0]) - _NEXT
    at: np.uint64 = secret_bits(words, a, b) & mask
    while table[at] >= 0 and (digests[table[at], 0] != a or digests[table[at], 1] != b):
        at = (at + _NEXT) & mask
    return at


@kernel
def _keep_first(digests: Digests, chosen: Mask, table: RowIndex, secret: Words) -> None:
    words = words_of(secret)
    for row in range(digests.shape[0]):
        if chosen[row]:
            at = place(words, digests, table, row)
            if table[at] >= 0:
                chosen[row] = False
            else:
                table[at] = row
