"""Inputs that do not suit, and middle topics of others: who is left out, who is refused, and what is made before."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from streamdedup.repartition.inputs import PatternWatch
from streamdedup.worker import staged
from tests.local import LocalWorker
from tests.memory import measured, over, page
from tests.staged import PLACES, MemoryStage, value

EU, US, LARGE = "clicks-eu", "clicks-us", "clicks-large"
PATTERN = "clicks-.*"
MIDDLE = "clicks-by-key"  # of the other deployment: the pattern matches it
LARGER, TOO_LARGE = 8 << 20, 64 << 20


def reads(stage: MemoryStage, **source: object) -> None:
    """Have the workers read these inputs, and make two, unless they are there.

    Their record batches are large, so that middle topics of others would suit as inputs.
    """
    given = stage.config["source"]
    stage.config["source"] = {"repartition": given["repartition"], **source}
    for topic in (EU, US):
        if topic not in stage.broker.topics:
            stage.broker.create_topic(topic, 1, max_message_bytes=LARGER)


def feed(stage: MemoryStage, topic: str, ids: Iterable[object]) -> None:
    """Append an event of each id to the first partition of `topic`."""
    stage.broker.produce(topic, [(0, None, value(number)) for number in ids])


def neighbour(stage: MemoryStage) -> MemoryStage:
    """Another deployment on the same broker, with an input of its own and the middle topic MIDDLE."""
    directory = stage.deployment.directory / "neighbour"
    directory.mkdir()
    other = MemoryStage(directory, stage._start)
    other.broker, other.middle = stage.broker, MIDDLE
    other.deployment.config["source"]["repartition"]["topic"] = MIDDLE
    stage.broker.create_topic(other.source, other.deployment.partitions)
    return other


def left_out(worker: LocalWorker) -> float:
    """How many inputs it leaves out, by its metrics."""
    (count,) = measured(worker, "repartition_inputs_left_out")
    return count


def set_bytes_max(stage: MemoryStage, topic: str, size: int) -> None:
    """Change the topic's setting, as an operator may."""
    known = stage.broker.topics[topic]
    settings = {**known.topic.settings, "max.message.bytes": str(size)}
    known.topic = replace(known.topic, settings=settings)


# --- inputs that do not suit ---


@pytest.mark.rule(30)
@over(MemoryStage)
async def test_a_start_leaves_out_what_does_not_suit(stage: MemoryStage) -> None:
    """As a running worker does: one warning, a ready page that names it, a count, and all others are read."""
    reads(stage, pattern=PATTERN)
    feed(stage, EU, ["a"])
    async with stage.start() as worker:
        await worker.consumed(1)
    stage.broker.create_topic(LARGE, 1, max_message_bytes=TOO_LARGE)
    feed(stage, LARGE, ["large"])
    feed(stage, US, ["b"])
    async with stage.start() as worker:
        await worker.consumed(1)
        (line,) = worker.lines("input_refused")
        assert (line["topic"], line["log_level"]) == (LARGE, "warning")
        assert (
            f"must have {2 * TOO_LARGE + 65536} at least for the input {LARGE};" in line["reason"]
        )
        assert "no event of it is read" in line["instead"] and "pattern" in line["remedy"]
        shown = page(worker)
        assert shown.status == 200
        assert f"warning: {LARGE}: it matches source.pattern and is left out: " in shown.text
        assert left_out(worker) == 1
        await asyncio.sleep(3 * PatternWatch.TURN_S)
        assert len(worker.lines("input_refused")) == 1
        stage.broker.delete_topic(LARGE)
        await worker.until(lambda: left_out(worker) == 0, "none left out")
        assert "left out" not in page(worker).text
    assert sorted(stage.ids()) == ["a", "b"]


@pytest.mark.finding("repartition-starts", "input-refused")
@pytest.mark.finding("repartition-starts", "repartition-partition-stopped", "input-refused")
@over(MemoryStage)
async def test_an_input_that_suits_no_more_stops_no_other_one(stage: MemoryStage) -> None:
    """While a worker runs, whatever comes first: a new assignment, or the look at the topics."""
    reads(stage, pattern=PATTERN)
    async with stage.start() as worker, AsyncExitStack() as stack:
        await worker.logged("repartition_live")
        set_bytes_max(stage, US, TOO_LARGE)
        other = await stack.enter_async_context(stage.start())
        feed(stage, EU, ["a"])
        await worker.until(lambda: worker.tally.consumed + other.tally.consumed == 1, "a")
        assert not worker.lines("repartition_stopped")
        await worker.logged("input_refused")
        await worker.until(lambda: page(worker).status == 200, "ready")


@over(MemoryStage)
async def test_a_pattern_that_leaves_no_input_is_refused(stage: MemoryStage) -> None:
    """With the reasons of each."""
    reads(stage, pattern=PATTERN)
    async with stage.start() as worker:
        await worker.logged("repartition_live")
    for topic in (EU, US):
        set_bytes_max(stage, topic, TOO_LARGE)
    text = await stage.refused("no topic that matches source.pattern: clicks-.* suits")
    assert f"for the input {EU};" in text and f"for the input {US};" in text


@over(MemoryStage)
async def test_a_listed_input_that_does_not_suit_is_refused_by_name(stage: MemoryStage) -> None:
    """It alone; and nobody is told to delete a middle topic that holds events."""
    reads(stage, topics=[EU])
    feed(stage, EU, ["a"])
    async with stage.start() as worker:
        await worker.consumed(1)
    set_bytes_max(stage, US, TOO_LARGE)
    reads(stage, topics=[EU, US])
    text = await stage.refused(f"at least for the input {US};")
    assert EU not in text and "delete" not in text


@over(MemoryStage)
async def test_no_setting_of_an_input_makes_a_middle_that_cannot_work(stage: MemoryStage) -> None:
    """Whoever creates a matching topic chooses these, and a broker takes neither for the middle topic."""
    reads(stage, pattern=PATTERN)
    largest = (1 << 31) - 1
    stage.broker.create_topic(LARGE, 1, max_message_bytes=largest, **{"min.insync.replicas": "7"})
    feed(stage, EU, ["a"])
    async with stage.start() as worker:
        await worker.consumed(1)
    made = stage.broker.topics[stage.middle].topic.settings
    assert made["max.message.bytes"] == str(largest)
    assert made["min.insync.replicas"] == "1"


# --- middle topics of other deployments ---


@pytest.mark.parametrize("seen_by", ["notes", "origin"])
@pytest.mark.parametrize(
    "source", [{"pattern": PATTERN}, {"topic": MIDDLE}, {"topics": [EU, MIDDLE]}]
)
@pytest.mark.rule(30)
@over(MemoryStage)
async def test_a_middle_of_others_is_no_input(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch, source: dict[str, Any], seen_by: str
) -> None:
    """Nothing is committed on it, so its owner goes on. If groups are not listed, its last event says whose it is."""
    monkeypatch.setattr(staged, "OWNER_EVERY_S", 1.0)
    other = neighbour(stage)
    other.feed(["x"])
    async with other.start() as theirs:
        await theirs.consumed(1)
        stage.broker.lists_groups = seen_by == "notes"
        reads(stage, **source)
        if "pattern" in source:
            feed(stage, EU, ["a"])
            async with stage.start() as worker:
                await worker.consumed(1)
                (line,) = worker.lines("input_refused")
                assert line["topic"] == MIDDLE and other.deployment.group in line["reason"]
                assert left_out(worker) == 1
        else:
            text = await stage.refused(f"the topic {MIDDLE} cannot be an input")
            assert other.deployment.group in text and "name another topic" in text
        stage.broker.lists_groups = True
        await asyncio.sleep(5)
        assert not stage.broker.committed(stage.copying_group, MIDDLE)
        other.feed(["y"])
        await theirs.consumed(2)


@over(MemoryStage)
async def test_a_worker_without_repartition_reads_no_middle_of_others(stage: MemoryStage) -> None:
    """It would end their workers, too."""
    other = neighbour(stage)
    await other.judge(["x"])
    stage.config["source"] = {"topic": MIDDLE}
    text = await stage.refused(f"the topic {MIDDLE} cannot be an input")
    assert other.deployment.group in text
    assert stage.sink not in stage.broker.topics


@pytest.mark.rule(30)
@over(MemoryStage)
async def test_a_middle_that_others_make_later_is_never_read(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the time between its making and its first event, either, in which nothing says whose it is."""
    monkeypatch.setattr(staged, "OWNER_EVERY_S", 1.0)
    monkeypatch.setattr(PatternWatch, "TURN_S", 0.2)
    reads(stage, pattern=PATTERN)
    async with stage.start() as worker:
        await worker.logged("repartition_live")
        other = neighbour(stage)
        async with other.start() as theirs:
            await theirs.live(PLACES)
            (first, *_) = await worker.logged("input_refused")
            assert first["topic"] == MIDDLE
            await asyncio.sleep(5)
            other.feed(range(20))
            await theirs.consumed(20)
            await asyncio.sleep(5)
            assert other.deployment.group in worker.lines("input_refused")[-1]["reason"]
            assert not stage.broker.committed(stage.copying_group, MIDDLE)
            assert left_out(worker) == 1
            feed(stage, EU, ["a"])
            await worker.consumed(1)


# --- what is made, and when ---


@pytest.mark.parametrize("wrong", ["an input", "the output", "letters", "a group"])
@pytest.mark.rule(21)
@over(MemoryStage)
async def test_nothing_is_made_before_everything_is_checked(stage: MemoryStage, wrong: str) -> None:
    """A middle topic that was made for half of the inputs would refuse the rest after the correction."""
    reads(stage, topics=[EU, LARGE])
    sink = stage.config["sink"]
    if wrong != "an input":
        stage.broker.create_topic(LARGE, 1, max_message_bytes=TOO_LARGE)
    if wrong == "the output":
        stage.broker.create_topic(stage.sink, 1)
    if wrong == "letters":
        stage.config["sink"] = {
            "topic": stage.sink,
            "dead_letter_topic": "letters",
        }
        stage.broker.create_topic(stage.sink, PLACES)
    if wrong == "a group":
        stage.broker.move_offsets(stage.deployment.group, EU, {0: 0})
    there = set(stage.broker.topics)
    await stage.refused("topic|group")
    assert set(stage.broker.topics) == there
    if wrong == "an input":
        stage.broker.create_topic(LARGE, 1, max_message_bytes=TOO_LARGE)
    if wrong == "the output":
        stage.broker.add_partitions(stage.sink, PLACES)
    stage.config["sink"] = sink
    stage.broker.delete_group(stage.deployment.group)
    feed(stage, LARGE, ["a"])
    async with stage.start() as worker:
        await worker.consumed(1)


@pytest.mark.parametrize("used", [None, "events", "offsets"])
@pytest.mark.parametrize("wrong", ["settings", "input", "partitions"])
@pytest.mark.rule(21)
@over(MemoryStage)
async def test_a_middle_that_was_never_used_may_be_deleted(
    stage: MemoryStage, wrong: str, used: str | None
) -> None:
    """The message says so, and only then: otherwise events that wait there would be lost."""
    reads(stage, topics=[EU, US])
    async with stage.start(source={"topics": [EU]}) as worker:
        await worker.logged("repartition_live")
    made = stage.broker.topics[stage.middle].topic.settings
    stage.broker.delete_topic(stage.middle)
    stage.broker.delete_group(stage.deployment.group)
    settings = {name.replace(".", "_"): its for name, its in made.items()}
    settings |= {"retention_ms": "1"} if wrong == "settings" else {}
    count = PLACES + 1 if wrong == "partitions" else PLACES
    stage.broker.create_topic(stage.middle, count, **settings)
    if wrong == "input":
        set_bytes_max(stage, US, TOO_LARGE)
    if used == "events":
        stage.broker.produce(stage.middle, [(0, None, value("a"))])
    if used == "offsets":
        stage.broker.move_offsets(stage.deployment.group, stage.middle, {0: 0})
    text = await stage.refused(f"the middle topic {stage.middle} has ")
    assert ("so it may be deleted" in text) == (used is None)
    if used is None:
        stage.broker.delete_topic(stage.middle)
        feed(stage, US, ["b"])
        async with stage.start() as worker:
            await worker.consumed(1)
