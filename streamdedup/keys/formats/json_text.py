"""The lexical grammar of JSON (RFC 8259) for kernels: each function goes from the start of a token to its end.

A position is NOWHERE if the token is wrong, or if the exact reader must decide about it: a surrogate, a
long number. All functions also accept NOWHERE as a position. They read no byte at or after `end`.
"""

import numpy as np

from streamdedup.kernel import inlined
from streamdedup.keys.words import Bytes, word

Rest = tuple[np.uint8, ...]

NOWHERE = np.uint64(1 << 63)  # beyond the end of every text, even if a few bytes are added to it
# The longest number that the kernel accepts: with an exponent of at most two digits it is a finite double.
NUMBER_BYTES_MAX = np.uint64(100)
EXPONENT_DIGITS_MAX = np.uint64(2)

_0, _1, _2, _3, _4, _5, _6, _7, _8 = (np.uint64(number) for number in range(9))
_56 = np.uint64(56)
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES, _SPACES = (np.uint64(0x0101010101010101 * ord(char)) for char in '"\\ ')

QUOTE, COMMA, COLON, MINUS, ZERO = (np.uint8(ord(char)) for char in '",:-0')
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = (np.uint8(ord(char)) for char in "{}[]")
_BACKSLASH, _PLUS, _POINT = (np.uint8(ord(char)) for char in "\\+.")
_A, _D, _E, _F, _N, _T, _U, _EIGHT, _NINE = (np.uint8(ord(char)) for char in "adefntu89")
_SPACE = np.uint8(ord(" "))
_BLANKS = tuple(np.uint8(ord(char)) for char in " \n\r\t")
_ESCAPED = tuple(np.uint8(ord(char)) for char in '"\\/bfnrt')
_RUE, _LSE, _ULL = (tuple(np.uint8(ord(char)) for char in rest) for rest in ("rue", "lse", "ull"))
_TO_LOWER_CASE = np.uint8(0x20)  # the bit by which letters differ from capitals
_NO_BYTE = np.uint8(0)  # what is read beyond the text; JSON never contains it

# The first bytes of characters of 2, 3 and 4 bytes, and the bounds of the next ones (Unicode 15, table
# 3-7).
_TWO, _THREE, _FOUR, _FOUR_LAST = (np.uint8(byte) for byte in (0xC2, 0xE0, 0xF0, 0xF4))
_BEFORE_SURROGATES = np.uint8(0xED)
_80, _90, _A0, _C0 = (np.uint8(byte) for byte in (0x80, 0x90, 0xA0, 0xC0))


@inlined
def byte(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint8:
    """Return the byte at `at`; 0, which JSON never contains, if the text has ended."""
    return buffer[at] if at < end else _NO_BYTE


@inlined
def past_blanks(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the first position from `at` on that has no white space."""
    while at < end and buffer[at] in _BLANKS:
        at += _1
    return at


@inlined
def past_colon(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after a colon and the white space around it."""
    at = past_blanks(buffer, at, end)
    return past_blanks(buffer, at + _1, end) if byte(buffer, at, end) == COLON else NOWHERE


@inlined
def string(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint64, bool]:
    """Return the position of the closing quote of the string whose opening quote is at `at`.

    Also return whether the string has escapes.
    """
    escaped = False
    if byte(buffer, at, end) != QUOTE:
        return NOWHERE, escaped
    at += _1
    while True:
        at = _past_ordinary(buffer, at, end)
        found = byte(buffer, at, end)
        if found == QUOTE:
            return at, escaped
        if found == _BACKSLASH:
            escaped = True
            at = _past_escape(buffer, at, end)
        elif found >= _80:
            at = _past_letter(buffer, at, end)
        else:
            return NOWHERE, escaped


@inlined
def past_scalar(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after a string, a number, or one of the three literals."""
    first = byte(buffer, at, end)
    if first == QUOTE:
        return string(buffer, at, end)[0] + _1
    if first == _T:
        return at + _4 if _are(buffer, at + _1, end, _RUE) else NOWHERE
    if first == _N:
        return at + _4 if _are(buffer, at + _1, end, _ULL) else NOWHERE
    if first == _F:
        is_right = byte(buffer, at + _1, end) == _A and _are(buffer, at + _2, end, _LSE)
        return at + _5 if is_right else NOWHERE
    return _past_number(buffer, at, end)


@inlined
def past_integer(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after an integer.

    For another number it is the position of its point or exponent.
    """
    if byte(buffer, at, end) == MINUS:
        at += _1
    if byte(buffer, at, end) == ZERO:
        return at + _1
    behind = _past_digits(buffer, at, end)
    return behind if behind > at else NOWHERE


@inlined
def _past_number(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    start, at = at, past_integer(buffer, at, end)
    if byte(buffer, at, end) == _POINT:
        digits, at = at + _1, _past_digits(buffer, at + _1, end)
        if at == digits:
            return NOWHERE
    if byte(buffer, at, end) | _TO_LOWER_CASE == _E:
        at += _1
        sign = byte(buffer, at, end)
        if sign in (MINUS, _PLUS):
            at += _1
        digits, at = at, _past_digits(buffer, at, end)
        if at == digits or at - digits > EXPONENT_DIGITS_MAX:
            return NOWHERE
    return at if at - start <= NUMBER_BYTES_MAX else NOWHERE


@inlined
def _past_digits(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    while at < end and ZERO <= buffer[at] <= _NINE:
        at += _1
    return at


@inlined
def _past_ordinary(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the first position that has a quote, a backslash, a control character or a byte that is not ASCII.

    Returns `end` if there is none. It reads eight bytes at once: `x - 1` has its top bit set if x was 0.
    The borrow may change the bytes above, but only the lowest match is used ("Bit Twiddling Hacks", S. E.
    Anderson: haszero, hasless).
    """
    while at < end and end - at >= _8:
        found = word(buffer, at)
        quotes, backslashes = found ^ _QUOTES, found ^ _BACKSLASHES
        marks = (quotes - _ONES) & ~quotes | (backslashes - _ONES) & ~backslashes
        marks = (marks | (found - _SPACES) & ~found | found) & _TOPS
        if marks:
            below = (marks - _1) & ~marks
            return at + ((below & _ONES) * _ONES >> _56) - _1
        at += _8
    while at < end:
        found_one = buffer[at]
        if found_one < _SPACE or found_one >= _80 or found_one in (QUOTE, _BACKSLASH):
            break
        at += _1
    return at


@inlined
def _past_escape(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after an escape. NOWHERE for a surrogate, which the exact reader must read."""
    kind = byte(buffer, at + _1, end)
    if kind == _U:
        first, second = byte(buffer, at + _2, end), byte(buffer, at + _3, end)
        rest = _is_hex(byte(buffer, at + _4, end)) and _is_hex(byte(buffer, at + _5, end))
        is_surrogate = first | _TO_LOWER_CASE == _D and second >= _EIGHT
        is_right = _is_hex(first) and _is_hex(second) and rest and not is_surrogate
        return at + _6 if is_right else NOWHERE
    return at + _2 if kind in _ESCAPED else NOWHERE


@inlined
def _is_hex(char: np.uint8) -> bool:
    return bool(ZERO <= char <= _NINE or _A <= char | _TO_LOWER_CASE <= _F)


@inlined
def _past_letter(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after a character of two to four bytes.

    It must be the shortest UTF-8, and not a surrogate.
    """
    first, second = buffer[at], byte(buffer, at + _1, end)
    if first < _TWO or first > _FOUR_LAST or not _continues(second):
        return NOWHERE
    if first < _THREE:
        return at + _2
    if not _continues(byte(buffer, at + _2, end)):
        return NOWHERE
    if first < _FOUR:
        too_long = first == _THREE and second < _A0
        is_surrogate = first == _BEFORE_SURROGATES and second >= _A0
        return NOWHERE if too_long or is_surrogate else at + _3
    too_long = first == _FOUR and second < _90
    too_large = first == _FOUR_LAST and second >= _90
    if too_long or too_large or not _continues(byte(buffer, at + _3, end)):
        return NOWHERE
    return at + _4


@inlined
def _continues(char: np.uint8) -> bool:
    return bool(_80 <= char < _C0)


@inlined
def _are(buffer: Bytes, at: np.uint64, end: np.uint64, rest: Rest) -> bool:
    """Return whether the three bytes from `at` on are `rest`."""
    is_there = at < end and end - at >= _3
    return bool(is_there and (buffer[at], buffer[at + _1], buffer[at + _2]) == rest)
