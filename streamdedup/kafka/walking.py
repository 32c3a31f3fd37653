"""The loops over the records of a batch: find their parts, and copy them behind new heads. All as kernels.

`wire` documents the format. Whatever the bytes, nothing outside of what is given is read or written: a varint that
fails leaves us beyond every end, where all that follows fails, too, so that one check behind each record is enough.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.events import NULL, Integers
from streamdedup.kernel import inlined, kernel

Bytes = npt.NDArray[np.uint8]

COLUMNS = 9  # of what `walk` fills in, in this order:
OFFSET, TIMESTAMP, KEY, KEY_SIZE, VALUE, VALUE_SIZE, BODY, BODY_SIZE, HEADERS = range(COLUMNS)
MISFIT, DISORDER = -1, -2  # what `walk` tells instead of a position
RECORD_BYTES_MIN = 7  # six varints and the attributes, a byte each
STEPS_A_CALL = np.uint64(1 << 15)  # below 1 ms, but for one record of more headers

LEAST_MS = -(1 << 63)

_0, _1, _2, _7, _10, _127, _128 = (np.uint64(number) for number in (0, 1, 2, 7, 10, 127, 128))
_45, _48 = np.uint64(ord("-")), np.uint64(ord("0"))
_INT32, _INT64 = np.uint64(5 * 7), np.uint64(10 * 7)  # bits that a varint of either may have
_BEYOND = np.uint64(1 << 62)  # of every end; no sum of sizes leads from here to a valid place


@kernel
def walk(
    buffer: Bytes,
    position: int,
    end: int,
    table: Integers,
    row: int,
    rows: int,
    base_offset: int,
    last_offset: int,
    base_ms: int,
    append_ms: int,
) -> tuple[int, int]:
    """Fill in columns `row` to `rows`, without, of `table` (COLUMNS, n) from the records from `position` on.

    Their offsets are above that in the column before, if it is one of the same batch, and at most `last_offset`. Where
    `append_ms` is not negative it is the time of all. Gives the column that is next, and the position of its record:
    it stops after STEPS_A_CALL records and headers. MISFIT instead of a position where a record does not fit into
    what is before `end`, DISORDER where its offset is not in its place.
    """
    at, stop = np.uint64(position), np.uint64(min(end, buffer.shape[0]))
    before = base_offset - 1
    column, columns, steps = np.uint64(row), np.uint64(min(rows, table.shape[1])), _0
    if column > _0 and table[OFFSET, column - _1] > before:
        before = table[OFFSET, column - _1]
    while column < columns and steps < STEPS_A_CALL:
        size, at = _varint(buffer, at, stop, _INT32)
        record_end = at + (size >> _1)
        if size & _1 or record_end > stop or at >= record_end:
            return int(np.int64(column)), MISFIT
        at += _1  # attributes: none is defined
        number, at = _varint(buffer, at, record_end, _INT64)
        table[TIMESTAMP, column] = base_ms + _signed(number) if append_ms < 0 else append_ms
        number, at = _varint(buffer, at, record_end, _INT32)
        offset = base_offset + _signed(number)
        table[OFFSET, column] = offset
        table[BODY, column], table[BODY_SIZE, column] = np.int64(at), np.int64(record_end - at)
        number, at = _varint(buffer, at, record_end, _INT32)
        size_of_key = _signed(number)
        table[KEY, column], table[KEY_SIZE, column] = np.int64(at), size_of_key
        at += np.uint64(max(size_of_key, 0))
        number, at = _varint(buffer, at, record_end, _INT32)
        size_of_value = _signed(number)
        table[VALUE, column], table[VALUE_SIZE, column] = np.int64(at), size_of_value
        at += np.uint64(max(size_of_value, 0))
        table[HEADERS, column] = np.int64(at)
        number, at = _varint(buffer, at, record_end, _INT32)
        at = _behind_headers(buffer, at, record_end, number)
        if at != record_end or size_of_key < -1 or size_of_value < -1:
            return int(np.int64(column)), MISFIT
        if offset <= before or offset > last_offset:
            return int(np.int64(column)), DISORDER
        before = offset
        column += _1
        steps += _1 + (number >> _1)
    return int(np.int64(column)), int(np.int64(at))


@inlined
def _behind_headers(buffer: Bytes, at: np.uint64, end: np.uint64, left: np.uint64) -> np.uint64:
    """Where the headers end that begin at `at`; `left` is the varint of their count."""
    if left & _1:
        return _BEYOND
    while left > _0 and at < end:
        size, at = _varint(buffer, at, end, _INT32)
        if size & _1:
            return _BEYOND
        at += size >> _1
        size, at = _varint(buffer, at, end, _INT32)
        if size & _1 and size != _1:
            return _BEYOND
        at += size >> _1
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
    """Write where the value of the last header of that name is, of those at `starts`, `sizes` bytes with their count.

    A size of NULL where it is null, or there is none, or the headers are not as `walk` wants them. Gives the number of
    rows that are done, at least one: it stops after STEPS_A_CALL rows and headers.
    """
    steps = _0
    for row in range(starts.shape[0]):
        start, size = starts[row], sizes[row]
        if steps > STEPS_A_CALL:
            return row
        value_starts[row], value_sizes[row] = 0, NULL
        # In the buffer? Without start + size, which may overflow.
        if size >= 0 and 0 <= start <= buffer.shape[0] - size:
            end = np.uint64(start + size)
            value, value_end, headers = _last_value(name, buffer, np.uint64(start), end)
            if value_end < _BEYOND:
                value_starts[row], value_sizes[row] = np.int64(value), np.int64(value_end - value)
            steps += headers
        steps += _1
    return len(starts)


@inlined
def _last_value(
    name: Bytes, buffer: Bytes, at: np.uint64, end: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """From where to where that value is, or _BEYOND twice, and how many headers there are."""
    value, value_end, headers = _BEYOND, _BEYOND, _0
    left, at = _varint(buffer, at, end, _INT32)
    while left > _0 and at < end:
        size, at = _varint(buffer, at, end, _INT32)
        start, at = at, at + (size >> _1)
        is_it = at <= end and _is_name(name, buffer, start, at)
        number, at = _varint(buffer, at, end, _INT32)
        start, at = at, at + (number >> _1)
        if size & _1 or (number != _1 and number & _1):
            return _BEYOND, _BEYOND, headers
        if is_it:
            value, value_end = (start, at) if number != _1 else (_BEYOND, _BEYOND)
        left -= _2
        headers += _1
    return (value, value_end, headers) if left == _0 and at == end else (_BEYOND, _BEYOND, headers)


@inlined
def _is_name(name: Bytes, buffer: Bytes, at: np.uint64, end: np.uint64) -> bool:
    if end - at != np.uint64(name.shape[0]):
        return False
    for place in range(name.shape[0]):
        if buffer[at] != name[place]:
            return False
        at += _1
    return True


@inlined
def _varint(
    buffer: Bytes, at: np.uint64, end: np.uint64, bits: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """The unsigned varint at `at` and where it ends; 0 and _BEYOND where it does not end in time."""
    value = shift = _0
    while at < end and shift < bits:
        byte = np.uint64(buffer[at])
        at += _1
        value |= (byte & _127) << shift
        if byte < _128:
            return value, at
        shift += _7
    return _0, _BEYOND


@inlined
def _signed(number: np.uint64) -> int:
    """What a varint means: 0, -1, 1, -2, ..."""
    return int(np.int64(number >> _1) ^ -np.int64(number & _1))


@kernel
def emit(
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    timestamps: Integers,
    row: int,
    rows: int,
    base_ms: int,
    delta: int,
    out: Bytes,
    position: int,
) -> tuple[int, int, int]:
    """Write records of the bodies in rows `row` to `rows`, without, to `out` from `position` on, while they fit.

    Their offset deltas count from `delta`. Gives the row that comes next, where it would stand, and the highest
    timestamp written, or LEAST_MS. It stops, too, before a row that does not lie in the buffer.
    """
    at, room = np.uint64(position), np.uint64(out.shape[0])
    max_ms: int = LEAST_MS
    while row < rows:
        start, size = starts[row], sizes[row]
        if start < 0 or size < 0 or start > buffer.shape[0] - size:
            break
        since = _unsigned(timestamps[row] - base_ms)
        number = _unsigned(delta)
        body = np.uint64(size)
        record = _1 + _size(since) + _size(number) + body
        if at + _size(record << _1) + record > room:
            break
        at = _put(out, at, record << _1)
        out[at] = 0
        at = _put(out, at + _1, since)
        at = _put(out, at, number)
        source, behind = np.uint64(start), at + body
        while at < behind:
            out[at] = buffer[source]
            at += _1
            source += _1
        max_ms = max(max_ms, timestamps[row])
        delta += 1
        row += 1
    return row, int(np.int64(at)), max_ms


@kernel
def append_headers(
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    header_starts: Integers,
    tails: Bytes,
    tail_starts: Integers,
    tail_sizes: Integers,
    tail_counts: Integers,
    which: Integers,
    names: Bytes,
    name_ends: Integers,
    numbers: Integers,
    out: Bytes,
    out_starts: Integers,
    out_sizes: Integers,
) -> int:
    """Write the bodies in all rows to `out`, each with a tail and its numbers behind its headers; where they are.

    `header_starts` is where in `buffer` the count of headers stands, `which` the row of each body's tail, `tail_counts`
    how many headers that has. `numbers` (k, n) become headers of their decimal digits, of which `names` has the names,
    each behind its size, up to `name_ends` (k,), ascending. Gives the number of rows that are done: it stops before a
    row of which a part does not lie where it should, or has no room.
    """
    at, room = _0, np.uint64(out.shape[0])
    for row in range(starts.shape[0]):
        start, size, head, tail = starts[row], sizes[row], header_starts[row], which[row]
        if start < 0 or size < 0 or start > buffer.shape[0] - size:
            return row
        if head < start or head > start + size or tail < 0 or tail >= tail_starts.shape[0]:
            return row
        tail_start, tail_size = tail_starts[tail], tail_sizes[tail]
        if tail_start < 0 or tail_size < 0 or tail_start > tails.shape[0] - tail_size:
            return row
        end = np.uint64(start + size)
        number, behind = _varint(buffer, np.uint64(head), end, _INT32)
        count = number + np.uint64((tail_counts[tail] + numbers.shape[0]) << 1)
        fixed = np.uint64(head - start) + _size(count) + np.uint64(tail_size)
        fixed += _numbers_size(names, numbers, row)
        if behind > end or fixed + (end - behind) > room - at:
            return row
        out_starts[row], out_sizes[row] = np.int64(at), np.int64(fixed + (end - behind))
        at = _copied(buffer, np.uint64(start), np.uint64(head), out, at)
        at = _put(out, at, count)
        at = _copied(buffer, behind, end, out, at)
        at = _copied(tails, np.uint64(tail_start), np.uint64(tail_start + tail_size), out, at)
        at = _put_numbers(names, name_ends, numbers, row, out, at)
    return len(starts)


@inlined
def _numbers_size(names: Bytes, numbers: Integers, row: int) -> np.uint64:
    """What the headers of a row's numbers take: their values have less than 64 bytes, so their sizes have one."""
    size = np.uint64(names.shape[0])
    for column in range(numbers.shape[0]):
        size += _1 + _digits(numbers[column, row])
    return size


@inlined
def _digits(number: int) -> np.uint64:
    """The bytes of its decimal digits, and of its sign."""
    size = _2 if number < 0 else _1
    left = np.uint64(abs(number))
    while left >= _10:
        left //= _10
        size += _1
    return size


@inlined
def _put_numbers(
    names: Bytes, name_ends: Integers, numbers: Integers, row: int, out: Bytes, at: np.uint64
) -> np.uint64:
    start = _0
    for column in range(numbers.shape[0]):
        end = np.uint64(name_ends[column])
        at = _copied(names, start, end, out, at)
        start = end
        size = _digits(numbers[column, row])
        out[at] = np.uint8(size << _1)
        at += _1 + size
        left, place = np.uint64(abs(numbers[column, row])), at
        while left >= _10:
            place -= _1
            out[place] = np.uint8(_48 + left % _10)
            left //= _10
        place -= _1
        out[place] = np.uint8(_48 + left)
        if numbers[column, row] < 0:
            out[place - _1] = np.uint8(_45)
    return at


@inlined
def _copied(
    source: Bytes, start: np.uint64, end: np.uint64, out: Bytes, at: np.uint64
) -> np.uint64:
    while start < end:
        out[at] = source[start]
        at += _1
        start += _1
    return at


@inlined
def _unsigned(number: int) -> np.uint64:
    """What a varint holds of a signed number."""
    return np.uint64(number << 1) ^ np.uint64(number >> 63)


@inlined
def _size(number: np.uint64) -> np.uint64:
    size = _1
    while number >= _128:
        number >>= _7
        size += _1
    return size


@inlined
def _put(out: Bytes, at: np.uint64, number: np.uint64) -> np.uint64:
    while number >= _128:
        out[at] = np.uint8(number & _127 | _128)
        at += _1
        number >>= _7
    out[at] = np.uint8(number)
    return at + _1
