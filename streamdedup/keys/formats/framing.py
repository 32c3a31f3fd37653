"""The prefix that serializers of a Schema Registry write: a zero byte, and the id of the schema, big-endian.

No JSON text begins with a zero byte, so a value of a topic that changed its format is one or the other.
"""

import numpy as np

from streamdedup.events import Column, Integers
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.cells import located, pass_over
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema_registry import GIVEN_UP, PREFIX_BYTES
from streamdedup.keys.hashing import frozen
from streamdedup.keys.words import Bytes

_0, _1, _5, _8 = (np.uint64(number) for number in (0, 1, 5, 8))
_UNKNOWN, _UNREADABLE, _UNFRAMED = (
    np.uint8(kind) for kind in (FramedKind.UNKNOWN, FramedKind.UNREADABLE, FramedKind.UNFRAMED)
)
_NOT_FRAMED = np.int64(-1)


def unframed(values: Column) -> Column:
    """Return the values without their prefixes, over the same buffer."""
    return located(values, strip)


def ids_of(values: Column) -> Integers:
    """Return the schema id of each value, (n,); -1 if it is not framed."""
    ids = np.empty(len(values), dtype=np.int64)
    pass_over(values, read_ids, ids)
    return ids


def unknown_ids(values: Column, ids: Integers, met: Integers, now: int) -> list[int]:
    """Return the schema ids in `values` that are not in `ids` (k,); both ascend.

    `met` (k,) becomes `now` for each of `ids` that is there.
    """
    found, counts = np.empty(len(values), dtype=np.int64), np.zeros(1, dtype=np.int64)
    pass_over(values, look, whole=(ids, met, np.int64(now), found, counts))
    return np.unique(found[: counts[0]]).tolist() if counts[0] else []


def warm_up() -> None:
    """Compile the kernels or load them from the cache. Called at set-up, so that no batch waits for it."""
    values, none = Column.of([b"\0\0\0\0\1"]), np.zeros(0, dtype=np.int64)
    unframed(values)
    ids_of(values)
    unknown_ids(values, frozen(none, np.int64), none.copy(), 0)


@kernel
def strip(
    buffer: Bytes, starts: Integers, sizes: Integers, to_starts: Integers, to_sizes: Integers
) -> int:
    """Write where the values are without their prefixes; return how many rows are done: all."""
    for row in range(starts.shape[0]):
        framed = _id_at(buffer, starts[row], sizes[row]) >= 0
        to_starts[row] = starts[row] + (PREFIX_BYTES if framed else 0)
        to_sizes[row] = sizes[row] - (PREFIX_BYTES if framed else 0)
    return len(starts)


@kernel
def read_ids(buffer: Bytes, starts: Integers, sizes: Integers, ids: Integers) -> int:
    """Write the schema id of each value; -1 if it is not framed. Return how many rows are done: all."""
    for row in range(starts.shape[0]):
        ids[row] = _id_at(buffer, starts[row], sizes[row])
    return len(starts)


@kernel
def look(
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    ids: Integers,
    met: Integers,
    now: np.int64,
    found: Integers,
    counts: Integers,
) -> int:
    """Add the id of each value that is not in `ids` to `found` (m,), which has `counts[0]`; return how many rows: all.

    `found` has room for one a value. Of equal ids in a row, only the first is added.
    """
    last, count = _NOT_FRAMED, counts[0]
    for row in range(starts.shape[0]):
        number = _id_at(buffer, starts[row], sizes[row])
        if number == last or number < 0:
            continue
        last = number
        place = _place(ids, number)
        if place < ids.shape[0]:
            met[place] = now
            continue
        if count == found.shape[0]:
            break
        found[count] = number
        count += 1
    counts[0] = count
    return len(starts)


@inlined
def entry_of(
    ids: Integers, entries: Integers, buffer: Bytes, start: np.int64, size: np.int64
) -> tuple[np.uint64, np.uint64, np.int64, np.uint8]:
    """Return where the framed value begins and ends, the address of its program, and its kind if that is below 0."""
    number = _id_at(buffer, start, size)
    if number < 0:
        return _0, _0, _NOT_FRAMED, _UNFRAMED
    place = _place(ids, number)
    if place == ids.shape[0] or entries[place] == GIVEN_UP:
        return _0, _0, _NOT_FRAMED, _UNKNOWN
    at, end = np.uint64(start) + _5, np.uint64(start + size)
    return at, end, entries[place], _UNREADABLE


@inlined
def _id_at(buffer: Bytes, start: np.int64, size: np.int64) -> np.int64:
    """Return the schema id of the value at `start`; -1 if it is not framed, or does not lie in the buffer."""
    if size < PREFIX_BYTES or not 0 <= start <= buffer.shape[0] - size:
        return _NOT_FRAMED
    at = np.uint64(start)
    if buffer[at]:
        return _NOT_FRAMED
    number = _0
    for _ in range(PREFIX_BYTES - 1):
        at += _1
        number = number << _8 | np.uint64(buffer[at])
    return np.int64(number)


@inlined
def _place(ids: Integers, number: np.int64) -> int:
    """Return where `number` is in `ids`, which ascend; their count if it is not there."""
    low, high = 0, ids.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < ids.shape[0] and ids[low] == number else ids.shape[0]
