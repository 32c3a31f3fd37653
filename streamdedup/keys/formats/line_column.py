"""Lines as a column: where each lies in a text, and copies of some of them, without an object for each line.

The `bounds` of n lines are n + 1 offsets: line i, with the byte that ends it, is `text[bounds[i] : bounds[i + 1]]`.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.events import Integers
from streamdedup.instructions import copy_bytes
from streamdedup.kernel import kernel
from streamdedup.keys.hashing import frozen
from streamdedup.keys.words import Bytes

Mask = npt.NDArray[np.bool_]


def bounds_of(text: bytes, end: bytes) -> Integers:
    """Return the bounds of the lines of `text`, of which each ends with the byte `end`, and the last perhaps not."""
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord(end)) + 1
    last = ends[:0] if text.endswith(end) else [len(text)]
    return np.concatenate(([0], ends, last))


def chosen(text: bytes, bounds: Integers, rows: Mask) -> memoryview:
    """Return those of the first m lines that `rows` marks, (m,), as one text."""
    out = np.empty(len(text), dtype=np.uint8)
    raw = frozen(np.frombuffer(text, dtype=np.uint8), np.uint8)
    size = copied(raw, frozen(bounds, np.int64), frozen(rows, np.bool_), out)
    return out.data[:size]


def warm_up() -> None:
    """Compile the kernel or load it from the cache."""
    chosen(b"\n", bounds_of(b"\n", b"\n"), np.ones(1, dtype=np.bool_))


@kernel
def copied(text: Bytes, bounds: Integers, rows: Mask, out: Bytes) -> int:
    """Copy these lines to `out`, neighbours at once, and return how many bytes they have. `out` has room for all."""
    row, to = 0, np.uint64(0)
    while row < rows.shape[0]:
        if not rows[row]:
            row += 1
            continue
        start = np.uint64(bounds[row])
        while row < rows.shape[0] and rows[row]:
            row += 1
        size = np.uint64(bounds[row]) - start
        copy_bytes(text, start, size, out, to)
        to += size
    return int(np.int64(to))
