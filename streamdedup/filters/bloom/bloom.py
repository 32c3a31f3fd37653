"""Bloom filter: m bits, k hashes a key; 1.44 log2(1/p) bits a key (Bloom 1970). Any m, no rounding up."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Mask
from streamdedup.filters.keyed import (
    KEYS,
    PROBES_A_CALL,
    ROWS_A_CALL,
    Keyed,
    answered,
    number,
    same,
    stated_sizes,
)
from streamdedup.filters.memory import Counts, Words, aligned_words, bits_over, ones_in, writable
from streamdedup.filters.probing import (
    PROBES,
    advance,
    ask,
    begin,
    is_double,
    position,
    stated_probe,
)
from streamdedup.filters.sizing import (
    BLOOM_HASHES_MAX,
    TABLE_BITS_MAX,
    bloom_error,
    bloom_excess,
    bloom_keys,
    bloom_size,
)
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import MURMUR3, Digests, Hash

AHEAD = 16  # rows whose words are asked for before they are needed

BITS_SET = 1  # in `counts`, after the keys


class Bloom(Keyed):
    """A Bloom filter for `capacity` keys, at most `error_rate` false positives when that many are in."""

    kind = "bloom"
    only_sets_bits = True

    def __init__(
        self,
        capacity: int,
        error_rate: float = 1e-6,
        *,
        probe: str = "standard",
        hash_: Hash = MURMUR3,
    ) -> None:
        super().__init__(capacity, error_rate, hash_)
        if excess := bloom_excess(capacity, error_rate):
            raise ConfigError(f"filter.capacity {capacity}: {excess}")
        self._double = is_double(probe)
        self._size(*bloom_size(capacity, error_rate))
        self._words = aligned_words(-(-self.bits // 64))

    def _size(self, bits: int, hashes: int) -> None:
        self.bits, self.hashes = bits, hashes
        self._m, self._k = np.uint64(bits), np.uint64(hashes)
        self._rows = min(ROWS_A_CALL, PROBES_A_CALL // hashes)
        self._counts: Counts = np.array([0, 0], dtype=np.int64)

    @property
    def error_rate_now(self) -> float:
        """The fill ratio to the power of k: what the bits that are set now really give."""
        return float(self.fill_ratio**self.hashes)

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set; about one half at capacity."""
        return float(self._counts[BITS_SET] / self.bits)

    def expected_error(self, keys: int) -> float:
        """(1 - e^(-kn/m))^k for n = `keys`."""
        return bloom_error(self.bits, self.hashes, keys)

    def add_many(self, digests: Digests) -> Mask:
        """Add all of `digests` (n, 2); True, shape (n,), where it was not there."""
        writable(self._words)
        return answered(digests, partial(_add, *self._table, self._counts), self._rows)

    def contains_many(self, digests: Digests) -> Mask:
        """True, shape (n,), where a digest of `digests` (n, 2) is present."""
        return answered(digests, partial(_contains, *self._table), self._rows)

    def __ior__(self, other: Self) -> Self:
        same(self, other, "bits", "hashes", "probe")
        writable(self._words)
        np.bitwise_or(self._words, other._words, out=self._words)
        self._recount()
        self._counts[KEYS] = round(bloom_keys(self.bits, self.hashes, self._counts[BITS_SET]))
        return self

    def header(self) -> dict[str, Any]:
        """Kind, parameters, sizes and the number of keys."""
        return self._header(
            bits=self.bits, hashes=self.hashes, probe=PROBES[self._double], keys=len(self)
        )

    def buffers(self) -> list[memoryview]:
        """The bits, little-endian in uint64 words: bit i is bit i % 64 of word i // 64."""
        return [self._words.data.cast("B")]

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> Self:
        """The filter that gave these parts, over these very buffers; ValueError where they contradict one another."""
        restored = cls._of_header(header, hash_)
        bits, hashes = stated_sizes(
            header, bloom_size, bits=TABLE_BITS_MAX, hashes=BLOOM_HASHES_MAX
        )
        restored._double = stated_probe(header)
        restored._size(bits, hashes)
        (table,) = buffers
        restored._words = bits_over(table, bits)
        restored._recount()
        # A snapshot's header is newer than its first bits: keys that came meanwhile may have none in it.
        keys = number(header, "keys", 0, TABLE_BITS_MAX)
        restored._counts[KEYS] = min(keys, restored._counts[BITS_SET])
        return restored

    @property
    def _table(self) -> tuple[Words, np.uint64, np.uint64, bool]:
        """What every kernel takes first."""
        return self._words, self._m, self._k, self._double

    def _recount(self) -> None:
        self._counts[BITS_SET] = ones_in(self._words)

    def _add_one(self, a: int, b: int) -> bool:
        writable(self._words)
        return bool(_add_one(self._words, self._m, self._k, self._double, a, b, self._counts))

    def _contains_one(self, a: int, b: int) -> bool:
        return bool(_contains_one(self._words, self._m, self._k, self._double, a, b))


_6, _63, _3, _1, _0 = np.uint64(6), np.uint64(63), np.uint64(3), np.uint64(1), np.uint64(0)

# A word of a large table takes as long to come as twenty keys take to compute, so `_add` asks for words AHEAD of need.
# No branch depends on a single bit: nobody could foresee it, and what was begun for the next keys would be thrown away.


@inlined
def _insert(
    words: Words, bits: np.uint64, hashes: np.uint64, double: bool, a: np.uint64, b: np.uint64
) -> np.uint64:
    """How many bits were newly set."""
    newly_set = _0
    state, step = begin(a, b, bits, double)
    for _ in range(hashes):
        at = position(state, bits, double)
        word = words[at >> _6]
        words[at >> _6] = word | (_1 << (at & _63))
        newly_set += _1 - ((word >> (at & _63)) & _1)
        state = advance(state, step, bits, double)
    return newly_set


@inlined
def _present(
    words: Words, bits: np.uint64, hashes: np.uint64, double: bool, a: np.uint64, b: np.uint64
) -> bool:
    """Whether all bits are set: three at once, which most absent keys do not pass, then the rest at once."""
    state, step = begin(a, b, bits, double)
    first = min(hashes, _3)
    clear = _0
    for _ in range(first):
        at = position(state, bits, double)
        clear |= ~(words[at >> _6] >> (at & _63))
        state = advance(state, step, bits, double)
    if clear & _1 == _0:
        for _ in range(first, hashes):
            at = position(state, bits, double)
            clear |= ~(words[at >> _6] >> (at & _63))
            state = advance(state, step, bits, double)
    return bool(clear & _1 == _0)


@kernel
def _add(
    words: Words,
    bits: np.uint64,
    hashes: np.uint64,
    double: bool,
    counts: Counts,
    digests: Digests,
    fresh: Mask,
) -> None:
    rows = digests.shape[0]
    for i in range(min(rows, AHEAD)):
        ask(words, _6, bits, hashes, double, digests[i, 0], digests[i, 1])
    keys = 0
    newly_set = _0
    for i in range(rows):
        if i + AHEAD < rows:
            ask(words, _6, bits, hashes, double, digests[i + AHEAD, 0], digests[i + AHEAD, 1])
        new = _insert(words, bits, hashes, double, digests[i, 0], digests[i, 1])
        fresh[i] = new > _0
        keys += int(new > _0)
        newly_set += new
    counts[KEYS] += keys
    counts[BITS_SET] += np.int64(newly_set)


@kernel
def _add_one(
    words: Words,
    bits: np.uint64,
    hashes: np.uint64,
    double: bool,
    a: int,
    b: int,
    counts: Counts,
) -> bool:
    new = _insert(words, bits, hashes, double, np.uint64(a), np.uint64(b))
    counts[KEYS] += new > _0
    counts[BITS_SET] += np.int64(new)
    return bool(new > _0)


@kernel
def _contains(
    words: Words,
    bits: np.uint64,
    hashes: np.uint64,
    double: bool,
    digests: Digests,
    present: Mask,
) -> None:
    for i in range(digests.shape[0]):
        present[i] = _present(words, bits, hashes, double, digests[i, 0], digests[i, 1])


@kernel
def _contains_one(
    words: Words, bits: np.uint64, hashes: np.uint64, double: bool, a: int, b: int
) -> bool:
    return _present(words, bits, hashes, double, np.uint64(a), np.uint64(b))
