"""A Bloom filter with the hashes of the literature, to learn from. It takes keys one by one, and no digests.

It has at most 2^32 bits. results/hashes.md measures how good these hashes are for keys that have a structure.
For production use `bloom`: `ClassicBloom` is not a kind, so no configuration can name it.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from bitarray import bitarray

from streamdedup.errors import ConfigError
from streamdedup.filters.memory import aligned_words
from streamdedup.filters.sizing import bloom_error

BITS_MAX = 1 << 32  # a hash of 32 bits reaches no further
MD5_MAX = 64  # the greatest number of hashes of the family `salted_md5`
FAMILIES = ("salted_md5", "strings")

KeyHash = Callable[[Any], int]


class ClassicBloom:
    """A Bloom filter of m = `bits` bits; r_i is the i-th hash of a key, mod m.

    `hashes` is a number n, for the first n hashes of `family`, or a list of the hashes themselves: names of
    `STRING_HASHES`, and functions from a key of any type to an integer. In the family `salted_md5`, the
    i-th hash is the MD5 of str(i - 1) followed by the key, read as one integer. The family `strings` is
    `STRING_HASHES`, in that order. Every hash that has a name takes `str`, as its UTF-8, and `bytes`.
    Raises ConfigError if an argument is wrong.
    """

    def __init__(
        self,
        bits: int,
        hashes: int | Sequence[str | KeyHash] = 4,
        *,
        family: str = "salted_md5",
    ) -> None:
        if type(bits) is not int or not 1 <= bits <= BITS_MAX:
            raise ConfigError(f"bits is {bits}; it must be an integer from 1 to {BITS_MAX}")
        self.bits = bits
        self._hashes = _of_family(family, hashes) if isinstance(hashes, int) else _named(hashes)
        self._table = bitarray(buffer=aligned_words(-(-bits // 64)), endian="little")
        self._bits_set = self._keys = 0

    @property
    def hashes(self) -> int:
        """The number of hashes, k."""
        return len(self._hashes)

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set."""
        return self._bits_set / self.bits

    @property
    def error_rate_now(self) -> float:
        """The fill ratio to the power of k.

        This would be the error rate if the hashes were independent and uniform, which these are not.
        """
        return self.fill_ratio**self.hashes

    @property
    def size_bytes(self) -> int:
        """The memory of the bits, in bytes."""
        return len(self._table) // 8

    def __len__(self) -> int:
        """Return how many additions returned True."""
        return self._keys

    def expected_error(self, keys: int) -> float:
        """Return (1 - e^(-kn/m))^k for n = `keys`: the error rate of independent, uniform hashes."""
        return bloom_error(self.bits, self.hashes, keys)

    def positions(self, key: object) -> list[int]:
        """Return r_1 .. r_k: the positions of the bits of `key`."""
        return [hash_(key) % self.bits for hash_ in self._hashes]

    def add(self, key: object) -> bool:
        """Set the bits of `key`. Return True if one of them was not set before."""
        newly_set = 0
        for at in self.positions(key):
            newly_set += not self._table[at]
            self._table[at] = 1
        self._bits_set += newly_set
        self._keys += newly_set > 0
        return newly_set > 0

    def __contains__(self, key: object) -> bool:
        return all(self._table[hash_(key) % self.bits] for hash_ in self._hashes)


def salted_md5(salt: str, key: str | bytes) -> int:
    """Return the MD5 of `salt` followed by the key, as one unsigned integer of 128 bits, big-endian."""
    digest = hashlib.md5(salt.encode() + _bytes_of(key), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def js(key: str | bytes) -> int:
    """Return the hash of Justin Sobel."""
    state = 1315423911
    for byte in _bytes_of(key):
        state ^= (state << 5) + byte + (state >> 2) & _LOW_32
    return state


def pjw(key: str | bytes) -> int:
    """Return the hash of Peter J. Weinberger (Aho, Sethi, Ullman 1986), 28 bits.

    The hash of ELF files gives the same values; it is the same function in another notation.
    """
    state = 0
    for byte in _bytes_of(key):
        state = (state << 4) + byte
        state = (state ^ (state >> 24 & 0xF0)) & 0x0FFFFFFF
    return state


def bkdr(key: str | bytes) -> int:
    """Return the hash of Kernighan and Ritchie's book, with the multiplier 131."""
    state = 0
    for byte in _bytes_of(key):
        state = state * 131 + byte & _LOW_32
    return state


def sdbm(key: str | bytes) -> int:
    """Return the hash of the database library sdbm, which multiplies by 65599."""
    state = 0
    for byte in _bytes_of(key):
        state = state * 65599 + byte & _LOW_32
    return state


def djb(key: str | bytes) -> int:
    """Return the hash of Daniel J. Bernstein: it begins at 5381 and multiplies by 33."""
    state = 5381
    for byte in _bytes_of(key):
        state = state * 33 + byte & _LOW_32
    return state


def dek(key: str | bytes) -> int:
    """Return the hash of Donald E. Knuth (TAOCP 3, 6.4): it begins at the length and rotates by 5 bits."""
    key = _bytes_of(key)
    state = len(key)
    for byte in key:
        state = (state << 5 & _LOW_32) ^ state >> 27 ^ byte
    return state


def fnv1(key: str | bytes) -> int:
    """Return the hash of Fowler, Noll and Vo: FNV-1, 32 bits."""
    state = 2166136261
    for byte in _bytes_of(key):
        state = state * 16777619 & _LOW_32 ^ byte
    return state


STRING_HASHES: Mapping[str, Callable[[str | bytes], int]] = MappingProxyType(
    {
        "js": js,
        "pjw": pjw,
        "elf": pjw,
        "bkdr": bkdr,
        "sdbm": sdbm,
        "djb": djb,
        "dek": dek,
        "fnv1": fnv1,
    }
)
_LOW_32 = 0xFFFFFFFF


def _of_family(family: str, hashes: int) -> list[KeyHash]:
    if family not in FAMILIES:
        raise ConfigError(f"family {family!r} is unknown; choose one of: {', '.join(FAMILIES)}")
    most = len(STRING_HASHES) if family == "strings" else MD5_MAX
    if not 1 <= hashes <= most:
        raise ConfigError(f"hashes is {hashes}; the family {family} has 1 to {most}")
    if family == "strings":
        return list(STRING_HASHES.values())[:hashes]
    return [partial(salted_md5, str(i)) for i in range(hashes)]


def _named(hashes: Sequence[str | KeyHash]) -> list[KeyHash]:
    unknown = [name for name in hashes if not callable(name) and name not in STRING_HASHES]
    if unknown or not hashes or isinstance(hashes, str):
        raise ConfigError(
            f"hashes is {hashes!r}; give a number, or a list of functions and of names from"
            f" {', '.join(STRING_HASHES)}"
        )
    return [STRING_HASHES[item] if isinstance(item, str) else item for item in hashes]


def _bytes_of(key: str | bytes) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    raise TypeError(f"the key is of type {type(key).__name__}; the named hashes take str or bytes")
