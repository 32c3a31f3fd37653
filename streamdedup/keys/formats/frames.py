"""Frames that name the schema of a value otherwise than by the prefix: they become prefixes, for all that reads values.

In a header of the record: a byte 0 and the id of four bytes, or a byte 1 and the GUID of 16; the indexes of a Protobuf
message follow there. Or the id of eight bytes in the prefix, which Apicurio's serializers write by default.
"""

from collections.abc import Callable

import numpy as np

from streamdedup.events import Column, Integers
from streamdedup.instructions import copy_bytes
from streamdedup.kernel import kernel
from streamdedup.keys.cells import pass_over
from streamdedup.keys.formats.framing import ids_of
from streamdedup.keys.formats.schema_registry import (
    GUID_BYTES,
    NO_ID,
    NUMBER_MAX,
    PREFIX_BYTES,
    WIDE_BYTES,
    Framing,
)
from streamdedup.keys.words import BYTES_A_CALL, Bytes

_NOT_FRAMED = b"\xff"  # no JSON, and no frame
_ID, _GUID = 0, 1  # the first byte of a header


def in_prefix(
    framing: Framing, values: Column, headers: Column | None, number_of: Callable[[bytes], int]
) -> Column:
    """Return the values with prefixes that name their schemas; those that have one already, as they are.

    `headers` are the cells of the header of each row, null if it has none. `number_of` gives the number that stands for
    a GUID. NO_ID stands for an id that no registry gives.
    """
    if framing == "prefix":
        return values
    numbers = ids_of(values)
    if framing == "auto" and headers is None and not _are_strange(numbers):
        return values
    skipped = np.zeros(len(values), dtype=np.int64)
    middles = Column(b"", np.zeros(len(values), np.int64), np.zeros(len(values), np.int64))
    is_changed = numbers > NUMBER_MAX  # of a GUID is such a number
    numbers[is_changed], skipped[is_changed] = NO_ID, PREFIX_BYTES
    if framing in ("auto", "id64"):
        is_zero = (numbers >= 0) if framing == "id64" else (numbers == 0)
        is_wide = is_zero & (values.sizes >= WIDE_BYTES)
        is_changed |= is_wide
        wide = is_wide.nonzero()[0]
        numbers[wide], skipped[wide] = _wide_ids(values.take(wide)), WIDE_BYTES
    is_other = np.zeros(len(values), dtype=bool)
    if framing == "header":
        is_other |= numbers >= 0
    elif framing == "id64":
        is_other |= (numbers >= 0) & (values.sizes < WIDE_BYTES)
    is_changed &= ~is_other
    if headers is not None and framing != "id64":
        given = ((headers.sizes >= 0) & (values.sizes >= 0)).nonzero()[0]
        numbers[given], middles = _of_headers(headers, given, number_of)
        skipped[given], is_changed[given], is_other[given] = 0, True, False
    if is_other.any():
        others = is_other.nonzero()[0]
        values = values.replaced(others, Column.of([_NOT_FRAMED] * len(others)))
    return _reframed(values, is_changed.nonzero()[0], numbers, middles, skipped)


def _are_strange(numbers: Integers) -> bool:
    """Return whether some ids are 0, or above all."""
    return bool(((numbers == 0) | (numbers > NUMBER_MAX)).any())


def _wide_ids(values: Column) -> Integers:
    buffer = np.frombuffer(values.buffer, dtype=np.uint8)
    raw = buffer[values.starts[:, None] + np.arange(1, WIDE_BYTES)]
    ids = raw.view(">u8").ravel()
    return np.where(ids > NUMBER_MAX, NO_ID, ids).astype(np.int64)


def _of_headers(
    headers: Column, given: Integers, number_of: Callable[[bytes], int]
) -> tuple[Integers, Column]:
    """Return the number in the header of each row of `given`, and, for all rows, what follows it there."""
    sizes = np.zeros(len(headers), dtype=np.int64)
    found = np.full(len(given), NO_ID, dtype=np.int64)
    starts, its = headers.starts.copy(), headers.sizes[given]
    buffer = np.frombuffer(headers.buffer, dtype=np.uint8)
    magic = np.full(len(given), 255)
    magic[its > 0] = buffer[headers.starts[given[its > 0]]]
    for kind, width in ((_ID, PREFIX_BYTES), (_GUID, 1 + GUID_BYTES)):
        which = ((magic == kind) & (its >= width)).nonzero()[0]
        if not len(which):
            continue
        rows = given[which]
        raw = np.ascontiguousarray(buffer[headers.starts[rows, None] + np.arange(1, width)])
        if kind == _ID:
            ids = raw.view(">u4").ravel().astype(np.int64)
            found[which] = np.where(ids > NUMBER_MAX, NO_ID, ids)
        else:
            distinct, inverse = np.unique(raw.view(f"V{GUID_BYTES}").ravel(), return_inverse=True)
            found[which] = np.array([number_of(each.tobytes()) for each in distinct])[inverse]
        starts[rows], sizes[rows] = headers.starts[rows] + width, headers.sizes[rows] - width
    return found, Column(headers.buffer, starts, sizes)


def _reframed(
    values: Column, rows: Integers, numbers: Integers, middles: Column, skipped: Integers
) -> Column:
    """Return the values, of which `rows` get a prefix with their number, and `middles` after it."""
    if not len(rows):
        return values
    heads = np.zeros((len(rows), PREFIX_BYTES), dtype=np.uint8)
    heads[:, 1:] = numbers[rows].astype(">u4").view(np.uint8).reshape(-1, PREFIX_BYTES - 1)
    prefixes = Column(
        heads.tobytes(), np.arange(len(rows)) * PREFIX_BYTES, np.full(len(rows), PREFIX_BYTES)
    )
    chosen, skip = values.take(rows), skipped[rows]
    bodies = Column(chosen.buffer, chosen.starts + skip, chosen.sizes - skip)
    made = _together([prefixes, middles.take(rows), bodies])
    return made if len(rows) == len(values) else values.replaced(rows, made)


def _together(parts: list[Column]) -> Column:
    """Return the cells of all parts, one after the other, row by row."""
    sizes: Integers = np.sum([part.sizes for part in parts], axis=0)
    starts = np.cumsum(sizes) - sizes
    out, places = np.empty(int(np.sum(sizes)), dtype=np.uint8), starts.copy()
    for part in parts:
        pass_over(part, put, places, whole=(out,))
    return Column(out.tobytes(), starts, sizes)


def warm_up() -> None:
    """Compile the kernel or load it from the cache. Called at set-up, so that no batch waits for it."""
    in_prefix("auto", Column.of([b""]), Column.of([b"\0\0\0\0\1"]), len)


@kernel
def put(buffer: Bytes, starts: Integers, sizes: Integers, out: Bytes, places: Integers) -> int:
    """Copy the cells at `starts`, of `sizes` bytes, to their `places` in `out`, and move these to where the cells end.

    A cell that does not lie in the buffer, or has no room, is left out. The kernel returns how many rows are done, at
    least one: it stops once it has read `BYTES_A_CALL` bytes.
    """
    taken = 0
    for row in range(starts.shape[0]):
        start, size, place = starts[row], sizes[row], places[row]
        if taken > BYTES_A_CALL:
            return row
        is_there = size > 0 and 0 <= start <= buffer.shape[0] - size
        if is_there and 0 <= place <= out.shape[0] - size:
            copy_bytes(buffer, np.uint64(start), np.uint64(size), out, np.uint64(place))
            places[row] = place + size
            taken += size
    return len(starts)
