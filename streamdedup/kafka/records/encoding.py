"""Make record batches to produce, from the bodies of records, or from whole batches as they were read.

`wire` documents the format.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from streamdedup.events import Column, Integers
from streamdedup.kafka.records import write
from streamdedup.kafka.records.codecs import NONE, compress
from streamdedup.kafka.records.headers import RawHeaders, appended
from streamdedup.kafka.records.wire import (
    CRC_FROM,
    HEAD,
    HEAD_BYTES,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    RecordBatch,
    decode,
    record_batches,
)
from streamdedup.keys.hashing import frozen

# A record batch whose bodies are smaller than this is joined with others instead of written as it is. To send one more
# batch takes some 300 us. To copy an event of 120 bytes takes 0.03 us, or 0.12 us with lz4 compression. So writing a
# smaller batch as it is would cost more than it saves.
VERBATIM_BYTES_MIN = 512 << 10
ROWS_A_CALL = 1 << 15  # rows in one call of a kernel: less than 1 ms, unless the bodies are large

_NO_ROOM = np.empty(0, dtype=np.uint8)
_NULLS = b"\x01\x01\x00"  # the body of a record without key, value and headers
# Bytes before the body of a first record, at most: size, attributes, two deltas of 0.
_BEFORE_BODY = 5 + 3
_CRC, _CRC_AT = struct.Struct(">I"), 17
_PRODUCER, _PRODUCER_AT = struct.Struct(">qhi"), 43


@dataclass(slots=True)
class EncodedBatch:
    """A record batch to produce: `data` is all of its bytes, `count` the number of its records.

    It has no checksum until it is stamped, since to compute one takes reading all bytes.
    """

    data: bytearray | memoryview
    count: int

    def stamp(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Write the fields that make a batch idempotent, each -1 if it is not, and the CRC-32C."""
        _PRODUCER.pack_into(self.data, _PRODUCER_AT, producer_id, epoch, sequence)
        with memoryview(self.data) as whole, whole[CRC_FROM:] as covered:
            _CRC.pack_into(self.data, _CRC_AT, crc32c(covered))


def verbatim(batch: RecordBatch, *, transactional: bool) -> EncodedBatch | None:
    """Return the same records, still compressed, as a producer would send them.

    Return None if a producer may not write such a batch: a control batch, one with the broker's time of appending, or
    one with gaps in its offsets.
    """
    gapless = batch.last_offset - batch.base_offset + 1 == batch.count
    if batch.is_control or batch.is_appended or not gapless:
        return None
    attributes = batch.codec | _bits(transactional=transactional)
    return _headed(
        bytearray(batch.raw), attributes, batch.first_ms, batch.last_ms, count=batch.count
    )


def warm_up() -> None:
    """Compile the kernels that read and write records, or load them from the cache.

    Call this at start-up, so that no batch waits for it.
    """
    encoder = BatchEncoder(codec=NONE, transactional=False, bytes_max=0)
    row = np.zeros(1, dtype=np.int64)
    encoder.add(Column.of([_NULLS]), row)
    for batch in encoder.finish():
        batch.stamp(-1, -1, -1)
        decode(list(record_batches(bytes(batch.data))))
    headers = RawHeaders(Column.of([b"\0"]))
    headers.located("")
    headers.counts()
    appended(Column.of([b"\0"]), row, row, [()], row, {})


class BatchEncoder:
    """Joins records into as few batches as possible, each of at most `bytes_max` bytes before compression.

    A larger record gets a batch of its own: once compressed, it may be small enough for the broker.
    """

    def __init__(self, *, codec: int, transactional: bool, bytes_max: int) -> None:
        self._attributes = _bits(transactional=transactional)
        self._codec, self._bytes_max = codec, bytes_max
        self._full: list[EncodedBatch] = []
        self._room = _NO_ROOM  # the open batch
        self._count, self._end = 0, HEAD_BYTES
        self._base_ms = self._last_ms = 0

    def add(self, bodies: Column, timestamps: Integers) -> None:
        """Append one record for each body and timestamp (ms since 1970), both (n,).

        A record that alone is larger than a batch may be is compressed at once, so that what is left is never large.
        The bodies are as in `Records`, none of them null. ValueError if one does not lie in its buffer.
        """
        rows = _Rows(
            np.frombuffer(bodies.buffer, dtype=np.uint8),
            *(frozen(column, np.int64) for column in (bodies.starts, bodies.sizes, timestamps)),
        )
        row = 0
        while row < len(rows.starts):
            if not self._count:
                self._begin(int(rows.sizes[row]), int(rows.timestamps[row]))
            behind = min(row + ROWS_A_CALL, len(rows.starts))
            row = self._append(rows, row, behind)
            if row < behind or self._end > self._bytes_max:
                self._close()

    def full(self) -> list[EncodedBatch]:
        """Return the batches that take no more records; each batch is returned once."""
        full, self._full = self._full, []
        return full

    def finish(self) -> list[EncodedBatch]:
        """Return all batches that were not returned yet."""
        if self._count:
            self._close()
        return self.full()

    def _begin(self, body_bytes: int, base_ms: int) -> None:
        """Make room for a batch, or for a first record with such a body if that alone is larger than a batch may be."""
        room = max(self._bytes_max, HEAD_BYTES + _BEFORE_BODY + body_bytes)
        if len(self._room) != room:
            self._room = np.empty(room, dtype=np.uint8)
        self._base_ms = self._last_ms = base_ms

    def _append(self, rows: "_Rows", row: int, behind: int) -> int:
        """Append the rows from `row` to `behind` (exclusive) that fit; return the first row that does not."""
        reached, self._end, last_ms = write.emit(
            *rows, row, behind, self._base_ms, self._count, self._room, self._end
        )
        if reached == row and not self._count:
            raise ValueError(f"row {row} does not lie in its buffer")
        self._last_ms = max(self._last_ms, last_ms)
        self._count += reached - row
        return reached

    def _close(self) -> None:
        """Make a batch of the records gathered so far."""
        room, codec = self._room.data[: self._end], self._codec
        packed = room[HEAD_BYTES:] if codec == NONE else compress(codec, room[HEAD_BYTES:])
        data: bytearray | memoryview
        if HEAD_BYTES + len(packed) < len(room):
            data = bytearray(HEAD_BYTES) + packed
        else:  # no compression, or no gain by it: what it makes larger might exceed the limit
            data, codec = self._uncompressed(room), NONE
        attributes = self._attributes | codec
        self._full.append(
            _headed(data, attributes, self._base_ms, self._last_ms, count=self._count)
        )
        if self._end > self._bytes_max:
            self._room = _NO_ROOM  # so that it does not stay in memory
        self._count, self._end = 0, HEAD_BYTES

    def _uncompressed(self, room: memoryview) -> bytearray | memoryview:
        """Return `room`, which takes the memory of the open batch along; a copy if it has at most half of that."""
        if 2 * len(room) <= len(self._room):
            return bytearray(room)
        self._room = _NO_ROOM
        return room


class _Rows(NamedTuple):
    """The arguments of a kernel: read-only and contiguous, so that each kernel is compiled once."""

    buffer: npt.NDArray[np.uint8]
    starts: Integers
    sizes: Integers
    timestamps: Integers


def _bits(*, transactional: bool) -> int:
    return TRANSACTIONAL if transactional else 0


def _headed(
    data: bytearray | memoryview, attributes: int, first_ms: int, last_ms: int, *, count: int
) -> EncodedBatch:
    """Write a producer's head before the records, which begin in `data` at HEAD_BYTES; leave the checksum out."""
    fields = (0, len(data) - LENGTH_END, -1, MAGIC, 0, attributes, count - 1, first_ms, last_ms)
    HEAD.pack_into(data, 0, *fields, -1, -1, -1, count)
    return EncodedBatch(data, count)
