"""The lexical grammar of JSON (RFC 8259) for kernels: each function goes from the start of a token to its end.

A position is NOWHERE if the token is wrong: it breaks the grammar, is no UTF-8, is half of a surrogate pair,
or a number beyond the largest double. All functions also accept NOWHERE as a position. They read no byte at
or after `end`.
"""

import numpy as np

from streamdedup.kernel import inlined, kernel
from streamdedup.keys.words import Bytes, word

Rest = tuple[np.uint8, ...]

NOWHERE = np.uint64(1 << 63)  # beyond the end of every text, even if a few bytes are added to it
# A number that is no longer, with an exponent of at most two digits, is a finite double: nothing else is asked.
SHORT_BYTES_MAX = np.uint64(100)
SHORT_EXPONENT_MAX = np.uint64(2)
# The digits of the least number that rounds to infinity: half a step above the largest double (IEEE 754).
INFINITE = np.frombuffer(str(2**1024 - 2**970).encode(), dtype=np.uint8)
EXPONENT_MAX = 1 << 56  # an exponent is read no further: no text has as many digits

_0, _1, _2, _3, _4, _5, _6, _7, _8 = (np.uint64(number) for number in range(9))
_10, _12, _16, _18, _24, _56, _63 = (np.uint64(number) for number in (10, 12, 16, 18, 24, 56, 63))
_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_QUOTES, _BACKSLASHES, _SPACES = (np.uint64(0x0101010101010101 * ord(char)) for char in '"\\ ')

QUOTE, COMMA, COLON, MINUS, ZERO = (np.uint8(ord(char)) for char in '",:-0')
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = (np.uint8(ord(char)) for char in "{}[]")
BACKSLASH, _PLUS, POINT = (np.uint8(ord(char)) for char in "\\+.")
_A, _B, _E, _F, _N, _R, _T, _U, NINE = (np.uint8(ord(char)) for char in "abefnrtu9")
_SPACE = np.uint8(ord(" "))
_BLANKS = tuple(np.uint8(ord(char)) for char in " \n\r\t")
_ESCAPED = tuple(np.uint8(ord(char)) for char in '"\\/bfnrt')
_BACK, _FEED, _LINE, _RETURN, _TAB = (np.uint8(ord(char)) for char in "\b\f\n\r\t")
_RUE, _LSE, _ULL = (tuple(np.uint8(ord(char)) for char in rest) for rest in ("rue", "lse", "ull"))
_TO_LOWER_CASE = np.uint8(0x20)  # the bit by which letters differ from capitals
_NO_BYTE = np.uint8(0)  # what is read beyond the text; JSON never contains it

# The first bytes of characters of 2, 3 and 4 bytes, and the bounds of the next ones (Unicode 15, table
# 3-7).
_TWO, _THREE, _FOUR, _FOUR_LAST = (np.uint8(byte) for byte in (0xC2, 0xE0, 0xF0, 0xF4))
_BEFORE_SURROGATES = np.uint8(0xED)
# Codes of 16 bits that are halves of a character, and how UTF-8 is made of codes (Unicode 15, tables 3-5, 3-6).
_SURROGATE_BITS, _HIGH, _LOW, _LOW_BITS = (np.uint64(c) for c in (0xFC00, 0xD800, 0xDC00, 0x3FF))
_80_CODE, _800_CODE, _BEYOND = (np.uint64(code) for code in (0x80, 0x800, 0x10000))
_TWO_HEAD, _THREE_HEAD, _FOUR_HEAD = (np.uint64(byte) for byte in (0xC0, 0xE0, 0xF0))
_TEN = np.uint8(10)
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
        if found == BACKSLASH:
            escaped = True
            at = _past_escape(buffer, at, end)
        elif found >= _80:
            at = past_letter(buffer, at, end)
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
    """Return the position after a number that is finite as a double."""
    start, at, is_short = at, past_integer(buffer, at, end), True
    if byte(buffer, at, end) == POINT:
        digits, at = at + _1, _past_digits(buffer, at + _1, end)
        if at == digits:
            return NOWHERE
    if byte(buffer, at, end) | _TO_LOWER_CASE == _E:
        at += _1
        sign = byte(buffer, at, end)
        if sign in (MINUS, _PLUS):
            at += _1
        digits, at = at, _past_digits(buffer, at, end)
        if at == digits:
            return NOWHERE
        is_short = bool(at - digits <= SHORT_EXPONENT_MAX)
    if is_short and at - start <= SHORT_BYTES_MAX:
        return at
    return at if at < NOWHERE and _is_finite(buffer, start, at) else NOWHERE


@kernel
def _is_finite(buffer: Bytes, start: np.uint64, end: np.uint64) -> bool:
    """Return whether the number from `start` to `end`, which is right by the grammar, is finite as a double.

    It is 0.d1 d2 ... * 10^`scale` with d1 from 1 to 9, or 0. INFINITE is that with as many digits as its scale.
    """
    at, first, scale, is_fraction = start, end, np.int64(0), False
    while at < end and buffer[at] | _TO_LOWER_CASE != _E:
        char = buffer[at]
        if char == POINT:
            is_fraction = True
        elif char != MINUS:
            if first == end and char != ZERO:
                first = at
            if first == end:
                scale -= is_fraction
            else:
                scale += not is_fraction
        at += _1
    if first == end:
        return True  # it is 0, whatever its exponent is
    scale += _exponent(buffer, at, end)
    if scale != INFINITE.shape[0]:
        return bool(scale < INFINITE.shape[0])
    return _is_below_infinite(buffer, first, at)


@kernel
def _exponent(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.int64:
    """Return the exponent that begins with its letter at `at`, 0 if there is none; at most some EXPONENT_MAX."""
    exponent, is_minus = np.int64(0), False
    while at < end and exponent < EXPONENT_MAX:
        char = buffer[at]
        is_minus |= char == MINUS
        if ZERO <= char <= NINE:
            exponent = exponent * 10 + np.int64(char - ZERO)
        at += _1
    return -exponent if is_minus else exponent


@kernel
def _is_below_infinite(buffer: Bytes, at: np.uint64, end: np.uint64) -> bool:
    """Return whether the digits from `at` to `end`, among which may be a point, are below those of INFINITE."""
    for limit in INFINITE:
        if at < end and buffer[at] == POINT:
            at += _1
        char = buffer[at] if at < end else ZERO
        if char != limit:
            return bool(char < limit)
        at += _1
    return False


@inlined
def _past_digits(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    while at < end and ZERO <= buffer[at] <= NINE:
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
        if found_one < _SPACE or found_one >= _80 or found_one in (QUOTE, BACKSLASH):
            break
        at += _1
    return at


@inlined
def _past_escape(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after an escape; two escapes that are a surrogate pair are one."""
    kind = byte(buffer, at + _1, end)
    if kind == _U:
        return _past_code(buffer, at, end)
    return at + _2 if kind in _ESCAPED else NOWHERE


@kernel
def _past_code(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after an escape of four digits, or of two such escapes that are a surrogate pair."""
    if not _are_hex(buffer, at + _2, end):
        return NOWHERE
    code = _code(buffer, at + _2)
    if code & _SURROGATE_BITS != _HIGH:
        return at + _6 if code & _SURROGATE_BITS != _LOW else NOWHERE
    follows = byte(buffer, at + _6, end) == BACKSLASH and byte(buffer, at + _7, end) == _U
    if not follows or not _are_hex(buffer, at + _8, end):
        return NOWHERE
    return at + _12 if _code(buffer, at + _8) & _SURROGATE_BITS == _LOW else NOWHERE


@inlined
def unescaped(buffer: Bytes, at: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return what stands at `at` in a string that is right: its UTF-8, how many bytes that is, the position after it.

    The bytes are in one word, the first lowest. Outside an escape, they are the one byte at `at`.
    """
    char = buffer[at]
    if char != BACKSLASH:
        return np.uint64(char), _1, at + _1
    kind = buffer[at + _1]
    if kind != _U:
        return np.uint64(_meant(kind)), _1, at + _2
    code, behind = _code(buffer, at + _2), at + _6
    if code & _SURROGATE_BITS == _HIGH:
        low = _code(buffer, at + _8)
        code, behind = _BEYOND + ((code & _LOW_BITS) << _10) + (low & _LOW_BITS), at + _12
    if code < _80_CODE:
        return code, _1, behind
    last = _80_CODE | code & _63
    if code < _800_CODE:
        return _TWO_HEAD | code >> _6 | last << _8, _2, behind
    before = _80_CODE | code >> _6 & _63
    if code < _BEYOND:
        return _THREE_HEAD | code >> _12 | before << _8 | last << _16, _3, behind
    second = _80_CODE | code >> _12 & _63
    return _FOUR_HEAD | code >> _18 | second << _8 | before << _16 | last << _24, _4, behind


@inlined
def _meant(kind: np.uint8) -> np.uint8:
    """Return the byte that a backslash and the letter `kind` stand for."""
    if kind == _N:
        return _LINE
    if kind == _T:
        return _TAB
    if kind == _R:
        return _RETURN
    if kind == _B:
        return _BACK
    return _FEED if kind == _F else kind


@inlined
def _code(buffer: Bytes, at: np.uint64) -> np.uint64:
    """Return the number that four hexadecimal digits are."""
    code = _0
    for digit in range(4):
        char = buffer[at + np.uint64(digit)]
        low = char - ZERO if char <= NINE else (char | _TO_LOWER_CASE) - _A + _TEN
        code = code << _4 | np.uint64(low)
    return code


@inlined
def _are_hex(buffer: Bytes, at: np.uint64, end: np.uint64) -> bool:
    """Return whether four hexadecimal digits stand at `at`."""
    first = _is_hex(byte(buffer, at, end)) and _is_hex(byte(buffer, at + _1, end))
    return first and _is_hex(byte(buffer, at + _2, end)) and _is_hex(byte(buffer, at + _3, end))


@inlined
def _is_hex(char: np.uint8) -> bool:
    return bool(ZERO <= char <= NINE or _A <= char | _TO_LOWER_CASE <= _F)


@inlined
def past_letter(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
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
