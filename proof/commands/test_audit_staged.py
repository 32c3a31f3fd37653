"""Claims about `streamdedup audit` with `source.repartition`, over a broker in memory."""

import asyncio

import pytest

from streamdedup.errors import ConfigError
from streamdedup.kafka.records.records import Record
from streamdedup.settings import load
from streamdedup.testing import connected_to
from streamdedup.worker.staged import CopyingWorker
from tests.commands.test_reset_staged import audited, work
from tests.memory import over
from tests.staged import PLACES, MemoryStage, value

DAY_MS = 86_400_000


@over(MemoryStage)
async def test_what_a_window_had_forgotten_is_counted(stage: MemoryStage) -> None:
    """Keys that are due again after their window, and late ones; with `refresh` it is not known."""
    config, now_ms = stage.deployment.config, stage.broker.now_ms()
    config["filter"] = {"kind": "window", "retention": "1d", "capacity": 10_000}
    limits = {"retention_ms": -1, "message_timestamp_after_max_ms": 1 << 62}
    stage.broker.create_topic(stage.deployment.sink, PLACES, **limits)
    later = [(f"key{n}", 10) for n in range(40)]  # they move the time of each window
    events = [("due", 0), ("late", 0), *later, ("due", 10), ("late", 0), ("once", 0)]
    for key, day in events:
        record = Record.of(now_ms + (day - 20) * DAY_MS, None, value(key))
        stage.broker.log(stage.source, 0).append([record], None)
    await work(stage, len(events))
    report = await audited(stage)
    assert report.fine, report.as_text()
    assert (report.total.emitted, report.total.due_again, report.total.late_again) == (45, 2, 1)
    assert (
        "; 2 events passed again, after it had forgotten their keys, 1 of them later than the window\n"
        in report.as_text()
    )
    config["filter"]["refresh"] = True
    config["delivery"] = {"guarantee": "at_least_once"}
    report = await audited(stage)
    assert (report.total.due_again, report.total.late_again) == (None, None)
    assert "passed again" not in report.as_text()


@over(MemoryStage)
async def test_a_stranger_in_the_middle_is_named(stage: MemoryStage) -> None:
    """And what waits behind it is under way all the same."""
    stage.feed(range(100))
    await work(stage, 100)
    stage.broker.produce(stage.middle, [(p, None, value(p)) for p in range(PLACES)])
    stage.feed(range(50, 200))
    alone = CopyingWorker(load(stage.deployment.write_config(), []), connected_to(stage.broker))
    task = asyncio.create_task(alone.run())
    while stage.copies() < 250 + PLACES:
        await asyncio.sleep(0.1)
    await asyncio.sleep(10)
    report = await audited(stage)
    assert report.fine, report.as_text()
    assert report.repartition is not None
    assert (report.repartition.under_way, report.total.keys) == (150, 100)
    assert report.as_json()["total"]["limits"] == ["stranger"]
    (note,) = report.notes
    assert f"first: {stage.middle}/0 offset " in note
    alone.stop()
    await task


@over(MemoryStage)
async def test_without_an_offset_there_is_nothing_to_audit(stage: MemoryStage) -> None:
    """The group that is named is that of the first stage."""
    for topic in (stage.middle, stage.deployment.sink):
        stage.broker.create_topic(topic, PLACES)
    with pytest.raises(ConfigError, match=f"the group {stage.copying_group} has committed"):
        await audited(stage)
