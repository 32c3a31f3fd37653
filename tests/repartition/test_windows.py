"""Windows behind the first stage: partitions of the input stay together in event time, whatever their backlogs."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamdedup.delivery.services import wall_clock_ms
from streamdedup.kafka.offsets import Note
from streamdedup.repartition.skew import Wait
from streamdedup.settings import load
from streamdedup.settings.stages import deduplicating, max_skew_ms
from tests.local import LocalWorker
from tests.staged import INPUTS, PLACES, MemoryStage, play, value

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
DAYS = 30
EVERY_H = 3
OPEN_S = 6  # delivery.open_transaction_s
WINDOW: dict[str, Any] = {"kind": "window", "retention": "7d", "capacity": 100_000}
SPARSE = [f"s{day}" for day in range(DAYS)]
DENSE = [f"d{hour}" for hour in range(0, DAYS * 24, EVERY_H)]
EACH_ONCE = Counter(SPARSE + DENSE)


def feed(stage: MemoryStage, partition: int, events: Iterable[tuple[int, str]]) -> None:
    """Append events: how many ms ago, and the id."""
    now = stage.broker.now_ms()
    log = stage.broker.log(stage.source, partition)
    log.append([(now - ago, None, value(name), ()) for ago, name in events])


def feed_backlog(stage: MemoryStage) -> None:
    """Thirty days: a sparse partition, one event a day; and a dense one, each key twice, an hour apart."""
    feed(stage, 0, [((DAYS - day) * DAY_MS, name) for day, name in enumerate(SPARSE)])
    hours = [((DAYS * 24 - EVERY_H * at) * HOUR_MS, name) for at, name in enumerate(DENSE)]
    feed(stage, 1, sorted([*hours, *((ago - HOUR_MS, name) for ago, name in hours)], reverse=True))


def events_of(stage: MemoryStage) -> int:
    """How many events the input has."""
    return sum(stage.broker.log(stage.source, p).end for p in range(INPUTS))


def _has_consumed(worker: LocalWorker, events: float) -> bool:
    return worker.tally.consumed >= events


def start(
    stage: MemoryStage,
    now_ms: Callable[[], int] = wall_clock_ms,
    batch_events_max: int = 20,
    **window: str,
) -> LocalWorker:
    """Start a worker with a window of a week, and small batches. Its output keeps every event."""
    if (sink := stage.deployment.sink) not in stage.broker.topics:
        stage.broker.create_topic(
            sink, PLACES, retention_ms=-1, message_timestamp_after_max_ms=1 << 62
        )
    delivery = {"batch_events_max": batch_events_max}
    return stage.start(now_ms, filter=WINDOW | window, delivery=delivery)


@pytest.mark.rule(29)
def test_a_backlog_is_judged_in_the_order_of_its_times(tmp_path: Path) -> None:
    """However sparse one partition is beside another: no event is late, and each key passes once."""

    async def scene(stage: MemoryStage) -> None:
        feed_backlog(stage)
        async with start(stage) as worker:
            await worker.consumed(events_of(stage))
            assert worker.tally.late == 0
        assert stage.ids() == EACH_ONCE

    play(tmp_path, scene)


def test_without_the_rule_events_are_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backlog above is one that needs it."""
    monkeypatch.setattr(Wait, "waits_for", lambda _self, _standings: None)
    monkeypatch.setattr(Wait, "events", lambda self, _standings: len(self._heads))

    async def scene(stage: MemoryStage) -> None:
        feed_backlog(stage)
        async with start(stage) as worker:
            await worker.consumed(events_of(stage))
            assert worker.tally.late > 50

    play(tmp_path, scene)


@pytest.mark.rule(29)
def test_members_wait_for_each_other(tmp_path: Path) -> None:
    """The heads are in the notes of the group, so it does not matter who copies which partition."""

    async def scene(stage: MemoryStage) -> None:
        workers = [start(stage) for _ in range(INPUTS)]
        await workers[0].until(
            lambda: all(
                w.worker.status.copying and w.worker.status.copying.assigned for w in workers
            ),
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

    play(tmp_path, scene)


@pytest.mark.rule(29)
def test_a_worker_that_was_drained_goes_on_where_the_partitions_stood(tmp_path: Path) -> None:
    """Time and again, in the middle of the backlog."""

    async def scene(stage: MemoryStage) -> None:
        feed_backlog(stage)
        late = judged = 0
        for share in (0.2, 0.5, 0.8, 1.0):
            async with start(stage) as worker:
                left = share * events_of(stage) - judged
                await worker.until(partial(_has_consumed, worker, left), "part of the backlog")
            late, judged = late + worker.tally.late, judged + worker.tally.consumed
        assert (late, judged) == (0, events_of(stage))
        assert stage.ids() == EACH_ONCE

    play(tmp_path, scene)


@pytest.mark.rule(29)
def test_one_that_is_stopped_is_named(tmp_path: Path) -> None:
    """The others wait for it, and the page, the log and the metric say for which."""

    async def scene(stage: MemoryStage) -> None:
        feed_backlog(stage)
        feed(stage, 2, [(DAYS * DAY_MS, "old")])
        input_ = stage.broker.topics[stage.source].topic
        note = Note(
            cluster_id=stage.broker.cluster_id,
            input_id=input_.topic_id,
            output_id=None,
            label=0,
            meaning=1,
        )
        stage.broker.group(stage.copying_group).offsets[stage.source, 2] = (0, note.encode())
        async with start(stage) as worker:
            await worker.logged("repartition_partition_stopped")
            (line,) = await worker.logged("repartition_held")
            assert f"{stage.source}/2 at offset 0 of 1 (stopped)" in line["reason"]
            copying = worker.worker.status.copying
            assert copying is not None and copying.stage is not None
            assert copying.stage.held == line["reason"]
            assert copying.stage.held_partitions == 2
            assert (
                copying.stage.lag >= events_of(stage) - 1
            )  # what was read, and waits, is not copied

    play(tmp_path, scene)


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.rule(29)
def test_events_of_an_open_transaction_are_unread(tmp_path: Path, hangs: bool) -> None:
    """The other partition waits until they are decided; one that hangs holds it for `open_transaction_s` only."""

    async def scene(stage: MemoryStage) -> None:
        loop, log = asyncio.get_running_loop(), stage.broker.log(stage.source, 0)
        stage.deployment.config["delivery"]["open_transaction_s"] = OPEN_S
        hours = [((DAYS * 24 - hour) * HOUR_MS, f"h{hour}") for hour in range(DAYS * 24)]
        feed(stage, 1, hours)
        transaction = stage.broker.transaction("theirs")
        epoch = transaction.fence(600)
        transaction.add(epoch, log, loop.time())
        first = stage.broker.now_ms() - DAYS * DAY_MS
        transaction.produce(epoch, log, [(first, None, value("open"), ())])
        begun = loop.time()  # the first stage may read before the second is live
        async with start(stage) as worker:
            await worker.live(PLACES)
            await asyncio.sleep(OPEN_S / 2)
            copying = worker.worker.status.copying
            assert copying is not None and copying.stage is not None
            assert "source/0 at offset 0 of 1 (a transaction is open at offset 0)".replace(
                "source", stage.source
            ) in str(copying.stage.held)
            assert worker.tally.consumed == 0
            if hangs:
                await worker.consumed(len(hours))
                assert OPEN_S <= loop.time() - begun < 2 * OPEN_S
                return
            transaction.end(epoch, commit=True)
            await worker.consumed(len(hours) + 1)
            assert worker.tally.late == 0

    play(tmp_path, scene)


@pytest.mark.rule(29)
def test_one_event_of_the_present_leaves_no_other_late(tmp_path: Path) -> None:
    """Although it is alone in what was read at once: the event behind it shows where its partition stands."""

    async def scene(stage: MemoryStage) -> None:
        hours = [((DAYS * 24 - 6 * at) * HOUR_MS, f"h{at}") for at in range(DAYS * 4)]
        twice = [event for event in hours for _ in range(2)]
        feed(stage, 0, [*twice[:40], (0, "crafted"), *twice[40:]])
        feed(stage, 1, [(ago, f"other {name}") for ago, name in twice])
        async with start(stage, batch_events_max=1, max_jump="12h") as worker:
            await worker.consumed(events_of(stage))
            assert worker.tally.late == 0
        assert set(stage.ids().values()) == {1}
        assert len(stage.ids()) == 2 * len(hours) + 1

    play(tmp_path, scene)


@pytest.mark.parametrize("off_days", [-40, 40])
@pytest.mark.rule(29)
def test_the_workers_clock_decides_nothing(tmp_path: Path, off_days: int) -> None:
    """How far a partition stands follows from the times of its events alone."""

    async def scene(stage: MemoryStage) -> None:
        feed_backlog(stage)
        right = stage.broker.now_ms
        async with start(stage, now_ms=lambda: right() + off_days * DAY_MS) as worker:
            await worker.consumed(events_of(stage))
            assert worker.tally.late == 0
        assert stage.ids() == EACH_ONCE

    play(tmp_path, scene)


@pytest.mark.rule(29)
def test_a_crafted_time_holds_its_partition_for_no_longer_than_the_backlog(tmp_path: Path) -> None:
    """One event from the year 5138: what follows in its partition goes on, and nothing is lost."""

    async def scene(stage: MemoryStage) -> None:
        feed_backlog(stage)
        feed(stage, 2, [(-(10**14), "crafted")])
        feed(stage, 2, [(0, f"n{number}") for number in range(200)])
        async with start(stage) as worker:
            await worker.consumed(events_of(stage))
        assert stage.ids() >= EACH_ONCE + Counter([f"n{number}" for number in range(200)])

    play(tmp_path, scene)


def test_the_windows_cover_the_skew(tmp_path: Path) -> None:
    """An eighth of `retention`, or what is set."""

    async def scene(stage: MemoryStage) -> None:
        config = stage.deployment.config
        config["filter"] = {**WINDOW, "generations": 8}
        assert max_skew_ms(load(stage.deployment.write_config())) == 7 * DAY_MS // 8
        config["source"]["repartition"]["max_skew"] = "14d"
        settings = load(stage.deployment.write_config())
        assert max_skew_ms(settings) == 14 * DAY_MS
        assert deduplicating(settings).filter.window_ms == 24 * DAY_MS
        del config["filter"]["retention"]
        del config["source"]["repartition"]["max_skew"]
        assert max_skew_ms(load(stage.deployment.write_config())) is None

    play(tmp_path, scene)


def test_heads_are_published(tmp_path: Path) -> None:
    """Each note of the first stage says how far its partition stands."""

    async def scene(stage: MemoryStage) -> None:
        now = wall_clock_ms()
        feed(stage, 0, [(DAY_MS, "a")])
        feed(stage, 1, [(HOUR_MS, "b"), (0, "c")])
        async with start(stage) as worker:
            await worker.consumed(3)
        group = stage.broker.group(stage.copying_group)
        heads = {
            partition: note.head
            for (_, partition), (_, text) in group.offsets.items()
            if (note := Note.decode(text))
        }
        assert heads[0] is not None and abs(heads[0] - (now - DAY_MS)) < HOUR_MS
        assert heads[1] is not None and abs(heads[1] - (now - HOUR_MS)) < HOUR_MS
        assert heads[2] is None

    play(tmp_path, scene)
