"""Between records as objects and the columns of an EventBatch: a consumer of them, and what is to be sent again."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

from streamdedup.events import Column, EventBatch, Headers, Integers

Record = tuple[int, bytes | None, bytes | None, Headers]  # timestamp in ms, key, value, headers
NO_TIMESTAMP = -1  # Kafka's own word for none; aiokafka has None in records older than timestamps
CHUNK_EVENTS = 1_000  # events handled between two turns of the loop: below 10 ms


class EventConsumer(AIOKafkaConsumer):
    """A consumer that gives events by the EventBatch, made of aiokafka's objects."""

    async def next_batch(
        self, where: TopicPartition, timeout_ms: int, events_max: int = CHUNK_EVENTS
    ) -> EventBatch | None:
        """The next events of one partition, at most `events_max`; None where none come in time."""
        most = min(events_max, CHUNK_EVENTS)
        polled = await self.getmany(where, timeout_ms=timeout_ms, max_records=most)
        records = polled.get(where)
        return records and to_batch(where.topic, where.partition, records, self.reached(where))

    def reached(self, where: TopicPartition) -> int:
        """The offset at which reading goes on: behind the markers and aborted events that follow what was read."""
        return int(self._subscription.subscription.assignment.state_value(where).position)


def to_batch(topic: str, partition: int, records: Sequence[Any], next_offset: int) -> EventBatch:
    """The events of `records`, consecutive in one partition; reading goes on at `next_offset`."""
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
    """The events of `rows`, byte for byte."""
    headers = [batch.headers[row] for row in rows.tolist()]
    timestamps = batch.timestamps[rows].tolist()
    return zip(timestamps, batch.keys.take(rows), batch.values.take(rows), headers, strict=True)
