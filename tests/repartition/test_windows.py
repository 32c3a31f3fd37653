"""Windows behind the first stage: partitions of the input stay together in event time, whatever their backlogs."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from streamdedup.delivery.services import wall_clock_ms
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.records.records import Record
from streamdedup.settings import load
from streamdedup.settings.stages import deduplicating, max_skew_ms
from tests.local import LocalWorker
from tests.memory import over
from tests.staged import INPUTS, PLACES, MemoryStage, value

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
    log.append([Record.of(now - ago, None, value(name), ()) for ago, name in events])


def feed_backlog(stage: MemoryStage) -> None:
    """Thirty days: a sparse partition, one event a day; and a dense one, each key twice, an hour apart."""
    feed(stage, 0, [((DAYS - day) * DAY_MS, name) for day, name in enumerate(SPARSE)])
    hours = [((DAYS * 24 - EVERY_H * at) * HOUR_MS, name) for at, name in enumerate(DENSE)]
    feed(stage, 1, sorted([*hours, *((ago - HOUR_MS, name) for ago, name in hours)], reverse=True))


def events_of(stage: MemoryStage) -> int:
    """How many events the input has."""
    return sum(stage.broker.log(stage.source, p).end for p in range(INPUTS))


def start(
    stage: MemoryStage,
    now_ms: Callable[[], int] = wall_clock_ms,
    batch_events_max: int = 20,
    **window: str,
) -> LocalWorker:
    """Start a worker with a window of a week, and small batches. Its output keeps every event."""
    if (sink := stage.sink) not in stage.broker.topics:
        stage.broker.create_topic(
            sink, PLACES, retention_ms=-1, message_timestamp_after_max_ms=1 << 62
        )
    delivery = {"batch_events_max": batch_events_max}
    return stage.start(now_ms, filter=WINDOW | window, delivery=delivery)


@pytest.mark.rule(29)
@over(MemoryStage)
async def test_a_backlog_is_judged_in_the_order_of_its_times(stage: MemoryStage) -> None:
    """However sparse one partition is beside another: no event is late, and each key passes once."""
    feed_backlog(stage)
    async with start(stage) as worker:
        await worker.consumed(events_of(stage))
        assert worker.tally.late == 0
    assert stage.ids() == EACH_ONCE


@pytest.mark.rule(29)
@over(MemoryStage)
async def test_one_that_is_stopped_is_named(stage: MemoryStage) -> None:
    """The others wait for it, and the page, the log and the metric say for which."""
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
        assert copying.stage.lag >= events_of(stage) - 1  # what was read, and waits, is not copied


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.rule(29)
@over(MemoryStage)
async def test_events_of_an_open_transaction_are_unread(stage: MemoryStage, hangs: bool) -> None:
    """The other partition waits until they are decided; one that hangs holds it for `open_transaction_s` only."""
    loop, log = asyncio.get_running_loop(), stage.broker.log(stage.source, 0)
    stage.config["delivery"]["open_transaction_s"] = OPEN_S
    hours = [((DAYS * 24 - hour) * HOUR_MS, f"h{hour}") for hour in range(DAYS * 24)]
    feed(stage, 1, hours)
    transaction = stage.broker.transaction("theirs")
    epoch = transaction.fence(600)
    transaction.add(epoch, log, loop.time())
    first = stage.broker.now_ms() - DAYS * DAY_MS
    transaction.produce(epoch, log, [Record.of(first, None, value("open"))])
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


@pytest.mark.rule(29)
@over(MemoryStage)
async def test_one_event_of_the_present_leaves_no_other_late(stage: MemoryStage) -> None:
    """Although it is alone in what was read at once: the event behind it shows where its partition stands."""
    hours = [((DAYS * 24 - 6 * at) * HOUR_MS, f"h{at}") for at in range(DAYS * 4)]
    twice = [event for event in hours for _ in range(2)]
    feed(stage, 0, [*twice[:40], (0, "crafted"), *twice[40:]])
    feed(stage, 1, [(ago, f"other {name}") for ago, name in twice])
    async with start(stage, batch_events_max=1, max_jump="12h") as worker:
        await worker.consumed(events_of(stage))
        assert worker.tally.late == 0
    assert set(stage.ids().values()) == {1}
    assert len(stage.ids()) == 2 * len(hours) + 1


@pytest.mark.rule(29)
@over(MemoryStage)
async def test_a_crafted_time_holds_its_partition_for_no_longer_than_the_backlog(
    stage: MemoryStage,
) -> None:
    """One event from the year 5138: what follows in its partition goes on, and nothing is lost."""
    feed_backlog(stage)
    feed(stage, 2, [(-(10**14), "crafted")])
    feed(stage, 2, [(0, f"n{number}") for number in range(200)])
    async with start(stage) as worker:
        await worker.consumed(events_of(stage))
    assert stage.ids() >= EACH_ONCE + Counter([f"n{number}" for number in range(200)])


@over(MemoryStage)
async def test_the_windows_cover_the_skew(stage: MemoryStage) -> None:
    """An eighth of `retention`, or what is set."""
    config = stage.config
    config["filter"] = {**WINDOW, "generations": 8}
    assert max_skew_ms(load(stage.deployment.write_config())) == 7 * DAY_MS // 8
    config["source"]["repartition"]["max_skew"] = "14d"
    settings = load(stage.deployment.write_config())
    assert max_skew_ms(settings) == 14 * DAY_MS
    assert deduplicating(settings).filter.window_ms == 24 * DAY_MS
    del config["filter"]["retention"]
    del config["source"]["repartition"]["max_skew"]
    assert max_skew_ms(load(stage.deployment.write_config())) is None


@over(MemoryStage)
async def test_heads_are_published(stage: MemoryStage) -> None:
    """Each note of the first stage says how far its partition stands."""
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
