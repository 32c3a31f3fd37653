"""Bloom filter with the hashes of the literature, to learn from: takes keys one by one, no digests, at most 2^32 bits.

What these hashes are worth on keys that have a structure is measured in docs/hashes.md. For work there is `bloom`: this
is no kind, so no configuration names it.
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

BITS_MAX = 1 << 32  # as far as hashes of 32 bits reach
MD5_MAX = 64  # hashes of the family `salted_md5`
FAMILIES = ("salted_md5", "strings")

KeyHash = Callable[[Any], int]


class ClassicBloom:
    """`bits` bits, m; r_i is the i-th hash of a key, mod m.

    `hashes` is how many of a family: `salted_md5`, where the i-th is the MD5 of str(i - 1) and the key, read as one
    integer; or `strings`, the first so many of `STRING_HASHES`. Or it is the hashes themselves: names of
    `STRING_HASHES`, and functions from a key, of whatever type they take, to an integer. All that have a name take
    `str`, as its UTF-8, and `bytes`. ConfigError where an argument does not fit.
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
        """The number k of hashes."""
        return len(self._hashes)

    @property
    def fill_ratio(self) -> float:
        """The share of bits that are set."""
        return self._bits_set / self.bits

    @property
    def error_rate_now(self) -> float:
        """The fill ratio to the power of k: the error rate if hashes were independent and even, which these are not."""
        return self.fill_ratio**self.hashes

    @property
    def size_bytes(self) -> int:
        """The memory of the bits, in bytes."""
        return len(self._table) // 8

    def __len__(self) -> int:
        """The additions that were new."""
        return self._keys

    def expected_error(self, keys: int) -> float:
        """(1 - e^(-kn/m))^k for n = `keys`: what independent and even hashes would give."""
        return bloom_error(self.bits, self.hashes, keys)

    def positions(self, key: object) -> list[int]:
        """r_1 .. r_k: where the bits of `key` stand."""
        return [hash_(key) % self.bits for hash_ in self._hashes]

    def add(self, key: object) -> bool:
        """Set the bits of `key`; True where one was not set."""
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
    """The MD5 of `salt` and the key, as one unsigned integer of 128 bits, big-endian."""
    digest = hashlib.md5(salt.encode() + _bytes_of(key), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big")


def js(key: str | bytes) -> int:
    """Justin Sobel's hash."""
    state = 1315423911
    for byte in _bytes_of(key):
        state ^= (state << 5) + byte + (state >> 2) & _LOW_32
    return state


def pjw(key: str | bytes) -> int:
    """Peter J. Weinberger's hash (Aho, Sethi, Ullman 1986), of 28 bits. That of ELF files is the same, written anew."""
    state = 0
    for byte in _bytes_of(key):
        state = (state << 4) + byte
        state = (state ^ (state >> 24 & 0xF0)) & 0x0FFFFFFF
    return state


def bkdr(key: str | bytes) -> int:
    """The hash of Kernighan and Ritchie's book, with the multiplier 131."""
    state = 0
    for byte in _bytes_of(key):
        state = state * 131 + byte & _LOW_32
    return state


def sdbm(key: str | bytes) -> int:
    """That of the database library sdbm: multiplies by 65599."""
    state = 0
    for byte in _bytes_of(key):
        state = state * 65599 + byte & _LOW_32
    return state


def djb(key: str | bytes) -> int:
    """Daniel J. Bernstein's hash: begins at 5381, multiplies by 33."""
    state = 5381
    for byte in _bytes_of(key):
        state = state * 33 + byte & _LOW_32
    return state


def dek(key: str | bytes) -> int:
    """Donald E. Knuth's hash (TAOCP 3, 6.4): begins at the length, turns by 5 bits."""
    key = _bytes_of(key)
    state = len(key)
    for byte in key:
        state = (state << 5 & _LOW_32) ^ state >> 27 ^ byte
    return state


def fnv1(key: str | bytes) -> int:
    """The hash of Fowler, Noll and Vo, FNV-1 of 32 bits."""
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
        raise ConfigError(f"hashes is {hashes}; of {family} there are 1 to {most}")
    if family == "strings":
        return list(STRING_HASHES.values())[:hashes]
    return [partial(salted_md5, str(i)) for i in range(hashes)]


def _named(hashes: Sequence[str | KeyHash]) -> list[KeyHash]:
    unknown = [name for name in hashes if not callable(name) and name not in STRING_HASHES]
    if unknown or not hashes or isinstance(hashes, str):
        raise ConfigError(
            f"hashes is {hashes!r}; give a number, or a list of functions and of names out of"
            f" {', '.join(STRING_HASHES)}"
        )
    return [STRING_HASHES[item] if isinstance(item, str) else item for item in hashes]


def _bytes_of(key: str | bytes) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    raise TypeError(f"a key of {type(key).__name__}; hashes that have a name take str or bytes")
