"""What the bytes of a URL mean, and its escapes, for the kernels of `url_column` and `url_query`."""

import numpy as np

from streamdedup.kernel import inlined
from streamdedup.keys.words import Bytes

NOWHERE = np.uint64(1 << 63)  # the position in what is not plain
PERCENT, BLANK = np.uint8(ord("%")), np.uint8(ord(" "))

# What a byte may be: a part of a host; as it is in a path; as it is in a query; printable, so it may be escaped there.
HOST, IN_PATH, IN_QUERY, PRINTABLE = (np.uint8(1 << bit) for bit in range(4))
_UNRESERVED = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
USES: Bytes = np.zeros(256, dtype=np.uint8)
USES[0x20:0x7F] |= PRINTABLE
USES[list(_UNRESERVED)] |= HOST | IN_PATH | IN_QUERY
USES[ord("~")] &= ~HOST
USES[list(b"!$&'()*+,/:=@[]|")] |= IN_PATH
USES[list(b"\\;")] &= ~PRINTABLE  # a slash in a path, and the beginning of parameters

_NIBBLE, _LOWER_HALF, _NO_DIGIT = np.uint8(4), np.uint8(15), np.uint8(255)
_DIGITS = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
_VALUES: Bytes = np.full(256, _NO_DIGIT, dtype=np.uint8)  # of hexadecimal digits
for _at, _char in enumerate(b"0123456789abcdef"):
    _VALUES[[_char, ord(chr(_char).upper())]] = _at

_1, _2, _3 = np.uint64(1), np.uint64(2), np.uint64(3)


@inlined
def unescaped(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint8, bool, np.uint64]:
    """Return the byte of the escape whose digits are at `at`, True, and the position after them.

    Without two digits, the % before them escapes nothing: return it, False, and `at`.
    """
    if at + _1 >= end:
        return PERCENT, False, at
    high, low = _VALUES[buffer[at]], _VALUES[buffer[at + _1]]
    if (high | low) == _NO_DIGIT:
        return PERCENT, False, at
    return np.uint8(high << _NIBBLE | low), True, at + _2


@inlined
def escape(byte: np.uint8, out: Bytes, to: np.uint64) -> np.uint64:
    """Write a % and two digits. Return the position after them."""
    out[to] = PERCENT
    out[to + _1] = _DIGITS[byte >> _NIBBLE]
    out[to + _2] = _DIGITS[byte & _LOWER_HALF]
    return to + _3
