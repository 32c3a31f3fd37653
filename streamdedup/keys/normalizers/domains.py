"""The keys by which a list may hold the domain of an address: that domain alone, or it with all subdomains.

The keys are pieces of the address itself, so nothing is copied. The key of the domain alone is
`@mail.example.com`. The keys of a domain with all subdomains are `mail.example.com`, `example.com` and
`com`; only the LABELS_MAX shortest of these are used.
"""

import numpy as np

from streamdedup.events import Column, Integers
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import frozen
from streamdedup.keys.normalizers.domain_limits import LABELS_MAX
from streamdedup.keys.words import Bytes

_0, _1 = np.uint64(0), np.uint64(1)
_AT, _POINT = np.uint8(ord("@")), np.uint8(ord("."))


def candidates(addresses: Column) -> tuple[Integers, Column]:
    """Return, for each key, its row of `addresses`, ascending, and the key, over the same buffer.

    The addresses are normalized, so each has at most one @. A null, or a text without @, has no keys.
    """
    buffer = frozen(np.frombuffer(addresses.buffer, dtype=np.uint8), np.uint8)
    starts, sizes = frozen(addresses.starts, np.int64), frozen(addresses.sizes, np.int64)
    counts = np.empty(len(addresses), dtype=np.int64)
    count(buffer, starts, sizes, counts)
    rows = np.repeat(np.arange(len(addresses)), counts)
    key_starts, key_sizes = np.empty((2, len(rows)), dtype=np.int64)
    fill(buffer, starts, sizes, frozen(counts, np.int64), key_starts, key_sizes)
    return rows, Column(addresses.buffer, key_starts, key_sizes)


def warm_up() -> None:
    """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
    candidates(Column.of([b"a@b.c"]))


@kernel
def count(buffer: Bytes, starts: Integers, sizes: Integers, counts: Integers) -> None:
    """Write into `counts` how many keys each row has."""
    for row in range(starts.shape[0]):
        counts[row] = 0
        if _is_within(starts[row], sizes[row], buffer.shape[0]):
            at, end = np.uint64(starts[row]), np.uint64(starts[row] + sizes[row])
            at = _sign(buffer, at, end)
            if at < end:
                counts[row] = 1 + min(_labels(buffer, at, end), LABELS_MAX)


@kernel
def fill(
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
        if counts[row] > 0:
            end = np.uint64(starts[row] + sizes[row])
            at = _sign(buffer, np.uint64(starts[row]), end)
            key_starts[to], key_sizes[to] = np.int64(at), np.int64(end - at)
            to += _1
            left, is_first = _labels(buffer, at, end), True
            while at < end:
                if is_first or buffer[at] == _POINT:
                    if left <= LABELS_MAX:
                        key_starts[to], key_sizes[to] = np.int64(at + _1), np.int64(end - at - _1)
                        to += _1
                    left -= 1
                is_first = False
                at += _1


@inlined
def _sign(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the position of the first @, or `end` if there is none."""
    while at < end and buffer[at] != _AT:
        at += _1
    return at


@inlined
def _labels(buffer: Bytes, at: np.uint64, end: np.uint64) -> int:
    """Return how many labels follow the @ at `at`."""
    labels = 1
    while at < end:
        if buffer[at] == _POINT:
            labels += 1
        at += _1
    return labels


@inlined
def _is_within(start: int, size: int, end: int) -> bool:
    """Return whether a cell lies in the buffer; without start + size, which may overflow."""
    return size >= 0 and 0 <= start <= end - size
