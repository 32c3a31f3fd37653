"""The keys by which a list may hold the domain of an address: that domain alone, or it with all subdomains.

The keys are pieces of the address itself, so nothing is copied. The key of the domain alone is
`@mail.example.com`. The keys of a domain with all subdomains are `mail.example.com`, `example.com` and
`com`; only the LABELS_MAX shortest of these are used. For the host of a URL it is `/mail.example.com`. No domain is
below an IP address.
"""

import numpy as np

from streamdedup.events import Column, Integers
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import frozen
from streamdedup.keys.normalizers.address_limits import LABELS_MAX
from streamdedup.keys.words import Bytes

_0, _1 = np.uint64(0), np.uint64(1)
_AT, _SLASH, _POINT, _BRACKET, _ZERO, _NINE = (np.uint8(ord(char)) for char in "@/.]09")


def candidates(addresses: Column, sign: np.uint8 = _AT) -> tuple[Integers, Column]:
    """Return, for each key, its row of `addresses`, ascending, and the key, over the same buffer.

    The addresses are normalized, so each has at most one @, the `sign` before its domain. A null, or a text without
    the sign, has no keys.
    """
    buffer = frozen(np.frombuffer(addresses.buffer, dtype=np.uint8), np.uint8)
    starts, sizes = frozen(addresses.starts, np.int64), frozen(addresses.sizes, np.int64)
    counts = np.empty(len(addresses), dtype=np.int64)
    count(sign, buffer, starts, sizes, counts)
    rows = np.repeat(np.arange(len(addresses)), counts)
    key_starts, key_sizes = np.empty((2, len(rows)), dtype=np.int64)
    fill(sign, buffer, starts, sizes, frozen(counts, np.int64), key_starts, key_sizes)
    return rows, Column(addresses.buffer, key_starts, key_sizes)


def host_candidates(hosts: Column) -> tuple[Integers, Column]:
    """Return the same for hosts, each after a slash."""
    return candidates(hosts, _SLASH)


def warm_up() -> None:
    """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
    candidates(Column.of([b"a@b.c"]))


@kernel
def count(
    sign: np.uint8, buffer: Bytes, starts: Integers, sizes: Integers, counts: Integers
) -> None:
    """Write into `counts` how many keys each row has."""
    for row in range(starts.shape[0]):
        counts[row] = 0
        if is_within(starts[row], sizes[row], buffer.shape[0]):
            at, end = np.uint64(starts[row]), np.uint64(starts[row] + sizes[row])
            at = _sign(sign, buffer, at, end)
            if at < end:
                counts[row] = 1 + min(_labels(sign, buffer, at, end), LABELS_MAX)


@kernel
def fill(
    sign: np.uint8,
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    counts: Integers,
    key_starts: Integers,
    key_sizes: Integers,
) -> None:
    """Write where the keys are, row after row, as many for each row as `count` found."""
    to = _0
    for row in range(starts.shape[0]):
        if 0 < counts[row] <= key_starts.shape[0] - np.int64(to):
            end = np.uint64(starts[row] + sizes[row])
            at = _sign(sign, buffer, np.uint64(starts[row]), end)
            key_starts[to], key_sizes[to] = np.int64(at), np.int64(end - at)
            to += _1
            left, is_first = _labels(sign, buffer, at, end), True
            while left > 0:
                if is_first or buffer[at] == _POINT:
                    if left <= LABELS_MAX:
                        key_starts[to], key_sizes[to] = np.int64(at + _1), np.int64(end - at - _1)
                        to += _1
                    left -= 1
                is_first = False
                at += _1


@inlined
def _sign(sign: np.uint8, buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position of the first sign, or `end` if there is none."""
    while at < end and buffer[at] != sign:
        at += _1
    return at


@inlined
def _labels(sign: np.uint8, buffer: Bytes, at: np.uint64, end: np.uint64) -> int:
    """Return how many labels follow the sign at `at`: none in an IP address."""
    if sign == _SLASH and _is_ip(buffer, at + _1, end):
        return 0
    labels = 1
    while at < end:
        if buffer[at] == _POINT:
            labels += 1
        at += _1
    return labels


@inlined
def _is_ip(buffer: Bytes, at: np.uint64, end: np.uint64) -> bool:
    """Return whether a host ends in a bracket, or its last label is a number."""
    last = end
    while last > at and _ZERO <= buffer[last - _1] <= _NINE:
        last -= _1
    if last == end:
        return bool(last > at and buffer[last - _1] == _BRACKET)
    return bool(last == at or buffer[last - _1] == _POINT)


@inlined
def is_within(start: int, size: int, end: int) -> bool:
    """Return whether a cell lies in the buffer; without start + size, which may overflow."""
    return size >= 0 and 0 <= start <= end - size
