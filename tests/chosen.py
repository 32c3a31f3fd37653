"""What somebody who knows the hash can send: digests of his choice, and, since murmur3 is invertible, their keys."""

import struct
from collections.abc import Iterable, Iterator

import numpy as np

from streamdedup.filters.cuckoo.cuckoo import Cuckoo
from streamdedup.filters.dleft.dleft import DLeft
from streamdedup.filters.dleft.rows import _locate, _places
from streamdedup.filters.dleft.shape import layout_of
from streamdedup.filters.window.table import WindowTable
from streamdedup.kernel import Words, kernel
from streamdedup.keys.hashing import Digests
from streamdedup.keys.murmur import ADD1, ADD2, C1, C2, FINAL1, FINAL2
from tests.filters.cases import random_digests

WORD = (1 << 64) - 1
BLOCK_BYTES = 16


def murmur3_key(a: int, b: int) -> bytes:
    """The key of one block whose digest under murmur3 is (a, b)."""
    b = (b - a) & WORD
    a = (a - b) & WORD
    a, b = unmixed(a), unmixed(b)
    b = (b - a) & WORD
    a = (a - b) & WORD
    a, b = a ^ BLOCK_BYTES, b ^ BLOCK_BYTES
    b = _turned_back(_divided(b - int(ADD2), 5) - a, 31)
    a = _turned_back(_divided(a - int(ADD1), 5), 27)
    first = _divided(_turned_back(_divided(a, int(C2)), 31), int(C1))
    second = _divided(_turned_back(_divided(b, int(C1)), 33), int(C2))
    return struct.pack("<QQ", first, second)


def _divided(value: int, factor: int) -> int:
    return value * pow(factor, -1, 1 << 64) & WORD


def _turned_back(value: int, bits: int) -> int:
    value &= WORD
    return (value >> bits | value << (64 - bits)) & WORD


def unmixed(value: int) -> int:
    """What murmur3's last step makes `value` of."""
    value ^= value >> 33
    value = _divided(value, int(FINAL2))
    value ^= value >> 33
    value = _divided(value, int(FINAL1))
    return value ^ value >> 33


def grid(side: int, first_shift: int, second_shift: int) -> Digests:
    """All pairs of `side` values each, which lie in a few bits of either word."""
    a, b = np.meshgrid(np.arange(side, dtype=np.uint64), np.arange(side, dtype=np.uint64))
    return np.stack([(a << first_shift).ravel(), (b << second_shift).ravel()], axis=1)


def in_line(count: int, first_step: int, second_step: int) -> Digests:
    """`count` digests whose words grow by these steps, from 0 on."""
    steps = np.array([first_step, second_step], dtype=np.uint64)
    return np.arange(count, dtype=np.uint64)[:, None] * steps


CHOSEN = {
    "equal low halves": in_line(20_000, 1 << 32, 0),
    "equal first words": in_line(20_000, 0, 1 << 20),
    **{
        f"a grid from bits {first} and {second} on": grid(141, first, second)
        for first, second in ((0, 0), (20, 44), (32, 32), (48, 0), (48, 48), (56, 56))
    },
}
"""Digests that a table meets in one place, or in few, if it takes its places from the digest alone."""


# --- for one filter ---


def for_one_slot(count: int, *, ascending: bool = False) -> Digests:
    """Digests that begin in the middle slot of any exact set; unless ascending, each goes before all others."""
    offsets = np.arange(count, dtype=np.uint64)
    first = np.uint64(1 << 63) + (offsets if ascending else offsets[::-1])
    return np.stack([first, offsets], axis=1)


def for_few_buckets(seen: Cuckoo | WindowTable, buckets: int) -> Digests:
    """Digests of different fingerprints whose two buckets in `seen` are among the first `buckets`."""
    found = []
    marks = (1 << seen.fingerprint_bits) - 1
    for mark in range(1, marks + 1):
        total = (finalised(mark) * seen.buckets) >> 64
        for one in range(buckets):
            if (total - one) % seen.buckets < buckets:
                a = -(-(one << 64) // seen.buckets)
                b = -(-((mark - 1) << 64) // marks)
                found.append((a, b))
    digests = np.array(found, dtype=np.uint64)
    np.random.default_rng(70).shuffle(digests)
    return digests


def finalised(x: int) -> int:
    """SplitMix64's, in integers that do not overflow."""
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


@kernel
def _locations(words: Words, fields: Words, digests: Digests, buckets: Words) -> None:
    layout = layout_of(fields)
    places = _places(layout, 1)
    for i in range(digests.shape[0]):
        _locate(words, layout, digests[i : i + 1], places)
        for subtable in range(layout.tables):
            buckets[i, subtable] = places[0, subtable, 0] - subtable * layout.buckets


def for_few_of_each(seen: DLeft, buckets: int) -> Digests:
    """Digests whose four buckets in a d-left table are among the first `buckets` of each subtable."""
    table = seen._table
    digests = random_digests(71, 3_000_000)
    located = np.empty((len(digests), 4), dtype=np.uint64)
    _locations(table.words, table._fields, digests, located)
    return np.ascontiguousarray(digests[(located < buckets).all(axis=1)])


def for_rows(rows: int, homes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Digests whose homes in a stash of `rows` rows are these."""
    apart = (1 << 64) // rows
    for number, home in enumerate(homes):
        a = _unfinalised(home * apart + number % apart) ^ finalised(number)
        yield a & WORD, number


def _unfinalised(x: int) -> int:
    x = _unshifted(x, 31) * pow(0x94D049BB133111EB, -1, 1 << 64) & WORD
    x = _unshifted(x, 27) * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & WORD
    return (_unshifted(x, 30) - 0x9E3779B97F4A7C15) & WORD


def _unshifted(x: int, bits: int) -> int:
    result = x
    for _ in range(64 // bits):
        result = x ^ result >> bits
    return result
