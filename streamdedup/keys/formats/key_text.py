"""The texts of keys that a binary format does not write as text, for kernels: those that JSON would have."""

import numpy as np

from streamdedup.events import Integers
from streamdedup.kernel import inlined
from streamdedup.keys.formats.json_text import NOWHERE, past_letter
from streamdedup.keys.words import Bytes, word

_0, _1, _4, _8, _10, _16 = (np.uint64(number) for number in (0, 1, 4, 8, 10, 16))
_TOPS = np.uint64(0x8080808080808080)
_ASCII_END = np.uint8(0x80)
_MINUS, _ZERO, _A = (np.uint64(ord(char)) for char in "-0a")
_LOW_BITS, _BYTE = np.uint64(15), np.uint64(255)
_DASHES = (np.uint64(4), np.uint64(6), np.uint64(8), np.uint64(10))  # before these bytes


@inlined
def has_room(out: Bytes, to: np.uint64, count: np.int64 | int) -> bool:
    """Return whether `out` has room for `count` bytes from `to` on.

    It is asked before each write, whatever a program says.
    """
    return bool(0 <= count <= out.shape[0] - np.int64(to))


@inlined
def symbol(program: Integers, address: np.int64, out: Bytes, to: np.uint64) -> np.uint64:
    """Write the symbol at `address` (`schema.packed`); return where it ends, NOWHERE if `out` has no room for it."""
    count = program[address]
    if not has_room(out, to, count):
        return NOWHERE
    for at in range(count):
        part = np.uint64(program[address + 1 + (at >> 3)]) >> np.uint64((at & 7) << 3)
        out[to] = np.uint8(part & _BYTE)
        to += _1
    return to


@inlined
def is_utf8(buffer: Bytes, at: np.uint64, end: np.uint64) -> bool:
    """Return whether the bytes from `at` to `end` are UTF-8."""
    while at < end:
        if end - at >= _8 and not word(buffer, at) & _TOPS:
            at += _8
        elif buffer[at] < _ASCII_END:
            at += _1
        else:
            at = past_letter(buffer, at, end)
    return bool(at < NOWHERE)


@inlined
def digits(number: np.int64, out: Bytes, to: np.uint64) -> np.uint64:
    """Write the decimal text of `number` at `to`, and return where it ends."""
    if number >= 0:
        return unsigned_digits(np.uint64(number), out, to)
    out[to] = np.uint8(_MINUS)
    return unsigned_digits(_0 - np.uint64(number), out, to + _1)


@inlined
def unsigned_digits(number: np.uint64, out: Bytes, to: np.uint64) -> np.uint64:
    """Write the decimal text of `number` at `to`, and return where it ends."""
    count, rest = _1, number // _10
    while rest:
        count, rest = count + _1, rest // _10
    at = to + count
    while at > to:
        at -= _1
        out[at] = np.uint8(_ZERO + number % _10)
        number //= _10
    return to + count


@inlined
def uuid_text(buffer: Bytes, at: np.uint64, out: Bytes, to: np.uint64) -> np.uint64:
    """Write the text of the UUID whose 16 bytes are at `at`, in lowercase, and return where it ends."""
    for number in range(16):
        done = np.uint64(number)
        if done in _DASHES:
            out[to] = np.uint8(_MINUS)
            to += _1
        both = np.uint64(buffer[at + done])
        out[to], out[to + _1] = _hex(both >> _4), _hex(both & _LOW_BITS)
        to += _1 + _1
    return to


@inlined
def _hex(value: np.uint64) -> np.uint8:
    return np.uint8(_ZERO + value if value < _10 else _A + value - _10)
