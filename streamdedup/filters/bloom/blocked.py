"""Blocked Bloom filter: all bits of a key lie in one 512-bit cache line, so a key costs one miss (Putze et al. 2007).

The high word of a * blocks is the block of digest (a, b). The standard probe sequence from b, in steps of
a, gives the bits in it. Blocks fill unevenly, so a key takes more bits than in a Bloom filter: 3 % more at
an error rate of 1 %, 35 % more at 1e-6, twice as many at 1e-9.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from typing_extensions import override

from streamdedup.filters.base import Mask
from streamdedup.filters.bloom.kinds import BLOCKED
from streamdedup.filters.digest_filter import (
    KEYS,
    DigestFilter,
    ask_in_slices,
    check_alike,
    number,
    sizes_from_header,
)
from streamdedup.filters.memory import Counts, aligned_words, words_over, writable
from streamdedup.filters.probes import advance, high_word
from streamdedup.filters.sizing import (
    BLOCK_BITS,
    BLOCKED_ERROR_MIN,
    BLOCKED_HASHES_MAX,
    TABLE_BITS_MAX,
    blocked_error,
    blocked_keys,
    blocked_size,
    keys_of_both,
)
from streamdedup.instructions import prefetch
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import MURMUR3, Digests, Hash

BLOCKS_MAX = TABLE_BITS_MAX // BLOCK_BITS
BLOCK_WORDS = BLOCK_BITS // 64
BLOCKS_A_CALL = 1 << 16  # blocks counted in one kernel call: 4 MiB, which takes about a millisecond
AHEAD = 32  # rows between the prefetch of a block and its use; a larger distance gains nothing
# Index in `counts`, after the number of keys: from here on, how many blocks have 0, 1, ... 512 bits set.
LOADS = 1


class BlockedBloom(DigestFilter):
    """A Bloom filter in blocks, for `capacity` keys, with at most `error_rate` false positives at capacity."""

    kind = "blocked"
    only_sets_bits = True

    def __init__(self, capacity: int, error_rate: float = 1e-6, *, hash_: Hash = MURMUR3) -> None:
        super().__init__(capacity, error_rate, hash_)
        BLOCKED.check(capacity, error_rate)
        blocks, hashes = blocked_size(capacity, error_rate)
        self._over(blocks, hashes, aligned_words(blocks * BLOCK_WORDS))
        self._counts[LOADS] = blocks

    def _over(self, blocks: int, hashes: int, words: Words) -> None:
        self.blocks, self.hashes = blocks, hashes
        self._words = words
        self._m, self._k = np.uint64(blocks), np.uint64(hashes)
        self._counts: Counts = np.zeros(LOADS + BLOCK_BITS + 1, dtype=np.int64)

    @property
    def error_rate_now(self) -> float:
        """The mean over all blocks of (share of bits set in the block)^k."""
        shares = np.arange(BLOCK_BITS + 1) / BLOCK_BITS
        return float(self._counts[LOADS:] @ shares**self.hashes / self.blocks)

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set. At capacity: about one half at 1 %, less at lower error rates."""
        return self._bits_set / (self.blocks * BLOCK_BITS)

    def expected_error(self, keys: int) -> float:
        """Return the error rate that theory gives for n = `keys`.

        It is the mean of (1 - (1 - 1/512)^(kj))^k over the number j of keys in a block:
        `sizing.blocked_error`.
        """
        return blocked_error(self.blocks, self.hashes, keys)

    def add_many(self, digests: Digests) -> Mask:
        """Add all `digests` (n, 2). Return a mask, shape (n,): True for each digest that was absent."""
        writable(self._words)
        return ask_in_slices(digests, partial(_add, self._words, self._m, self._k, self._counts))

    def contains_many(self, digests: Digests) -> Mask:
        """Look up all `digests` (n, 2). Return a mask, shape (n,): True for each digest that is present."""
        return ask_in_slices(digests, partial(_contains, self._words, self._m, self._k))

    def __ior__(self, other: Self) -> Self:
        check_alike("union", self, other, "blocks", "hashes")
        writable(self._words)
        np.bitwise_or(self._words, other._words, out=self._words)
        self._recount()
        found = blocked_keys(self.blocks, self.hashes, self._bits_set)
        self._counts[KEYS] = keys_of_both(found, len(self), len(other))
        return self

    def header(self) -> dict[str, Any]:
        """Return the kind, the parameters, the sizes and the number of keys."""
        return self._header(blocks=self.blocks, hashes=self.hashes, keys=len(self))

    def buffers(self) -> list[memoryview]:
        """Return the bits as little-endian uint64 words: bit i of a block is bit i % 64 of its word i // 64."""
        return [self._words.data.cast("B")]

    @override
    def _restore(self, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> None:
        if self.error_rate < BLOCKED_ERROR_MIN:
            raise ValueError(f"error_rate {self.error_rate} is below {BLOCKED_ERROR_MIN}")
        blocks, hashes = sizes_from_header(
            header, blocked_size, blocks=BLOCKS_MAX, hashes=BLOCKED_HASHES_MAX
        )
        (table,) = buffers
        self._over(blocks, hashes, words_over(table, blocks * BLOCK_WORDS))
        self._recount()
        # The header of a snapshot is written after the first bits were copied. Keys that were added in
        # between are counted in it, but may have no bits in the table.
        keys = number(header, "keys", 0, BLOCKS_MAX * BLOCK_BITS)
        self._counts[KEYS] = min(keys, self._bits_set)

    @property
    def _bits_set(self) -> int:
        return int(self._counts[LOADS:] @ np.arange(BLOCK_BITS + 1))

    def _recount(self) -> None:
        self._counts[LOADS:] = 0
        for start in range(0, len(self._words), BLOCKS_A_CALL * BLOCK_WORDS):
            _count(self._words[start : start + BLOCKS_A_CALL * BLOCK_WORDS], self._counts)

    @override
    def _add_one(self, a: int, b: int) -> bool:
        writable(self._words)
        return bool(_add_one(self._words, self._m, self._k, a, b, self._counts))

    @override
    def _contains_one(self, a: int, b: int) -> bool:
        return bool(_contains_one(self._words, self._m, self._k, a, b))


_0, _1, _2, _3, _4 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
_6, _8, _55, _56, _63 = np.uint64(6), np.uint64(8), np.uint64(55), np.uint64(56), np.uint64(63)
_PAIRS, _FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_BYTES, _ONES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@inlined
def _bits(word: np.uint64) -> np.uint64:
    """Return how many bits of `word` are set.

    Compilers recognize this form and make one instruction of it (Warren, Hacker's Delight).
    """
    word = word - ((word >> _1) & _PAIRS)
    word = (word & _FOURS) + ((word >> _2) & _FOURS)
    return (((word + (word >> _4)) & _BYTES) * _ONES) >> _56


@inlined
def _load(words: Words, base: np.uint64) -> np.uint64:
    """Return how many bits of a block are set."""
    load = _0
    for i in range(_8):
        load += _bits(words[base + i])
    return load


@inlined
def _base(blocks: np.uint64, a: np.uint64) -> np.uint64:
    """Return the index of the first word of a digest's block."""
    return high_word(a, blocks) << _3


@inlined
def _insert(
    words: Words, base: np.uint64, hashes: np.uint64, a: np.uint64, b: np.uint64, counts: Counts
) -> bool:
    """Set the bits of a digest. Return whether one of them was not set before.

    There are no branches, so the next rows need not wait for the memory of this one.
    """
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
    """Return whether all bits of a digest are set. No branches, for the same reason as in `_insert`."""
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
    """Count the blocks by the number of their bits that are set."""
    for base in range(0, words.shape[0], BLOCK_WORDS):
        counts[LOADS + np.int64(_load(words, np.uint64(base)))] += 1
