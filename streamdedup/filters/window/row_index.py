"""Which rows of a batch are equal: an open-addressing table of row numbers, at most half full, with linear probing.

A home comes from secret bits of the digest (`keys.multilinear`), so nobody can choose keys that meet in few homes.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.filters.base import Mask
from streamdedup.filters.window.clock import Generations
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import Digests, checked
from streamdedup.keys.multilinear import SecretWords, drawn_words, secret_bits, words_of

RowIndex = npt.NDArray[np.int64]

_EMPTY = -1
_NEXT = np.uint64(1)


def table_for(rows: int) -> RowIndex:
    """An empty table with room for `rows` rows."""
    return np.full(1 << max(4, (2 * rows).bit_length()), _EMPTY, dtype=np.int64)


def keep_first(digests: Digests, generations: Generations, chosen: Mask) -> None:
    """Clear `chosen` (n,) for each of `digests` (n, 2) that equals an earlier chosen one of the same generation.

    `generations` has shape (n,).
    """
    digests = checked(digests)  # of the layout for which the loop is compiled
    _keep_first(digests, generations, chosen, table_for(len(digests)), drawn_words())


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
def _keep_first(
    digests: Digests, generations: Generations, chosen: Mask, table: RowIndex, secret: Words
) -> None:
    # The generation is compared, and not mixed into the digest: an attacker who chooses digests would choose equal
    # mixtures.
    words, mask = words_of(secret), np.uint64(table.shape[0]) - _NEXT
    for row in range(digests.shape[0]):
        if not chosen[row]:
            continue
        at = place(words, digests, table, row)
        while table[at] >= 0 and (
            digests[table[at], 0] != digests[row, 0]
            or digests[table[at], 1] != digests[row, 1]
            or generations[table[at]] != generations[row]
        ):
            at = (at + _NEXT) & mask
        if table[at] >= 0:
            chosen[row] = False
        else:
            table[at] = row
