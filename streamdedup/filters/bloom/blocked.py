"""Blocked Bloom filter: all bits of a key in one cache line of 512, so a key costs one miss (Putze et al. 2007).

The high word of a * blocks is the block; the standard probe sequence from b, with steps of a, gives the bits in it.
More bits a key than Bloom's, since blocks fill unevenly: 3 % at an error rate of 1 %, 35 % at 1e-6, twice at 1e-9.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Mask
from streamdedup.filters.keyed import KEYS, Keyed, answered, number, same, stated_sizes
from streamdedup.filters.memory import Counts, Words, aligned_words, words_over, writable
from streamdedup.filters.probing import advance, high_word
from streamdedup.filters.sizing import (
    BLOCK_BITS,
    BLOCKED_ERROR_MIN,
    BLOCKED_HASHES_MAX,
    TABLE_BITS_MAX,
    blocked_error,
    blocked_keys,
    blocked_size,
)
from streamdedup.kernel import inlined, kernel, prefetch
from streamdedup.keys.hashing import MURMUR3, Digests, Hash

BLOCKS_MAX = TABLE_BITS_MAX // BLOCK_BITS
BLOCK_WORDS = BLOCK_BITS // 64
BLOCKS_A_CALL = 1 << 16  # counted in one kernel call: 4 MiB, about a millisecond
AHEAD = 32  # rows, by which blocks are asked for before they are needed; more gain nothing
LOADS = 1  # in `counts`, after the keys: from there on, how many blocks have 0, 1, ... 512 bits set


class Blocked(Keyed):
    """A Bloom filter in blocks for `capacity` keys, at most `error_rate` false positives when that many are in."""

    kind = "blocked"
    only_sets_bits = True

    def __init__(self, capacity: int, error_rate: float = 1e-6, *, hash_: Hash = MURMUR3) -> None:
        super().__init__(capacity, error_rate, hash_)
        if error_rate < BLOCKED_ERROR_MIN:
            raise ConfigError(
                f"filter.error_rate {error_rate} is below {BLOCKED_ERROR_MIN}, where kind blocked takes more than"
                " twice the memory of kind bloom; choose kind bloom"
            )
        blocks, hashes = blocked_size(capacity, error_rate)
        if blocks > BLOCKS_MAX:
            raise ConfigError(
                f"filter.capacity {capacity} at error_rate {error_rate} takes {blocks} blocks of 64 bytes, of at"
                f" most {BLOCKS_MAX}; lower the one or raise the other"
            )
        self._over(blocks, hashes, aligned_words(blocks * BLOCK_WORDS))
        self._counts[LOADS] = blocks

    def _over(self, blocks: int, hashes: int, words: Words) -> None:
        self.blocks, self.hashes = blocks, hashes
        self._words = words
        self._m, self._k = np.uint64(blocks), np.uint64(hashes)
        self._counts: Counts = np.zeros(LOADS + BLOCK_BITS + 1, dtype=np.int64)

    @property
    def error_rate_now(self) -> float:
        """The mean over all blocks of their share of set bits to the power of k."""
        shares = np.arange(BLOCK_BITS + 1) / BLOCK_BITS
        return float(self._counts[LOADS:] @ shares**self.hashes / self.blocks)

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set; about one half at capacity and 1 %, less at lower error rates."""
        return self._bits_set / (self.blocks * BLOCK_BITS)

    def expected_error(self, keys: int) -> float:
        """The mean of (1 - (1 - 1/512)^(kj))^k over the keys j of a block, of n = `keys`: `sizing.blocked_error`."""
        return blocked_error(self.blocks, self.hashes, keys)

    def add_many(self, digests: Digests) -> Mask:
        """Add all of `digests` (n, 2); True, shape (n,), where it was not there."""
        writable(self._words)
        return answered(digests, partial(_add, self._words, self._m, self._k, self._counts))

    def contains_many(self, digests: Digests) -> Mask:
        """True, shape (n,), where a digest of `digests` (n, 2) is present."""
        return answered(digests, partial(_contains, self._words, self._m, self._k))

    def __ior__(self, other: Self) -> Self:
        same(self, other, "blocks", "hashes")
        writable(self._words)
        np.bitwise_or(self._words, other._words, out=self._words)
        self._recount()
        self._counts[KEYS] = round(blocked_keys(self.blocks, self.hashes, self._bits_set))
        return self

    def header(self) -> dict[str, Any]:
        """Kind, parameters, sizes and the number of keys."""
        return self._header(blocks=self.blocks, hashes=self.hashes, keys=len(self))

    def buffers(self) -> list[memoryview]:
        """The bits, little-endian in uint64 words: bit i of a block is bit i % 64 of its word i // 64."""
        return [self._words.data.cast("B")]

    @classmethod
    def from_parts(
        cls, header: Mapping[str, Any], buffers: Sequence[memoryview], hash_: Hash = MURMUR3
    ) -> Self:
        """The filter that gave these parts, over these very buffers; ValueError where they contradict one another."""
        restored = cls._of_header(header, hash_)
        if restored.error_rate < BLOCKED_ERROR_MIN:
            raise ValueError(f"error_rate {restored.error_rate} is below {BLOCKED_ERROR_MIN}")
        blocks, hashes = stated_sizes(
            header, blocked_size, blocks=BLOCKS_MAX, hashes=BLOCKED_HASHES_MAX
        )
        (table,) = buffers
        restored._over(blocks, hashes, words_over(table, blocks * BLOCK_WORDS))
        restored._recount()
        # A snapshot's header is newer than its first bits: keys that came meanwhile may have none in it.
        keys = number(header, "keys", 0, BLOCKS_MAX * BLOCK_BITS)
        restored._counts[KEYS] = min(keys, restored._bits_set)
        return restored

    @property
    def _bits_set(self) -> int:
        return int(self._counts[LOADS:] @ np.arange(BLOCK_BITS + 1))

    def _recount(self) -> None:
        self._counts[LOADS:] = 0
        for start in range(0, len(self._words), BLOCKS_A_CALL * BLOCK_WORDS):
            _count(self._words[start : start + BLOCKS_A_CALL * BLOCK_WORDS], self._counts)

    def _add_one(self, a: int, b: int) -> bool:
        writable(self._words)
        return bool(_add_one(self._words, self._m, self._k, a, b, self._counts))

    def _contains_one(self, a: int, b: int) -> bool:
        return bool(_contains_one(self._words, self._m, self._k, a, b))


_0, _1, _2, _3, _4 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
_6, _8, _55, _56, _63 = np.uint64(6), np.uint64(8), np.uint64(55), np.uint64(56), np.uint64(63)
_PAIRS, _FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_BYTES, _ONES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@inlined
def _bits(word: np.uint64) -> np.uint64:
    """How many bits are set, in the form in which compilers know it for one instruction (Warren, Hacker's Delight)."""
    word = word - ((word >> _1) & _PAIRS)
    word = (word & _FOURS) + ((word >> _2) & _FOURS)
    return (((word + (word >> _4)) & _BYTES) * _ONES) >> _56


@inlined
def _load(words: Words, base: np.uint64) -> np.uint64:
    """How many bits of a block are set."""
    load = _0
    for i in range(_8):
        load += _bits(words[base + i])
    return load


@inlined
def _base(blocks: np.uint64, a: np.uint64) -> np.uint64:
    """Where the block of a digest begins, in words."""
    return high_word(a, blocks) << _3


@inlined
def _insert(
    words: Words, base: np.uint64, hashes: np.uint64, a: np.uint64, b: np.uint64, counts: Counts
) -> bool:
    """Whether a bit was newly set. No branches: the next rows need not wait for this one's memory."""
    load = _load(words, base)
    newly_set = _0
    for _ in range(hashes):
        at = base + (b >> _55 >> _6)
        bit = (b >> _55) & _63
        word = words[at]
        newly_set += _1 - ((word >> bit) & _1)
        words[at] = word | (_1 << bit)
        b = advance(b, a, _0, False)
    counts[LOADS + np.int64(load)] -= 1
    counts[LOADS + np.int64(load + newly_set)] += 1
    return bool(newly_set > _0)


@inlined
def _present(words: Words, base: np.uint64, hashes: np.uint64, a: np.uint64, b: np.uint64) -> bool:
    """Whether all bits are set; without branches, too."""
    clear = _0
    for _ in range(hashes):
        clear |= ~(words[base + (b >> _55 >> _6)] >> ((b >> _55) & _63))
        b = advance(b, a, _0, False)
    return bool(clear & _1 == _0)


@kernel
def _add(
    words: Words,
    blocks: np.uint64,
    hashes: np.uint64,
    counts: Counts,
    digests: Digests,
    fresh: Mask,
) -> None:
    rows = digests.shape[0]
    for i in range(min(rows, AHEAD)):
        prefetch(words, _base(blocks, digests[i, 0]))
    keys = 0
    for i in range(rows):
        prefetch(words, _base(blocks, digests[min(i + AHEAD, rows - 1), 0]))
        a, b = digests[i, 0], digests[i, 1]
        new = _insert(words, _base(blocks, a), hashes, a, b, counts)
        fresh[i] = new
        keys += new
    counts[KEYS] += keys


@kernel
def _add_one(
    words: Words, blocks: np.uint64, hashes: np.uint64, a: int, b: int, counts: Counts
) -> bool:
    first, second = np.uint64(a), np.uint64(b)
    new = _insert(words, _base(blocks, first), hashes, first, second, counts)
    counts[KEYS] += new
    return new


@kernel
def _contains(
    words: Words, blocks: np.uint64, hashes: np.uint64, digests: Digests, present: Mask
) -> None:
    rows = digests.shape[0]
    for i in range(min(rows, AHEAD)):
        prefetch(words, _base(blocks, digests[i, 0]))
    for i in range(rows):
        prefetch(words, _base(blocks, digests[min(i + AHEAD, rows - 1), 0]))
        a, b = digests[i, 0], digests[i, 1]
        present[i] = _present(words, _base(blocks, a), hashes, a, b)


@kernel
def _contains_one(words: Words, blocks: np.uint64, hashes: np.uint64, a: int, b: int) -> bool:
    first, second = np.uint64(a), np.uint64(b)
    return _present(words, _base(blocks, first), hashes, first, second)


@kernel
def _count(words: Words, counts: Counts) -> None:
    """Count blocks by how many of their bits are set."""
    for base in range(0, words.shape[0], BLOCK_WORDS):
        counts[LOADS + np.int64(_load(words, np.uint64(base)))] += 1
