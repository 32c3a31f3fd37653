"""Record batches to produce: from the bodies of records, or whole ones as they were read. `wire` has the format."""

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from streamdedup.events import Column, Integers
from streamdedup.kafka.records import writing
from streamdedup.kafka.records.codecs import NONE, compress
from streamdedup.kafka.records.headers import RawHeaders
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

# Of the bodies of a record batch; smaller ones are joined. To send one more takes some 300 us, to copy an event of 120
# bytes 0.03 us, and 0.12 us where it is compressed by lz4: smaller ones would cost more than they save.
VERBATIM_BYTES_MIN = 512 << 10
ROWS_A_CALL = 1 << 15  # of a kernel: below 1 ms, but for what takes longer to copy

_NULLS = b"\x01\x01\x00"  # the body of a record without key, value and headers
_BEFORE_BODY = 5 + 3  # at most, of a first record: its size, attributes, two deltas of 0
_CRC, _CRC_AT = struct.Struct(">I"), 17
_PRODUCER, _PRODUCER_AT = struct.Struct(">qhi"), 43


@dataclass(slots=True)
class EncodedBatch:
    """A record batch to produce, of `count` records: `data` is all of it."""

    data: bytearray
    count: int

    def stamp(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Write what makes it idempotent, -1 each for nothing, and the CRC-32C anew."""
        _PRODUCER.pack_into(self.data, _PRODUCER_AT, producer_id, epoch, sequence)
        with memoryview(self.data) as whole, whole[CRC_FROM:] as covered:
            _CRC.pack_into(self.data, _CRC_AT, crc32c(covered))


def verbatim(batch: RecordBatch, *, transactional: bool) -> EncodedBatch | None:
    """The same records, still compressed, as a producer sends them; None where only a broker may write such a batch."""
    gapless = batch.last_offset - batch.base_offset + 1 == batch.count
    if batch.is_control or batch.is_appended or not gapless:
        return None
    attributes = batch.codec | _bits(transactional=transactional)
    return _headed(
        bytearray(batch.raw), attributes, batch.first_ms, batch.last_ms, count=batch.count
    )


def warm_up() -> None:
    """Compile, or load from the cache, the kernels that read and write records: at set-up, so that no batch waits."""
    encoder = BatchEncoder(codec=NONE, transactional=False, bytes_max=0)
    row = np.zeros(1, dtype=np.int64)
    encoder.add(Column.of([_NULLS]), row)
    decode([head for batch in encoder.finish() for head in record_batches(bytes(batch.data))])
    headers = RawHeaders(Column.of([b"\0"]))
    headers.located("")
    headers.appended(Column.of([b"\0"]), row, [()], row, {})


class BatchEncoder:
    """Gathers records into as few batches as fit into `bytes_max` each before compression.

    A record that is larger stands in a batch of its own: compressed it may be what the broker takes.
    """

    def __init__(self, *, codec: int, transactional: bool, bytes_max: int) -> None:
        self._attributes = _bits(transactional=transactional)
        self._codec, self._bytes_max = codec, bytes_max
        self._full: list[EncodedBatch] = []
        self._room = np.empty(0, dtype=np.uint8)  # for the open batch, and again for the next one
        self._count, self._end = 0, HEAD_BYTES
        self._base_ms = self._last_ms = 0

    def add(self, bodies: Column, timestamps: Integers) -> None:
        """Append records of these bodies, as those of `Records`, none of them null, and timestamps in ms, (n,) each."""
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
            if row < behind:
                self._close()

    def full(self) -> list[EncodedBatch]:
        """Those that take no more, each once."""
        full, self._full = self._full, []
        return full

    def finish(self) -> list[EncodedBatch]:
        """All that were not given yet."""
        if self._count:
            self._close()
        return self.full()

    def _begin(self, body_bytes: int, base_ms: int) -> None:
        """Make room for a batch, at least for a first record of such a body, beside which none has room."""
        room = max(self._bytes_max, HEAD_BYTES + _BEFORE_BODY + body_bytes)
        if len(self._room) != room:
            self._room = np.empty(room, dtype=np.uint8)
        self._base_ms = self._last_ms = base_ms

    def _append(self, rows: "_Rows", row: int, behind: int) -> int:
        """Take the rows from `row` to `behind` that fit; the first that does not."""
        reached, self._end, last_ms = writing.emit(
            *rows, row, behind, self._base_ms, self._count, self._room, self._end
        )
        if reached == row and not self._count:
            raise ValueError(f"row {row} does not lie in its buffer")
        self._last_ms = max(self._last_ms, last_ms)
        self._count += reached - row
        return reached

    def _close(self) -> None:
        """Make a batch of what the room holds."""
        room, codec = self._room.data[: self._end], self._codec
        data = bytearray(room[:HEAD_BYTES])
        if codec != NONE:
            data += compress(codec, room[HEAD_BYTES:])
        if codec == NONE or len(data) >= len(room):  # what gains nothing must not pass the limit
            data, codec = bytearray(room), NONE
        attributes = self._attributes | codec
        self._full.append(
            _headed(data, attributes, self._base_ms, self._last_ms, count=self._count)
        )
        self._count, self._end = 0, HEAD_BYTES


class _Rows(NamedTuple):
    """What kernels are given: read-only and contiguous, so that they compile once."""

    buffer: npt.NDArray[np.uint8]
    starts: Integers
    sizes: Integers
    timestamps: Integers


def _bits(*, transactional: bool) -> int:
    return TRANSACTIONAL if transactional else 0


def _headed(
    data: bytearray, attributes: int, first_ms: int, last_ms: int, *, count: int
) -> EncodedBatch:
    """Write a producer's head before the records that stand in `data` from HEAD_BYTES on."""
    fields = (0, len(data) - LENGTH_END, -1, MAGIC, 0, attributes, count - 1, first_ms, last_ms)
    HEAD.pack_into(data, 0, *fields, -1, -1, -1, count)
    batch = EncodedBatch(data, count)
    batch.stamp(-1, -1, -1)
    return batch
