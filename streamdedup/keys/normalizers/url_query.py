"""The query of a plain URL, normalized by kernels: its parameters in order, each with the escapes that it needs."""

import numpy as np

from streamdedup.events import Integers
from streamdedup.kernel import inlined
from streamdedup.keys.normalizers.url_escapes import (
    BLANK,
    IN_QUERY,
    NOWHERE,
    PERCENT,
    USES,
    escape,
    unescaped,
)
from streamdedup.keys.words import Bytes

PARAMETERS_MAX = 32  # rows of `ends`; sorted by insertion, whose time grows with the square

_0, _1, _2, _3, _8 = (np.uint64(number) for number in (0, 1, 2, 3, 8))
_QUESTION, _HASH, _PLUS, _EQUALS, _AND = (np.uint8(ord(char)) for char in "?#+=&")
_LAST_PRINTABLE = np.uint8(0x7E)


@inlined
def query(
    dropped: Bytes,
    sorts: bool,
    buffer: Bytes,
    at: np.uint64,
    end: np.uint64,
    out: Bytes,
    to: np.uint64,
    copy: Bytes,
    ends: Integers,
) -> tuple[np.uint64, np.uint64]:
    """Write the parameters after a `?`, if there are any; if it `sorts`, in the order of their names, then values."""
    first, count, is_sorted = to + _1, 0, True
    out[to] = _QUESTION
    while at < end and buffer[at] != _HASH:
        if buffer[at] == _AND:
            at += _1
            continue
        if count == ends.shape[0]:
            return NOWHERE, to
        to += _1  # after the question mark, or the sign before
        start = to
        at, to = _parameter(buffer, at, end, out, to)
        if at == NOWHERE:
            return NOWHERE, to
        if to - start >= _2 and dropped[np.uint64(out[start]) << _8 | np.uint64(out[start + _1])]:
            return NOWHERE, to  # it may be one that only tracks, or is ignored
        ends[count, 0], ends[count, 1] = np.int64(start), np.int64(to)
        if sorts and count and _before(out, ends, count, count - 1):
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
        if found == PERCENT:
            found, escaped, at = unescaped(buffer, at, end)
        elif not BLANK <= found <= _LAST_PRINTABLE:
            return NOWHERE, to
        if found == _EQUALS and not escaped and not has_value:
            has_value = True
            out[to] = _EQUALS
            to += _1
        elif found == BLANK or (found == _PLUS and not escaped):
            out[to] = _PLUS
            to += _1
        elif USES[found] & IN_QUERY:
            out[to] = found
            to += _1
        else:
            to = escape(found, out, to)
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
    if found == PERCENT:
        byte, _, after = unescaped(out, at + _1, at + _3)
        return np.uint64(byte) + _1, after
    if found == _EQUALS:
        return _0, at + _1
    return np.uint64(BLANK if found == _PLUS else found) + _1, at + _1
