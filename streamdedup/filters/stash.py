"""The stash: a small, exact multiset of the digests for which a table has no cell.

It uses open addressing with linear probing. A removal shifts the following rows back (Knuth, TAOCP 3, 6.4, algorithm
R), so there are no tombstones. A kind's kernels look into it only if `used[ROWS]` is not 0, and remove from it first.
It grows between their calls, as soon as it is full, so that the borders of batches leave no trace in it.

Up to a table's capacity, random keys leave it next to empty. Who knows the hash can choose keys that all overflow, to
one place. So `stash_takes` bounds its rows, and its runs: every search ends at the end of a run, also that for a digest
that is not there. A larger table has no longer runs, since each run spreads over twice its rows.

Beyond the capacity each key without a cell takes a row, and all rows move whenever their table doubles. A worker does
not let it come to that: it stops at ROWS_MANY (`overfull`).
"""

from collections.abc import Callable
from typing import Self

import numpy as np
import numpy.typing as npt

from streamdedup.filters.base import Mask
from streamdedup.filters.memory import Counts, aligned_words, words_over
from streamdedup.filters.probes import finalised, high_word
from streamdedup.filters.strain import FLAGS, NEEDED, STRAINED, refuse
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import Digests, checked

Rows = npt.NDArray[np.uint64]
Used = npt.NDArray[np.int64]

ROWS, COPIES = 0, 1  # the elements of `used`
A, B, COUNT = 0, 1, 2  # the columns; a row is free if its count is 0
COLUMNS = 3
ROWS_MIN = 16
STASH_BYTES_MIN = ROWS_MIN * COLUMNS * 8  # the size of an empty stash
ROWS_A_SLICE = 1 << 15  # of a kernel: it takes less than 10 ms
# Up to the capacity, a random key overflows about once in a table of 10^11; up to 7 do in one of 10,000 tables of 100.
ROWS_SPARE = 64
ROWS_MANY = ROWS_A_SLICE  # from here on a filter is overfull; its table has been moved in one slice at a time
# Rows in use without a free one between them. In a stash of 10^11 rows, random ones have runs of up to 700.
RUN_MAX = 2048
# What a kernel returns for an addition that may have to wait for a larger stash, or is refused.
NOT_DONE, SEEN, NEW = 0, 1, 2


class Stash:
    """`table`, shape (rows, 3), dtype uint64: digest (a, b) and its count; `used`: the rows and the additions in it.

    Kernels take both. Read them from here for every call, because `make_room` replaces the table.
    """

    def __init__(self) -> None:
        self._hold(_table(ROWS_MIN))
        self.used: Used = np.zeros(2, dtype=np.int64)

    def _hold(self, table: Rows) -> None:
        self.table = table
        self._rows_max = _most(len(table))

    @property
    def size_bytes(self) -> int:
        """The memory of the rows, in bytes."""
        return int(self.table.nbytes)

    @property
    def overfull(self) -> bool:
        """Whether it has so many rows that a caller which must not wait adds no further key."""
        return bool(self.used[ROWS] >= ROWS_MANY)

    @property
    def full(self) -> bool:
        """Whether there is no room for a further digest: between two calls only if an interrupt ended the former."""
        return bool(self.used[ROWS] >= self._rows_max)

    def buffer(self) -> memoryview:
        """The live rows: a, b and count as little-endian uint64."""
        return self.table.reshape(-1).data.cast("B")

    def has(self, a: int, b: int) -> bool:
        """Whether the stash holds the digest, given as signed integers."""
        return bool(self.used[ROWS]) and bool(_has(self.table, a, b))

    def find(self, digests: Digests, present: Mask) -> None:
        """Set `present`, shape (n,), for each of `digests` (n, 2) that the stash holds."""
        if self.used[ROWS]:
            _look(self.table, digests, present)

    def feed(self, call: Callable[[int], int], rows: int) -> None:
        """Run a kernel over `rows` rows, and grow whenever the stash is full.

        `call(start)` works from row `start` on. It returns `rows`, or the first row that it has not done, because
        `stash_add` returned False or its time was up. Unless the stash is full, it does at least one row, or raises.
        """
        start = 0
        while start < rows:
            try:
                start = call(start)
            finally:
                self.make_room()

    def emptied(self) -> Rows:
        """Take all rows out, and return them as they stood; the caller may add them again. The size stays."""
        former = self.table
        self._hold(_table(len(former)))
        self.used[:] = 0
        return former

    def make_room(self) -> None:
        """Double the rows if the stash is full. Call this after every kernel that may add, even a single key."""
        if self.used[ROWS] < self._rows_max:
            return
        larger = _table(2 * len(self.table))
        for start in range(0, len(self.table), ROWS_A_SLICE):
            _move(self.table[start : start + ROWS_A_SLICE], larger)
        self._hold(larger)

    @classmethod
    def over(cls, buffer: memoryview) -> Self:
        """The stash over this very buffer, which may be read-only. Raises ValueError if no stash has written it."""
        rows = buffer.nbytes // (8 * COLUMNS)
        if rows < ROWS_MIN or rows & (rows - 1) or buffer.nbytes % (8 * COLUMNS):
            raise ValueError(
                f"a stash of {buffer.nbytes} bytes; its size must be 24 times a power of two, from 16 on"
            )
        stash = cls.__new__(cls)
        stash._hold(words_over(buffer, rows * COLUMNS).reshape(rows, COLUMNS))
        stash.used = np.zeros(2, dtype=np.int64)
        stash._recount()
        if stash.table.flags.writeable:
            stash.make_room()
        return stash

    def _recount(self) -> None:
        taken = np.flatnonzero(self.table[:, COUNT])
        counts = self.table[taken, COUNT]
        if len(taken) > self._rows_max or np.any(counts >> _32):
            raise ValueError(f"{len(taken)} rows of a stash of {len(self.table)} are in use")
        self.used[:] = len(taken), counts.sum()
        order = np.lexsort((self.table[taken, A], self.table[taken, B]))
        digests = self.table[taken, :COUNT][order]
        if np.any(np.all(digests[1:] == digests[:-1], axis=1)):
            raise ValueError("a digest stands in two rows of the stash")
        run = self._rows_before_a_free_one()
        for start in range(0, len(self.table), ROWS_A_SLICE):
            rows = slice(start, start + ROWS_A_SLICE)
            run = _reachable(self.table[rows], start, len(self.table), run)
            if run < 0:
                raise ValueError("a row of the stash is in a place where no search finds it")

    def _rows_before_a_free_one(self) -> int:
        """How many rows in use end the table.

        The search for a digest goes on around the end, so the rows in use at the start of the table continue this run.
        """
        free = np.flatnonzero(self.table[:, COUNT] == 0)
        return int(len(self.table) - 1 - free[-1])


def warm_up() -> None:
    """Compile the kernels of an overflow, or load them from the cache, so that the first overflow does not wait."""
    table, none = _table(ROWS_MIN), checked(np.empty((0, 2), dtype=np.uint64))
    _look(table, none, np.empty(0, dtype=np.bool_))
    _move(table[:0], table)


def stash_bytes(rows: int) -> int:
    """The memory of a stash that has grown to this many rows in use, in bytes."""
    held = ROWS_MIN
    while rows >= _most(held):
        held *= 2
    return held * COLUMNS * 8


def spare_bytes() -> int:
    """What a stash may take beyond an empty one, up to a table's capacity, if somebody chooses keys."""
    return stash_bytes(ROWS_SPARE) - STASH_BYTES_MIN


def _table(rows: int) -> Rows:
    return aligned_words(rows * COLUMNS).reshape(rows, COLUMNS)


_32, _1, _0 = np.uint64(32), np.uint64(1), np.uint64(0)


@inlined
def has_room(table: Rows, used: Used) -> bool:
    """Whether there is a row for a digest, and then still no need for a larger table, which only `make_room` makes."""
    return bool(used[ROWS] + 1 < _rows_max(table.shape[0]))


@inlined
def stash_count(table: Rows, a: np.uint64, b: np.uint64) -> np.uint64:
    """How often the stash holds the digest."""
    return np.uint64(table[_find(table, a, b), COUNT])


@inlined
def stash_add(table: Rows, used: Used, a: np.uint64, b: np.uint64) -> bool:
    """Count the digest up. Returns False, and changes nothing, if there is no row for it."""
    row = _find(table, a, b)
    if table[row, COUNT] == _0:
        if used[ROWS] >= _rows_max(table.shape[0]):
            return False
        table[row, A], table[row, B] = a, b
        used[ROWS] += 1
    table[row, COUNT] += _1
    used[COPIES] += 1
    return True


@inlined
def stash_put(table: Rows, used: Used, a: np.uint64, b: np.uint64, number: np.uint64) -> bool:
    """Keep a number above 0 with (a, b), in place of a count. Returns False, without any change, if there is no row."""
    row = _find(table, a, b)
    if table[row, COUNT] == _0:
        if used[ROWS] >= _rows_max(table.shape[0]):
            return False
        table[row, A], table[row, B] = a, b
        used[ROWS] += 1
    table[row, COUNT] = number
    return True


@inlined
def stash_takes(
    table: Rows,
    used: Used,
    a: np.uint64,
    b: np.uint64,
    needed: int,
    counts: Counts,
) -> bool:
    """Return whether a digest may be added. If not, it is refused; the kernel must add it nowhere.

    It may not if the stash has ROWS_SPARE rows more than random keys `needed` at any time, or if it would make a run
    longer than RUN_MAX.
    """
    counts[NEEDED] = max(counts[NEEDED], np.int64(needed))
    spare = ROWS_SPARE + counts[NEEDED] - used[ROWS]
    run = _run_with(table, _find(table, a, b))
    if spare < ROWS_SPARE // 2 or run > RUN_MAX // 2:
        counts[FLAGS] |= STRAINED
    if spare > 0 and run <= RUN_MAX:
        return True
    refuse(counts)
    return False


@inlined
def stash_remove(table: Rows, used: Used, a: np.uint64, b: np.uint64) -> bool:
    """Count the digest down. Returns False if the stash does not hold it."""
    row = _find(table, a, b)
    if table[row, COUNT] == _0:
        return False
    used[COPIES] -= 1
    table[row, COUNT] -= _1
    if table[row, COUNT] == _0:
        used[ROWS] -= 1
        _close(table, row)
    return True


@kernel
def _look(table: Rows, digests: Digests, present: Mask) -> None:
    for i in range(digests.shape[0]):
        present[i] |= stash_count(table, digests[i, 0], digests[i, 1]) != _0


@kernel
def _has(table: Rows, a: int, b: int) -> bool:
    return bool(stash_count(table, np.uint64(a), np.uint64(b)) != _0)


def _most(rows: int) -> int:
    """Three quarters: a search for an absent digest then looks at 8.5 rows on average (Knuth)."""
    return rows - rows // 4


_rows_max = inlined(_most)


@inlined
def _home(a: np.uint64, b: np.uint64, rows: np.uint64) -> np.uint64:
    """The row at which a search begins.

    Digests that overflow together have the same bits that choose their bucket. The row therefore depends on all bits.
    """
    return high_word(finalised(a ^ finalised(b)), rows)


@inlined
def _find(table: Rows, a: np.uint64, b: np.uint64) -> np.uint64:
    """The row of the digest, or the free row at which its search ends."""
    rows = np.uint64(table.shape[0])
    last = rows - _1  # a mask, because `rows` is a power of two
    row = _home(a, b, rows)
    while table[row, COUNT] != _0 and (table[row, A] != a or table[row, B] != b):
        row = (row + _1) & last
    return row


@inlined
def _run_with(table: Rows, row: np.uint64) -> int:
    """How many rows are in the run of which a free `row` would be part; a little above RUN_MAX if they are more."""
    last = np.uint64(table.shape[0]) - _1
    run, before, after = 1, (row - _1) & last, (row + _1) & last
    while run <= RUN_MAX and table[before, COUNT] != _0:
        run, before = run + 1, (before - _1) & last
    while run <= RUN_MAX and table[after, COUNT] != _0:
        run, after = run + 1, (after + _1) & last
    return run


@inlined
def _close(table: Rows, hole: np.uint64) -> None:
    """Close the gap of a row that became free, so that no search for a later row ends there too early."""
    rows = np.uint64(table.shape[0])
    last = rows - _1
    row = (hole + _1) & last
    while table[row, COUNT] != _0:
        way = (row - _home(table[row, A], table[row, B], rows)) & last
        if way >= (row - hole) & last:
            for column in range(COLUMNS):
                table[hole, column] = table[row, column]
            hole = row
        row = (row + _1) & last
    for column in range(COLUMNS):
        table[hole, column] = _0


@kernel
def _move(rows: Rows, larger: Rows) -> None:
    """Put rows of distinct digests into another table."""
    for i in range(rows.shape[0]):
        if rows[i, COUNT] != _0:
            larger[_find(larger, rows[i, A], rows[i, B])] = rows[i]


@kernel
def _reachable(part: Rows, start: int, rows: int, run: int) -> int:
    """Check that searches find all rows of `part`. Returns how many rows in use end `part`, or -1 if one is not found.

    A search must not meet a free row before its own row. `part` begins at row `start`, after a run of `run` rows in
    use. A free row must hold only zeros; otherwise the result is -1, too.
    """
    for i in range(part.shape[0]):
        if part[i, COUNT] == _0:
            if part[i, A] != _0 or part[i, B] != _0:
                return -1
            run = 0
            continue
        home = np.int64(_home(part[i, A], part[i, B], np.uint64(rows)))
        if (start + i - home) % rows > run:
            return -1
        run += 1
    return run
