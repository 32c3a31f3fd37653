"""What a partition's log holds, read from the broker's own files: aborted transactions, and who wrote when.

No client is asked, so neither the client under test nor that of the oracle can be wrong about it. The layout is that of
Kafka's record batches, version 2, https://kafka.apache.org/documentation/#recordbatch.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT = 12  # what `batchLength` counts begins here
_CONTROL, _TRANSACTIONAL = 0x20, 0x10
_ABORT = 0


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One record batch. `abort` is None where it is no marker of a transaction's end."""

    base_offset: int
    records: int
    producer_id: int
    epoch: int
    abort: bool | None


@dataclass(frozen=True, slots=True)
class Aborted:
    """What transactions that were aborted left in a log."""

    transactions: int
    records: int


def log_batches(directory: Path) -> Iterator[LogBatch]:
    """The batches in a partition's `directory`, by offset; one that is being written is left out."""
    for path in sorted(directory.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at + _HEADER.size <= len(data):
            offset, length, *_, attributes, _, _, _, producer_id, epoch, _, records = (
                _HEADER.unpack_from(data, at)
            )
            end = at + _LENGTH_AT + length
            if length <= 0 or end > len(data):
                break
            abort = _is_abort(data[at + _HEADER.size : end]) if attributes & _CONTROL else None
            yield LogBatch(offset, records, producer_id, epoch, abort)
            at = end


def aborted(batches: Iterable[LogBatch]) -> Aborted:
    """Those transactions of which at least one record had reached the log."""
    open_records: dict[int, int] = {}
    transactions = records = 0
    for batch in batches:
        if batch.abort is None:
            open_records[batch.producer_id] = open_records.get(batch.producer_id, 0) + batch.records
            continue
        taken_back = open_records.pop(batch.producer_id, 0)
        if batch.abort and taken_back:
            transactions += 1
            records += taken_back
    return Aborted(transactions, records)


def zombie_batches(batches: Iterable[LogBatch]) -> int:
    """How many batches were written by a producer after one of a later epoch, its successor, had written."""
    newest: dict[int, int] = {}
    late = 0
    for batch in batches:
        if batch.abort is None:
            late += batch.epoch < newest.get(batch.producer_id, -1)
            newest[batch.producer_id] = max(batch.epoch, newest.get(batch.producer_id, -1))
    return late


def _is_abort(record: bytes) -> bool:
    """Whether a marker's one record says so: its key is a version and a type, 16 bits each."""
    at = _after_varint(record, 0) + 1  # its length, its attributes
    for _ in range(3):  # timestamp, offset, the key's length
        at = _after_varint(record, at)
    (kind,) = struct.unpack_from(">h", record, at + 2)
    return bool(kind == _ABORT)


def _after_varint(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1
