"""The record batches of a transaction that can still take events, by topic, and the produce seam of aiokafka.

Events are copied by a kernel, or as a whole record batch.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamdedup.events import EventBatch, Integers, Origin
from streamdedup.kafka.records.codecs import GZIP, NONE
from streamdedup.kafka.records.decoding import CHUNK_BYTES, LOOP_BYTES_MAX
from streamdedup.kafka.records.encoding import BatchEncoder, EncodedBatch, verbatim
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
        self._encoders: dict[str, BatchEncoder] = {}

    @property
    def topics(self) -> list[str]:
        """The topics with records that were not yielded yet, sorted."""
        return sorted(self._encoders)

    @property
    def loop_bytes_max(self) -> int:
        """The most bytes of events to copy and compress in one turn of the loop."""
        return loop_bytes_max(self._codec)

    def copy(self, topic: str, batch: EventBatch, rows: Integers, size_max: int) -> Iterator[Any]:
        """Append the events of `rows` (ascending) byte for byte. Record batches have at most `size_max` bytes."""
        if not len(rows):
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

    def finish(self, topic: str) -> Iterator[Any]:
        """Yield the rest of `topic`."""
        if encoder := self._encoders.pop(topic, None):
            yield from map(ReadyBatch, encoder.finish())

    def _encoded(
        self, topic: str, batch: EventBatch, rows: Integers, size_max: int
    ) -> Iterator[Any]:
        """Append the events of `rows` by their bodies."""
        if not len(rows):
            return
        encoder = self._encoders.get(topic) or BatchEncoder(
            codec=self._codec, transactional=self._transactional, bytes_max=size_max
        )
        self._encoders[topic] = encoder
        encoder.add(batch.bodies.take(rows), batch.timestamps[rows])
        yield from map(ReadyBatch, encoder.full())

    def _verbatim(self, batch: EventBatch, origin: Origin, size_max: int) -> EncodedBatch | None:
        """Return the record batch to copy as a whole; None if it must be compressed again, or is too large."""
        source = origin.batch
        if not isinstance(source, RecordBatch) or source.codec != self._codec:
            return None
        # Measured before compression, like everything we write: a broker may compress it again with another codec,
        # and then check the size of the result.
        body_bytes = int(batch.bodies.sizes[origin.start : origin.end].sum())
        if body_bytes + RECORD_BYTES_MAX * source.count > size_max:
            return None
        return verbatim(source, transactional=self._transactional)
