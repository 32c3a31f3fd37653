"""Record batches of Kafka's format v2: from bytes to columns of events, without an object for each event.

The format is public: https://kafka.apache.org/documentation/#recordbatch. Numbers are big-endian. The CRC-32C
covers all bytes from `attributes` on. Varints are those of Protocol Buffers, in zigzag encoding: at most five bytes for
a size, a count or an offset delta, and at most ten for a timestamp delta.

    offset  bytes  field of the head
         0      8  base offset
         8      4  number of bytes after this field
        12      4  leader epoch, or -1
        16      1  magic: 2
        17      4  CRC-32C
        21      2  attributes: codec (bits 0-2), append time (3), transactional (4), control (5), delete horizon (6)
        23      4  delta of the last offset
        27      8  base timestamp, ms since 1970; if the delete horizon bit is set, it is that horizon
        35      8  highest timestamp, or the append time of all records
        43      8  producer id, or -1
        51      2  producer epoch, or -1
        53      4  sequence number of the first record, or -1
        57      4  number of records
        61         records, compressed together

A record is: a varint of the number of bytes after it, one byte of attributes, timestamp delta, offset delta, and its
body. The body is: size of the key (-1 is null), key, size of the value (-1 is null), value, number of headers, and for
each header: size of the name, name, size of the value (-1 is null), value. As in Java, every negative size of a key or
value is read as null, and bits of a varint beyond the 32nd (64th of a time) are dropped.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from streamdedup.errors import StreamdedupError
from streamdedup.events import Column, Damage, Integers, concatenated
from streamdedup.kafka.records import walk
from streamdedup.kafka.records.codecs import (
    NAMES,
    NONE,
    RECORDS_BYTES_MAX,
    AboveLimitError,
    CodecError,
    decompress,
)
from streamdedup.kafka.records.framings import reread

HEAD = struct.Struct(">qiibIhiqqqhii")
HEAD_BYTES = HEAD.size  # 61
LENGTH_END, CRC_FROM = 12, 21
MAGIC = 2
TRANSACTIONAL = 1 << 4

MAGIC_AT = 16
RECORDS_MAX = 1 << 21  # of one batch: each record takes 72 bytes as columns, however small it is

_LENGTH = struct.Struct(">qi")
_CRC, _CRC_AT = struct.Struct(">I"), 17
_CODEC, _APPENDED, _CONTROL = 7, 1 << 3, 1 << 5
_MARKER = struct.Struct(">hh")  # the key of a control record: version and type
_ABORT = 0


class DamagedBatchError(StreamdedupError):
    """A record batch contradicts the format. The message names its base offset and the fault, and no data.

    `damage` is None if it is not certain where the batch ends.
    """

    def __init__(self, message: str, damage: Damage | None = None) -> None:
        super().__init__(message)
        self.damage = damage


class OldFormatError(DamagedBatchError):
    """Records are of a format from before Kafka 0.11, which is not read; they begin at `offset`."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the records at offset {offset} are of a format from before Kafka 0.11")
        self.offset = offset


# Frozen, it takes four times as long to make: a third of what it takes to read a small batch.
@dataclass(slots=True, kw_only=True)
class RecordBatch:
    """One record batch: its parsed head, and `raw`, all of its bytes. It is not changed.

    `position` is where `raw` begins in the bytes that the batch was read from.
    """

    base_offset: int
    last_offset: int
    codec: int  # 0 to 4
    first_ms: int  # what timestamp deltas count from
    last_ms: int  # the highest timestamp, or the append time
    producer_id: int
    epoch: int
    count: int
    is_transactional: bool
    is_control: bool
    is_appended: bool  # whether all records have the time at which the broker appended them
    raw: memoryview
    position: int

    @property
    def records(self) -> memoryview:
        """The bytes after the head."""
        return self.raw[HEAD_BYTES:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records of consecutive batches, as columns over one buffer, (n,) each.

    A `body` is the part of a record that does not depend on its place: from the size of its key to its end.
    `header_starts` is where in the body the count of headers begins. Timestamps are ms since 1970, -1 for none.

    `counts` (k,) is how many of the records each batch has. `regular` (k,) is whether it has no others, and is framed
    as every client reads it.
    """

    offsets: Integers
    timestamps: Integers
    keys: Column
    values: Column
    bodies: Column
    header_starts: Integers
    counts: Integers
    regular: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.offsets)


def record_batches(data: bytes) -> Iterator[RecordBatch]:
    """Yield the complete record batches in `data`, in their order. DamagedBatchError at a damaged one."""
    view, at, after = memoryview(data), 0, -1
    while len(view) - at > MAGIC_AT:
        base, length = _LENGTH.unpack_from(view, at)
        if (magic := view[at + MAGIC_AT]) < MAGIC:
            raise OldFormatError(base)
        if magic > MAGIC:
            raise _damaged(base, f"its format is {magic}; only {MAGIC} is read")
        end = at + LENGTH_END + length
        if end < at + HEAD_BYTES:
            raise _damaged(base, f"its length is {length}")
        if end > len(view):
            return
        try:
            batch = _parsed(view[at:end], at)
        except DamagedBatchError as error:
            if error.damage is None and (following := _sound_base(view, end)) > base >= 0:
                raise _damaged_from(base, following - 1, view[at:end], str(error)) from None
            raise
        if base <= after:
            raise _damaged(base, f"it comes after offset {after}")
        yield batch
        at, after = end, batch.last_offset


def is_old_format(data: bytes) -> bool:
    """Return whether `data` begins in a format older than record batches."""
    return len(data) > MAGIC_AT and data[MAGIC_AT] < MAGIC


def check_first(data: bytes) -> None:
    """Raise DamagedBatchError if the first record batch in `data` is not complete: a broker returns it whole.

    OldFormatError if it is none, but older.
    """
    base, length = _LENGTH.unpack_from(data.ljust(LENGTH_END, b"\0"))
    if is_old_format(data):
        raise OldFormatError(base)
    if LENGTH_END + length > len(data) or len(data) < HEAD_BYTES:
        raise _damaged(base, f"its length is {length}, and {len(data)} bytes are present")


def _damaged(base_offset: int, what: str, batch: RecordBatch | None = None) -> DamagedBatchError:
    message = f"the record batch at offset {base_offset} is damaged: {what}"
    if batch is None:
        return DamagedBatchError(message)
    return _damaged_from(batch.base_offset, batch.last_offset, batch.raw, message, is_checked=True)


def _damaged_from(
    first: int, last: int, raw: memoryview, message: str, *, is_checked: bool = False
) -> DamagedBatchError:
    damage = Damage(
        reason=message, first_offset=first, last_offset=last, raw=raw, is_checked=is_checked
    )
    return DamagedBatchError(message, damage)


def _sound_base(view: memoryview, at: int) -> int:
    """Return the base offset of the record batch at `at`; -1 if it is not complete and sound."""
    if len(view) - at < HEAD_BYTES or view[at + MAGIC_AT] != MAGIC:
        return -1
    base, length = _LENGTH.unpack_from(view, at)
    raw = view[at : at + LENGTH_END + length]
    is_sound = (
        len(raw) == LENGTH_END + length >= HEAD_BYTES
        and crc32c(raw[CRC_FROM:]) == _CRC.unpack_from(raw, _CRC_AT)[0]
    )
    return int(base) if is_sound else -1


def _parsed(raw: memoryview, position: int) -> RecordBatch:
    head = HEAD.unpack_from(raw)
    base, _length, _leader, _magic, crc, attributes, delta, first_ms, last_ms = head[:9]
    producer_id, epoch, _sequence, count = head[9:]
    if crc32c(raw[CRC_FROM:]) != crc:
        raise _damaged(base, "its CRC-32C does not match")
    codec = attributes & _CODEC
    if base < 0 or delta < 0:
        raise _damaged(base, f"{count} records up to offset delta {delta}")
    batch = RecordBatch(
        base_offset=base,
        last_offset=base + delta,
        codec=codec,
        first_ms=first_ms,
        last_ms=last_ms,
        producer_id=producer_id,
        epoch=epoch,
        count=count,
        is_transactional=bool(attributes & TRANSACTIONAL),
        is_control=bool(attributes & _CONTROL),
        is_appended=bool(attributes & _APPENDED),
        raw=raw,
        position=position,
    )
    if codec >= len(NAMES):
        raise _damaged(base, f"codec {codec} is unknown", batch)
    if not 0 <= count <= delta + 1:
        raise _damaged(base, f"{count} records up to offset delta {delta}", batch)
    # A batch that compaction emptied has no bytes after its head.
    if not count and len(raw) > HEAD_BYTES:
        raise _damaged(base, f"0 records in {len(raw) - HEAD_BYTES} bytes", batch)
    return batch


def is_abort(batch: RecordBatch) -> bool:
    """Return whether a control batch is the marker of an abort, and not of a commit.

    False for a control batch that compaction emptied.
    """
    for key in decode([batch]).keys:
        if key is None or len(key) < _MARKER.size:
            raise _damaged(batch.base_offset, "its control record has no type")
        return bool(_MARKER.unpack_from(key)[1] == _ABORT)
    return False


class Unpacked(NamedTuple):
    """A record batch, and its decompressed records, which lie in `data` from `start` to `end`.

    `is_regular` is whether it is framed as every client reads it.
    """

    batch: RecordBatch
    data: bytes | memoryview
    start: int
    end: int
    is_regular: bool = True


def unpack(
    batch: RecordBatch, bytes_max: int = RECORDS_BYTES_MAX, *, regular_only: bool = False
) -> Unpacked:
    """Decompress the records of a batch. DamagedBatchError if that fails or if there are too many records.

    DamagedBatchError, too, if the records were compressed and take more than `bytes_max`, or are not framed as every
    client reads them and `regular_only` is set. To read those others takes long.
    """
    if batch.count > RECORDS_MAX:
        what = f"{batch.count} records are above the limit of {RECORDS_MAX}"
        raise _damaged(batch.base_offset, what, batch)
    whole, is_plain = batch.raw.obj, batch.codec == NONE or not batch.count
    if is_plain and isinstance(whole, bytes):
        start, end = batch.position + HEAD_BYTES, batch.position + len(batch.raw)
        return Unpacked(batch, whole, start, end)
    is_regular = True
    try:
        try:
            data = decompress(batch.codec, batch.records, bytes_max)
        except AboveLimitError:
            raise
        except CodecError:
            if regular_only:
                raise
            data, is_regular = reread(batch.codec, batch.records, bytes_max), False
    except CodecError as error:
        raise _damaged(batch.base_offset, str(error), batch) from None
    return Unpacked(batch, data, 0, len(data), is_regular)


def decode(batches: Sequence[RecordBatch]) -> Records:
    """Return the records of consecutive batches. DamagedBatchError if one contradicts its head."""
    return columns_of([unpack(batch) for batch in batches])


def columns_of(batches: Sequence[Unpacked]) -> Records:
    """Return the records of consecutive batches. DamagedBatchError if one contradicts its head.

    A record whose offset is not above those before it in its batch is left out, as Java's consumer does. Batches that
    lie uncompressed in the same `bytes` object are not copied; others are joined into a new one.
    """
    buffer, spans = _joined([one for one in batches if one.batch.count])
    counts = np.array([one.batch.count for one in batches], dtype=np.int64)
    regular = np.array([one.is_regular for one in batches], dtype=np.bool_)
    table = np.empty((walk.COLUMNS, int(counts.sum())), dtype=np.int64)
    numbers, row = np.frombuffer(buffer, dtype=np.uint8), 0
    for span in spans:
        _walk(numbers, table, row, span)
        row += span.batch.count
    taken = table[walk.BODY_SIZE] != walk.LEFT_OUT
    if not taken.all():
        table = table[:, taken]
        before, ends = np.concatenate(([0], np.cumsum(taken))), np.cumsum(counts)
        held = before[ends] - before[ends - counts]
        counts, regular = held, regular & (held == counts)
    keys, values, bodies = (
        Column(buffer, table[column], table[column + 1])
        for column in (walk.KEY, walk.VALUE, walk.BODY)
    )
    return Records(
        offsets=table[walk.OFFSET],
        timestamps=table[walk.TIMESTAMP],
        keys=keys,
        values=values,
        bodies=bodies,
        header_starts=table[walk.HEADERS],
        counts=counts,
        regular=regular,
    )


class _Span(NamedTuple):
    """Where the records of a batch lie in a buffer."""

    batch: RecordBatch
    start: int
    end: int


def _joined(batches: Sequence[Unpacked]) -> tuple[bytes, list[_Span]]:
    """Return one buffer, and where the records of each batch lie in it."""
    source = batches[0].data if batches else b""
    if isinstance(source, bytes) and all(one.data is source for one in batches):
        return source, _checked([_Span(one.batch, one.start, one.end) for one in batches])
    parts, spans, at = [], [], 0
    for batch, data, start, end, _ in batches:
        parts.append(memoryview(data)[start:end])
        spans.append(_Span(batch, at, at + end - start))
        at += end - start
    return concatenated(parts), _checked(spans)


def _checked(spans: list[_Span]) -> list[_Span]:
    """Return `spans` if no batch claims more records than fit into its bytes.

    This must come first, because columns are allocated for as many records as a batch claims.
    """
    for batch, start, end in spans:
        if batch.count * walk.RECORD_BYTES_MIN > end - start:
            what = f"{batch.count} records in {end - start} bytes"
            raise _damaged(batch.base_offset, what, batch)
    return spans


def _walk(numbers: npt.NDArray[np.uint8], table: Integers, row: int, span: _Span) -> None:
    """Fill the columns of one batch, in calls that are short."""
    batch, position, end = span
    append_ms = batch.last_ms if batch.is_appended else -1
    rows, before = row + batch.count, batch.base_offset - 1
    while row < rows:
        row, position, before = walk.walk(
            numbers,
            position,
            end,
            table,
            row,
            rows,
            before,
            batch.base_offset,
            batch.last_offset,
            batch.first_ms,
            append_ms,
        )
        if position == walk.BEYOND_LAST:
            raise _damaged(batch.base_offset, "a record has an offset above its last one", batch)
        if position == walk.MISFIT:
            raise _damaged(batch.base_offset, "a record does not fit into it", batch)
    if position != end:
        raise _damaged(batch.base_offset, "it contains more than its records", batch)


def read_headers(buffer: bytes, start: int, end: int) -> tuple[tuple[str, bytes | None], ...]:
    """Parse the headers of one record of `decode`, from its `header_starts` to its end.

    Bytes of a name that are not UTF-8 are replaced, as Java's clients do. ValueError if the headers do not end at
    `end`.
    """
    count, at = read_varint(buffer, start)
    headers = []
    for _ in range(count):
        size, at = read_varint(buffer, at)
        name = buffer[at : at + size].decode(errors="replace")
        at += size
        size, at = read_varint(buffer, at)
        value = None if size < 0 else buffer[at : at + size]
        at += max(size, 0)
        headers.append((name, value))
    if at != end:
        raise ValueError(f"no headers lie between {start} and {end}")
    return tuple(headers)


def read_varint(buffer: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag number at `at`, and where it ends."""
    number = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            number &= 0xFFFFFFFF  # what does not fit is dropped, as in Java
            return (number >> 1) ^ -(number & 1), at
        shift += 7
