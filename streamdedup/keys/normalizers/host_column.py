"""The hosts of a column of normalized URLs, found by a kernel, with the same results as `hosts`.

The kernel leaves a null for all others, which `hosts` then reads: other characters than letters, digits, dots, dashes
and underscores, Punycode, user names, IPv6 addresses, and IPv4 addresses that are not four decimal numbers.
"""

import numpy as np

from streamdedup.events import NULL, Column, Integers
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import frozen
from streamdedup.keys.normalizers.domains import host_candidates, is_within
from streamdedup.keys.normalizers.hosts import authority_of, cell_of
from streamdedup.keys.words import Bytes

_0, _1, _2, _3, _4, _7 = (np.uint64(number) for number in (0, 1, 2, 3, 4, 7))
_SLASH, _COLON, _POINT, _S, _ZERO, _NINE = (np.uint8(ord(char)) for char in "/:.s09")
_BYTE_MAX, _TEN = np.uint64(255), np.uint64(10)
_HTTP, _PUNYCODE, _WWW = (
    np.frombuffer(text, dtype=np.uint8) for text in (b"http", b"xn--", b"www.")
)
# What a byte may be: a part of a host; what ends an authority.
_HOST, _END = np.uint8(1), np.uint8(2)
_USES: Bytes = np.zeros(256, dtype=np.uint8)
_USES[list(b"abcdefghijklmnopqrstuvwxyz0123456789.-_")] |= _HOST
_USES[list(b"/?#")] |= _END


def candidates(urls: Column, *, drops_www: bool) -> tuple[Integers, Column]:
    """Return, for each key by which a list may hold the host of a URL, its row of `urls`, ascending, and the key.

    The URLs are normalized; `drops_www` is whether that dropped `www.`, too.
    """
    return host_candidates(hosts(urls, drops_www=drops_www))


def hosts(urls: Column, *, drops_www: bool) -> Column:
    """Return the host of each URL after a slash; nulls stay nulls. Python reads each other host once."""
    buffer = frozen(np.frombuffer(urls.buffer, dtype=np.uint8), np.uint8)
    starts, sizes = frozen(urls.starts, np.int64), frozen(urls.sizes, np.int64)
    to_starts, to_sizes = np.empty((2, len(urls)), dtype=np.int64)
    find(np.uint8(drops_www), buffer, starts, sizes, to_starts, to_sizes)
    found = Column(urls.buffer, to_starts, to_sizes)
    asked = np.flatnonzero((to_sizes < 0) & (sizes >= 0))
    if not len(asked):
        return found
    known: dict[bytes, bytes] = {}
    cells = []
    for row in asked.tolist():
        authority = authority_of(urls[row] or b"")
        if authority not in known:
            known[authority] = cell_of(authority, drops_www=drops_www)
        cells.append(known[authority])
    return found.replaced(asked, Column.of(cells))


def warm_up() -> None:
    """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
    candidates(Column.of([b"http://a.b/"]), drops_www=False)


@kernel
def find(
    drops_www: np.uint8,
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    to_starts: Integers,
    to_sizes: Integers,
) -> None:
    """Write where the host of each URL is, with the slash before it. The size of one that is not plain is NULL."""
    for row in range(starts.shape[0]):
        to_starts[row], to_sizes[row] = 0, NULL
        if is_within(starts[row], sizes[row], buffer.shape[0]):
            end = np.uint64(starts[row] + sizes[row])
            first = _authority(buffer, np.uint64(starts[row]), end)
            last = _host_end(buffer, first, end) if first < end else _0
            if last > first and _is_plain(drops_www, buffer, first, last):
                to_starts[row] = np.int64(first - _1)
                to_sizes[row] = np.int64(last - first + _1)


@inlined
def _authority(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after `http://` or `https://`; `end` if the URL begins otherwise."""
    if end - at <= _7 or not _begins(buffer, at, end, _HTTP):
        return end
    at += _4
    if buffer[at] == _S:
        at += _1
    if buffer[at] != _COLON or buffer[at + _1] != _SLASH or buffer[at + _2] != _SLASH:
        return end
    return min(at + _3, end)


@inlined
def _host_end(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position after the host at `at`, without a dot at its end; 0 if it has other bytes, or a user."""
    while at < end and _USES[buffer[at]] & _HOST:
        at += _1
    last = at
    if at < end and buffer[at] == _COLON:
        at += _1
        while at < end and _ZERO <= buffer[at] <= _NINE:
            at += _1
    if at < end and not _USES[buffer[at]] & _END:
        return _0
    return last - _1 if buffer[last - _1] == _POINT else last


@inlined
def _is_plain(drops_www: np.uint8, buffer: Bytes, first: np.uint64, last: np.uint64) -> bool:
    """Return whether a host of plain bytes is its one spelling."""
    if buffer[last - _1] == _POINT or (drops_www and _begins(buffer, first, last, _WWW)):
        return False
    label, at = first, first
    while at < last:
        if buffer[at] == _POINT:
            label = at + _1
        elif at == label and _begins(buffer, at, last, _PUNYCODE):
            return False
        at += _1
    # A number is at the end of IPv4 addresses only, and begins with a digit.
    return not _ZERO <= buffer[label] <= _NINE or _is_quad(buffer, first, last)


@inlined
def _is_quad(buffer: Bytes, at: np.uint64, end: np.uint64) -> bool:
    """Return whether a host is four decimal numbers of one byte each, without leading zeros."""
    points, number, digits = 0, _0, 0
    while at < end:
        if buffer[at] == _POINT:
            if digits == 0:
                return False
            points, number, digits = points + 1, _0, 0
        elif not _ZERO <= buffer[at] <= _NINE or (digits > 0 and number == _0):
            return False
        else:
            number = number * _TEN + np.uint64(buffer[at] - _ZERO)
            digits += 1
            if number > _BYTE_MAX:
                return False
        at += _1
    return points == 3 and digits > 0


@inlined
def _begins(buffer: Bytes, at: np.uint64, end: np.uint64, text: Bytes) -> bool:
    """Return whether `text`, of four bytes, is at `at`."""
    if end - at < _4:
        return False
    same = True
    for i in range(4):
        same &= buffer[at + np.uint64(i)] == text[i]
    return same
