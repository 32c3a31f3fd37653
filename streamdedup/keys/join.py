"""Makes one key of several: each part with its length before it, so that (ab, c) differs from (a, bc)."""

from collections.abc import Sequence

import numpy as np

from streamdedup.events import NULL, Column, Integers, concatenated
from streamdedup.kernel import kernel
from streamdedup.keys.cells import pass_over
from streamdedup.keys.words import BYTES_A_CALL, Bytes

LENGTH_BYTES = 4  # little-endian


def joined(parts: Sequence[Column]) -> Column:
    """Return the key of each row, of the cells of all `parts` in their order; null if one of them is."""
    sizes = np.stack([part.sizes for part in parts])
    is_whole = (sizes >= 0).all(axis=0)
    widths = np.where(is_whole, (sizes + LENGTH_BYTES).sum(axis=0), 0)
    starts = np.cumsum(widths) - widths
    out, places = np.empty(int(widths.sum()), dtype=np.uint8), starts.copy()
    for part, part_sizes in zip(parts, np.where(is_whole, sizes, NULL), strict=True):
        pass_over(Column(part.buffer, part.starts, part_sizes), append, places, whole=(out,))
    return Column(concatenated([out.data]), starts, np.where(is_whole, widths, NULL))


def warm_up() -> None:
    """Compile the kernel or load it from the cache. Called at set-up, so that no batch waits for it."""
    joined([Column.of([b""])])


@kernel
def append(buffer: Bytes, starts: Integers, sizes: Integers, out: Bytes, places: Integers) -> int:
    """Copy the cells at `starts`, of `sizes` bytes, to their `places` in `out`, and move these behind them.

    A cell of size NULL is left out. The kernel returns how many rows are done, at least one: it stops once it
    has read `BYTES_A_CALL` bytes.
    """
    taken = 0
    for row in range(starts.shape[0]):
        start, size, place = starts[row], sizes[row], places[row]
        if taken > BYTES_A_CALL:
            return row
        room = out.shape[0] - LENGTH_BYTES - size
        if 0 <= start <= buffer.shape[0] - size and 0 <= place <= room and size >= 0:
            for at in range(LENGTH_BYTES):
                out[place + at] = np.uint8(size >> 8 * at)
            source, target = np.uint64(start), np.uint64(place + LENGTH_BYTES)
            for at in range(size):
                out[target + np.uint64(at)] = buffer[source + np.uint64(at)]
            places[row] = place + LENGTH_BYTES + size
            taken += size
    return len(starts)
