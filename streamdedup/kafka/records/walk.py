"""Kernels that find the parts of the records of a batch, and single headers of a record.

`wire` documents the format. Whatever the bytes are, the kernels read and write only within their arguments. If a
varint cannot be read, the position moves beyond every end. Every later read then fails, too, so one check at the end
of each record is enough.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.events import ABSENT, NULL, UNREAD, Integers
from streamdedup.kernel import inlined, kernel

Bytes = npt.NDArray[np.uint8]

COLUMNS = 9  # the columns that `walk` fills, in this order:
OFFSET, TIMESTAMP, KEY, KEY_SIZE, VALUE, VALUE_SIZE, BODY, BODY_SIZE, HEADERS = range(COLUMNS)
MISFIT, BEYOND_LAST = -1, -2  # what `walk` returns in place of a position
LEFT_OUT = -1  # what `walk` writes as the size of the body of a record that is not read
RECORD_BYTES_MIN = 7  # six varints and the attributes, one byte each
STEPS_A_CALL = np.uint64(1 << 15)  # less than 1 ms, unless one record alone has more headers

_0, _1, _2, _7, _127, _128 = (np.uint64(number) for number in (0, 1, 2, 7, 127, 128))
# The most bits that the varint of each may have.
INT32, _INT64 = np.uint64(5 * 7), np.uint64(10 * 7)
_INT32_MASK = np.uint64(0xFFFFFFFF)
# After every end; no sum of sizes leads from here back to a valid place.
_BEYOND = np.uint64(1 << 62)


@kernel
def walk(
    buffer: Bytes,
    position: int,
    end: int,
    table: Integers,
    row: int,
    rows: int,
    before: int,
    base_offset: int,
    last_offset: int,
    base_ms: int,
    append_ms: int,
) -> tuple[int, int, int]:
    """Fill columns `row` to `rows` (exclusive) of `table` (COLUMNS, n) from the records from `position` on.

    Return the next column, the position of its record, and the highest offset so far: the kernel stops after
    STEPS_A_CALL records and headers. In place of the position, return MISFIT if a record does not fit into the bytes
    before `end`, or BEYOND_LAST if its offset is above `last_offset`.

    `before` is the highest offset so far, at first `base_offset` - 1. A record whose offset is not above it is
    LEFT_OUT, as Java's consumer does. So are negative sizes of keys and values nulls, whatever they are. If
    `append_ms` is not negative, it is the timestamp of all records; otherwise their deltas count from `base_ms`.
    """
    at, stop = np.uint64(position), np.uint64(min(end, buffer.shape[0]))
    column, columns, steps = np.uint64(row), np.uint64(min(rows, table.shape[1])), _0
    while column < columns and steps < STEPS_A_CALL:
        size, at = varint(buffer, at, stop, INT32)
        record_end = at + (size >> _1)
        if size & _1 or record_end > stop or at >= record_end:
            return int(np.int64(column)), MISFIT, before
        at += _1  # the attributes, of which none is defined
        number, at = varint(buffer, at, record_end, _INT64)
        table[TIMESTAMP, column] = base_ms + _signed(number) if append_ms < 0 else append_ms
        number, at = varint(buffer, at, record_end, INT32)
        offset = base_offset + _signed(number)
        table[OFFSET, column] = offset
        table[BODY, column], table[BODY_SIZE, column] = np.int64(at), np.int64(record_end - at)
        number, at = varint(buffer, at, record_end, INT32)
        size_of_key = max(_signed(number), NULL)
        table[KEY, column], table[KEY_SIZE, column] = np.int64(at), size_of_key
        at += np.uint64(max(size_of_key, 0))
        number, at = varint(buffer, at, record_end, INT32)
        size_of_value = max(_signed(number), NULL)
        table[VALUE, column], table[VALUE_SIZE, column] = np.int64(at), size_of_value
        at += np.uint64(max(size_of_value, 0))
        table[HEADERS, column] = np.int64(at)
        number, at = varint(buffer, at, record_end, INT32)
        at = _behind_headers(buffer, at, record_end, number)
        if at != record_end:
            return int(np.int64(column)), MISFIT, before
        if offset > last_offset:
            return int(np.int64(column)), BEYOND_LAST, before
        if offset <= before:
            table[BODY_SIZE, column] = LEFT_OUT
        before = max(before, offset)
        column += _1
        steps += _1 + (number >> _1)
    return int(np.int64(column)), int(np.int64(at)), before


@inlined
def _behind_headers(buffer: Bytes, at: np.uint64, end: np.uint64, left: np.uint64) -> np.uint64:
    """Return where the headers end that begin at `at`, or _BEYOND; `left` is the varint of their count."""
    if left & _1:
        return _BEYOND
    while left > _0 and at < end:
        size, at = varint(buffer, at, end, INT32)
        if size & _1:
            return _BEYOND
        at += size >> _1
        size, at = varint(buffer, at, end, INT32)
        at += _0 if size & _1 else size >> _1
        left -= _2
    return at if left == _0 else _BEYOND


@kernel
def last_header(
    name: Bytes,
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    value_starts: Integers,
    value_sizes: Integers,
) -> int:
    """Find the value of the last header `name` in each row; write its place to `value_starts` and `value_sizes`.

    The headers of a row begin at `starts`, with their count, and take `sizes` bytes. The written size is NULL if the
    value is null, ABSENT if there is no such header, and UNREAD if the headers are not as `walk` accepts them. Return
    the number of rows done, at least one: the kernel stops after STEPS_A_CALL rows and headers.
    """
    steps = _0
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if steps > STEPS_A_CALL:
            return row
        value_starts[row], value_sizes[row] = 0, UNREAD
        # Does the cell lie in the buffer? This avoids start + size, which may overflow.
        if size >= 0 and 0 <= start <= buffer.shape[0] - size:
            end = np.uint64(start + size)
            value, value_size, headers = _last_value(name, buffer, np.uint64(start), end)
            value_starts[row], value_sizes[row] = np.int64(value), value_size
            steps += headers
        steps += _1
    return len(starts)


@inlined
def _last_value(
    name: Bytes, buffer: Bytes, at: np.uint64, end: np.uint64
) -> tuple[np.uint64, int, np.uint64]:
    """Return where that value begins, its size or what stands in its place, and the number of headers."""
    value, headers = _0, _0
    value_size: int = ABSENT
    left, at = varint(buffer, at, end, INT32)
    while left > _0 and at < end:
        size, at = varint(buffer, at, end, INT32)
        start, at = at, at + (size >> _1)
        is_it = at <= end and is_text(name, buffer, start, at)
        number, at = varint(buffer, at, end, INT32)
        is_null = number & _1 != _0
        start, at = at, at + (_0 if is_null else number >> _1)
        if size & _1:
            return _0, UNREAD, headers
        if is_it:
            value, value_size = start, max(_signed(number), NULL)
        left -= _2
        headers += _1
    if left > _0 or at != end:
        return _0, UNREAD, headers
    return value, value_size, headers


@kernel
def count_headers(buffer: Bytes, starts: Integers, sizes: Integers, counts: Integers) -> None:
    """Write the number of headers of each row to `counts`; 0 if it cannot be read."""
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        counts[row] = 0
        if size >= 0 and 0 <= start <= buffer.shape[0] - size:
            number, _ = varint(buffer, np.uint64(start), np.uint64(start + size), INT32)
            counts[row] = np.int64(number >> _1)


@inlined
def is_text(name: Bytes, buffer: Bytes, at: np.uint64, end: np.uint64) -> bool:
    """Return whether the bytes of `buffer` from `at` to `end`, which must lie in it, are `name`."""
    if end - at != np.uint64(name.shape[0]):
        return False
    for place in range(name.shape[0]):
        if buffer[at] != name[place]:
            return False
        at += _1
    return True


@inlined
def varint(
    buffer: Bytes, at: np.uint64, end: np.uint64, bits: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Return the unsigned varint at `at`, and where it ends; 0 and _BEYOND if it does not end before `end`.

    Bits above the 32nd or 64th are dropped, as in Java.
    """
    value = shift = _0
    while at < end and shift < bits:
        byte = np.uint64(buffer[at])
        at += _1
        value |= (byte & _127) << shift
        if byte < _128:
            return (value & _INT32_MASK if bits == INT32 else value), at
        shift += _7
    return _0, _BEYOND


@inlined
def _signed(number: np.uint64) -> int:
    """Decode the zigzag of a varint: 0, 1, 2, 3 ... stand for 0, -1, 1, -2 ..."""
    return int(np.int64(number >> _1) ^ -np.int64(number & _1))
