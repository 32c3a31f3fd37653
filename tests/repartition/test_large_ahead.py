"""Claims about large record batches under `max_skew`: they are looked at ahead, too; over a broker in memory."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.testing.source import MemorySource
from tests.repartition.test_windows import DAYS, HOUR_MS, events_of, feed, start
from tests.staged import MemoryStage, play


class Large(PendingDecode):
    """A large record batch of one event, which is read once it is decoded."""

    def __init__(self, offset: int, time_ms: int) -> None:
        self._offset, self._time_ms, self.is_decoded = offset, time_ms, False

    @property
    @override
    def last_offset(self) -> int:
        return self._offset

    @property
    @override
    def times(self) -> Integers:
        return np.array([self._time_ms])

    @override
    async def done(self) -> None:
        await asyncio.sleep(0)
        self.is_decoded = True

    @override
    def drop(self, then: Callable[[], None]) -> None:
        self.is_decoded = False
        then()


@pytest.mark.parametrize("first", [0, 41], ids=["the outlier, too", "what follows it"])
def test_a_large_event_of_the_present_leaves_no_other_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """The record batch after it shows where its partition stands, undecoded. Large ones begin at offset `first`."""
    larges: dict[int, Large] = {}
    read = MemorySource.read

    async def scene(stage: MemoryStage) -> None:
        log = stage.broker.log(stage.source, 0)

        async def reading(
            source: MemorySource, partition: int, *given: Any
        ) -> EventBatch | PendingDecode | None:
            offset = source.position(partition)
            if source._topic != stage.source or partition or not first <= offset < log.end:
                return await read(source, partition, *given)
            [logged], _ = log.read(offset, 1)
            large = larges.setdefault(offset, Large(offset, logged.timestamp))
            return await read(source, partition, *given) if large.is_decoded else large

        monkeypatch.setattr(MemorySource, "read", reading)
        hours = [((DAYS * 24 - 6 * at) * HOUR_MS, f"h{at}") for at in range(DAYS * 4)]
        twice = [event for event in hours for _ in range(2)]
        feed(stage, 0, [*twice[:40], (0, "crafted"), *twice[40:]])
        feed(stage, 1, [(ago, f"other {name}") for ago, name in twice])
        async with start(stage, batch_events_max=1, max_jump="12h") as worker:
            await worker.consumed(events_of(stage))
            assert worker.tally.late == 0
        assert set(stage.ids().values()) == {1}
        assert len(stage.ids()) == 2 * len(hours) + 1
        assert larges

    play(tmp_path, scene)
