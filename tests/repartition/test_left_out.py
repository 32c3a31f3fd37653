"""Inputs that do not suit, and middle topics of others: who is left out, who is refused, and what is made before."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamdedup.errors import ConfigError
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.records.origin_header import ORIGIN
from streamdedup.repartition.foreign import WAITS
from streamdedup.repartition.inputs import PatternWatch
from streamdedup.repartition.middle import ANY_MS
from streamdedup.repartition.selection import Selection
from streamdedup.server.listener import Page
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import load
from streamdedup.testing import connected_to
from streamdedup.testing.cluster import MemoryCluster
from streamdedup.worker import staged
from streamdedup.worker.worker import Worker
from tests.local import LocalWorker
from tests.staged import PLACES, MemoryStage, play, value

EU, US, LARGE = "clicks-eu", "clicks-us", "clicks-large"
PATTERN = "clicks-.*"
MIDDLE = "clicks-by-key"  # of the other deployment: the pattern matches it
LARGER, TOO_LARGE = 8 << 20, 64 << 20
LEFT_OUT = "streamdedup_repartition_inputs_left_out"


def reads(stage: MemoryStage, **source: object) -> None:
    """Have the workers read these inputs, and make two, unless they are there.

    Their record batches are large, so that middle topics of others would suit as inputs.
    """
    given = stage.deployment.config["source"]
    stage.deployment.config["source"] = {"repartition": given["repartition"], **source}
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


def page(worker: LocalWorker, path: str = "/readyz") -> Page:
    """One of its pages."""
    return pages(worker.worker.status, Pulse())[path]()


def left_out(worker: LocalWorker) -> float:
    """How many inputs it leaves out, by its metrics."""
    (line,) = (
        line for line in page(worker, "/metrics").text.splitlines() if line.startswith(LEFT_OUT)
    )
    return float(line.split()[1])


def set_bytes_max(stage: MemoryStage, topic: str, size: int) -> None:
    """Change the topic's setting, as an operator may."""
    known = stage.broker.topics[topic]
    settings = {**known.topic.settings, "max.message.bytes": str(size)}
    known.topic = replace(known.topic, settings=settings)


OF_A_MIDDLE: dict[str, int] = {
    "retention_ms": -1,
    "message_timestamp_before_max_ms": ANY_MS,
    "message_timestamp_after_max_ms": ANY_MS,
}


async def refused(stage: MemoryStage, why: str) -> str:
    """The error by which a worker of that deployment ends at its start; nothing of it has joined a group."""
    worker = stage.start()
    with pytest.raises(ConfigError, match=why) as error:
        async with asyncio.timeout(60):
            await worker.task
    assert not worker.lines("joining")
    return str(error.value)


# --- inputs that do not suit ---


@pytest.mark.rule(30)
def test_a_start_leaves_out_what_does_not_suit(tmp_path: Path) -> None:
    """As a running worker does: one warning, a ready page that names it, a count, and all others are read."""

    async def scene(stage: MemoryStage) -> None:
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
                f"must have {2 * TOO_LARGE + 65536} at least for the input {LARGE};"
                in line["reason"]
            )
            assert "no event of it is read" in line["instead"] and "pattern" in line["remedy"]
            shown = page(worker)
            assert shown.status == 200
            assert f"warning: {LARGE} matches source.pattern and is left out: " in shown.text
            assert left_out(worker) == 1
            await asyncio.sleep(3 * PatternWatch.TURN_S)
            assert len(worker.lines("input_refused")) == 1
            stage.broker.delete_topic(LARGE)
            await worker.until(lambda: left_out(worker) == 0, "none left out")
            assert "left out" not in page(worker).text
        assert sorted(stage.ids()) == ["a", "b"]

    play(tmp_path, scene)


def test_an_input_that_was_read_before_is_left_out_too(tmp_path: Path) -> None:
    """The line says that it is not read any more; once it suits, a running worker goes on at its offset."""

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


def test_an_input_that_suits_no_more_stops_no_other_one(tmp_path: Path) -> None:
    """While a worker runs, whatever comes first: a new assignment, or the look at the topics."""

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


def test_a_new_assignment_stops_what_suits_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the look at the topics leaves it out: its own partitions alone, by name."""
    monkeypatch.setattr(PatternWatch, "TURN_S", 1e6)

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


def test_a_pattern_that_leaves_no_input_is_refused(tmp_path: Path) -> None:
    """With the reasons of each."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, pattern=PATTERN)
        async with stage.start() as worker:
            await worker.logged("repartition_live")
        for topic in (EU, US):
            set_bytes_max(stage, topic, TOO_LARGE)
        text = await refused(stage, "no topic that matches source.pattern: clicks-.* suits")
        assert f"for the input {EU};" in text and f"for the input {US};" in text

    play(tmp_path, scene)


def test_a_listed_input_that_does_not_suit_is_refused_by_name(tmp_path: Path) -> None:
    """It alone; and nobody is told to delete a middle topic that holds events."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU])
        feed(stage, EU, ["a"])
        async with stage.start() as worker:
            await worker.consumed(1)
        set_bytes_max(stage, US, TOO_LARGE)
        reads(stage, topics=[EU, US])
        text = await refused(stage, f"at least for the input {US};")
        assert EU not in text and "delete" not in text

    play(tmp_path, scene)


def test_a_second_stage_alone_leaves_a_pattern_to_the_first(tmp_path: Path) -> None:
    """A listed input that its middle topic does not suit ends it, as before."""

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


def test_no_setting_of_an_input_makes_a_middle_that_cannot_work(tmp_path: Path) -> None:
    """Whoever creates a matching topic chooses these, and a broker takes neither for the middle topic."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, pattern=PATTERN)
        largest = (1 << 31) - 1
        stage.broker.create_topic(
            LARGE, 1, max_message_bytes=largest, **{"min.insync.replicas": "7"}
        )
        feed(stage, EU, ["a"])
        async with stage.start() as worker:
            await worker.consumed(1)
        made = stage.broker.topics[stage.middle].topic.settings
        assert made["max.message.bytes"] == str(largest)
        assert made["min.insync.replicas"] == "1"

    play(tmp_path, scene)


# --- middle topics of other deployments ---


@pytest.mark.parametrize("seen_by", ["notes", "origin"])
@pytest.mark.parametrize(
    "source", [{"pattern": PATTERN}, {"topic": MIDDLE}, {"topics": [EU, MIDDLE]}]
)
@pytest.mark.rule(30)
def test_a_middle_of_others_is_no_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: dict[str, Any], seen_by: str
) -> None:
    """Nothing is committed on it, so its owner goes on. If groups are not listed, its last event says whose it is."""
    monkeypatch.setattr(staged, "OWNER_EVERY_S", 1.0)

    async def scene(stage: MemoryStage) -> None:
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
                text = await refused(stage, f"the topic {MIDDLE} cannot be an input")
                assert other.deployment.group in text and "name another topic" in text
            stage.broker.lists_groups = True
            await asyncio.sleep(5)
            assert not stage.broker.committed(stage.copying_group, MIDDLE)
            other.feed(["y"])
            await theirs.consumed(2)

    play(tmp_path, scene)


def test_a_worker_without_repartition_reads_no_middle_of_others(tmp_path: Path) -> None:
    """It would end their workers, too."""

    async def scene(stage: MemoryStage) -> None:
        other = neighbour(stage)
        await other.judge(["x"])
        stage.deployment.config["source"] = {"topic": MIDDLE}
        text = await refused(stage, f"the topic {MIDDLE} cannot be an input")
        assert other.deployment.group in text
        assert stage.deployment.sink not in stage.broker.topics

    play(tmp_path, scene)


@pytest.mark.rule(30)
def test_a_middle_that_others_make_later_is_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the time between its making and its first event, either, in which nothing says whose it is."""
    monkeypatch.setattr(staged, "OWNER_EVERY_S", 1.0)
    monkeypatch.setattr(PatternWatch, "TURN_S", 0.2)

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


def test_a_topic_that_only_looks_like_a_middle_is_read_from_its_first_event(tmp_path: Path) -> None:
    """It waits as long as it is empty."""

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


def test_a_purged_middle_waits_if_groups_are_not_listed(tmp_path: Path) -> None:
    """Nothing says whose it is then, until its next event."""

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


def test_a_forged_origin_takes_no_input_away(tmp_path: Path) -> None:
    """Anyone who may write to an input can write that header; the settings of a middle topic they cannot."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU])
        feed(stage, EU, ["a"])
        event = (stage.broker.now_ms(), None, value("b"), ((ORIGIN, b"in/0/0/somebody"),))
        stage.broker.log(EU, 0).append([event], None)
        async with stage.start() as worker:
            await worker.consumed(2)

    play(tmp_path, scene)


def test_an_input_that_turns_out_a_middle_names_our_offsets(tmp_path: Path) -> None:
    """As after an earlier version has read it: its owner starts again only once these are deleted."""

    async def scene(stage: MemoryStage) -> None:
        other = neighbour(stage)
        await other.judge(["x"])
        reads(stage, pattern=PATTERN)
        stage.broker.move_offsets(stage.copying_group, MIDDLE, {0: 0})
        async with stage.start() as worker:
            (line,) = await worker.logged("input_refused")
            assert f"delete the offsets of our group {stage.copying_group} on it" in line["reason"]
            assert "not read any more" in line["instead"]

    play(tmp_path, scene)


def test_groups_are_asked_once_for_all_new_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not again while none comes, however many are left out."""
    asked = list[object]()
    ask = MemoryCluster.middles

    async def counted(self: MemoryCluster, besides: Any) -> Any:
        asked.append(besides)
        return await ask(self, besides)

    monkeypatch.setattr(MemoryCluster, "middles", counted)

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


def test_commands_that_commit_leave_out_what_workers_leave_out(tmp_path: Path) -> None:
    """A reset commits offsets, so it asks for the same choice: pattern, and names."""

    async def scene(stage: MemoryStage) -> None:
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

    play(tmp_path, scene)


# --- what is made, and when ---


@pytest.mark.parametrize("wrong", ["an input", "the output", "letters", "a group"])
@pytest.mark.rule(21)
def test_nothing_is_made_before_everything_is_checked(tmp_path: Path, wrong: str) -> None:
    """A middle topic that was made for half of the inputs would refuse the rest after the correction."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, LARGE])
        sink = stage.deployment.config["sink"]
        if wrong != "an input":
            stage.broker.create_topic(LARGE, 1, max_message_bytes=TOO_LARGE)
        if wrong == "the output":
            stage.broker.create_topic(stage.deployment.sink, 1)
        if wrong == "letters":
            stage.deployment.config["sink"] = {
                "topic": stage.deployment.sink,
                "dead_letter_topic": "letters",
            }
            stage.broker.create_topic(stage.deployment.sink, PLACES)
        if wrong == "a group":
            stage.broker.move_offsets(stage.deployment.group, EU, {0: 0})
        there = set(stage.broker.topics)
        await refused(stage, "topic|group")
        assert set(stage.broker.topics) == there
        if wrong == "an input":
            stage.broker.create_topic(LARGE, 1, max_message_bytes=TOO_LARGE)
        if wrong == "the output":
            stage.broker.add_partitions(stage.deployment.sink, PLACES)
        stage.deployment.config["sink"] = sink
        stage.broker.delete_group(stage.deployment.group)
        feed(stage, LARGE, ["a"])
        async with stage.start() as worker:
            await worker.consumed(1)

    play(tmp_path, scene)


@pytest.mark.parametrize("used", [None, "events", "offsets"])
@pytest.mark.parametrize("wrong", ["settings", "input", "partitions"])
@pytest.mark.rule(21)
def test_a_middle_that_was_never_used_may_be_deleted(
    tmp_path: Path, wrong: str, used: str | None
) -> None:
    """The message says so, and only then: otherwise events that wait there would be lost."""

    async def scene(stage: MemoryStage) -> None:
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
        text = await refused(stage, f"the middle topic {stage.middle} has ")
        assert ("so it may be deleted" in text) == (used is None)
        if used is None:
            stage.broker.delete_topic(stage.middle)
            feed(stage, US, ["b"])
            async with stage.start() as worker:
                await worker.consumed(1)

    play(tmp_path, scene)
