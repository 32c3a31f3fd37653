"""The lexical grammar of JSON (RFC 8259) for kernels: each function goes from the start of a token to its end.

A token is right if it meets the grammar, in UTF-8. It need not have a value: a number may be beyond the largest double,
an escape half of a surrogate pair. `NaN`, `Infinity` and `-Infinity`, which serializers write, count as numbers.

A position from NOWHERE on is a fault: which one, and where. All functions also accept a fault as a position, and return
the first one. They read no byte at or after `end`.
"""

import numpy as np

from streamdedup.kernel import inlined, kernel
from streamdedup.keys.formats.json_kinds import Kind
from streamdedup.keys.words import Bytes, word

Rest = tuple[np.uint8, ...]

NOWHERE = np.uint64(1 << 63)  # beyond the end of every text, even if a few bytes are added to it
PLACE_BITS = np.uint64(56)  # of a fault, the lower bits are where it is, and those above the `Kind`
NO_NAME, NO_COLON, NO_VALUE, NO_COMMA, REST, NUMBER, ESCAPE, CONTROL, NOT_UTF8, DEEP = (
    np.uint64(1 << 63 | kind << 56) for kind in list(Kind)[Kind.NO_NAME :]
)

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
_RUE, _LSE, _ULL, _NAN, _INF, _INI, _ITY = (
    tuple(np.uint8(ord(char)) for char in rest)
    for rest in ("rue", "lse", "ull", "NaN", "Inf", "ini", "ity")
)
_MARK = tuple(np.uint8(byte) for byte in (0xEF, 0xBB, 0xBF))
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
_TEN, _DIGIT_BITS = np.uint8(10), np.uint8(15)
_80, _90, _A0, _C0 = (np.uint8(byte) for byte in (0x80, 0x90, 0xA0, 0xC0))


@inlined
def byte(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint8:
    """Return the byte at `at`; 0, which JSON never contains, if the text has ended."""
    return buffer[at] if at < end else _NO_BYTE


@inlined
def fault(what: np.uint64, at: np.uint64) -> np.uint64:
    """Return the fault `what`, such as NO_COLON, at `at`; if that is a fault already, return that one."""
    return at if at >= NOWHERE else what | at


@inlined
def past_mark(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after the byte order mark at `at`; `at` if there is none."""
    return at + _3 if _are(buffer, at, end, _MARK) else at


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
    is_there = byte(buffer, at, end) == COLON
    return past_blanks(buffer, at + _1, end) if is_there else fault(NO_COLON, at)


@inlined
def string(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint64, bool]:
    """Return the position after the string whose opening quote is at `at`, and whether the string has escapes."""
    escaped = False
    if byte(buffer, at, end) != QUOTE:
        return fault(NO_NAME, at), escaped
    at += _1
    while True:
        at = _past_ordinary(buffer, at, end)
        found = byte(buffer, at, end)
        if found == QUOTE:
            return at + _1, escaped
        if found == BACKSLASH:
            escaped = True
            at = _past_escape(buffer, at, end)
        elif found >= _80:
            at = past_letter(buffer, at, end)
        else:
            return fault(CONTROL, at), escaped


@inlined
def past_scalar(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after a string, a number, or one of the three literals."""
    first = byte(buffer, at, end)
    if first == QUOTE:
        return string(buffer, at, end)[0]
    if first == _T:
        return at + _4 if _are(buffer, at + _1, end, _RUE) else fault(NO_VALUE, at)
    if first == _N:
        return at + _4 if _are(buffer, at + _1, end, _ULL) else fault(NO_VALUE, at)
    if first == _F:
        is_right = byte(buffer, at + _1, end) == _A and _are(buffer, at + _2, end, _LSE)
        return at + _5 if is_right else fault(NO_VALUE, at)
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
    return behind if behind > at else fault(NUMBER, at)


@inlined
def _past_number(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after a number, whatever its value is."""
    start, at = at, past_integer(buffer, at, end)
    if at >= NOWHERE:
        return _past_not_finite(buffer, start, end)
    if byte(buffer, at, end) == POINT:
        digits, at = at + _1, _past_digits(buffer, at + _1, end)
        if at == digits:
            return fault(NUMBER, at)
    if byte(buffer, at, end) | _TO_LOWER_CASE == _E:
        at += _1
        sign = byte(buffer, at, end)
        if sign in (MINUS, _PLUS):
            at += _1
        digits, at = at, _past_digits(buffer, at, end)
        if at == digits:
            return fault(NUMBER, at)
    return at


@kernel
def _past_not_finite(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after `NaN`, `Infinity` or `-Infinity`; for all else, which begins no number, a fault."""
    if _are(buffer, at, end, _NAN):
        return at + _3
    is_negative = byte(buffer, at, end) == MINUS
    name = at + _1 if is_negative else at
    is_infinity = _are(buffer, name, end, _INF) and _are(buffer, name + _3, end, _INI)
    if is_infinity and _are(buffer, name + _5, end, _ITY):
        return name + _8
    return fault(NUMBER, name) if is_negative else fault(NO_VALUE, at)


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
    """Return the position after an escape. One of four digits may be half of a surrogate pair."""
    kind = byte(buffer, at + _1, end)
    if kind == _U:
        return at + _6 if _are_hex(buffer, at + _2, end) else fault(ESCAPE, at)
    return at + _2 if kind in _ESCAPED else fault(ESCAPE, at)


@inlined
def unescaped(
    buffer: Bytes, at: np.uint64, end: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return what stands at `at` in a string that is right: its UTF-8, how many bytes that is, the position after it.

    The bytes are in one word, the first lowest. Outside an escape, they are the one byte at `at`. Two escapes that are
    a surrogate pair are one character. Half of a pair has the three bytes of any other code (WTF-8). No text in UTF-8
    holds these, so two strings have the same bytes only if they are equal.
    """
    char = buffer[at]
    if char != BACKSLASH:
        return np.uint64(char), _1, at + _1
    kind = byte(buffer, at + _1, end)
    if kind != _U:
        return np.uint64(_meant(kind)), _1, at + _2
    code, behind = _code(buffer, at + _2, end), at + _6
    if code & _SURROGATE_BITS == _HIGH and byte(buffer, behind, end) == BACKSLASH:
        low = _code(buffer, at + _8, end)
        if byte(buffer, at + _7, end) == _U and low & _SURROGATE_BITS == _LOW:
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
def _code(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the number that four hexadecimal digits are; any number of 16 bits if there are none."""
    code = _0
    for digit in range(4):
        char = byte(buffer, at + np.uint64(digit), end)
        low = char - ZERO if char <= NINE else (char | _TO_LOWER_CASE) - _A + _TEN
        code = code << _4 | np.uint64(low & _DIGIT_BITS)
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
        return fault(NOT_UTF8, at)
    if first < _THREE:
        return at + _2
    if not _continues(byte(buffer, at + _2, end)):
        return fault(NOT_UTF8, at)
    if first < _FOUR:
        too_long = first == _THREE and second < _A0
        is_surrogate = first == _BEFORE_SURROGATES and second >= _A0
        return fault(NOT_UTF8, at) if too_long or is_surrogate else at + _3
    too_long = first == _FOUR and second < _90
    too_large = first == _FOUR_LAST and second >= _90
    if too_long or too_large or not _continues(byte(buffer, at + _3, end)):
        return fault(NOT_UTF8, at)
    return at + _4


@inlined
def _continues(char: np.uint8) -> bool:
    return bool(_80 <= char < _C0)


@inlined
def _are(buffer: Bytes, at: np.uint64, end: np.uint64, rest: Rest) -> bool:
    """Return whether the three bytes from `at` on are `rest`."""
    is_there = at < end and end - at >= _3
    return bool(is_there and (buffer[at], buffer[at + _1], buffer[at + _2]) == rest)
