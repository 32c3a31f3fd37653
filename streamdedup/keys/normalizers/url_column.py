"""The plain URLs of a column, normalized by kernels, with the same results as `url`.

The kernel leaves a null for all others, which `url` then reads: other letters than ASCII, user names, brackets,
semicolons, dot segments, and what is not a URL. So it may read less than `url`, but never with another result.
"""

from functools import cache

import numpy as np

from streamdedup.events import NULL, Column, Integers, concatenated
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import ROWS_A_CALL, frozen
from streamdedup.keys.normalizers.tracking import tracking_names
from streamdedup.keys.normalizers.url import URL_BYTES_MAX
from streamdedup.keys.options import UrlRules
from streamdedup.keys.words import BYTES_A_CALL, Bytes

PARAMETERS_MAX = 32  # sorted by insertion, whose time grows with the square
LONGER = 3  # a byte may become an escape of so many
NOWHERE = np.uint64(1 << 63)

_0, _1, _2, _3, _4, _5, _7, _8 = (np.uint64(number) for number in (0, 1, 2, 3, 4, 5, 7, 8))
_SLASH, _QUESTION, _HASH, _COLON, _POINT, _PERCENT, _PLUS, _EQUALS, _AND, _BLANK, _ZERO, _S = (
    np.uint8(ord(char)) for char in "/?#:.%+=& 0s"
)
_CAPITAL_A, _LETTERS, _TO_LOWER = np.uint8(ord("A")), np.uint8(26), np.uint8(0x20)
_NOT_ASCII, _NIBBLE, _NO_DIGIT = np.uint8(0x80), np.uint8(4), np.uint8(255)
_NINE, _PORT_MAX = np.uint8(ord("9")), np.uint64(65_535)

_HTTP, _WWW = np.frombuffer(b"http://", dtype=np.uint8), np.frombuffer(b"www.", dtype=np.uint8)
_DIGITS = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)

# What a byte may be: a part of a host; as it is in a path; as it is in a query; printable, so it may be escaped there.
_HOST, _IN_PATH, _IN_QUERY, _PRINTABLE = (np.uint8(1 << bit) for bit in range(4))
_UNRESERVED = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
_USES: Bytes = np.zeros(256, dtype=np.uint8)
_USES[0x20:0x7F] |= _PRINTABLE
_USES[list(_UNRESERVED)] |= _HOST | _IN_PATH | _IN_QUERY
_USES[ord("~")] &= ~_HOST
_USES[list(b"!$&'()*+,/:=@[]|")] |= _IN_PATH
_USES[list(b"\\;")] &= ~_PRINTABLE  # a slash in a path, and the begin of parameters
_VALUES: Bytes = np.full(256, _NO_DIGIT, dtype=np.uint8)  # of hexadecimal digits
for _at, _char in enumerate(b"0123456789abcdef"):
    _VALUES[[_char, ord(chr(_char).upper())]] = _at

_DROPS_SLASH, _DROPS_WWW, _DROPS_SCHEME, _KEEPS_FRAGMENT = range(4)  # the rows of `rules`


def plain(keys: Column, rules: UrlRules) -> Column:
    """Return the plain URLs, normalized, over a new buffer that has nothing else.

    Rows that only `url` can read are null.
    """
    switches, tracked = _switches(rules), _tracked(rules.tracking)
    buffer = frozen(np.frombuffer(keys.buffer, dtype=np.uint8), np.uint8)
    taken = int(np.minimum(np.maximum(keys.sizes, 0), URL_BYTES_MAX).sum())
    out = np.empty(LONGER * taken + 2 * len(keys), dtype=np.uint8)
    copy = np.empty((LONGER + 1) * URL_BYTES_MAX, dtype=np.uint8)
    ends: Integers = np.empty((PARAMETERS_MAX, 2), dtype=np.int64)
    starts, sizes = np.empty((2, len(keys)), dtype=np.int64)
    end: Integers = np.zeros(1, dtype=np.int64)
    at = 0
    while at < len(keys):
        part = slice(at, at + ROWS_A_CALL)
        cells = frozen(keys.starts[part], np.int64), frozen(keys.sizes[part], np.int64)
        at += fill(
            switches, tracked, buffer, *cells, out, end, copy, ends, starts[part], sizes[part]
        )
    return Column(concatenated([out[: end[0]].data]), starts, sizes)


def warm_up() -> None:
    """Compile the kernel or load it from the cache. Called at set-up, so that no batch waits for it."""
    plain(Column.of([b""]), UrlRules())


@cache
def _switches(rules: UrlRules) -> Bytes:
    on = [rules.slash, rules.www, rules.scheme, rules.fragments]
    return frozen(np.array(on, dtype=np.uint8), np.uint8)


@cache
def _tracked(drops: bool) -> Bytes:
    """Return, for each two bytes, 1 if a parameter that begins so may be one that only tracks; all 0 if none drops.

    Other parameters may begin so, too; their URLs are left to `url`.
    """
    found: Bytes = np.zeros(1 << 16, dtype=np.uint8)
    names, beginnings = tracking_names()
    for name in (*names, *beginnings) if drops else ():
        found[name[0] << 8 | name[1]] = 1
    return frozen(found, np.uint8)


@kernel
def fill(
    rules: Bytes,
    tracked: Bytes,
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    out: Bytes,
    end: Integers,
    copy: Bytes,
    ends: Integers,
    to_starts: Integers,
    to_sizes: Integers,
) -> int:
    """Append the normalized URLs to `out`, from `end[0]` on, and write where each is.

    The URLs are at `starts`, of `sizes` bytes each. The size of a URL that is not plain is NULL. `out` must have room
    for LONGER bytes for each byte of a URL, and 2 more; `copy` for those of one URL; `ends` is for its parameters. The
    kernel returns how many rows are done, at least one: it stops once it has read `BYTES_A_CALL` bytes.
    """
    taken = 0
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if taken > BYTES_A_CALL:
            return row
        to_starts[row], to_sizes[row] = 0, NULL
        # Is the cell in the buffer? Asked without start + size, which may overflow.
        if size >= 0 and 0 <= start <= buffer.shape[0] - size:
            at, last = np.uint64(start), np.uint64(start + size)
            if size <= URL_BYTES_MAX:
                taken += size
                at, last = _stripped(buffer, at, last)
                to = _url(rules, tracked, buffer, at, last, out, np.uint64(end[0]), copy, ends)
                if to != NOWHERE:
                    to_starts[row] = end[0]
                    to_sizes[row] = np.int64(to) - end[0]
                    end[0] = np.int64(to)
    return len(starts)


@inlined
def _stripped(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the URL without the controls and spaces at its ends. A zero byte is no text."""
    while at < end and _0 < buffer[at] <= _BLANK:
        at += _1
    while at < end and _0 < buffer[end - _1] <= _BLANK:
        end -= _1
    return at, end


@inlined
def _url(
    rules: Bytes,
    tracked: Bytes,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
    out: Bytes,
    to: np.uint64,
    copy: Bytes,
    ends: Integers,
) -> np.uint64:
    """Write one URL. Return the position after it; NOWHERE if it is not plain."""
    at, to = _origin(rules, buffer, at, end, out, to)
    if at == NOWHERE:
        return NOWHERE
    path = to
    at, to = _path(buffer, at, end, out, to)
    if at == NOWHERE:
        return NOWHERE
    if rules[_DROPS_SLASH]:
        while to > path + _1 and out[to - _1] == _SLASH:
            to -= _1
    if at < end and buffer[at] == _QUESTION:
        at, to = _query(tracked, buffer, at + _1, end, out, to, copy, ends)
        if at == NOWHERE:
            return NOWHERE
    if at + _1 < end and rules[_KEEPS_FRAGMENT]:
        return NOWHERE
    while at < end:  # the fragment, which must be text, too
        if buffer[at] == _0 or buffer[at] >= _NOT_ASCII:
            return NOWHERE
        at += _1
    return to


@inlined
def _origin(
    rules: Bytes, buffer: Bytes, at: np.uint64, end: np.uint64, out: Bytes, to: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Write scheme, host and port.

    This and the functions that it calls return the positions in `buffer` and `out` after what they wrote. The first is
    NOWHERE if that is not plain.
    """
    at, to = _scheme(rules[_DROPS_SCHEME], buffer, at, end, out, to)
    if at == NOWHERE:
        return NOWHERE, to
    host = to
    at, to = _host(buffer, at, end, out, to)
    if at == NOWHERE:
        return NOWHERE, to
    if rules[_DROPS_WWW]:
        to = _without_www(out, host, to)
    return _port(buffer, at, end, out, to)


@inlined
def _scheme(
    drops: int, buffer: Bytes, at: np.uint64, end: np.uint64, out: Bytes, to: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Write the scheme, which must be in lowercase."""
    if end - at < _8:
        return NOWHERE, to
    secure = buffer[at + _4] == _S
    for i in range(7):
        found = buffer[at + np.uint64(i) + (_1 if secure and i >= 4 else _0)]
        if found != _HTTP[i]:
            return NOWHERE, to
        if i == 4 and secure and not drops:
            out[to] = _S
            to += _1
        out[to] = found
        to += _1
    return at + _7 + (_1 if secure else _0), to


@inlined
def _host(
    buffer: Bytes, at: np.uint64, end: np.uint64, out: Bytes, to: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Write a host of letters, digits, dots, dashes and underscores, in lowercase."""
    first = at
    while at < end and buffer[at] not in (_SLASH, _QUESTION, _HASH, _COLON):
        found = buffer[at]
        if not _USES[found] & _HOST:
            return NOWHERE, to
        out[to] = found | _TO_LOWER if np.uint8(found - _CAPITAL_A) < _LETTERS else found
        at, to = at + _1, to + _1
    return (at if at > first else NOWHERE), to


@inlined
def _without_www(out: Bytes, host: np.uint64, to: np.uint64) -> np.uint64:
    """Move the host to the place of its `www.` if it has another dot. Return the position after it."""
    if to - host < _5:
        return to
    for i in range(4):
        if out[host + np.uint64(i)] != _WWW[i]:
            return to
    at, has_dot = host + _4, False
    while at < to:
        has_dot |= out[at] == _POINT
        at += _1
    if not has_dot:
        return to
    at = host + _4
    while at < to:
        out[at - _4] = out[at]
        at += _1
    return to - _4


@inlined
def _port(
    buffer: Bytes, at: np.uint64, end: np.uint64, out: Bytes, to: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Write the port, if there is one: a number without leading zeros."""
    if at == end or buffer[at] != _COLON:
        return at, to
    first, port = at + _1, _0
    while at < end and buffer[at] not in (_SLASH, _QUESTION, _HASH):
        if at >= first:
            if not _ZERO <= buffer[at] <= _NINE or at - first >= _5:
                return NOWHERE, to
            port = port * np.uint64(10) + np.uint64(buffer[at] - _ZERO)
        out[to] = buffer[at]
        at, to = at + _1, to + _1
    led = at > first + _1 and buffer[first] == _ZERO
    return (NOWHERE if at == first or led or port > _PORT_MAX else at), to


@inlined
def _path(
    buffer: Bytes, at: np.uint64, end: np.uint64, out: Bytes, to: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Write the path, `/` if there is none, with the escapes that it needs and no others."""
    segment = to + _1
    if at == end or buffer[at] != _SLASH:
        out[to] = _SLASH
        return at, to + _1
    while at < end and buffer[at] not in (_QUESTION, _HASH):
        found, escaped = buffer[at], False
        at += _1
        if found == _PERCENT:
            byte, escaped = _unescaped(buffer, at, end)
            if escaped:
                found, at = byte, at + _2
        elif not _USES[found] & (_IN_PATH | _PRINTABLE):
            return NOWHERE, to
        if found == _SLASH and not escaped:
            if _is_dots(out, segment, to):
                return NOWHERE, to
            segment = to + _1
        # A % that escapes nothing stays; an escaped slash is no slash.
        is_plain = _USES[found] & _IN_PATH and not (escaped and found == _SLASH)
        if is_plain or (found == _PERCENT and not escaped):
            out[to] = found
            to += _1
        else:
            to = _escape(found, out, to)
    return (NOWHERE if _is_dots(out, segment, to) else at), to


@inlined
def _is_dots(out: Bytes, segment: np.uint64, to: np.uint64) -> bool:
    """Return whether a segment is `.` or `..`."""
    if to == segment + _1:
        return bool(out[segment] == _POINT)
    return bool(to == segment + _2 and out[segment] == _POINT and out[segment + _1] == _POINT)


@inlined
def _query(
    tracked: Bytes,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
    out: Bytes,
    to: np.uint64,
    copy: Bytes,
    ends: Integers,
) -> tuple[np.uint64, np.uint64]:
    """Write the parameters, in the order of their names, then values, after a `?` if there is any."""
    first, count, is_sorted = to + _1, 0, True
    out[to] = _QUESTION
    while at < end and buffer[at] != _HASH:
        if buffer[at] == _AND:
            at += _1
            continue
        if count == PARAMETERS_MAX:
            return NOWHERE, to
        to += _1  # after the question mark, or the sign before
        start = to
        at, to = _parameter(buffer, at, end, out, to)
        if at == NOWHERE:
            return NOWHERE, to
        if to - start >= _2 and tracked[np.uint64(out[start]) << _8 | np.uint64(out[start + _1])]:
            return NOWHERE, to  # it may be one that only tracks
        ends[count, 0], ends[count, 1] = np.int64(start), np.int64(to)
        if count and _before(out, ends, count, count - 1):
            is_sorted = False
        count += 1
        out[to] = _AND
    if not is_sorted:
        _sort(out, first, ends, count, copy)
    return at, (to if count else first - _1)


@inlined
def _parameter(
    buffer: Bytes, at: np.uint64, end: np.uint64, out: Bytes, to: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Write one parameter, with a sign between its name and its value, and the escapes that these need."""
    has_value = False
    while at < end and buffer[at] not in (_AND, _HASH):
        found, escaped = buffer[at], False
        at += _1
        if found == _PERCENT:
            byte, escaped = _unescaped(buffer, at, end)
            if escaped:
                found, at = byte, at + _2
        elif found < _BLANK or found > np.uint8(0x7E):
            return NOWHERE, to
        if found == _EQUALS and not escaped and not has_value:
            has_value = True
            out[to] = _EQUALS
            to += _1
        elif found == _BLANK or (found == _PLUS and not escaped):
            out[to] = _PLUS
            to += _1
        elif _USES[found] & _IN_QUERY:
            out[to] = found
            to += _1
        else:
            to = _escape(found, out, to)
    if not has_value:
        out[to] = _EQUALS
        to += _1
    return at, to


@inlined
def _sort(out: Bytes, first: np.uint64, ends: Integers, count: int, copy: Bytes) -> None:
    """Put the parameters into their order, by insertion: most are few, and nearly sorted."""
    for right in range(1, count):
        at = right
        while at > 0 and _before(out, ends, at, at - 1):
            for side in range(2):
                ends[at, side], ends[at - 1, side] = ends[at - 1, side], ends[at, side]
            at -= 1
    to = _0
    for row in range(count):
        start, end = np.uint64(ends[row, 0]), np.uint64(ends[row, 1])
        while start < end:
            copy[to] = out[start]
            start, to = start + _1, to + _1
        copy[to] = _AND
        to += _1
    for i in range(np.int64(to) - 1):
        out[first + np.uint64(i)] = copy[np.uint64(i)]


@inlined
def _before(out: Bytes, ends: Integers, one: int, other: int) -> bool:
    """Return whether a parameter comes before another: by the bytes of its name, unescaped, then of its value.

    A name's end, which is the only `=`, comes before all bytes, and so does a value's.
    """
    a, a_end = np.uint64(ends[one, 0]), np.uint64(ends[one, 1])
    b, b_end = np.uint64(ends[other, 0]), np.uint64(ends[other, 1])
    while a < a_end and b < b_end:
        left, a = _unit(out, a)
        right, b = _unit(out, b)
        if left != right:
            return bool(left < right)
    return bool(a == a_end and b < b_end)


@inlined
def _unit(out: Bytes, at: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return a byte of a parameter, unescaped, plus 1, or 0 for the sign after the name; and the position after it."""
    found = out[at]
    if found == _PERCENT:
        byte = _VALUES[out[at + _1]] << _NIBBLE | _VALUES[out[at + _2]]
        return np.uint64(byte) + _1, at + _3
    if found == _EQUALS:
        return _0, at + _1
    return np.uint64(_BLANK if found == _PLUS else found) + _1, at + _1


@inlined
def _unescaped(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint8, bool]:
    """Return the byte that two digits after a % stand for, and whether there are two."""
    if at + _1 >= end:
        return _PERCENT, False
    high, low = _VALUES[buffer[at]], _VALUES[buffer[at + _1]]
    if (high | low) == _NO_DIGIT:
        return _PERCENT, False
    return np.uint8(high << _NIBBLE | low), True


@inlined
def _escape(byte: np.uint8, out: Bytes, to: np.uint64) -> np.uint64:
    """Write a % and two digits. Return the position after them."""
    out[to] = _PERCENT
    out[to + _1] = _DIGITS[byte >> _NIBBLE]
    out[to + _2] = _DIGITS[byte & np.uint8(15)]
    return to + _3
