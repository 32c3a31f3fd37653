"""Bloom filter: m bits, k hashes a key; 1.44 log2(1/p) bits a key (Bloom 1970). Any m, no rounding to a power of two.

The i-th bit of a digest (a, b) is (a * m) >> 64, then a becomes a * MULTIPLIER + b mod 2^64: the high word of a
128-bit product has no modulo bias, and the sequence behaves like k independent hashes also in small tables.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from bitarray import bitarray

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Mask
from streamdedup.filters.memory import aligned_words, fill
from streamdedup.filters.sizing import BLOOM_BITS_MAX, bloom_error, bloom_excess, bloom_size
from streamdedup.kernel import kernel
from streamdedup.keys.hashing import Digests, checked


class Bloom:
    """A Bloom filter for `capacity` keys, at most `error_rate` false positives when that many are in."""

    kind = "bloom"

    def __init__(self, capacity: int, error_rate: float = 1e-6) -> None:
        if not capacity >= 1:
            raise ConfigError(f"filter.capacity is {capacity}; it must be at least 1")
        if not 0 < error_rate < 1:
            raise ConfigError(f"filter.error_rate is {error_rate}; it must be above 0 and below 1")
        self._capacity, self._error_rate = capacity, error_rate
        if excess := bloom_excess(capacity, error_rate):
            raise ConfigError(f"filter.capacity {capacity}: {excess}")
        self._bits, self._hashes = bloom_size(capacity, error_rate)
        self._words = aligned_words(-(-self._bits // 64))
        self._keys = self._bits_set = 0

    @property
    def capacity(self) -> int:
        """The number of keys up to which `error_rate` holds."""
        return self._capacity

    @property
    def error_rate(self) -> float:
        """The error rate at capacity."""
        return self._error_rate

    @property
    def error_rate_now(self) -> float:
        """The fill ratio to the power of k: what the bits that are set now really give."""
        return float(self.fill_ratio**self._hashes)

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set; about one half at capacity."""
        return self._bits_set / self._bits

    @property
    def size_bytes(self) -> int:
        """The memory of the bits, in bytes."""
        return int(self._words.nbytes)

    def __len__(self) -> int:
        return self._keys

    def expected_error(self, keys: int) -> float:
        """(1 - e^(-kn/m))^k for n = `keys`."""
        return bloom_error(self._bits, self._hashes, keys)

    def add_many(self, digests: Digests) -> Mask:
        """Add all of `digests` (n, 2); True, shape (n,), where it was not there."""
        digests = checked(digests)
        fresh = np.empty(len(digests), dtype=np.bool_)
        self._bits_set += int(
            _add(self._words, np.uint64(self._bits), np.uint64(self._hashes), digests, fresh)
        )
        self._keys += int(np.count_nonzero(fresh))
        return fresh

    def contains_many(self, digests: Digests) -> Mask:
        """True, shape (n,), where a digest of `digests` (n, 2) is present."""
        digests = checked(digests)
        present = np.empty(len(digests), dtype=np.bool_)
        _contains(self._words, np.uint64(self._bits), np.uint64(self._hashes), digests, present)
        return present

    def header(self) -> dict[str, Any]:
        """Kind, parameters, sizes and the number of keys."""
        return {
            "kind": self.kind,
            "capacity": self._capacity,
            "error_rate": self._error_rate,
            "bits": self._bits,
            "hashes": self._hashes,
            "keys": self._keys,
        }

    def buffers(self) -> list[memoryview]:
        """The bits, little-endian in uint64 words: bit i is bit i % 64 of word i // 64."""
        return [self._words.data.cast("B")]

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], buffers: Sequence[memoryview]) -> Self:
        """A copy of the filter that gave these parts; ValueError where they contradict one another."""
        capacity, error_rate, keys = _stated(header)
        sizes = bloom_size(capacity, error_rate)
        if sizes != (header.get("bits"), header.get("hashes")):
            raise ValueError(
                f"{sizes} bits and hashes follow from capacity and error rate, not these"
            )
        (table,) = buffers
        size_bytes = -(-sizes[0] // 64) * 8
        if table.nbytes != size_bytes:
            raise ValueError(f"{table.nbytes} bytes of bits; {size_bytes} belong to the header")
        restored = cls(capacity, error_rate)
        fill(restored.buffers()[0], table)
        restored._bits_set = bitarray(buffer=restored.buffers()[0], endian="little").count()
        # A snapshot's header is newer than its first bits: keys that came meanwhile may have none in it.
        restored._keys = min(keys, restored._bits_set)
        if int(restored._words[-1]) >> (restored._bits % 64 or 64):
            raise ValueError(f"bits are set beyond the last of {restored._bits}")
        return restored


def _stated(header: Mapping[str, Any]) -> tuple[int, float, int]:
    """Capacity, error rate and keys, checked before anything is allocated for them."""
    capacity, error_rate, keys = (header.get(name) for name in ("capacity", "error_rate", "keys"))
    if type(capacity) is not int or not 1 <= capacity <= BLOOM_BITS_MAX:
        raise ValueError(f"capacity {capacity!r} is not an integer from 1 to {BLOOM_BITS_MAX}")
    if not isinstance(error_rate, float) or not 0 < error_rate < 1:
        raise ValueError(f"error_rate {error_rate!r} is not between 0 and 1")
    if type(keys) is not int or keys < 0:
        raise ValueError(f"keys {keys!r} is not a number of keys")
    return capacity, error_rate, keys


MULTIPLIER = np.uint64(0xD1342543DE82EF95)  # Steele, Vigna 2021: a multiplier with good spectra
_LOW = np.uint64(0xFFFFFFFF)
_32, _6, _63, _1, _0 = np.uint64(32), np.uint64(6), np.uint64(63), np.uint64(1), np.uint64(0)


@kernel
def _high_word(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 bits of the product: numba has no 128-bit integer, so four products of halves."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _32, b & _LOW, b >> _32
    middle = a_high * b_low + ((a_low * b_low) >> _32)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _32) + (other >> _32)


@kernel
def _add(words: Digests, bits: np.uint64, hashes: np.uint64, digests: Digests, fresh: Mask) -> int:
    newly_set = _0
    for i in range(digests.shape[0]):
        a, b, was_there = digests[i, 0], digests[i, 1], True
        for _ in range(hashes):
            at = _high_word(a, bits)
            bit = _1 << (at & _63)
            word = words[at >> _6]
            if word & bit == _0:
                words[at >> _6] = word | bit
                newly_set += _1
                was_there = False
            a = a * MULTIPLIER + b
        fresh[i] = not was_there
    return newly_set  # type: ignore[return-value]  # a uint64 inside numba


@kernel
def _contains(
    words: Digests, bits: np.uint64, hashes: np.uint64, digests: Digests, present: Mask
) -> None:
    for i in range(digests.shape[0]):
        a, b, there = digests[i, 0], digests[i, 1], True
        for _ in range(hashes):
            at = _high_word(a, bits)
            if words[at >> _6] & (_1 << (at & _63)) == _0:
                there = False
                break
            a = a * MULTIPLIER + b
        present[i] = there
