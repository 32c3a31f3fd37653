"""Bloom filter: m bits, k hashes a key; 1.44 log2(1/p) bits a key (Bloom 1970). m may be any number."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from typing_extensions import override

from streamdedup.filters.base import Mask
from streamdedup.filters.bloom.kinds import BLOOM
from streamdedup.filters.digest_filter import (
    KEYS,
    PROBES_A_CALL,
    ROWS_A_CALL,
    DigestFilter,
    ask_in_slices,
    check_alike,
    number,
    sizes_from_header,
)
from streamdedup.filters.memory import Counts, aligned_words, bits_over, ones_in, writable
from streamdedup.filters.probes import (
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
    bloom_keys,
    bloom_size,
    keys_of_both,
)
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import MURMUR3, Digests, Hash

AHEAD = 16  # rows between the prefetch of the words of a digest and their use

BITS_SET = 1  # index in `counts` of the number of bits that are set, after that of the keys


class Bloom(DigestFilter):
    """A Bloom filter for `capacity` keys, with at most `error_rate` false positives at capacity."""

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
        BLOOM.check(capacity, error_rate)
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
        """The fill ratio to the power of k: the error rate of the bits that are set now."""
        return float(self.fill_ratio**self.hashes)

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set; about one half at capacity."""
        return float(self._counts[BITS_SET] / self.bits)

    def expected_error(self, keys: int) -> float:
        """Return (1 - e^(-kn/m))^k for n = `keys`."""
        return bloom_error(self.bits, self.hashes, keys)

    def add_many(self, digests: Digests) -> Mask:
        """Add all `digests` (n, 2). Return a mask, shape (n,): True for each digest that was absent."""
        writable(self._words)
        return ask_in_slices(digests, partial(_add, *self._table, self._counts), self._rows)

    def contains_many(self, digests: Digests) -> Mask:
        """Look up all `digests` (n, 2). Return a mask, shape (n,): True for each digest that is present."""
        return ask_in_slices(digests, partial(_contains, *self._table), self._rows)

    def __ior__(self, other: Self) -> Self:
        check_alike("union", self, other, "bits", "hashes", "probe")
        writable(self._words)
        np.bitwise_or(self._words, other._words, out=self._words)
        self._recount()
        found = bloom_keys(self.bits, self.hashes, self._counts[BITS_SET])
        self._counts[KEYS] = keys_of_both(found, len(self), len(other))
        return self

    def header(self) -> dict[str, Any]:
        """Return the kind, the parameters, the sizes and the number of keys."""
        return self._header(
            bits=self.bits, hashes=self.hashes, probe=PROBES[self._double], keys=len(self)
        )

    def buffers(self) -> list[memoryview]:
        """Return the bits as little-endian uint64 words: bit i is bit i % 64 of word i // 64."""
        return [self._words.data.cast("B")]

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        bits, hashes = sizes_from_header(
            header, bloom_size, bits=TABLE_BITS_MAX, hashes=BLOOM_HASHES_MAX
        )
        self._double = stated_probe(header)
        self._size(bits, hashes)
        (table,) = buffers
        self._words = bits_over(table, bits)
        self._recount()
        # The header of a snapshot is written after the first bits were copied. Keys that were added in
        # between are counted in it, but may have no bits in the table.
        keys = number(header, "keys", 0, TABLE_BITS_MAX)
        self._counts[KEYS] = min(keys, self._counts[BITS_SET])

    @property
    def _table(self) -> tuple[Words, np.uint64, np.uint64, bool]:
        """The arguments that every kernel takes first."""
        return self._words, self._m, self._k, self._double

    def _recount(self) -> None:
        self._counts[BITS_SET] = ones_in(self._words)

    @override
    def _add_one(self, a: int, b: int) -> bool:
        writable(self._words)
        return bool(_add_one(self._words, self._m, self._k, self._double, a, b, self._counts))

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return bool(_contains_one(self._words, self._m, self._k, self._double, a, b))


_6, _63, _3, _1, _0 = np.uint64(6), np.uint64(63), np.uint64(3), np.uint64(1), np.uint64(0)

# Loading a word of a large table from memory takes as long as computing twenty keys, so `_add` prefetches
# the words of a digest AHEAD rows before it needs them. No branch depends on a single bit: the processor
# could not predict it, and each wrong guess would throw away the work that was begun for the next keys.


@inlined
def _insert(
    words: Words, bits: np.uint64, hashes: np.uint64, double: bool, a: np.uint64, b: np.uint64
) -> np.uint64:
    """Set the bits of a digest. Return how many of them were not set before."""
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
    """Return whether all bits of a digest are set.

    The first three bits are read together; most absent keys fail there. Then the rest are read together.
    """
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
