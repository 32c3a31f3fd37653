"""More claims about the second stage: what it reads in a thread, and events without a key."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamdedup.delivery import middle as middle_module
from streamdedup.delivery.consume import InputReader
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.turns import beside
from streamdedup.events import Column, EventBatch
from streamdedup.kafka.large import LargeBatches
from streamdedup.kafka.records.origin_header import marked
from streamdedup.kafka.records.records import Record
from streamdedup.kafka.records.records import batch_of as batch_of_records
from streamdedup.settings import load
from streamdedup.settings.stages import deduplicating
from tests.deployment import Deployment


class OneBatch:
    """A source that always has the same batch, from its first offset on."""

    epoch = 1

    def __init__(self, batch: EventBatch) -> None:
        self._batch, self.at = batch, 0

    def go_to(self, _partition: int, offset: int) -> None:
        """Stand there."""
        self.at = offset

    def position(self, _partition: int) -> int:
        """Say where it stands."""
        return self.at

    async def read(self, *_given: Any) -> EventBatch:
        """Stand behind the batch."""
        self.at = self._batch.next_offset
        return self._batch


async def test_a_read_that_is_cancelled_loses_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Origins of a large batch come off in a thread. If nobody waits for that any more, the batch is read again."""
    waits = asyncio.Event()

    async def waiting(*given: Any) -> Any:
        if not waits.is_set():
            waits.set()
            await asyncio.Event().wait()
        return await beside(*given)

    monkeypatch.setattr(middle_module, "beside", waiting)
    there = Deployment("memory:1", tmp_path, partitions=1)
    there.config["source"]["repartition"] = {"topic": "by-key", "partitions": 1}
    copies = marked(batch_of([b"a", b"b"]), np.arange(2), there.group)
    source = OneBatch(copies)
    meters = SimpleNamespace(of=lambda _: SimpleNamespace(read=len))
    cluster = SimpleNamespace(large=LargeBatches())
    services: Any = SimpleNamespace(source=source, meters=meters, cluster=cluster)
    reader = InputReader(Recipe(deduplicating(load(there.write_config())), 1), services, 0)
    reader.begin(1, 0)
    reading = asyncio.create_task(reader.read(1, 100))
    await waits.wait()
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert (source.at, reader.next_offset) == (0, 0)
    read = await reader.read(1, 100)
    assert isinstance(read, EventBatch)
    assert read.places is not None
    assert read.places.offsets.tolist() == [0, 1]
    assert (source.at, reader.next_offset) == (2, 2)


async def test_long_keys_are_placed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long does not hold up the loop: the caller says so by the sizes of the keys."""
    asked: list[bool] = []

    async def noted(takes_long: bool, call: Any, *given: Any) -> Any:
        asked.append(takes_long)
        return call(*given)

    monkeypatch.setattr(middle_module, "beside", noted)
    there = middle_module.Middle(topic="by-key", partitions=1, group="g")
    for keys in ([b"short"], [bytes(1 << 20)] * 8):
        await there.check_placement(batch_of(keys), Column.of(keys))
    assert asked == [False, True]


def batch_of(keys: Sequence[bytes]) -> EventBatch:
    """Events of the middle topic with these keys."""
    records = [Record.of(row, key, key) for row, key in enumerate(keys)]
    return batch_of_records("by-key", 0, range(len(keys)), records, len(keys))
