"""What somebody who knows the hash can send: digests of his choice, and, since murmur3 is invertible, their keys."""

import struct

import numpy as np

from streamdedup.keys.hashing import Digests
from streamdedup.keys.murmur import ADD1, ADD2, C1, C2, FINAL1, FINAL2

WORD = (1 << 64) - 1
BLOCK_BYTES = 16


def murmur3_key(a: int, b: int) -> bytes:
    """The key of one block whose digest under murmur3 is (a, b)."""
    b = (b - a) & WORD
    a = (a - b) & WORD
    a, b = _unmixed(a), _unmixed(b)
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


def _unmixed(value: int) -> int:
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
