"""d-left table: a multiset of digests in d subtables of buckets of cells, and a stash (Bonomi et al. 2006).

A key goes to the least loaded of its d buckets, the leftmost on ties; if all are full, it goes to the exact
stash. Subtable i holds a fingerprint (bucket, remainder) as its permutation P_i. So two equal cells of one
bucket have equal fingerprints, and a removal cannot take the cell of another fingerprint.
"""

from functools import partial
from typing import Self

import numpy as np

from streamdedup.filters.base import Mask
from streamdedup.filters.digest_filter import KEYS, ask_in_slices, empty_mask, one_row, slices
from streamdedup.filters.dleft.buckets import census
from streamdedup.filters.dleft.rows import (
    CELLS,
    COPIED,
    add_row,
    add_rows,
    contains_row,
    contains_rows,
    one_place,
    remove_row,
    remove_rows,
)
from streamdedup.filters.dleft.shape import Shape
from streamdedup.filters.memory import Counts, aligned_words, words_over, writable
from streamdedup.filters.stash import NEW, NOT_DONE, ROWS, Stash
from streamdedup.filters.strain import (
    COUNTS,
    FLAGS,
    NEEDED,
    STRAINED,
    chosen_keys,
    take_refusal,
)
from streamdedup.kernel import Words
from streamdedup.keys.hashing import MURMUR3, Digests, Hash

BUCKETS_A_CALL = 1 << 15  # buckets in one call of `census`: below 10 ms


class DLeftTable:
    """The cells, packed into `words`, and the stash: a multiset of digests of shape (n, 2), dtype uint64.

    `kind` and `hash_` are those of the filter, for an error.
    """

    def __init__(self, shape: Shape, kind: str = "dleft", hash_: Hash = MURMUR3) -> None:
        self.shape, self._fields = shape, shape.layout
        self._of = kind, hash_
        self.words: Words = aligned_words(shape.words)
        self.stash = Stash()
        self.counts: Counts = np.zeros(COUNTS + 1, dtype=np.int64)
        self.places = one_place()
        self._read_only = False

    @classmethod
    def over(
        cls,
        shape: Shape,
        words: memoryview,
        stash: memoryview,
        kind: str = "dleft",
        hash_: Hash = MURMUR3,
    ) -> Self:
        """Return the table over these very buffers. Raises ValueError if they hold none.

        It counts as many keys as cells in use, as if no fingerprint were in two cells.
        """
        table = cls.__new__(cls)
        table.shape, table._fields = shape, shape.layout
        table._of = kind, hash_
        table.words = words_over(words, shape.words)
        table.stash = Stash.over(stash)
        loads = table.loads()
        start = shape.bits >> 6
        if int(table.words[start]) >> (shape.bits & 63) or table.words[start + 1 :].any():
            raise ValueError(f"bits are set beyond the last of {shape.bits}")
        table.counts = np.zeros(COUNTS + 1, dtype=np.int64)
        table.places = one_place()
        table.counts[KEYS] = table.counts[CELLS] = np.arange(len(loads)) @ loads
        table.counts[NEEDED] = table.stash.used[ROWS]
        flags = table.words.flags, table.stash.table.flags
        table._read_only = not all(flag.writeable for flag in flags)
        return table

    @property
    def size_bytes(self) -> int:
        """The memory of the cells and the stash, in bytes."""
        return int(self.words.nbytes) + self.stash.size_bytes

    @property
    def strained(self) -> bool:
        """Whether the stash has more than half of what it may have beyond the needs of random keys."""
        return bool(self.counts[FLAGS] & STRAINED)

    def __len__(self) -> int:
        return int(self.counts[KEYS] + self.stash.used[ROWS] - self.counts[COPIED])

    def loads(self) -> Counts:
        """Return how many buckets have 0, 1, .. w cells in use, shape (w + 1,).

        Raises ValueError if a bucket is in a state in which no kernel leaves one.
        """
        loads: Counts = np.zeros(self.shape.cells + 1, dtype=np.int64)
        buckets = self.shape.tables * self.shape.buckets
        for start in range(0, buckets, BUCKETS_A_CALL):
            stop = min(start + BUCKETS_A_CALL, buckets)
            if not census(self.words, self._fields, start, stop, loads):
                raise ValueError(
                    "a bucket of the table has a free cell before one in use, or bits in a free cell"
                )
        return loads

    def add(self, digests: Digests, *, once: bool = False) -> Mask:
        """Add all digests; with `once`, only those that are absent.

        Return a mask, shape (n,): True for each digest that was absent.
        """
        self.writable()
        fresh = empty_mask(digests)
        for part, rows in slices(digests):
            self.stash.feed(partial(self._add_from, part, once, fresh[rows]), len(part))
        return fresh

    def _add_from(self, part: Digests, once: bool, fresh: Mask, start: int) -> int:
        stash = self.stash
        done = add_rows(
            self.words,
            self._fields,
            stash.table,
            stash.used,
            self.counts,
            part,
            once,
            start,
            fresh,
        )
        if take_refusal(self.counts):
            raise chosen_keys(*self._of)
        return int(done)

    def contains(self, digests: Digests) -> Mask:
        """Return a mask, shape (n,): True for each digest that is present."""
        stash = self.stash
        table = self.words, self._fields, stash.table, stash.used
        return ask_in_slices(digests, partial(contains_rows, *table))

    def remove(self, digests: Digests) -> Mask:
        """Take back one addition of each digest. Return a mask, shape (n,): True for each that was present."""
        self.writable()
        stash = self.stash
        table = self.words, self._fields, stash.table, stash.used, self.counts
        return ask_in_slices(digests, partial(remove_rows, *table))

    def add_one(self, a: int, b: int, *, once: bool = False) -> bool:
        """Add one digest, given as signed integers, as `add` does. Return True if it was absent."""
        self.writable()
        if not self.stash.used[ROWS]:  # a kernel is called faster if it takes few arrays
            said = add_row(self.words, self._fields, self.counts, once, a, b)
            if said != NOT_DONE:
                return bool(said == NEW)
        return bool(self.add(one_row(a, b), once=once)[0])

    def contains_one(self, a: int, b: int) -> bool:
        """Return whether one digest, given as signed integers, is present."""
        return bool(contains_row(self.words, self._fields, a, b)) or self.stash.has(a, b)

    def remove_one(self, a: int, b: int) -> bool:
        """Take back one addition of a digest, given as signed integers. Return whether it was present."""
        self.writable()
        if self.stash.used[ROWS]:
            return bool(self.remove(one_row(a, b))[0])
        return bool(remove_row(self.words, self._fields, self.counts, a, b))

    def writable(self) -> None:
        """Raise ConfigError if the table stands on read-only buffers."""
        if self._read_only:
            writable(self.words)
            writable(self.stash.table)
