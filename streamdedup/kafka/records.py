"""From aiokafka's ConsumerRecords to the columns of an EventBatch."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamdedup.events import Column, EventBatch

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
