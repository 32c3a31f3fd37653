"""An immutable map from digests to numbers, as sorted rows. The overlay of a list is made of such maps.

A row has three words: the two words of a digest, and its number. A newer row wins over an older row of the
same digest; the number 0 cancels the older row. A lookup in two maps returns the lowest byte of the number. It starts
from the first word: hashes are uniform, so its value gives the row's position approximately.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdedup.instructions import upper_half
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import Bytes, Digests, checked, frozen

Rows = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint64]

ROWS_A_BUCKET = 4

_0, _1 = np.uint64(0), np.uint64(1)


class DigestMap(NamedTuple):
    """`rows`, shape (n, 3), and `starts`, shape (m + 1,): the row at which each bucket of digests begins.

    The last entry of `starts` is the end of the last bucket.
    """

    rows: Rows
    starts: Rows

    @classmethod
    def over(cls, rows: Rows) -> "DigestMap":
        """Return the map over `rows`, which are in ascending order of their digests."""
        starts = np.empty(len(rows) // ROWS_A_BUCKET + 2, dtype=np.uint64)
        _fill(frozen(rows, np.uint64), starts)
        return cls(frozen(rows, np.uint64), frozen(starts, np.uint64))

    @classmethod
    def of(cls, numbers: Mapping[bytes, int]) -> "DigestMap":
        """Return the map of digests of 16 bytes each, little-endian, as `Hash.digests` has them in memory."""
        rows = np.empty((len(numbers), 3), dtype=np.uint64)
        rows[:, :2] = np.frombuffer(b"".join(numbers), dtype="<u8").reshape(-1, 2)
        rows[:, 2] = np.fromiter(numbers.values(), np.uint64, len(numbers))
        return cls.over(rows[np.lexsort((rows[:, 1], rows[:, 0]))])

    def merged_into(self, older: "DigestMap") -> "DigestMap":
        """Return the map of both, in which our rows win, without the rows that have no effect any more.

        The kernel releases the GIL, so other threads run during the merge.
        """
        rows = np.empty((len(self.rows) + len(older.rows), 3), dtype=np.uint64)
        return DigestMap.over(rows[: _merge(self.rows, older.rows, rows)])

    def look_up(self, older: "DigestMap", digests: Digests) -> Bytes:
        """Return the lowest byte of the number of each of `digests` (n, 2), shape (n,), dtype uint8.

        It is the number of our row if there is one, otherwise that of the row of `older`, otherwise 0.
        """
        found = np.zeros(len(digests), dtype=np.uint8)
        if len(self.rows) or len(older.rows):
            _look_up(self.rows, self.starts, older.rows, older.starts, checked(digests), found)
        return found

    def numbers(self, digests: Digests) -> Numbers:
        """Return the number of each of `digests` (n, 2), shape (n,), dtype uint64; 0 if there is none."""
        found = np.zeros(len(digests), dtype=np.uint64)
        if len(self.rows):
            _numbers(self.rows, self.starts, checked(digests), found)
        return found


EMPTY = DigestMap(
    frozen(np.zeros((0, 3), dtype=np.uint64), np.uint64),
    frozen(np.zeros(2, dtype=np.uint64), np.uint64),
)


def warm_up() -> None:
    """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
    made = DigestMap.of({bytes(16): 1}).merged_into(DigestMap.of({}))
    asked = np.zeros((1, 2), dtype=np.uint64)
    made.look_up(DigestMap.of({}), asked)
    made.numbers(asked)


@kernel
def _fill(rows: Rows, starts: Rows) -> None:
    """Write into `starts` where each bucket begins."""
    buckets, bucket = np.uint64(starts.shape[0]) - _1, _0
    for row in range(np.uint64(rows.shape[0])):
        own = upper_half(rows[row, 0], buckets)
        while bucket <= own:
            starts[bucket] = row
            bucket += _1
    while bucket <= buckets:
        starts[bucket] = np.uint64(rows.shape[0])
        bucket += _1


@kernel
def _merge(newer: Rows, older: Rows, rows: Rows) -> np.uint64:
    """Merge both maps into `rows`. Return how many rows there are."""
    i, j, to = _0, _0, _0
    newer_end, older_end = np.uint64(newer.shape[0]), np.uint64(older.shape[0])
    while i < newer_end or j < older_end:
        if i == newer_end or (j < older_end and is_below(older, j, newer[i, 0], newer[i, 1])):
            _put(rows, to, older, j)
            j += _1
            to += _1
            continue
        if j < older_end and older[j, 0] == newer[i, 0] and older[j, 1] == newer[i, 1]:
            j += _1
        if newer[i, 2] != _0:
            _put(rows, to, newer, i)
            to += _1
        i += _1
    return to


@kernel
def _look_up(
    newer: Rows,
    newer_starts: Rows,
    older: Rows,
    older_starts: Rows,
    digests: Digests,
    found: Bytes,
) -> None:
    """Write the numbers of those `digests` that have one into `found`."""
    for row in range(np.uint64(digests.shape[0])):
        a, b = digests[row, 0], digests[row, 1]
        at = _place(newer, newer_starts, a, b)
        if is_at(newer, at, a, b):
            found[row] = np.uint8(newer[at, 2])
            continue
        at = _place(older, older_starts, a, b)
        if is_at(older, at, a, b):
            found[row] = np.uint8(older[at, 2])


@kernel
def _numbers(rows: Rows, starts: Rows, digests: Digests, found: Numbers) -> None:
    """Write the numbers of those `digests` that have one into `found`."""
    for row in range(np.uint64(digests.shape[0])):
        a, b = digests[row, 0], digests[row, 1]
        at = _place(rows, starts, a, b)
        if is_at(rows, at, a, b):
            found[row] = rows[at, 2]


@inlined
def _place(rows: Rows, starts: Rows, a: np.uint64, b: np.uint64) -> np.uint64:
    """Return how many rows are below a digest."""
    bucket = upper_half(a, np.uint64(starts.shape[0]) - _1)
    return first_not_below(rows, starts[bucket], starts[bucket + _1], a, b)


@inlined
def first_not_below(
    rows: Rows, low: np.uint64, high: np.uint64, a: np.uint64, b: np.uint64
) -> np.uint64:
    """Return the first of the rows from `low` on that is not below the digest (a, b); `high` if all before it are."""
    while low < high:
        middle = (low + high) >> _1
        if is_below(rows, middle, a, b):
            low = middle + _1
        else:
            high = middle
    return low


@inlined
def is_below(rows: Rows, row: np.uint64, a: np.uint64, b: np.uint64) -> bool:
    """Return whether that row of `rows` is below the digest (a, b)."""
    return bool(rows[row, 0] < a or (rows[row, 0] == a and rows[row, 1] < b))


@inlined
def is_at(rows: Rows, row: np.uint64, a: np.uint64, b: np.uint64) -> bool:
    """Return whether there is such a row, and it is the digest (a, b)."""
    return bool(row < np.uint64(rows.shape[0]) and rows[row, 0] == a and rows[row, 1] == b)


@inlined
def _put(rows: Rows, to: np.uint64, others: Rows, row: np.uint64) -> None:
    rows[to, 0], rows[to, 1], rows[to, 2] = others[row, 0], others[row, 1], others[row, 2]
