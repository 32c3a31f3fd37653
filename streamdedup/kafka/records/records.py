"""Single records, in the wire format; and the batches of events that are made of them, not read from a broker."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamdedup.events import Column, Damage, EventBatch, Headers, Integers
from streamdedup.kafka.records.headers import RawHeaders, encoded, sized
from streamdedup.kafka.records.wire import read_headers, read_varint

CHUNK_EVENTS = 1_000  # events handled in one turn of the loop: less than 10 ms


class Record(NamedTuple):
    """A record: `timestamp` is in ms since 1970, `body` is as in `wire.Records`."""

    timestamp: int
    body: bytes

    @classmethod
    def of(
        cls, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> "Record":
        """Return the record that has these parts."""
        return cls(timestamp, sized(key) + sized(value) + encoded(headers))

    @property
    def key(self) -> bytes | None:
        """The key; None if it is null."""
        return _cell(self.body, *_places(self.body)[:2])

    @property
    def value(self) -> bytes | None:
        """The value; None if it is null."""
        return _cell(self.body, *_places(self.body)[2:4])

    @property
    def headers(self) -> Headers:
        """The headers, parsed."""
        return read_headers(self.body, _places(self.body)[4], len(self.body))


def batch_of(
    topic: str, partition: int, offsets: Sequence[int], records: Sequence[Record], next_offset: int
) -> EventBatch:
    """Return the events of `topic`/`partition` whose records are these, both (n,)."""
    bodies = Column.of([record.body for record in records])
    places = np.array([_places(record.body) for record in records], dtype=np.int64).reshape(-1, 5)
    key_at, key_sizes, value_at, value_sizes, headers_at = places.T
    buffer, starts = bodies.buffer, bodies.starts
    return EventBatch(
        topic=topic,
        partition=partition,
        offsets=np.array(offsets, dtype=np.int64),
        timestamps=np.array([record.timestamp for record in records], dtype=np.int64),
        keys=Column(buffer, starts + key_at, key_sizes),
        values=Column(buffer, starts + value_at, value_sizes),
        headers=RawHeaders(Column(buffer, starts + headers_at, bodies.sizes - headers_at)),
        bodies=bodies,
        next_offset=next_offset,
    )


def skipped(
    topic: str, partition: int, damage: Damage, next_offset: int | None = None
) -> EventBatch:
    """Return the batch of no events that stands for `damage`; reading goes on after it if nothing else is given."""
    after = damage.last_offset + 1 if next_offset is None else next_offset
    return replace(batch_of(topic, partition, [], [], after), damage=damage)


def records_of(batch: EventBatch, rows: Integers) -> list[Record]:
    """Return the events of `rows` as records, byte for byte."""
    bodies, timestamps = batch.bodies.take(rows), batch.timestamps[rows].tolist()
    return [Record(at, body or b"") for at, body in zip(timestamps, bodies, strict=True)]


def _places(body: bytes) -> tuple[int, int, int, int, int]:
    """Return where in `body` the key begins, its size, the same of the value, and where the headers begin."""
    key_size, key_at = read_varint(body, 0)
    value_size, value_at = read_varint(body, key_at + max(key_size, 0))
    return key_at, key_size, value_at, value_size, value_at + max(value_size, 0)


def _cell(body: bytes, at: int, size: int) -> bytes | None:
    return None if size < 0 else body[at : at + size]
