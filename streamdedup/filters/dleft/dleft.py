"""d-left fingerprint table: 4/3 log2(24/p) bits a key, and keys can be removed (Bonomi et al. 2006).

Each key, and in a multiset each addition, takes a cell of its own. The permutations of `table` make sure that a removal
takes a cell which this very fingerprint filled. A digest that finds no free cell is kept whole, in the stash.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from streamdedup.filters.base import Key, Mask
from streamdedup.filters.digest_filter import KEYS, DigestFilter, number
from streamdedup.filters.dleft import kinds
from streamdedup.filters.dleft.rows import CELLS, COPIED
from streamdedup.filters.dleft.shape import Shape, shape_for
from streamdedup.filters.dleft.table import DLeftTable
from streamdedup.filters.memory import Counts
from streamdedup.filters.sizing import DLEFT_CELLS, DLEFT_TABLES, TABLE_BITS_MAX, dleft_error
from streamdedup.filters.stash import ROWS
from streamdedup.keys.hashing import MURMUR3, Digests, Hash


class DLeft(DigestFilter):
    """A d-left table for `capacity` keys, with at most `error_rate` false positives at capacity."""

    kind = "dleft"
    copies_max: ClassVar[int] = (1 << 32) - 1
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
        self.multiset = multiset
        self._table = DLeftTable(self._shape(), self.kind, hash_)

    def _shape(self) -> Shape:
        kinds.DLEFT.check(self._capacity, self._error_rate)
        return shape_for(self._capacity, self._error_rate, counter_bits=0)

    @property
    def buckets(self) -> int:
        """The number of buckets in each of the four subtables."""
        return self._table.shape.buckets

    @property
    def remainder_bits(self) -> int:
        """The width of a remainder, the part of a fingerprint that a cell keeps, in bits."""
        return self._table.shape.remainder_bits

    @property
    def overflowed(self) -> int:
        """How many digests are in the stash because no cell was free for them."""
        return int(self._table.stash.used[ROWS])

    @property
    def error_rate_now(self) -> float:
        """The share of all possible fingerprints that cells hold.

        This is exactly the probability that a key that was never added meets one of them.
        """
        shape = self._table.shape
        return int(self._table.counts[KEYS]) / (shape.buckets * shape.remainders)

    @property
    @override
    def strained(self) -> bool:
        return self._table.strained

    @property
    @override
    def overfull(self) -> bool:
        return self._table.stash.overfull

    @property
    def fill_ratio(self) -> float:
        """The share of cells in use; three quarters at capacity."""
        return int(self._table.counts[CELLS]) / self._table.shape.cells_all

    @property
    @override
    def size_bytes(self) -> int:
        return self._table.size_bytes

    @override
    def __len__(self) -> int:
        return len(self._table)

    def expected_error(self, keys: int) -> float:
        """Return the share of all possible fingerprints that `keys` keys take: about n / (B 2^r)."""
        return dleft_error(self.buckets, self._table.shape.remainders, keys)

    def loads(self) -> Counts:
        """Return how many buckets have 0, 1, .. 8 cells in use, shape (9,), dtype int64."""
        return self._table.loads()

    def add_many(self, digests: Digests) -> Mask:
        """Add all `digests` (n, 2). Return a mask, shape (n,): True for each digest that was absent."""
        return self._table.add(digests, once=not self.multiset)

    def add_absent(self, digests: Digests) -> Mask:
        """Add the `digests` (n, 2) that are absent, each once, in a multiset, too. Return which these are."""
        return self._table.add(digests, once=True)

    def contains_many(self, digests: Digests) -> Mask:
        """Look up all `digests` (n, 2). Return a mask, shape (n,): True for each digest that is present."""
        return self._table.contains(digests)

    def remove_many(self, digests: Digests) -> Mask:
        """Do what `discard` does with each of `digests` (n, 2).

        Return a mask, shape (n,): True for each digest that was present. Remove only keys that were added:
        the removal of a false positive takes out another key.
        """
        return self._table.remove(digests)

    def discard(self, key: Key, /) -> bool:
        """Take `key` out, or one of its additions if this is a multiset. Return False if it was absent.

        A set may lose keys whose addition returned False, because they had the same fingerprint. A multiset of kind
        `dlcbf` never loses a key that was added three times: each later call returns True and changes nothing.
        """
        return self._table.remove_one(*self._hash.signed(key))

    def header(self) -> dict[str, Any]:
        """Return the kind, the parameters, the sizes and the number of fingerprints.

        Of a multiset also `copied`: how many rows of the stash have copies of a key that has a cell, too.
        """
        return self._header(
            buckets=self.buckets,
            remainder_bits=self.remainder_bits,
            keys=int(self._table.counts[KEYS]),
            **({"copied": int(self._table.counts[COPIED])} if self.multiset else {}),
        )

    def buffers(self) -> list[memoryview]:
        """Return the buckets and the stash, as little-endian uint64 words.

        Bucket i of subtable t is the 8 r bits from bit 8 r (t B + i) on, where bit x is bit x % 64 of word
        x // 64, r the width of a remainder and B the number of buckets in a subtable. It has 8 remainders,
        lowest bit first; the free ones are 0 and come after all others. In `dlcbf` a bucket has 8 (r + 2)
        bits: 8 counters of 2 bits each, 0 for a free cell, and then the remainders. One word of 0 ends the
        table.
        """
        return [self._table.words.data.cast("B"), self._table.stash.buffer()]

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        self._options_of(header)
        shape = self._shape()
        for name in ("buckets", "remainder_bits"):
            follows = getattr(shape, name)
            if number(header, name, 1, TABLE_BITS_MAX) != follows:
                raise ValueError(
                    f"{name} {follows} follows from capacity and error rate, not {header[name]}"
                )
        cells, stash = buffers
        self._table = DLeftTable.over(shape, cells, stash, self.kind, self._hash)
        counts = self._table.counts
        counts[KEYS] = self._keys_of(header, int(counts[CELLS]))
        if self.multiset:
            counts[COPIED] = number(header, "copied", 0, self.overflowed)

    def _options_of(self, header: Mapping[str, Any]) -> None:
        """Take the other options that shape the table from a header. This kind has none."""

    def _keys_of(self, header: Mapping[str, Any], cells: int) -> int:
        """Return the number of distinct fingerprints in cells.

        Copies take cells, too, so only the header has this number.
        """
        copies = DLEFT_TABLES * DLEFT_CELLS
        return number(header, "keys", -(-cells // copies), cells)

    @override
    def _add_one(self, a: int, b: int) -> bool:
        return self._table.add_one(a, b, once=not self.multiset)

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return self._table.contains_one(a, b)
