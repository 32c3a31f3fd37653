"""Convert between record objects and the columns of an EventBatch.

It has a consumer that makes batches of aiokafka's record objects, and the records to send that an EventBatch holds.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

from streamdedup.events import NO_TIMESTAMP, Column, EventBatch, Headers, Integers
from streamdedup.kafka.records.decoding import PendingDecode

Record = tuple[int, bytes | None, bytes | None, Headers]  # timestamp in ms, key, value, headers
CHUNK_EVENTS = 1_000  # events handled in one turn of the loop: less than 10 ms


class EventConsumer(AIOKafkaConsumer):
    """A consumer that returns one EventBatch at a time, made of aiokafka's record objects."""

    async def next_batch(
        self, where: TopicPartition, timeout_ms: int, events_max: int = CHUNK_EVENTS
    ) -> EventBatch | PendingDecode | None:
        """Return the next events of one partition, at most `events_max`; None if none arrive within `timeout_ms`.

        A large record batch is returned as it is: the events are what the calls return once it is decoded.

        DamagedBatchError, in the consumer that reads columns, if the fetched bytes contradict their format. The next
        call may then return what follows the damage.
        """
        most = min(events_max, CHUNK_EVENTS)
        polled = await self.getmany(where, timeout_ms=timeout_ms, max_records=most)
        records = polled.get(where)
        return records and to_batch(where.topic, where.partition, records, self.reached(where))

    def reached(self, where: TopicPartition) -> int:
        """Return the offset of the next read.

        It lies after the events read so far, and after the markers and aborted events that follow them.
        """
        return int(self._subscription.subscription.assignment.state_value(where).position)


def to_batch(topic: str, partition: int, records: Sequence[Any], next_offset: int) -> EventBatch:
    """Return `records`, consecutive in one partition, as an EventBatch; `next_offset` is that of the next read."""
    return EventBatch(
        topic=topic,
        partition=partition,
        offsets=np.array([r.offset for r in records], dtype=np.int64),
        timestamps=np.array(
            [NO_TIMESTAMP if r.timestamp is None else r.timestamp for r in records], np.int64
        ),
        keys=Column.of([r.key for r in records]),
        values=Column.of([r.value for r in records]),
        headers=[r.headers for r in records],
        next_offset=next_offset,
    )


def copies(batch: EventBatch, rows: Integers) -> Iterable[Record]:
    """Yield the events of `rows` as records, byte for byte."""
    headers = [batch.headers[row] for row in rows.tolist()]
    timestamps = batch.timestamps[rows].tolist()
    return zip(timestamps, batch.keys.take(rows), batch.values.take(rows), headers, strict=True)
