"""Kernels that append the header of the origin to events, and take it off again.

`origin_header` documents that header, `wire` the records. Whatever the bytes are, the kernels read and write only
within their arguments.
"""

import numpy as np

from streamdedup.events import Integers
from streamdedup.kafka.records.walk import INT32, Bytes, is_text, varint
from streamdedup.kafka.records.write import (
    copied,
    digits_size,
    put_digits,
    put_varint,
    varint_size,
)
from streamdedup.kernel import inlined, kernel

COLUMNS = 7  # the columns that `take_off` fills, in this order:
BODY, BODY_SIZE, HEADERS, TOPIC, TOPIC_SIZE, PARTITION, OFFSET = range(COLUMNS)
TOPIC_BYTES_MAX = 249  # Kafka's own limit
PARTITION_MAX, OFFSET_MAX = (1 << 31) - 1, (1 << 63) - 1

_0, _1, _2, _10, _47, _48 = (np.uint64(number) for number in (0, 1, 2, 10, ord("/"), ord("0")))
_DIGITS_MAX = np.uint64(19)  # what has more is above OFFSET_MAX
_TOPIC_BYTES_MAX = np.uint64(TOPIC_BYTES_MAX)
_PARTITION_MAX, _OFFSET_MAX = np.uint64(PARTITION_MAX), np.uint64(OFFSET_MAX)
# After every end, as in `walk`: what cannot be read ends there.
_BEYOND = np.uint64(1 << 62)


@kernel
def append(
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    header_starts: Integers,
    name: Bytes,
    before: Bytes,
    after: Bytes,
    offsets: Integers,
    out: Bytes,
    out_starts: Integers,
    out_sizes: Integers,
) -> int:
    """Write the bodies of all rows to `out`, each with one further header.

    `out_starts` and `out_sizes` get the position of each body in `out`, and its size. `header_starts` is where in
    `buffer` the count of headers begins. `name` is the encoded name of the header, with its size in front; its value is
    `before`, the digits of the row's offset, `after`. Return the number of rows done: the kernel stops before a row
    whose headers do not lie in its body, or that does not fit into `out`.
    """
    at, room = _0, np.uint64(out.shape[0])
    name_size = np.uint64(name.shape[0])
    before_size, after_size = np.uint64(before.shape[0]), np.uint64(after.shape[0])
    for row in range(starts.shape[0]):
        start, size, head = starts[row], sizes[row], header_starts[row]
        if size < 0 or not 0 <= start <= buffer.shape[0] - size:
            return row
        if head < start or head > start + size:
            return row
        end = np.uint64(start + size)
        number, behind = varint(buffer, np.uint64(head), end, INT32)
        if behind > end:
            return row
        count, digits = number + _2, digits_size(offsets[row])
        value_size = before_size + digits + after_size
        whole = np.uint64(head - start) + varint_size(count) + (end - behind)
        whole += name_size + varint_size(value_size << _1) + value_size
        if whole > room - at:
            return row
        out_starts[row], out_sizes[row] = np.int64(at), np.int64(whole)
        at = copied(buffer, np.uint64(start), np.uint64(head), out, at)
        at = put_varint(out, at, count)
        at = copied(buffer, behind, end, out, at)
        at = copied(name, _0, name_size, out, at)
        at = put_varint(out, at, value_size << _1)
        at = copied(before, _0, before_size, out, at) + digits
        put_digits(out, at, offsets[row])
        at = copied(after, _0, after_size, out, at)
    return len(starts)


@kernel
def take_off(
    buffer: Bytes,
    starts: Integers,
    sizes: Integers,
    header_starts: Integers,
    name: Bytes,
    group: Bytes,
    out: Bytes,
    table: Integers,
) -> int:
    """Write the bodies of all rows to `out`, each without its last header; fill `table` (COLUMNS, n).

    It gets where in `out` each body and its count of headers are, and what the header said: where in `out` the topic
    is, the partition and the offset. `out` has at least as many bytes as all bodies together. `name` is the name of the
    header, `group` the one that it must name. Return the number of rows done: the kernel stops before a row whose last
    header is another, and before one whose headers do not lie in its body.
    """
    at, room = _0, np.uint64(out.shape[0])
    topic, topic_end = _0, _0  # of the row before, in `out`; events of one topic follow one another
    for row in range(starts.shape[0]):
        start, size, head = starts[row], sizes[row], header_starts[row]
        if size < 0 or not 0 <= start <= buffer.shape[0] - size or np.uint64(size) > room - at:
            return row
        if head < start or head > start + size:
            return row
        end = np.uint64(start + size)
        number, behind = varint(buffer, np.uint64(head), end, INT32)
        last, name_start, name_end, value = _last_header(buffer, behind, end, number)
        if last > end or not is_text(name, buffer, name_start, name_end):
            return row
        slash = _topic_end(buffer, value, end)
        partition, partition_end = _decimal(buffer, slash + _1, end, _PARTITION_MAX)
        offset, offset_end = _decimal(buffer, partition_end + _1, end, _OFFSET_MAX)
        if offset_end >= end or not is_text(group, buffer, offset_end + _1, end):
            return row
        if not _is_same(buffer, value, slash, out, topic, topic_end):
            topic, at = at, copied(buffer, value, slash, out, at)
            topic_end = at
        table[TOPIC, row], table[TOPIC_SIZE, row] = np.int64(topic), np.int64(topic_end - topic)
        table[PARTITION, row], table[OFFSET, row] = np.int64(partition), np.int64(offset)
        body = at
        at = copied(buffer, np.uint64(start), np.uint64(head), out, at)
        table[HEADERS, row] = np.int64(at)
        at = put_varint(out, at, number - _2)
        at = copied(buffer, behind, last, out, at)
        table[BODY, row], table[BODY_SIZE, row] = np.int64(body), np.int64(at - body)
    return len(starts)


@inlined
def _last_header(
    buffer: Bytes, at: np.uint64, end: np.uint64, left: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return where the last header begins, its name begins and ends, and its value begins, which ends at `end`.

    The first header begins at `at`; `left` is the varint of their count. All are _BEYOND if there is no header, or if
    they are not as `walk` accepts them. The value of a null begins at `end`.
    """
    last = name_start = name_end = value = _BEYOND
    if left & _1:
        return _BEYOND, _BEYOND, _BEYOND, _BEYOND
    while left > _0 and at < end:
        last = at
        size, name_start = varint(buffer, at, end, INT32)
        if size & _1:
            return _BEYOND, _BEYOND, _BEYOND, _BEYOND
        name_end = name_start + (size >> _1)
        size, value = varint(buffer, name_end, end, INT32)
        at = value + (_0 if size & _1 else size >> _1)
        left -= _2
    if left > _0 or at != end:
        return _BEYOND, _BEYOND, _BEYOND, _BEYOND
    return last, name_start, name_end, value


@inlined
def _topic_end(buffer: Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Return where the slash after a topic is that begins at `at`; _BEYOND if none may be a topic there."""
    first = at
    while at < end and at - first <= _TOPIC_BYTES_MAX:
        if np.uint64(buffer[at]) == _47:
            return at if at > first else _BEYOND
        at += _1
    return _BEYOND


@inlined
def _decimal(
    buffer: Bytes, at: np.uint64, end: np.uint64, most: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """Return the number whose decimal digits begin at `at`, and where the slash after them is.

    Return 0 and _BEYOND if there are no such digits, if the first of several is 0, or if the number is above `most`.
    """
    first, number = at, _0
    while at < end and at - first < _DIGITS_MAX:
        digit = np.uint64(buffer[at]) - _48  # of a byte below "0" it is a large number
        if digit >= _10:
            break
        number = number * _10 + digit
        at += _1
    if at >= end or at == first or np.uint64(buffer[at]) != _47 or number > most:
        return _0, _BEYOND
    if np.uint64(buffer[first]) == _48 and at - first > _1:
        return _0, _BEYOND
    return number, at


@inlined
def _is_same(
    buffer: Bytes, at: np.uint64, end: np.uint64, other: Bytes, start: np.uint64, stop: np.uint64
) -> bool:
    if end - at != stop - start:
        return False
    while at < end:
        if buffer[at] != other[start]:
            return False
        at += _1
        start += _1
    return True
