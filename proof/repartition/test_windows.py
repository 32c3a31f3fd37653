"""More claims about windows behind the first stage: several members, drains, wrong clocks, and large record batches."""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from streamdedup.delivery.consume import InputReader
from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.base import Source
from streamdedup.kafka.large import LargeBatches
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.repartition.skew import (
    NO_TIME,
    NO_TIMES,
    Standing,
    Standings,
    Wait,
    heads_of,
    must_publish,
)
from tests.local import LocalWorker
from tests.memory import over
from tests.repartition.test_skew import FAR, MAX_SKEW, P, times
from tests.repartition.test_windows import (
    DAY_MS,
    DAYS,
    EACH_ONCE,
    HOUR_MS,
    events_of,
    feed,
    feed_backlog,
    start,
)
from tests.staged import INPUTS, MemoryStage


def _has_consumed(worker: LocalWorker, events: float) -> bool:
    return worker.tally.consumed >= events


@pytest.mark.rule(29)
@over(MemoryStage)
async def test_members_wait_for_each_other(stage: MemoryStage) -> None:
    """The heads are in the notes of the group, so it does not matter who copies which partition."""
    workers = [start(stage) for _ in range(INPUTS)]
    await workers[0].until(
        lambda: all(w.worker.status.copying and w.worker.status.copying.assigned for w in workers),
        "shares",
    )
    feed_backlog(stage)
    await workers[0].until(
        lambda: sum(w.tally.consumed for w in workers) == events_of(stage), "all judged"
    )
    assert sum(w.tally.late for w in workers) == 0
    for worker in workers:
        await worker.stop()
    assert stage.ids() == EACH_ONCE


@pytest.mark.rule(29)
@over(MemoryStage)
async def test_a_worker_that_was_drained_goes_on_where_the_partitions_stood(
    stage: MemoryStage,
) -> None:
    """Time and again, in the middle of the backlog."""
    feed_backlog(stage)
    late = judged = 0
    for share in (0.2, 0.5, 0.8, 1.0):
        async with start(stage) as worker:
            left = share * events_of(stage) - judged
            await worker.until(partial(_has_consumed, worker, left), "part of the backlog")
        late, judged = late + worker.tally.late, judged + worker.tally.consumed
    assert (late, judged) == (0, events_of(stage))
    assert stage.ids() == EACH_ONCE


@pytest.mark.parametrize("off_days", [-40, 40])
@pytest.mark.rule(29)
@over(MemoryStage)
async def test_the_workers_clock_decides_nothing(stage: MemoryStage, off_days: int) -> None:
    """How far a partition stands follows from the times of its events alone."""
    feed_backlog(stage)
    right = stage.broker.now_ms
    async with start(stage, now_ms=lambda: right() + off_days * DAY_MS) as worker:
        await worker.consumed(events_of(stage))
        assert worker.tally.late == 0
    assert stage.ids() == EACH_ONCE


@pytest.mark.parametrize("seed", range(20))
def test_all_is_read_and_no_copy_is_further_ahead_than_the_limit(seed: int) -> None:
    """Gaps, long batches and garbage: members act in any order, each on what is published alone.

    Now and then they know what comes after a batch.
    """
    chance = random.Random(seed)
    logs = [
        [
            times([chance.choice([-1, 0, FAR, chance.randrange(2000)]) for _ in range(3)])
            for _ in range(20)
        ]
        for _ in range(4)
    ]
    standings = {p: Standing(0, 3 * len(log), None) for p, log in zip(P, logs, strict=True)}
    waits: dict[InputPartition, Wait] = {}
    for _ in range(5000):
        number = chance.randrange(len(logs))
        p = P[number]
        mine = standings[p]
        if mine.offset == mine.end:
            continue
        batch, row = divmod(mine.offset, 3)
        after = chance.choice([NO_TIMES, *logs[number][batch + 1 : batch + 2]])
        heads = heads_of(logs[number][batch][row:], mine.head, after)
        wait = waits.setdefault(p, Wait(p, heads, MAX_SKEW))
        now = Standings(dict(standings))
        if wait.waits_for(now) is None:
            events, heads = wait.events(now), wait._heads
            unread = [s for q, s in standings.items() if q != p and s.holds]
            assert all(
                head == NO_TIME or head - (s.head or 0) <= MAX_SKEW
                for head in heads[:events].tolist()
                for s in unread
            )
            standings[p] = Standing(mine.offset + events, mine.end, int(heads[events - 1]))
            del waits[p]
        elif must_publish(p, wait.head, now):
            standings[p] = Standing(mine.offset, mine.end, wait.head)
    assert all(s.offset == s.end for s in standings.values())


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


def read_large(
    stage: MemoryStage,
    monkeypatch: pytest.MonkeyPatch,
    is_large: Callable[[int, int], bool],
    *,
    is_empty: Callable[[int, int], bool] = lambda _partition, _at: False,
) -> dict[tuple[int, int], Large]:
    """Make a large record batch of each event of the input of which (partition, offset) `is_large`.

    It has no event if it `is_empty`, as if compaction had removed it.
    """
    larges: dict[tuple[int, int], Large] = {}
    read = Source.read

    async def reading(
        source: Source, partition: int, *given: Any
    ) -> EventBatch | PendingDecode | None:
        log, offset = stage.broker.log(source._topic, partition), source.position(partition)
        if source._topic != stage.source or offset >= log.end or not is_large(partition, offset):
            return await read(source, partition, *given)
        [logged], _ = log.read(offset, 1)
        large = larges.setdefault((partition, offset), Large(offset, logged.timestamp))
        if large.is_decoded and is_empty(partition, offset):
            source.go_to(partition, offset + 1)
        return await read(source, partition, *given) if large.is_decoded else large

    monkeypatch.setattr(Source, "read", reading)
    return larges


HOURS = [((DAYS * 24 - 6 * at) * HOUR_MS, f"h{at}") for at in range(DAYS * 4)]


@pytest.mark.parametrize("first", [0, 41], ids=["the outlier, too", "what follows it"])
@over(MemoryStage)
async def test_a_large_event_of_the_present_leaves_no_other_late(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """The record batch after it shows where its partition stands, undecoded. Large ones begin at offset `first`."""
    larges = read_large(stage, monkeypatch, lambda partition, at: partition == 0 and at >= first)
    twice = [event for event in HOURS for _ in range(2)]
    feed(stage, 0, [*twice[:40], (0, "crafted"), *twice[40:]])
    feed(stage, 1, [(ago, f"other {name}") for ago, name in twice])
    async with start(stage, batch_events_max=1, max_jump="12h") as worker:
        await worker.consumed(events_of(stage))
        assert worker.tally.late == 0
    assert set(stage.ids().values()) == {1}
    assert len(stage.ids()) == 2 * len(HOURS) + 1
    assert larges


@over(MemoryStage)
async def test_a_large_event_that_waits_leaves_its_permit_to_slower_ones(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one for all, and those for which it waits need it, too. It is fetched again later."""
    monkeypatch.setattr(LargeBatches.__init__, "__defaults__", (1,))
    read_large(stage, monkeypatch, lambda _partition, _at: True)
    feed(stage, 0, [(0, "ahead")])
    feed(stage, 1, HOURS)
    async with start(stage, batch_events_max=1) as worker:
        await worker.consumed(events_of(stage))
        assert worker.tally.late == 0
    assert set(stage.ids().values()) == {1}


@over(MemoryStage)
async def test_what_waits_after_a_large_event_is_read_once(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary record batch needs no permit, so it waits in memory, whatever was read before it."""
    again, taken_back = InputReader.again, list[int]()

    def noted(reader: InputReader, offset: int, cause: str) -> None:
        taken_back.append(offset)
        again(reader, offset, cause)

    monkeypatch.setattr(InputReader, "again", noted)
    larges = read_large(stage, monkeypatch, lambda partition, at: (partition, at) == (0, 0))
    feed(stage, 0, [(DAYS * DAY_MS, "large"), (0, "ahead")])
    feed(stage, 1, HOURS)
    async with start(stage, batch_events_max=1) as worker:
        await worker.consumed(events_of(stage))
        assert worker.tally.late == 0
    assert set(stage.ids().values()) == {1}
    assert larges
    assert 1 not in taken_back  # the large one may be, while the others are not known yet


@over(MemoryStage)
async def test_what_waits_after_a_large_batch_without_events_keeps_no_permit(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one for all, and those for which it waits need it."""
    monkeypatch.setattr(LargeBatches.__init__, "__defaults__", (1,))
    read_large(
        stage,
        monkeypatch,
        lambda partition, at: partition == 1 or at == 0,
        is_empty=lambda partition, at: (partition, at) == (0, 0),
    )
    feed(stage, 0, [(DAYS * DAY_MS, "removed"), (0, "ahead")])
    feed(stage, 1, HOURS)
    async with start(stage, batch_events_max=1) as worker:
        await worker.consumed(events_of(stage) - 1)
        assert worker.tally.late == 0
    assert set(stage.ids().values()) == {1}
