"""Between records as objects and the columns of an EventBatch: from aiokafka's, and to be sent again."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streamdedup.events import Column, EventBatch, Headers, Integers

Record = tuple[int, bytes | None, bytes | None, Headers]  # timestamp in ms, key, value, headers
NO_TIMESTAMP = -1  # Kafka's own word for none; aiokafka has None in records older than timestamps
CHUNK_EVENTS = 1_000  # events handled between two turns of the loop: below 10 ms


def to_batch(topic: str, partition: int, records: Sequence[Any], next_offset: int) -> EventBatch:
    """The events of `records`, consecutive in one partition; reading goes on at `next_offset`."""
    return EventBatch(
        topic,
        partition,
        np.array([r.offset for r in records], dtype=np.int64),
        np.array([NO_TIMESTAMP if r.timestamp is None else r.timestamp for r in records], np.int64),
        Column.of([r.key for r in records]),
        Column.of([r.value for r in records]),
        [r.headers for r in records],
        next_offset,
    )


def copies(batch: EventBatch, rows: Integers) -> Iterable[Record]:
    """The events of `rows`, byte for byte."""
    headers = [batch.headers[row] for row in rows.tolist()]
    timestamps = batch.timestamps[rows].tolist()
    return zip(timestamps, batch.keys.take(rows), batch.values.take(rows), headers, strict=True)
