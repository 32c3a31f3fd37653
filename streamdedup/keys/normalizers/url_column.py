"""The plain URLs of a column, normalized by kernels, with the same results as `url`.

The kernel leaves a null for all others, which `url` then reads: other letters than ASCII, user names, brackets,
semicolons, dot segments, and what is not a URL. So it may read less than `url`, but never with another result.
"""

from functools import cache, partial
from itertools import product
from urllib.parse import quote_plus

import numpy as np

from streamdedup.events import NULL, Column, Integers
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.cells import written
from streamdedup.keys.hashing import frozen
from streamdedup.keys.normalizers.tracking import tracking_names
from streamdedup.keys.normalizers.url import URL_BYTES_MAX
from streamdedup.keys.normalizers.url_escapes import (
    BLANK,
    HOST,
    IN_PATH,
    NOWHERE,
    PERCENT,
    PRINTABLE,
    USES,
    escape,
    unescaped,
)
from streamdedup.keys.normalizers.url_query import PARAMETERS_MAX, query
from streamdedup.keys.options import UrlRules
from streamdedup.keys.words import BYTES_A_CALL, Bytes, holds

LONGER = 3  # a byte may become an escape of so many

_0, _1, _2, _4, _5, _7, _8 = (np.uint64(number) for number in (0, 1, 2, 4, 5, 7, 8))
_SLASH, _QUESTION, _HASH, _COLON, _POINT, _ZERO, _S = (np.uint8(ord(char)) for char in "/?#:.0s")
_CAPITAL_A, _LETTERS, _TO_LOWER = np.uint8(ord("A")), np.uint8(26), np.uint8(0x20)
_NOT_ASCII, _NINE, _PORT_MAX = np.uint8(0x80), np.uint8(ord("9")), np.uint64(65_535)

_HTTP, _WWW = np.frombuffer(b"http://", dtype=np.uint8), np.frombuffer(b"www.", dtype=np.uint8)

# The rows of `rules`.
_DROPS_SLASH, _DROPS_WWW, _DROPS_SCHEME, _KEEPS_FRAGMENT, _DROPS_PORT, _DROPS_DOT, _KEEPS_ORDER = (
    range(7)
)
_HTTP_PORT, _HTTPS_PORT = np.uint64(80), np.uint64(443)


def plain(keys: Column, rules: UrlRules) -> Column:
    """Return the plain URLs, normalized, over a new buffer that has nothing else.

    Rows that only `url` can read are null.
    """
    taken = int(np.minimum(np.maximum(keys.sizes, 0), URL_BYTES_MAX).sum())
    out = np.empty(LONGER * taken + 2 * len(keys), dtype=np.uint8)
    copy = np.empty((LONGER + 1) * URL_BYTES_MAX, dtype=np.uint8)
    ends: Integers = np.empty((PARAMETERS_MAX, 2), dtype=np.int64)
    read = partial(fill, _switches(rules), _dropped(rules))
    return written(keys, read, out, whole=(copy, ends))


def warm_up() -> None:
    """Compile the kernel or load it from the cache. Called at set-up, so that no batch waits for it."""
    plain(Column.of([b""]), UrlRules())


@cache
def _switches(rules: UrlRules) -> Bytes:
    on = [rules.slash, rules.www, rules.scheme, rules.fragments, rules.port, rules.dot, rules.order]
    return frozen(np.array(on, dtype=np.uint8), np.uint8)


@cache
def _dropped(rules: UrlRules) -> Bytes:
    """Return, for each two bytes, 1 if a parameter that begins so, escaped, may be one that `rules` drop.

    Other parameters may begin so, too; their URLs are left to `url`.
    """
    found: Bytes = np.zeros(1 << 16, dtype=np.uint8)
    names, beginnings = tracking_names()
    for name in (*names, *beginnings) if rules.tracking else ():
        found[name[0] << 8 | name[1]] = 1
    for first in (name[:2] for name in rules.ignore):
        both = ((char, char.upper()) if char.isascii() else (char,) for char in first)
        for letters in product(*both):
            begun = f"{quote_plus(''.join(letters))}=".encode()
            found[begun[0] << 8 | begun[1]] = 1
    return frozen(found, np.uint8)


@kernel
def fill(
    rules: Bytes,
    dropped: Bytes,
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
        if holds(buffer, start, size):
            at, last = np.uint64(start), np.uint64(start + size)
            # A buffer that is too small is the caller's fault; nothing is written beyond it.
            room = min(out.shape[0] - end[0], copy.shape[0])
            if size <= URL_BYTES_MAX and LONGER * size + 2 <= room:
                taken += size
                at, last = _stripped(buffer, at, last)
                to = _url(rules, dropped, buffer, at, last, out, np.uint64(end[0]), copy, ends)
                if to != NOWHERE:
                    to_starts[row] = end[0]
                    to_sizes[row] = np.int64(to) - end[0]
                    end[0] = np.int64(to)
    return len(starts)


@inlined
def _stripped(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the URL without the controls and spaces at its ends. A zero byte is no text."""
    while at < end and _0 < buffer[at] <= BLANK:
        at += _1
    while at < end and _0 < buffer[end - _1] <= BLANK:
        end -= _1
    return at, end


@inlined
def _url(
    rules: Bytes,
    dropped: Bytes,
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
        sorts = not rules[_KEEPS_ORDER]
        at, to = query(dropped, sorts, buffer, at + _1, end, out, to, copy, ends)
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
    scheme = at
    at, to = _scheme(rules[_DROPS_SCHEME], buffer, at, end, out, to)
    if at == NOWHERE:
        return NOWHERE, to
    host = to
    at, to = _host(buffer, at, end, out, to)
    if at == NOWHERE:
        return NOWHERE, to
    if rules[_DROPS_DOT]:
        while to > host + _1 and out[to - _1] == _POINT:
            to -= _1
    if rules[_DROPS_WWW]:
        to = _without_www(out, host, to)
    own = _0
    if rules[_DROPS_PORT]:
        own = _HTTPS_PORT if buffer[scheme + _4] == _S else _HTTP_PORT
    return _port(own, buffer, at, end, out, to)


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
        if not USES[found] & HOST:
            return NOWHERE, to
        out[to] = found | _TO_LOWER if np.uint8(found - _CAPITAL_A) < _LETTERS else found
        at, to = at + _1, to + _1
    return (at if at > first else NOWHERE), to


@inlined
def _without_www(out: Bytes, host: np.uint64, to: np.uint64) -> np.uint64:
    """Move the host to the place of its `www.` if a name with a dot follows. Return the position after it."""
    if to - host < _5:
        return to
    for i in range(4):
        if out[host + np.uint64(i)] != _WWW[i]:
            return to
    at, has_dot, last = host + _4, False, to
    while last > at and out[last - _1] == _POINT:
        last -= _1
    while at < last:
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
    own: np.uint64, buffer: Bytes, at: np.uint64, end: np.uint64, out: Bytes, to: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Write the port, if there is one: a number without leading zeros, and not `own`, which no port is if it is 0."""
    if at == end or buffer[at] != _COLON:
        return at, to
    before, first, port = to, at + _1, _0
    while at < end and buffer[at] not in (_SLASH, _QUESTION, _HASH):
        if at >= first:
            if not _ZERO <= buffer[at] <= _NINE or at - first >= _5:
                return NOWHERE, to
            port = port * np.uint64(10) + np.uint64(buffer[at] - _ZERO)
        out[to] = buffer[at]
        at, to = at + _1, to + _1
    led = at > first + _1 and buffer[first] == _ZERO
    if own != _0 and port == own:
        to = before
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
        if found == PERCENT:
            found, escaped, at = unescaped(buffer, at, end)
        elif not USES[found] & (IN_PATH | PRINTABLE):
            return NOWHERE, to
        if found == _SLASH and not escaped:
            if _is_dots(out, segment, to):
                return NOWHERE, to
            segment = to + _1
        # A % that escapes nothing stays; an escaped slash is no slash.
        is_plain = USES[found] & IN_PATH and not (escaped and found == _SLASH)
        if is_plain or (found == PERCENT and not escaped):
            out[to] = found
            to += _1
        else:
            to = escape(found, out, to)
    return (NOWHERE if _is_dots(out, segment, to) else at), to


@inlined
def _is_dots(out: Bytes, segment: np.uint64, to: np.uint64) -> bool:
    """Return whether a segment is `.` or `..`."""
    if to == segment + _1:
        return bool(out[segment] == _POINT)
    return bool(to == segment + _2 and out[segment] == _POINT and out[segment + _1] == _POINT)
