"""Record headers, left in the bytes of the wire format.

They are parsed only when somebody reads them; kernels find single headers, and append new ones.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import overload

import numpy as np
from aiokafka.record.util import encode_varint
from typing_extensions import override

from streamdedup.events import (
    REPLACEMENT,
    UNREAD,
    Column,
    HeaderColumn,
    Headers,
    Integers,
    concatenated,
)
from streamdedup.kafka.records import walk, write
from streamdedup.kafka.records.wire import read_headers
from streamdedup.keys import cells
from streamdedup.keys.hashing import frozen

COUNT_GROWTH_BYTES = 4  # by which the varint of the header count may grow, at most
NUMBER_BYTES_MAX = 21  # the size, a sign, 19 digits


class RawHeaders(HeaderColumn):
    """The headers of each event. A cell of `column` begins with their count, as after the value of a record."""

    def __init__(self, column: Column) -> None:
        self._column = column

    @override
    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, at: int) -> Headers: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Headers]: ...
    @override
    def __getitem__(self, at: int | slice) -> Headers | Sequence[Headers]:
        if isinstance(at, slice):
            return self.take(at)
        start, size = int(self._column.starts[at]), int(self._column.sizes[at])
        return read_headers(self._column.buffer, start, start + size)

    @override
    def take(self, rows: Integers | slice) -> "RawHeaders":
        return RawHeaders(self._column.take(rows))

    @override
    def located(self, name: str) -> Column:
        wanted = name.encode("utf-8", "surrogatepass")
        # Different bytes read as this name, so the kernel cannot compare.
        if REPLACEMENT in wanted.decode(errors="replace"):
            count = len(self)
            return Column(b"", np.zeros(count, np.int64), np.full(count, UNREAD, np.int64))
        name_bytes = frozen(np.frombuffer(wanted, dtype=np.uint8), np.uint8)
        return cells.located(self._column, partial(walk.last_header, name_bytes))

    @property
    @override
    def starts(self) -> Integers:
        """Where in the buffer the headers of each row begin, with their count, (n,)."""
        return self._column.starts

    @override
    def counts(self) -> Integers:
        column, counts = self._column, np.empty(len(self), dtype=np.int64)
        buffer = frozen(np.frombuffer(column.buffer, dtype=np.uint8), np.uint8)
        starts, sizes = (frozen(numbers, np.int64) for numbers in (column.starts, column.sizes))
        walk.count_headers(buffer, starts, sizes, counts)
        return counts

    @property
    @override
    def sizes(self) -> Integers:
        return self._column.sizes


def appended(
    bodies: Column,
    header_starts: Integers,
    rows: Integers,
    tails: Sequence[Headers],
    which: Integers,
    numbers: Mapping[str, Integers],
) -> tuple[Column, RawHeaders]:
    """Append headers to some of the events whose records have `bodies` (n,); return all bodies, and all headers.

    `rows` (k,) ascend. The headers of `rows[i]` are followed by `tails[which[i]]`, and then by one header for each of
    `numbers`, whose value is the i-th number in decimal digits. ValueError if the headers of a row do not lie in its
    body.
    """
    heads = header_starts - bodies.starts  # counted from the beginning of a body
    longer = _appended(bodies.take(rows), header_starts[rows], tails, which, numbers)
    bodies = bodies.replaced(rows, longer)
    return bodies, RawHeaders(Column(bodies.buffer, bodies.starts + heads, bodies.sizes - heads))


def _appended(
    bodies: Column,
    header_starts: Integers,
    tails: Sequence[Headers],
    which: Integers,
    numbers: Mapping[str, Integers],
) -> Column:
    written = Column.of([_written(headers) for headers in tails])
    counts = np.array([len(headers) for headers in tails], dtype=np.int64)
    names = [sized(name.encode()) for name in numbers]
    besides = COUNT_GROWTH_BYTES + sum(len(name) + NUMBER_BYTES_MAX for name in names)
    room = int((bodies.sizes + written.sizes[which] + besides).sum())
    out = np.empty(room, dtype=np.uint8)
    starts, sizes = np.empty((2, len(bodies)), dtype=np.int64)
    done = write.append_headers(
        frozen(np.frombuffer(bodies.buffer, dtype=np.uint8), np.uint8),
        frozen(bodies.starts, np.int64),
        frozen(bodies.sizes, np.int64),
        frozen(header_starts, np.int64),
        frozen(np.frombuffer(written.buffer, dtype=np.uint8), np.uint8),
        frozen(written.starts, np.int64),
        frozen(written.sizes, np.int64),
        frozen(counts, np.int64),
        frozen(which, np.int64),
        frozen(np.frombuffer(b"".join(names), dtype=np.uint8), np.uint8),
        frozen(np.cumsum([0, *map(len, names)])[1:], np.int64),
        frozen(np.array([*numbers.values()]).reshape(len(names), len(bodies)), np.int64),
        out,
        starts,
        sizes,
    )
    if done < len(bodies):
        raise ValueError(f"the headers of row {done} do not lie in its body")
    return Column(concatenated([out.data]), starts, sizes)


def size_of(headers: Headers) -> int:
    """Return the bytes that these headers take in a record, with their count."""
    return len(encoded(headers))


def encoded(headers: Headers) -> bytes:
    """Encode the headers, as after the value of a record."""
    return _size(len(headers)) + _written(headers)


def _written(headers: Headers) -> bytes:
    """Encode the headers, without their count."""
    return b"".join(sized(part) for name, value in headers for part in (name.encode(), value))


def sized(part: bytes | None) -> bytes:
    """Encode a key, a value, or a part of a header: its size, or -1 for null, and its bytes."""
    return _size(-1 if part is None else len(part)) + (part or b"")


def _size(number: int) -> bytes:
    size = bytearray()
    encode_varint(number, size.append)
    return bytes(size)
