"""More claims about inputs that are left out: middles that are purged, forged, or only look like one."""

import asyncio
from typing import Any

import pytest

from streamdedup.errors import ConfigError
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.records.origin_header import ORIGIN
from streamdedup.kafka.records.records import Record
from streamdedup.repartition.foreign import WAITS
from streamdedup.repartition.inputs import PatternWatch
from streamdedup.repartition.middle import ANY_MS
from streamdedup.repartition.selection import Selection
from streamdedup.settings import load
from streamdedup.testing import connected_to
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.worker.worker import Worker
from tests.memory import over
from tests.repartition.test_left_out import (
    EU,
    LARGE,
    LARGER,
    MIDDLE,
    PATTERN,
    TOO_LARGE,
    US,
    feed,
    left_out,
    neighbour,
    reads,
    set_bytes_max,
)
from tests.staged import PLACES, MemoryStage, value

OF_A_MIDDLE: dict[str, int] = {
    "retention_ms": -1,
    "message_timestamp_before_max_ms": ANY_MS,
    "message_timestamp_after_max_ms": ANY_MS,
}


@over(MemoryStage)
async def test_an_input_that_was_read_before_is_left_out_too(stage: MemoryStage) -> None:
    """The line says that it is not read any more; once it suits, a running worker goes on at its offset."""
    reads(stage, pattern=PATTERN)
    feed(stage, US, ["a"])
    async with stage.start() as worker:
        await worker.consumed(1)
    set_bytes_max(stage, US, TOO_LARGE)
    feed(stage, US, ["b"])
    async with stage.start() as worker:
        feed(stage, EU, ["c"])
        await worker.consumed(1)
        (line,) = worker.lines("input_refused")
        assert "not read any more" in line["instead"]
        assert not worker.lines("inputs_left")
        set_bytes_max(stage, US, LARGER)
        await worker.consumed(2)
        assert worker.lines("inputs_changed")[0]["came"] == [US]
    assert stage.ids().total() == 3


@over(MemoryStage)
async def test_a_new_assignment_stops_what_suits_no_more(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the look at the topics leaves it out: its own partitions alone, by name."""
    monkeypatch.setattr(PatternWatch, "TURN_S", 1e6)
    reads(stage, pattern=PATTERN)
    async with stage.start() as worker:
        await worker.logged("repartition_live")
        set_bytes_max(stage, US, TOO_LARGE)
        async with stage.start() as other:
            await other.logged("repartition_starts")
            await asyncio.sleep(5)
        (line, *_) = await worker.logged("repartition_partition_stopped")
        assert line["topic"] == US and f"for the input {US}" in line["error"]
        feed(stage, EU, ["a"])
        await worker.consumed(1)


@over(MemoryStage)
async def test_a_second_stage_alone_leaves_a_pattern_to_the_first(stage: MemoryStage) -> None:
    """A listed input that its middle topic does not suit ends it, as before."""
    reads(stage, pattern=PATTERN)
    async with stage.start() as worker:
        await worker.logged("repartition_live")
    stage.broker.create_topic(LARGE, 1, max_message_bytes=TOO_LARGE)
    settings = load(stage.deployment.write_config())
    alone = Worker(settings, connected_to(stage.broker), copies=False)
    running = asyncio.create_task(alone.run())
    await asyncio.sleep(5)
    assert not running.done()
    alone.stop()
    await running
    reads(stage, topics=[EU, LARGE])
    settings = load(stage.deployment.write_config())
    with pytest.raises(ConfigError, match=f"for the input {LARGE}"):
        await Worker(settings, connected_to(stage.broker), copies=False).run()


@over(MemoryStage)
async def test_a_topic_that_only_looks_like_a_middle_is_read_from_its_first_event(
    stage: MemoryStage,
) -> None:
    """It waits as long as it is empty."""
    reads(stage, pattern=PATTERN)
    async with stage.start() as worker:
        await worker.logged("repartition_live")
        made = stage.broker.topics[stage.middle].topic.settings
        like = {name.replace(".", "_"): its for name, its in made.items()}
        like["max_message_bytes"] = str(1 << 20)
        stage.broker.create_topic("clicks-like", 2, **like)
        (line,) = await worker.logged("input_refused")
        assert line["reason"] == WAITS
        feed(stage, "clicks-like", ["a"])
        await worker.consumed(1)
        assert left_out(worker) == 0
    assert sorted(stage.ids()) == ["a"]


@over(MemoryStage)
async def test_a_purged_middle_waits_if_groups_are_not_listed(stage: MemoryStage) -> None:
    """Nothing says whose it is then, until its next event."""
    other = neighbour(stage)
    await other.judge(["x"])
    for partition in range(PLACES):
        log = stage.broker.log(MIDDLE, partition)
        log.trim(log.end)
    stage.broker.lists_groups = False
    reads(stage, pattern=PATTERN)
    async with stage.start() as worker:
        (line,) = await worker.logged("input_refused")
        assert line["reason"] == WAITS
        await other.judge(["y"])
        (_, line) = await worker.logged("input_refused", 2)
        assert other.deployment.group in line["reason"]
        assert not stage.broker.committed(stage.copying_group, MIDDLE)


@over(MemoryStage)
async def test_a_forged_origin_takes_no_input_away(stage: MemoryStage) -> None:
    """Anyone who may write to an input can write that header; the settings of a middle topic they cannot."""
    reads(stage, topics=[EU])
    feed(stage, EU, ["a"])
    event = Record.of(stage.broker.now_ms(), None, value("b"), ((ORIGIN, b"in/0/0/somebody"),))
    stage.broker.log(EU, 0).append([event], None)
    async with stage.start() as worker:
        await worker.consumed(2)


@over(MemoryStage)
async def test_an_input_that_turns_out_a_middle_names_our_offsets(stage: MemoryStage) -> None:
    """As after an earlier version has read it: its owner starts again only once these are deleted."""
    other = neighbour(stage)
    await other.judge(["x"])
    reads(stage, pattern=PATTERN)
    stage.broker.move_offsets(stage.copying_group, MIDDLE, {0: 0})
    async with stage.start() as worker:
        (line,) = await worker.logged("input_refused")
        assert f"delete the offsets of our group {stage.copying_group} on it" in line["reason"]
        assert "not read any more" in line["instead"]


@over(MemoryStage)
async def test_groups_are_asked_once_for_all_new_topics(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not again while none comes, however many are left out."""
    asked = list[object]()
    ask = MemoryCluster.middles

    async def counted(self: MemoryCluster, besides: Any) -> Any:
        asked.append(besides)
        return await ask(self, besides)

    monkeypatch.setattr(MemoryCluster, "middles", counted)
    for number in range(3):
        stage.broker.create_topic(f"clicks-{number}", 1, **OF_A_MIDDLE)
        note = Note(cluster_id=None, input_id=None, output_id=None, label=0, placed=1)
        stage.broker.group("theirs").offsets[f"clicks-{number}", 0] = (0, note.encode())
    reads(stage, pattern=PATTERN)
    async with stage.start() as worker:
        await worker.logged("repartition_live")
        assert left_out(worker) == 3
        await asyncio.sleep(5 * PatternWatch.TURN_S)
        assert len(asked) == 1
        for number in range(3, 6):
            stage.broker.create_topic(f"clicks-{number}", 1, **OF_A_MIDDLE)
        await worker.logged("inputs_changed")
        await asyncio.sleep(5 * PatternWatch.TURN_S)
        assert len(asked) == 2
        stage.broker.create_topic("clicks-7", 1)  # no middle topic keeps events for a week
        await worker.logged("inputs_changed", 2)
        assert len(asked) == 2
        assert len(worker.lines("input_refused")) == 3


@over(MemoryStage)
async def test_commands_that_commit_leave_out_what_workers_leave_out(stage: MemoryStage) -> None:
    """A reset commits offsets, so it asks for the same choice: pattern, and names."""
    other = neighbour(stage)
    await other.judge(["x"])
    for source, left in (({"pattern": PATTERN}, (EU, US)), ({"topics": [EU, MIDDLE]}, None)):
        reads(stage, **source)
        settings = load(stage.deployment.write_config(), [])
        async with connected_to(stage.broker)(settings.kafka) as cluster:
            selection = Selection(settings, cluster)
            if left is not None:
                assert await selection.chosen() == left
                continue
            with pytest.raises(ConfigError, match=f"the topic {MIDDLE} cannot be an input"):
                await selection.chosen()
