"""White space and capitals of a column of ASCII keys, by kernels.

The results are those of Python's `str.strip` and `str.lower`, of which the rules for ASCII are a small,
fixed part.
"""

import numpy as np

from streamdedup.events import NULL, Column, Integers, concatenated
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.cells import located, pass_over
from streamdedup.keys.words import BYTES_A_CALL, Bytes, holds

_0, _1 = np.uint64(0), np.uint64(1)
_NOT_ASCII, _BYTE_1 = np.uint8(0x80), np.uint8(1)
_A, _LETTERS, _TO_LOWER = np.uint8(ord("A")), np.uint8(26), np.uint8(0x20)
# The first of tab, new line, vertical tab, form feed, carriage return; and how many they are.
_TAB, _CONTROLS = np.uint8(9), np.uint8(5)
# The first of the separators of files, groups, records and units, and the space; and how many they are.
_FILE, _SEPARATORS = np.uint8(28), np.uint8(5)


def trim_column(keys: Column) -> Column:
    """Return the keys without white space at both ends, over the same buffer.

    A key that is not ASCII text becomes null.
    """
    return located(keys, trim)


def lower_column(keys: Column) -> Column:
    """Return the same keys, which are ASCII or null, in lowercase, over a new buffer that has nothing else."""
    taken = np.maximum(keys.sizes, 0)
    starts, out = np.cumsum(taken) - taken, np.empty(int(taken.sum()), dtype=np.uint8)
    pass_over(keys, lower, starts, whole=(out,))
    return Column(concatenated([out.data]), starts, keys.sizes)


def warm_up() -> None:
    """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
    lower_column(trim_column(Column.of([b" "])))


@kernel
def trim(
    buffer: Bytes, starts: Integers, sizes: Integers, to_starts: Integers, to_sizes: Integers
) -> int:
    """Write where the keys at `starts`, of `sizes` bytes, are without white space at both ends.

    The size of a key that is not ASCII text is NULL. The kernel returns how many rows are done, at least
    one: it stops once it has read `BYTES_A_CALL` bytes.
    """
    taken = 0
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if taken > BYTES_A_CALL:
            return row
        to_starts[row], to_sizes[row] = 0, NULL
        if holds(buffer, start, size):
            at, end = np.uint64(start), np.uint64(start + size)
            if _is_ascii_text(buffer, at, end):
                at, end = stripped(buffer, at, end)
                to_starts[row], to_sizes[row] = np.int64(at), np.int64(end - at)
            taken += size
    return len(starts)


@kernel
def lower(buffer: Bytes, starts: Integers, sizes: Integers, out: Bytes, to_starts: Integers) -> int:
    """Copy the keys at `starts`, of `sizes` bytes, in lowercase to `to_starts` in `out`.

    The kernel returns how many rows are done, at least one: it stops once it has read `BYTES_A_CALL` bytes.
    """
    taken = 0
    for row in range(starts.shape[0]):
        start, size, to = starts[row], sizes[row], to_starts[row]
        if taken > BYTES_A_CALL:
            return row
        if 0 <= start <= buffer.shape[0] - size and 0 <= to <= out.shape[0] - size:
            source, target = np.uint64(start), np.uint64(to)
            for at in range(max(size, 0)):
                byte = buffer[source + np.uint64(at)]
                is_capital = np.uint8(byte - _A) < _LETTERS
                out[target + np.uint64(at)] = byte | _TO_LOWER if is_capital else byte
            taken += size
    return len(starts)


@inlined
def _is_ascii_text(buffer: Bytes, at: np.uint64, end: np.uint64) -> bool:
    """Return whether all bytes are ASCII and none is 0. A zero byte less 1 has the high bit set, too."""
    bits = np.uint8(0)
    while at < end:
        bits |= buffer[at] | np.uint8(buffer[at] - _BYTE_1)
        at += _1
    return bool(bits < _NOT_ASCII)


@inlined
def stripped(buffer: Bytes, at: np.uint64, end: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the start and end of a text without the white space at both ends."""
    while at < end and _is_blank(buffer[at]):
        at += _1
    while at < end and _is_blank(buffer[end - _1]):
        end -= _1
    return at, end


@inlined
def _is_blank(byte: np.uint8) -> bool:
    return bool(np.uint8(byte - _TAB) < _CONTROLS or np.uint8(byte - _FILE) < _SEPARATORS)
