"""The record batches of a transaction that can still take events, by topic, and the produce seam of aiokafka.

Events that were read as columns are copied by a kernel, or as a whole record batch. Other events are appended one by
one.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from aiokafka.producer.message_accumulator import BatchBuilder
from typing_extensions import override

from streamdedup.events import NO_TIMESTAMP, EventBatch, Integers, Origin
from streamdedup.kafka.records.codecs import GZIP, NONE
from streamdedup.kafka.records.decoding import CHUNK_BYTES, LOOP_BYTES_MAX
from streamdedup.kafka.records.encoding import BatchEncoder, EncodedBatch, verbatim
from streamdedup.kafka.records.records import Record, copies
from streamdedup.kafka.records.wire import RecordBatch

RECORD_BYTES_MAX = 21  # of a record before its body: size, attributes, time, offset
# After 2**31 - 1 Kafka counts on from 0. aiokafka counts on from -2**31, as an integer of 32 bits does, and the broker
# refuses that. The numbers differ in the highest bit only, however often they have come round.
SEQUENCE_BITS = 0x7FFF_FFFF
# Copied in one turn of the loop if gzip compresses it, at up to 7 ns a byte; the other codecs take half of that. It is
# less than a record batch by default, so with what is in the open one already, one is compressed.
GZIP_LOOP_BYTES_MAX = 512 << 10
_BYTES_A_TURN = {NONE: CHUNK_BYTES, GZIP: GZIP_LOOP_BYTES_MAX}


def loop_bytes_max(codec: int) -> int:
    """Return the most bytes of events to copy and compress in one turn of the loop."""
    return _BYTES_A_TURN.get(codec, LOOP_BYTES_MAX)


class AppendedBatch(BatchBuilder):
    """aiokafka's record batch, to which records are appended, with Kafka's sequence numbers.

    aiokafka gives events without a time that come first that of the next one. So one that begins with them is full
    before the first event with a time.
    """

    _is_timeless = False  # whether all records have no time

    @override
    def append(self, *, timestamp: int | None, **record: Any) -> Any:
        if not self.record_count():
            self._is_timeless = timestamp == NO_TIMESTAMP
        elif self._is_timeless and timestamp != NO_TIMESTAMP:
            return None
        return super().append(timestamp=timestamp, **record)

    @override
    def _set_producer_state(self, producer_id: int, epoch: int, sequence: int) -> None:
        super()._set_producer_state(producer_id, epoch, sequence & SEQUENCE_BITS)


class ReadyBatch:
    """An encoded record batch in place of aiokafka's `BatchBuilder`: the produce seam.

    aiokafka calls the methods defined here, and we rely on nothing else of `AIOKafkaProducer.send_batch`.
    """

    def __init__(self, batch: EncodedBatch) -> None:
        self._batch = batch
        # Producer id, epoch and sequence of a batch that is not idempotent.
        self._state = (-1, -1, -1)

    def record_count(self) -> int:
        """Return the number of records."""
        return self._batch.count

    def size(self) -> int:
        """Return the size in bytes."""
        return len(self._batch.data)

    def closed(self) -> bool:
        """Return whether the batch takes no more records: always True."""
        return True

    def close(self) -> None:
        """Do nothing: the batch is closed from the start."""

    def append(self, **_record: object) -> None:
        """Take no record and return None, like a full batch."""

    def _set_producer_state(self, producer_id: int, epoch: int, sequence: int) -> None:
        self._state = (producer_id, epoch, sequence & SEQUENCE_BITS)

    def _build(self) -> bytearray | memoryview:
        self._batch.stamp(*self._state)
        return self._batch.data


class OpenBatches:
    """The open record batches of one partition of each topic.

    Its methods yield full batches to send, in the order of their events.
    """

    def __init__(self, codec: int, *, transactional: bool) -> None:
        self._codec, self._transactional = codec, transactional
        self._builders: dict[str, AppendedBatch] = {}
        self._encoders: dict[str, BatchEncoder] = {}

    @property
    def topics(self) -> list[str]:
        """The topics with records that were not yielded yet, sorted."""
        return sorted(self._builders.keys() | self._encoders.keys())

    @property
    def loop_bytes_max(self) -> int:
        """The most bytes of events to copy and compress in one turn of the loop."""
        return loop_bytes_max(self._codec)

    def copy(self, topic: str, batch: EventBatch, rows: Integers, size_max: int) -> Iterator[Any]:
        """Append the events of `rows` (ascending) byte for byte. Record batches have at most `size_max` bytes."""
        if not len(rows):
            return
        if batch.bodies is None:
            yield from self.send(topic, copies(batch, rows), size_max)
            return
        at = 0
        for origin in batch.origins:
            first, behind = np.searchsorted(rows, origin[:2]).tolist()
            survives = behind - first == origin.end - origin.start
            if survives and (whole := self._verbatim(batch, origin, size_max)):
                yield from self._encoded(topic, batch, rows[at:first], size_max)
                yield from self.finish(topic)
                yield ReadyBatch(whole)
                at = behind
        yield from self._encoded(topic, batch, rows[at:], size_max)

    def send(self, topic: str, records: Iterable[Record], size_max: int) -> Iterator[Any]:
        """Append `records`; in all else like `copy`."""
        if topic in self._encoders:
            yield from self.finish(topic)
        builder = self._builders.get(topic) or self._builder(size_max)
        for timestamp, key, value, headers in records:
            event: dict[str, Any] = {
                "timestamp": timestamp,
                "key": key,
                "value": value,
                "headers": list(headers),
            }
            if builder.append(**event) is None:
                yield builder
                builder = self._builder(size_max)
                builder.append(**event)
        self._builders[topic] = builder

    def finish(self, topic: str) -> Iterator[Any]:
        """Yield the rest of `topic`."""
        if encoder := self._encoders.pop(topic, None):
            yield from map(ReadyBatch, encoder.finish())
        builder = self._builders.pop(topic, None)
        if builder is not None and builder.record_count():
            yield builder

    def _builder(self, size_max: int) -> AppendedBatch:
        return AppendedBatch(size_max, self._codec, is_transactional=int(self._transactional))

    def _encoded(
        self, topic: str, batch: EventBatch, rows: Integers, size_max: int
    ) -> Iterator[Any]:
        """Append the events of `rows` by their bodies."""
        if batch.bodies is None or not len(rows):
            return
        if topic in self._builders:
            yield from self.finish(topic)
        encoder = self._encoders.get(topic) or BatchEncoder(
            codec=self._codec, transactional=self._transactional, bytes_max=size_max
        )
        self._encoders[topic] = encoder
        encoder.add(batch.bodies.take(rows), batch.timestamps[rows])
        yield from map(ReadyBatch, encoder.full())

    def _verbatim(self, batch: EventBatch, origin: Origin, size_max: int) -> EncodedBatch | None:
        """Return the record batch to copy as a whole; None if it must be compressed again, or is too large."""
        source, bodies = origin.batch, batch.bodies
        if not isinstance(source, RecordBatch) or bodies is None or source.codec != self._codec:
            return None
        # Measured before compression, like everything we write: a broker may compress it again with another codec,
        # and then check the size of the result.
        body_bytes = int(bodies.sizes[origin.start : origin.end].sum())
        if body_bytes + RECORD_BYTES_MAX * source.count > size_max:
            return None
        return verbatim(source, transactional=self._transactional)
