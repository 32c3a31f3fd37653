"""d-left fingerprint table: 4/3 log2(24/p) bits a key, and keys can be taken back (Bonomi et al. 2006).

Each addition takes a cell of its own. Through the permutations of `dleft_table`, a removal takes a cell that this very
fingerprint filled. What finds no cell is kept whole, in the stash.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Key, Mask
from streamdedup.filters.dleft.rows import CELLS
from streamdedup.filters.dleft.shape import Shape, shape_for
from streamdedup.filters.dleft.table import Table
from streamdedup.filters.keyed import KEYS, Keyed, number
from streamdedup.filters.memory import Counts
from streamdedup.filters.sizing import DLEFT_CELLS, DLEFT_TABLES, TABLE_BITS_MAX, dleft_error
from streamdedup.filters.stash import ROWS
from streamdedup.keys.hashing import MURMUR3, Digests, Hash

REMAINDER_BITS_MAX = 48


class DLeft(Keyed):
    """A d-left table for `capacity` keys, at most `error_rate` false positives when that many are in."""

    kind = "dleft"
    copies_max: ClassVar[int] = (1 << 32) - 1
    sticky: ClassVar[bool] = False

    def __init__(self, capacity: int, error_rate: float = 1e-6, *, hash_: Hash = MURMUR3) -> None:
        super().__init__(capacity, error_rate, hash_)
        self._table = Table(self._fitting(self._shape()))

    def _shape(self) -> Shape:
        return shape_for(self._capacity, self._error_rate, counter_bits=0)

    def _fitting(self, shape: Shape) -> Shape:
        if shape.bits > TABLE_BITS_MAX or shape.remainder_bits > REMAINDER_BITS_MAX:
            raise ConfigError(
                f"filter.capacity {self._capacity} at error_rate {self._error_rate} takes {shape.bits} bits, of at most"
                f" {TABLE_BITS_MAX}, and remainders of {shape.remainder_bits} bits, of at most {REMAINDER_BITS_MAX};"
                " lower the one or raise the other"
            )
        return shape

    @property
    def buckets(self) -> int:
        """The buckets of each of the four subtables."""
        return self._table.shape.buckets

    @property
    def remainder_bits(self) -> int:
        """What a cell keeps of a digest, in bits."""
        return self._table.shape.remainder_bits

    @property
    def overflowed(self) -> int:
        """The digests that are in the stash, since no cell was free."""
        return int(self._table.stash.used[ROWS])

    @property
    def error_rate_now(self) -> float:
        """The share of all fingerprints that is in cells: exactly what a key that was never added meets."""
        shape = self._table.shape
        return int(self._table.counts[KEYS]) / (shape.buckets * shape.remainders)

    @property
    def fill_ratio(self) -> float:
        """The share of cells in use; three quarters at capacity."""
        return int(self._table.counts[CELLS]) / self._table.shape.cells_all

    @property
    def size_bytes(self) -> int:
        """The memory of the cells and the stash, in bytes."""
        return self._table.size_bytes

    def __len__(self) -> int:
        return len(self._table)

    def expected_error(self, keys: int) -> float:
        """The share of all fingerprints that so many keys take: about n / (B 2^r)."""
        return dleft_error(self.buckets, self._table.shape.remainders, keys)

    def loads(self) -> Counts:
        """How many buckets have 0, 1, .. 8 cells in use, shape (9,), dtype int64."""
        return self._table.loads()

    def add_many(self, digests: Digests) -> Mask:
        """Add all of `digests` (n, 2); True, shape (n,), where it was not there."""
        return self._table.add(digests)

    def add_absent(self, digests: Digests) -> Mask:
        """As `add_many`, without copies of what is there."""
        return self._table.add(digests, once=True)

    def contains_many(self, digests: Digests) -> Mask:
        """True, shape (n,), where a digest of `digests` (n, 2) is present."""
        return self._table.contains(digests)

    def remove_many(self, digests: Digests) -> Mask:
        """Take one addition of each of `digests` (n, 2) back; True, shape (n,), where it was there.

        Only of what was added: otherwise, where it looks present, the key that it looks like loses an addition.
        """
        return self._table.remove(digests)

    def discard(self, key: Key) -> bool:
        """Take one addition of `key` back, which must have been added; False where it was not there.

        In `dlcbf`, a key that was added three times stays for good: each later call says True and changes nothing.
        """
        return self._table.remove_one(*self._hash.signed(key))

    def header(self) -> dict[str, Any]:
        """Kind, parameters, sizes and the number of fingerprints."""
        return self._header(
            buckets=self.buckets,
            remainder_bits=self.remainder_bits,
            keys=int(self._table.counts[KEYS]),
        )

    def buffers(self) -> list[memoryview]:
        """The buckets and the stash, little-endian in uint64 words.

        A bucket takes 8 r bits, that of subtable t and number i from bit 8 r (t B + i) on, where bit x is bit x % 64 of
        word x // 64: 8 remainders of r bits, the lowest bit first. Those that are 0 are free, and behind all others. In
        `dlcbf` it takes 8 (r + 2): 8 counters of 2 bits, 0 in free cells, and then the remainders. A word of 0 ends it.
        """
        return [self._table.words.data.cast("B"), self._table.stash.buffer()]

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> Self:
        """The filter that gave these parts, over these very buffers; ValueError where they contradict one another."""
        restored = cls._of_header(header, hash_)
        restored._options_of(header)
        shape = restored._fitting(restored._shape())
        for name in ("buckets", "remainder_bits"):
            follows = getattr(shape, name)
            if number(header, name, 1, TABLE_BITS_MAX) != follows:
                raise ValueError(
                    f"{name} {follows} follows from capacity and error rate, not {header[name]}"
                )
        cells, stash = buffers
        restored._table = Table.over(shape, cells, stash)
        counts = restored._table.counts
        counts[KEYS] = restored._keys_of(header, int(counts[CELLS]))
        return restored

    def _options_of(self, header: Mapping[str, Any]) -> None:
        """Take what else shapes the table from a header, of this kind nothing."""

    def _keys_of(self, header: Mapping[str, Any], cells: int) -> int:
        """The fingerprints in cells: of which there are copies, only the header says."""
        copies = DLEFT_TABLES * DLEFT_CELLS
        return number(header, "keys", -(-cells // copies), cells)

    def _add_one(self, a: int, b: int) -> bool:
        return self._table.add_one(a, b)

    def _contains_one(self, a: int, b: int) -> bool:
        return self._table.contains_one(a, b)
