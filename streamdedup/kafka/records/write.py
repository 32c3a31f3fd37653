"""Kernels that write records: a new head and a given body for each, or further headers at the end of a body.

`wire` documents the format. Whatever the bytes are, the kernels read and write only within their arguments.
"""

import numpy as np

from streamdedup.events import Integers
from streamdedup.instructions import copy_bytes
from streamdedup.kafka.records.walk import INT32, Bytes, varint
from streamdedup.kernel import inlined, kernel

LEAST_MS = -(1 << 63)

_0, _1, _2, _7, _10, _127, _128 = (np.uint64(number) for number in (0, 1, 2, 7, 10, 127, 128))
_45, _48 = np.uint64(ord("-")), np.uint64(ord("0"))


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
    """Write the records of rows `row` to `rows` (exclusive) to `out`, from `position` on, while they fit.

    Their bodies lie in `buffer`; their offset deltas begin at `delta`. Return the next row, its position in `out`, and
    the highest timestamp written, or LEAST_MS. The kernel also stops before a row that does not lie in the buffer.
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
        record = _1 + varint_size(since) + varint_size(number) + body
        if at + varint_size(record << _1) + record > room:
            break
        at = put_varint(out, at, record << _1)
        out[at] = 0
        at = put_varint(out, at + _1, since)
        at = put_varint(out, at, number)
        source = np.uint64(start)
        at = copied(buffer, source, source + body, out, at)
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
    """Write the bodies of all rows to `out`, each with further headers; write where they are.

    That is `out_starts` and `out_sizes`. After its own headers, a body gets a tail, and then its numbers.
    `header_starts` is where in `buffer` the count of headers begins, `which` the row of each body's tail,
    `tail_counts` how many headers a tail has. `numbers` (k, n) become headers of their decimal digits. `names` holds
    the encoded names of these headers, each with its size in front; `name_ends` (k,), ascending, is where each ends.
    Return the number of rows done: the kernel stops before a row with a part that does not lie where it should, or
    that does not fit into `out`.
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
        number, behind = varint(buffer, np.uint64(head), end, INT32)
        count = number + np.uint64((tail_counts[tail] + numbers.shape[0]) << 1)
        fixed = np.uint64(head - start) + varint_size(count) + np.uint64(tail_size)
        fixed += _numbers_size(names, numbers, row)
        if behind > end or fixed + (end - behind) > room - at:
            return row
        out_starts[row], out_sizes[row] = np.int64(at), np.int64(fixed + (end - behind))
        at = copied(buffer, np.uint64(start), np.uint64(head), out, at)
        at = put_varint(out, at, count)
        at = copied(buffer, behind, end, out, at)
        at = copied(tails, np.uint64(tail_start), np.uint64(tail_start + tail_size), out, at)
        at = _put_numbers(names, name_ends, numbers, row, out, at)
    return len(starts)


@inlined
def _numbers_size(names: Bytes, numbers: Integers, row: int) -> np.uint64:
    """Return the bytes of the headers of a row's numbers.

    A value has less than 64 bytes, so its size takes one byte.
    """
    size = np.uint64(names.shape[0])
    for column in range(numbers.shape[0]):
        size += _1 + digits_size(numbers[column, row])
    return size


@inlined
def digits_size(number: int) -> np.uint64:
    """Return the number of bytes of the decimal digits, and of a minus sign."""
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
        at = copied(names, start, end, out, at)
        start = end
        size = digits_size(numbers[column, row])
        out[at] = np.uint8(size << _1)
        at += _1 + size
        put_digits(out, at, numbers[column, row])
    return at


@inlined
def put_digits(out: Bytes, end: np.uint64, number: int) -> None:
    """Write the decimal digits of `number`, and a minus sign if it is negative, so that they end at `end`."""
    left, place = np.uint64(abs(number)), end
    while left >= _10:
        place -= _1
        out[place] = np.uint8(_48 + left % _10)
        left //= _10
    place -= _1
    out[place] = np.uint8(_48 + left)
    if number < 0:
        out[place - _1] = np.uint8(_45)


@inlined
def copied(source: Bytes, start: np.uint64, end: np.uint64, out: Bytes, at: np.uint64) -> np.uint64:
    """Copy the bytes of `source` from `start` to `end` into `out` at `at`; return the position in `out` behind them."""
    if start >= end:
        return at
    behind = at + (end - start)
    out[behind - _1] = source[end - _1]  # of this, numba can check the bounds
    copy_bytes(source, start, end - start, out, at)
    return behind


@inlined
def _unsigned(number: int) -> np.uint64:
    """Encode a signed number in zigzag, as a varint holds it."""
    return np.uint64(number << 1) ^ np.uint64(number >> 63)


@inlined
def varint_size(number: np.uint64) -> np.uint64:
    """Return how many bytes the varint of `number` takes, which is in zigzag already."""
    size = _1
    while number >= _128:
        number >>= _7
        size += _1
    return size


@inlined
def put_varint(out: Bytes, at: np.uint64, number: np.uint64) -> np.uint64:
    """Write the varint of `number`, which is in zigzag already; return where it ends."""
    while number >= _128:
        out[at] = np.uint8(number & _127 | _128)
        at += _1
        number >>= _7
    out[at] = np.uint8(number)
    return at + _1
