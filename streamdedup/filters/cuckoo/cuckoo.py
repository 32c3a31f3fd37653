"""Cuckoo filter: each fingerprint is in one of two buckets of 4 cells (Fan, Andersen, Kaminsky, Mitzenmacher 2014).

There may be any number of buckets: the other bucket of bucket i is (H(fingerprint) - i) mod buckets. Cells
are packed to the bit, and a cell of 0 is free. A digest that finds no free cell, not even after others were
moved, goes to the exact stash.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from streamdedup.filters.base import Key, Mask
from streamdedup.filters.cuckoo.buckets import free_cells, layout_fields
from streamdedup.filters.cuckoo.kinds import CUCKOO
from streamdedup.filters.cuckoo.rows import (
    TAKEN,
    add_row,
    add_rows,
    contains_row,
    contains_rows,
    insert_row,
    remove_row,
    remove_rows,
)
from streamdedup.filters.cuckoo.search import search_queue
from streamdedup.filters.digest_filter import (
    KEYS,
    DigestFilter,
    ask_in_slices,
    empty_mask,
    number,
    one_row,
    slices,
)
from streamdedup.filters.glance import is_glance
from streamdedup.filters.memory import Counts, aligned_words, words_over, writable
from streamdedup.filters.sizing import (
    CUCKOO_BITS_MAX,
    CUCKOO_CELLS,
    TABLE_BITS_MAX,
    cuckoo_error,
    cuckoo_size,
)
from streamdedup.filters.stash import COPIES, NEW, NOT_DONE, ROWS, Stash
from streamdedup.filters.strain import (
    COUNTS,
    CREDIT,
    FLAGS,
    NEEDED,
    STRAINED,
    chosen_keys,
    take_refusal,
)
from streamdedup.keys.hashing import MURMUR3, Digests, Hash

SEARCH_LOAD = 0.97  # of the cells in use; above it no search begins, since hardly any succeeds
ROWS_A_CALL = 1 << 12  # rows in one call of a kernel that changes cells
# Three times the buckets that a random new key looks at: on average 16 at capacity, with its own two.
CREDIT_A_KEY = 48
BUCKETS_A_SLICE = 1 << 17


class Cuckoo(DigestFilter):
    """A cuckoo filter for `capacity` keys, with at most `error_rate` false positives at capacity.

    A `multiset` keeps eight copies of a key in its two buckets, and the others in the stash.
    """

    kind = "cuckoo"
    copies_max: ClassVar[int] = 1 << 32
    sticky: ClassVar[bool] = False

    def __init__(
        self,
        capacity: int,
        error_rate: float = 1e-6,
        *,
        multiset: bool = False,
        hash_: Hash = MURMUR3,
    ) -> None:
        super().__init__(capacity, error_rate, hash_)
        CUCKOO.check(capacity, error_rate)
        self.multiset = multiset
        self._size(*cuckoo_size(capacity, error_rate))
        self._words = aligned_words(self._words_needed)
        self._stash = Stash()

    def _size(self, buckets: int, fingerprint_bits: int) -> None:
        self.buckets, self.fingerprint_bits = buckets, fingerprint_bits
        self._cells = buckets * CUCKOO_CELLS
        # One word more than the bits take, since the last cell, too, is read out of two words.
        self._words_needed = -(-self._cells * fingerprint_bits // 64) + 1
        searched = int(SEARCH_LOAD * self._cells)
        self._fields = layout_fields(buckets, fingerprint_bits, searched, self._capacity)
        self._counts: Counts = np.zeros(COUNTS, dtype=np.int64)
        self._counts[CREDIT] = CREDIT_A_KEY
        self._queue = search_queue()

    @property
    def error_rate_now(self) -> float:
        """The error rate that theory gives for the cells in use. The stash is exact, so it adds none."""
        return cuckoo_error(self.buckets, self.fingerprint_bits, int(self._counts[TAKEN]))

    @property
    def fill_ratio(self) -> float:
        """The share of cells in use; 0.95 at capacity."""
        return float(self._counts[TAKEN] / self._cells)

    @property
    @override
    def strained(self) -> bool:
        return bool(self._counts[FLAGS] & STRAINED)

    @property
    @override
    def overfull(self) -> bool:
        return self._stash.overfull

    @property
    @override
    def size_bytes(self) -> int:
        return int(self._words.nbytes) + self._stash.size_bytes

    def expected_error(self, keys: int) -> float:
        """Return 1 - (1 - 1/(2^f - 1))^(8 load), for the load of `keys` keys."""
        return cuckoo_error(self.buckets, self.fingerprint_bits, keys)

    def add_many(self, digests: Digests) -> Mask:
        """Add all `digests` (n, 2). Return a mask, shape (n,): True for each digest that was absent."""
        return self._add_all(digests, once=not self.multiset)

    def add_absent(self, digests: Digests) -> Mask:
        """Add the `digests` (n, 2) that are absent, each once, in a multiset, too. Return which these are."""
        return self._add_all(digests, once=True)

    def contains_many(self, digests: Digests) -> Mask:
        """Look up all `digests` (n, 2). Return a mask, shape (n,): True for each digest that is present."""
        return ask_in_slices(digests, self._look_up)

    def discard(self, key: Key, /) -> bool:
        """Take `key` out, or one of its additions if this is a multiset. Return False if it was absent.

        A set may lose keys whose addition returned False, because they had the same fingerprint and buckets.
        """
        writable(self._words)
        a, b = self._hash.signed(key)
        stash = self._stash
        return bool(
            remove_row(self._words, self._fields, stash.table, stash.used, self._counts, a, b)
        )

    def remove_many(self, digests: Digests) -> Mask:
        """Do what `discard` does with each of `digests` (n, 2).

        Return a mask, shape (n,): True for each digest that was present. Remove only keys that were added:
        the removal of a false positive takes the fingerprint of another key.
        """
        writable(self._words)
        stash = self._stash
        table = self._words, self._fields, stash.table, stash.used, self._counts
        return ask_in_slices(digests, partial(remove_rows, *table), ROWS_A_CALL)

    def header(self) -> dict[str, Any]:
        """Return the kind, the parameters, the sizes and the number of keys."""
        return self._header(
            buckets=self.buckets, fingerprint_bits=self.fingerprint_bits, keys=len(self)
        )

    def buffers(self) -> list[memoryview]:
        """Return the cells, as little-endian uint64 words, and the stash.

        Cell i is the f bits from bit i * f on, where bit x is bit x % 64 of word x // 64.
        """
        return [self._words.data.cast("B"), self._stash.buffer()]

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        stated_size = (
            number(header, "buckets", 1, TABLE_BITS_MAX),
            number(header, "fingerprint_bits", 1, CUCKOO_BITS_MAX),
        )
        follow = cuckoo_size(self.capacity, self.error_rate)
        if stated_size != follow:
            raise ValueError(
                f"{follow} (buckets, bits of a fingerprint) follow from capacity and error rate, not {stated_size}"
            )
        self._size(*follow)
        table, stash = buffers
        self._words = words_over(table, self._words_needed)
        self._stash = Stash.over(stash)
        if is_glance():
            self._counts[TAKEN] = number(header, "keys", 0, self._cells)
        else:
            self._recount()
        self._counts[KEYS] = number(header, "keys", 0, self._additions)
        self._counts[NEEDED] = self._stash.used[ROWS]

    @property
    def _additions(self) -> int:
        """How many digests the cells and the stash hold, copies included."""
        return int(self._counts[TAKEN] + self._stash.used[COPIES])

    def _recount(self) -> None:
        self._counts[TAKEN] = self._cells
        for start in range(0, self.buckets, BUCKETS_A_SLICE):
            end = min(start + BUCKETS_A_SLICE, self.buckets)
            self._counts[TAKEN] -= int(free_cells(self._words, self._fields, start, end))
        bits = self._cells * self.fingerprint_bits
        tail = int(self._words[-2]) | int(self._words[-1]) << 64
        if tail >> (bits % 64 or 64):
            raise ValueError(f"bits are set beyond the last cell of {self._cells}")

    def _add_all(self, digests: Digests, *, once: bool) -> Mask:
        writable(self._words)
        fresh = empty_mask(digests)
        for part, rows in slices(digests, ROWS_A_CALL):
            self._stash.feed(partial(self._add_from, part, once, fresh[rows]), len(part))
        return fresh

    def _add_from(self, part: Digests, once: bool, fresh: Mask, start: int) -> int:
        done = add_rows(
            self._words,
            self._fields,
            self._stash.table,
            self._stash.used,
            self._queue,
            self._counts,
            part,
            once,
            fresh,
            start,
        )
        self._check_refusal()
        return int(done)

    def _check_refusal(self) -> None:
        """Raise ChosenKeysError if the last addition was refused."""
        if take_refusal(self._counts):
            raise chosen_keys(self.kind, self._hash)

    def _look_up(self, part: Digests, present: Mask) -> None:
        contains_rows(self._words, self._fields, part, present)
        self._stash.find(part, present)

    @override
    def _add_one(self, a: int, b: int) -> bool:
        if self.multiset:
            return bool(self._add_all(one_row(a, b), once=False)[0])
        writable(self._words)
        words, fields, counts, stash = self._words, self._fields, self._counts, self._stash
        said = NOT_DONE
        if not stash.used[ROWS]:  # a kernel is called faster if it takes few arrays
            said = add_row(words, fields, counts, a, b)
        while said == NOT_DONE:  # twice if the stash was full
            said = insert_row(words, fields, stash.table, stash.used, self._queue, counts, a, b)
            stash.make_room()
            self._check_refusal()
        return bool(said == NEW)

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return bool(contains_row(self._words, self._fields, a, b)) or self._stash.has(a, b)
