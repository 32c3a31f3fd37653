"""From aiokafka's ConsumerRecords to the columns of an EventBatch."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamdedup.events import Column, EventBatch

CHUNK_EVENTS = 2_000  # events handled between two turns of the loop: some 5 ms of extraction


def to_batch(topic: str, partition: int, records: Sequence[Any]) -> EventBatch | None:
    """The events of `records`, consecutive in one partition; None where there are none."""
    if not records:
        return None
    return EventBatch(
        topic,
        partition,
        np.array([r.offset for r in records], dtype=np.int64),
        np.array([r.timestamp for r in records], dtype=np.int64),
        Column.of([r.key for r in records]),
        Column.of([r.value for r in records]),
        [r.headers for r in records],
        records[-1].offset + 1,
    )
