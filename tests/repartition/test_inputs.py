"""Several inputs of one deployment, by name or by a pattern, over a broker in memory."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import streamdedup.repartition.inputs as inputs_module
from streamdedup.commands.audit import audit
from streamdedup.commands.audit.report import Report
from streamdedup.commands.audit.staged import StagedAudit
from streamdedup.commands.trial import tried
from streamdedup.delivery.resume import Found
from streamdedup.errors import ConfigError
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.topic_pattern import TopicPattern, refusal_of, topic_pattern
from streamdedup.kafka.topics import Topology
from streamdedup.repartition.inputs import Inputs, PatternWatch, topics_of
from streamdedup.repartition.middle import described, made, planned
from streamdedup.repartition.selection import Selection
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.settings import Settings, load
from streamdedup.settings.stages import copying
from streamdedup.testing import connected_to
from streamdedup.worker import staged
from tests.local import LocalWorker
from tests.staged import PLACES, MemoryStage, play, value

EU, US, LATER = "clicks-eu", "clicks-us", "clicks-asia"
COUNTS = {EU: 2, US: 3, LATER: 1}
PATTERN = "clicks-.*"
IDS = [number % 300 for number in range(900)]
EACH_ONCE = Counter({str(number): 1 for number in range(300)})


def reads(stage: MemoryStage, **source: object) -> None:
    """Have the workers read these inputs, and make the first two."""
    given = stage.deployment.config["source"]
    stage.deployment.config["source"] = {"repartition": given["repartition"], **source}
    for topic in (EU, US):
        stage.broker.create_topic(topic, COUNTS[topic])


def feed(stage: MemoryStage, topic: str, ids: Iterable[object]) -> None:
    """Append an event of each id to `topic`, to one partition after the other."""
    events = [(at % COUNTS[topic], None, value(number)) for at, number in enumerate(ids)]
    stage.broker.produce(topic, events)


def copied_topics(worker: LocalWorker) -> set[str]:
    """The topics of which the metrics say how many events were copied."""
    text = pages(worker.worker.status, Pulse())["/metrics"]().text
    return set(re.findall(r'streamdedup_repartition_events_total\{.*topic="([^"]+)"', text))


def feed_both(stage: MemoryStage) -> None:
    """Every third event of IDS is in the one input, and the others are in the other one."""
    feed(stage, EU, IDS[::3])
    feed(stage, US, (number for at, number in enumerate(IDS) if at % 3))


def offsets_on(stage: MemoryStage, topic: str) -> dict[int, int]:
    """Return the committed offsets of the first stage."""
    offsets = stage.broker.group(stage.copying_group).offsets
    return {p: offset for (of, p), (offset, _) in offsets.items() if of == topic}


async def audited(stage: MemoryStage) -> Report:
    """Return the report of an audit."""
    settings = load(stage.deployment.write_config(), [])
    return await audit(settings, connected_to(stage.broker))


async def judged(stage: MemoryStage, events: int) -> None:
    """Let a worker judge so many events."""
    async with stage.start() as worker:
        await worker.consumed(events)


def metrics(worker: LocalWorker) -> str:
    """Return the page of metrics."""
    return pages(worker.worker.status, Pulse())["/metrics"]().text


@pytest.mark.parametrize("source", [{"topics": [US, EU]}, {"pattern": PATTERN}])
@pytest.mark.rule(30)
def test_each_key_passes_once_over_all_inputs(tmp_path: Path, source: dict[str, Any]) -> None:
    """Two workers; the audit agrees, and the metrics name the topic of each partition."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, **source)
        feed_both(stage)
        async with stage.start() as one, stage.start() as other:
            await one.until(
                lambda: one.tally.consumed + other.tally.consumed == len(IDS), "all judged"
            )
            shown = metrics(one) + metrics(other)
            for topic, count in COUNTS.items():
                for partition in range(count):
                    name = f'repartition_events_total{{partition="{partition}",topic="{topic}"}}'
                    assert (name in shown) == (topic != LATER)
        assert stage.ids() == EACH_ONCE
        assert {len(offsets_on(stage, topic)) for topic in (EU, US)} == {2, 3}
        report = await audited(stage)
        assert report.fine and report.total.read == len(IDS)

    play(tmp_path, scene)


@pytest.mark.rule(30)
def test_a_topic_that_appears_later_is_read_from_its_first_event(tmp_path: Path) -> None:
    """Although `source.start` is latest: that resolved once, for all partitions, at the birth."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, pattern=PATTERN, start="latest")
        feed(stage, EU, ["before"])
        async with stage.start() as one, stage.start() as other:
            for worker in (one, other):
                await worker.logged("repartition_live")
            feed(stage, US, ["a"])
            await one.until(lambda: stage.copies() == 1, "a copy")
            stage.broker.create_topic(LATER, COUNTS[LATER])
            feed(stage, LATER, ["a", "b"])
            await one.until(lambda: stage.copies() == 3, "the copies of the topic that came")
            (line,) = await one.logged("inputs_changed")
            assert line["came"] == [LATER] and line["went"] == []
            feed(stage, EU, ["c"])
            await one.until(lambda: stage.copies() == 4, "the copies of the others")
            await one.until(lambda: one.tally.consumed + other.tally.consumed == 4, "judged")
        assert stage.ids() == Counter({"a": 1, "b": 1, "c": 1})

    play(tmp_path, scene)


@pytest.mark.rule(30)
def test_a_topic_that_is_listed_later_is_read_from_its_first_event(tmp_path: Path) -> None:
    """Topics may be added and taken away at a restart, without a new group; who goes on from one to several, too."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topic=EU, start="latest")
        feed(stage, EU, ["before"])
        async with stage.start() as worker:
            await worker.logged("repartition_live")
            feed(stage, EU, ["a"])
            await worker.consumed(1)
        feed(stage, US, ["a", "b"])
        stage.deployment.config["source"] |= {"topic": None, "topics": [EU, US]}
        async with stage.start() as worker:
            await worker.consumed(2)
            assert not worker.lines("inputs_left")
        feed(stage, EU, ["c"])
        stage.deployment.config["source"] |= {"topics": [US]}
        feed(stage, US, ["d"])
        async with stage.start() as worker:
            await worker.consumed(1)
            (line,) = worker.lines("inputs_left")
            assert line["topics"] == [EU]
        assert stage.ids() == Counter({"a": 1, "b": 1, "d": 1})
        stage.deployment.config["source"] |= {"topics": [EU, US]}
        async with stage.start() as worker:  # goes on where it left off
            await worker.consumed(1)
        assert stage.ids() == Counter({"a": 1, "b": 1, "c": 1, "d": 1})

    play(tmp_path, scene)


def test_another_input_is_no_birth(tmp_path: Path) -> None:
    """Although nothing was copied yet: the group has begun, so the new one is read from its first event."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topic=EU, start="latest")
        feed(stage, EU, ["before"])
        async with stage.start() as worker:
            await worker.logged("repartition_live")
        stage.deployment.config["source"] |= {"topic": US}
        feed(stage, US, ["a"])
        async with stage.start() as worker:
            await worker.consumed(1)
        assert stage.ids() == Counter({"a": 1})

    play(tmp_path, scene)


@pytest.mark.rule(30)
def test_the_deployments_own_topics_never_match(tmp_path: Path) -> None:
    """Output, middle, side topics, the control topic, and those of Kafka: it would be a loop."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, pattern=".*")
        stage.broker.create_topic("letters", 4)
        stage.broker.create_topic("duplicates", 4)
        stage.broker.create_topic("__secret", 1)
        stage.deployment.config["sink"] |= {
            "dead_letter_topic": "letters",
            "duplicates_topic": "duplicates",
        }
        feed_both(stage)
        stage.broker.produce("__secret", [(0, None, value("secret"))])
        async with stage.start() as worker:
            await worker.consumed(len(IDS))
            await asyncio.sleep(3 * PatternWatch.TURN_S)
            (line,) = worker.lines("repartition_starts")
            assert line["topics"] == sorted([EU, US, stage.source])
            assert not worker.lines("inputs_changed")
        assert stage.ids() == EACH_ONCE

    play(tmp_path, scene)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.rule(30)
def test_an_input_of_a_pattern_that_is_deleted_ends_no_other(tmp_path: Path, again: bool) -> None:
    """Made again, it is read from its first event: its offsets are those of another log."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, pattern=PATTERN)
        feed_both(stage)
        async with stage.start() as worker:
            await worker.consumed(len(IDS))
            del stage.broker.topics[US]
            if again:
                stage.broker.create_topic(US, COUNTS[US])
                feed(stage, US, ["after"])
            (line,) = await worker.logged("inputs_changed")
            assert (line["went"], line["made_again"]) == (([], [US]) if again else ([US], []))
            feed(stage, EU, ["more"])
            await worker.consumed(len(IDS) + (2 if again else 1))
            assert not worker.task.done()
            assert not worker.lines("broker_away")
            await worker.until(lambda: (US in copied_topics(worker)) == again, "its metrics gone")
            copying = worker.worker.status.copying
            assert copying is not None
            assert copying.copied == len(IDS) + (2 if again else 1)
        assert stage.ids()["more"] == 1
        assert stage.ids()["after"] == (1 if again else 0)

    play(tmp_path, scene)


def test_a_listed_input_that_is_deleted_ends_the_worker(tmp_path: Path) -> None:
    """Somebody has named it, so it is missed, as the one input is."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US])
        feed_both(stage)
        worker = stage.start()
        await worker.consumed(len(IDS))
        del stage.broker.topics[US]
        with pytest.raises(Exception, match=f"deleted, or deleted and created again.*{US}"):
            await worker.task

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (
            {"topics": [EU, "nowhere"]},
            "the topic nowhere does not exist or may not be seen",
        ),
        ({"pattern": "nothing-.*"}, "no topic matches source.pattern: nothing-.*"),
        ({"pattern": "clicks-"}, "it must match the whole name"),
    ],
)
def test_an_input_that_is_missing_is_refused(
    tmp_path: Path, source: dict[str, Any], why: str
) -> None:
    """At the start, as the one input is."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, **source)
        worker = stage.start()
        with pytest.raises(ConfigError, match=why):
            await worker.task

    play(tmp_path, scene)


@pytest.mark.rule(30)
def test_an_input_that_comes_and_does_not_suit_is_left_out(tmp_path: Path) -> None:
    """Its record batches may be larger than the middle takes: said once, and no other one stops."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, pattern=PATTERN)
        async with stage.start() as worker:
            await worker.logged("repartition_live")
            stage.broker.create_topic(LATER, 1, max_message_bytes=str(64 << 20))
            feed(stage, LATER, ["large"])
            lines = await worker.logged("input_refused")
            assert lines[0]["topic"] == LATER and "max.message.bytes" in lines[0]["reason"]
            feed_both(stage)
            await worker.consumed(len(IDS))
            del stage.broker.topics[LATER]
            await asyncio.sleep(5 * PatternWatch.TURN_S)
            assert len(worker.lines("input_refused")) == 1
            assert not worker.task.done()
        assert stage.ids() == EACH_ONCE

    play(tmp_path, scene)


async def prepared(settings: Settings, cluster: Cluster, inputs: Sequence[str]) -> Topology:
    """Make what a first stage with these inputs lacks, and return its topics."""
    there = await described(settings, cluster, inputs)
    return await made(settings, cluster, planned(settings, there, inputs), [])


def test_what_is_written_is_known_as_it_was_when_inputs_change(tmp_path: Path) -> None:
    """A middle topic that was made again meanwhile is noticed by its id, so the new one must not be taken for it."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, pattern=PATTERN)
        settings = load(stage.deployment.write_config(), [])
        async with connected_to(stage.broker)(settings.kafka) as cluster:
            names = await topics_of(settings, cluster)
            assert names == (EU, US)
            known = await prepared(copying(settings), cluster, names)
            sources = cluster.sources(names, "assignor", group="group")
            seen = list[Topology]()
            inputs = Inputs(copying(settings), Mock(), sources, names, Mock())
            suited = Selection(settings, cluster).suited
            watch = PatternWatch(settings, cluster, inputs, known, seen.append, suited=suited)
            await watch.look()
            assert not seen
            del stage.broker.topics[stage.middle], stage.broker.topics[US]
            await prepared(copying(settings), cluster, (EU,))
            stage.broker.create_topic(LATER, 1)
            await watch.look()
        (now,) = seen
        assert sorted(now.topics) == sorted([EU, LATER, stage.middle])
        assert now[stage.middle].topic_id == known[stage.middle].topic_id
        assert inputs.topics == (LATER, EU)

    play(tmp_path, scene)


def test_the_middle_suits_the_largest_of_the_inputs(tmp_path: Path) -> None:
    """Its record batches, and how long the output keeps events."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US, LATER])
        stage.deployment.config["filter"] |= {"kind": "window", "retention": "1d"}
        larger = {"max_message_bytes": str(3 << 20), "retention_ms": str(9 * 86_400_000)}
        stage.broker.create_topic(LATER, 1)
        del stage.broker.topics[US]
        stage.broker.create_topic(US, 1, **larger)
        async with stage.start() as worker:
            await worker.logged("repartition_live")
        topics = stage.broker.topics
        assert topics[stage.middle].topic.bytes_max == 2 * (3 << 20) + (1 << 16)
        assert topics[stage.deployment.sink].topic.retention_ms == 9 * 86_400_000

    play(tmp_path, scene)


def test_a_partition_that_stops_is_named_by_its_topic(tmp_path: Path) -> None:
    """In the log, on the page, in the line of progress; the partition of the same number goes on."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US])
        offsets = stage.broker.group(stage.copying_group).offsets
        note = Note(cluster_id=None, input_id=None, output_id=None, label=0, meaning=1)
        offsets[US, 1] = (0, note.encode())
        feed_both(stage)
        async with stage.start() as worker:
            (line,) = await worker.logged("repartition_partition_stopped")
            assert (line["topic"], line["partition"]) == (US, 1)
            copying = worker.worker.status.copying
            assert copying is not None
            assert copying.progress["input_stopped"] == [f"{US}/1"]
            page = pages(worker.worker.status, Pulse())["/readyz"]()
            assert f"{US}/1: stopped: the offset 0 of {US} was committed by a stage" in page.text
            await worker.consumed(len(IDS) - 200)
        assert set(copying.stage.stopped if copying.stage else ()) == {InputPartition(US, 1)}

    play(tmp_path, scene)


def test_letters_name_the_topic_of_their_event(tmp_path: Path) -> None:
    """Of both stages: events without a key are judged in the second."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US])
        stage.deployment.config["sink"]["dead_letter_topic"] = "letters"
        for topic in (EU, US):
            stage.broker.produce(topic, [(1, None, b"no json")])
        async with stage.start() as worker:
            await worker.consumed(2)
        letters = [event for events in stage.broker.read_all("letters") for event in events]
        named = {dict(letter.headers)["streamdedup.topic"] for letter in letters}
        assert named == {EU.encode(), US.encode()}
        report = await audited(stage)
        assert report.fine and report.total.malformed == 2

    play(tmp_path, scene)


def test_the_audit_names_the_topic_of_a_lost_event(tmp_path: Path) -> None:
    """Offsets that were moved ahead in one input lose its events, not those of the same partition of another."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US])
        feed(stage, EU, ["a"])
        async with stage.start() as worker:
            await worker.consumed(1)
        feed(stage, US, ["lost"])
        note = stage.broker.group(stage.copying_group).offsets[US, 0][1]
        stage.broker.group(stage.copying_group).offsets[US, 0] = (1, note)
        report = await audited(stage)
        assert report.repartition is not None
        assert report.repartition.places["missing"] == [(InputPartition(US, 0), 0)]
        (breach,) = report.breaches
        assert f"first: {US}/0 at offset 0" in breach
        json.dumps(report.as_json())

    play(tmp_path, scene)


def test_the_audit_compares_inputs_that_were_taken_out(tmp_path: Path) -> None:
    """Up to the offsets that the first stage has left there: what it read explains the output, and is due there."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US])
        feed_both(stage)
        await judged(stage, len(IDS))
        feed(stage, US, ["unread"])
        stage.deployment.config["source"] |= {"topics": [EU]}
        report = await audited(stage)
        assert report.fine, report.as_text()
        assert (report.total.read, report.total.keys, report.total.foreign) == (900, 300, 0)
        assert report.repartition is not None
        assert report.as_json()["repartition"]["inputs_left"] == [US]
        assert (
            f"named no more, and compared up to the committed offsets: {US}\n" in report.as_text()
        )
        assert report.as_text().endswith("the promise holds\n")
        stage.broker.produce(stage.deployment.sink, [(0, None, value("unread"))])
        report = await audited(stage)
        assert report.total.foreign == 1
        (breach, *_) = report.breaches
        assert breach.endswith(
            "an input that was taken out would explain them, if its offsets have expired"
            " (offsets.retention.minutes): name it once more, for an audit alone"
        )

    play(tmp_path, scene)


def test_what_was_left_undone_in_an_input_that_was_taken_out_is_missing(tmp_path: Path) -> None:
    """An offset that was moved ahead loses its events, whether or not the topic is named."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US])
        feed(stage, EU, ["a"])
        await judged(stage, 1)
        feed(stage, US, ["lost"])
        offsets = stage.broker.group(stage.copying_group).offsets
        offsets[US, 0] = (1, offsets[US, 0][1])
        stage.deployment.config["source"] |= {"topics": [EU]}
        report = await audited(stage)
        assert report.repartition is not None
        assert report.repartition.places["missing"] == [(InputPartition(US, 0), 0)]

    play(tmp_path, scene)


def test_an_audit_during_a_rolling_restart_knows_what_the_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of the former configuration may go on with an input that was taken out, while the audit reads."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US])
        feed_both(stage)
        async with stage.start() as worker:
            await worker.consumed(len(IDS))
            stage.deployment.config["source"] |= {"topics": [EU]}
            found = StagedAudit._found

            async def goes_on(self: StagedAudit, topology: Topology) -> list[Found]:
                before = await found(self, topology)
                feed(stage, US, ["later"])
                await worker.consumed(len(IDS) + 1)
                return before

            monkeypatch.setattr(StagedAudit, "_found", goes_on)
            report = await audited(stage)
        assert (report.fine, report.total.emitted) == (True, 301), report.as_text()

    play(tmp_path, scene)


def test_an_input_that_was_taken_out_and_is_gone_hides_what_is_foreign(tmp_path: Path) -> None:
    """Its offsets are still there, so it is named; once they are gone, too, the breach says what may explain it."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, pattern=PATTERN)
        feed(stage, EU, ["a"])
        feed(stage, US, ["b"])
        await judged(stage, 2)
        stage.broker.delete_topic(US, with_offsets=False)
        report = await audited(stage)
        assert report.fine, report.as_text()
        (limit,) = report.total.limits
        assert limit.name == "inputs_left" and f"({US})" in limit.text
        assert report.total.foreign is None
        for partition in range(COUNTS[US]):
            del stage.broker.group(stage.copying_group).offsets[US, partition]
        report = await audited(stage)
        (breach,) = report.breaches
        assert breach.startswith("1 event in the output that no event of the input explains")
        assert "a topic that source.pattern matched would explain them, if it was deleted" in breach

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("source", "option"),
    [
        ({"topic": LATER}, "source.topic"),
        ({"topics": [LATER]}, "source.topics"),
        ({"pattern": "clicks-a.*"}, "source.pattern"),
    ],
)
def test_an_audit_of_inputs_that_nobody_has_read_is_refused(
    tmp_path: Path, source: dict[str, Any], option: str
) -> None:
    """Although inputs that were taken out have offsets; the message names the option that is set."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US])
        feed(stage, EU, ["a"])
        await judged(stage, 1)
        stage.broker.create_topic(LATER, COUNTS[LATER])
        repartition = stage.deployment.config["source"]["repartition"]
        stage.deployment.config["source"] = {"repartition": repartition, **source}
        with pytest.raises(ConfigError, match=f"check kafka.group_id and {option}, or run"):
            await audited(stage)
        stage.deployment.config["source"]["topics"] = [EU, "nowhere"]
        if option == "source.topics":
            with pytest.raises(
                ConfigError, match=r"nowhere does not exist .* check source\.topics"
            ):
                await audited(stage)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        ({"topics": [US, EU]}, f"{EU}, {US}"),
        ({"pattern": PATTERN}, f"the topics that match {PATTERN}"),
    ],
)
def test_the_start_names_the_inputs_and_the_skew(
    tmp_path: Path, source: dict[str, Any], inputs: str
) -> None:
    """The second stage, too, whose source is the middle topic; the skew that holds, although it is not set."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, **source)
        window = {"kind": "window", "retention": "7d", "capacity": 10_000}
        async with stage.start(filter=window) as worker:
            (line,) = await worker.logged("worker_starts")
            assert (line["source"], line["inputs"]) == (stage.middle, inputs)
            (line,) = await worker.logged("repartition_starts")
            assert line["max_skew_s"] == 21 * 3600
        async with stage.start() as worker:
            (line,) = await worker.logged("repartition_starts")
            assert line["max_skew_s"] is None

    play(tmp_path, scene)


def test_try_reads_all_inputs(tmp_path: Path) -> None:
    """A key counts once, in whichever topics its events are."""

    async def scene(stage: MemoryStage) -> None:
        reads(stage, pattern=PATTERN)
        feed_both(stage)
        settings = load(stage.deployment.write_config(), [])
        found = await tried(settings, 10_000, connected_to(stage.broker))
        assert (found.events, found.distinct, found.partitions) == (len(IDS), 300, 5)
        assert f"the newest 900 events of the topics that match {PATTERN}" in found.as_text()

    play(tmp_path, scene)


@pytest.mark.rule(30)
def test_the_partitions_of_all_inputs_are_kept_together(tmp_path: Path) -> None:
    """A backlog of one topic holds back the other one, so no event is late in the windows."""
    hour_ms = 3_600_000

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US])
        window = {"kind": "window", "retention": "1d", "capacity": 10_000}
        stage.broker.create_topic(
            stage.deployment.sink, PLACES, retention_ms=-1, message_timestamp_after_max_ms=1 << 62
        )
        hours, now = 30 * 24, stage.broker.now_ms()
        for topic in (EU, US):
            for at in range(1, hours, 1 if topic == EU else 6):
                event = (now - (hours - at) * hour_ms, None, value(f"{topic}{at}"), ())
                stage.broker.log(topic, 0).append([event], None)
        every = hours - 1 + len(range(1, hours, 6))
        async with stage.start(filter=window, delivery={"batch_events_max": 20}) as worker:
            await worker.consumed(every)
            assert worker.tally.late == 0
        assert stage.ids().total() == every

    play(tmp_path, scene)


def test_another_group_on_the_middle_is_looked_for_by_one_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that with the first partition of the first input."""
    monkeypatch.setattr(staged, "OWNER_EVERY_S", 5.0)

    async def scene(stage: MemoryStage) -> None:
        reads(stage, topics=[EU, US])
        one, other = stage.start(), stage.start()
        for worker in (one, other):
            await worker.logged("repartition_live")
        stage.broker.move_offsets("stranger", stage.middle, {0: 0})
        await asyncio.wait([one.task, other.task], return_when=asyncio.FIRST_COMPLETED)
        ended = [worker for worker in (one, other) if worker.task.done()]
        assert len(ended) == 1
        with pytest.raises(ConfigError, match="the group stranger has offsets"):
            await ended[0].task

    play(tmp_path, scene)


async def test_a_pattern_matches_whole_names() -> None:
    """As in Kafka's own consumer."""
    names = ["clicks", "clicks-a", "old-clicks-a", "clicks-a-b", "clicksXa"]
    for pattern, matched in (
        ("clicks-.*", ["clicks-a", "clicks-a-b"]),
        ("^clicks-.*$", ["clicks-a", "clicks-a-b"]),
        ("clicks(-a)?", ["clicks", "clicks-a"]),
    ):
        assert await TopicPattern(pattern).matching(names) == matched


class CountedPattern(TopicPattern):
    """Counts how often each name was matched, and in which turn of the loop."""

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.matched, self.turns, self._turn = Counter[str](), list[int](), 0

    def next_turn(self) -> None:
        """Count the turns of the loop from now on."""
        self._turn += 1
        asyncio.get_running_loop().call_soon(self.next_turn)

    def matches(self, name: str) -> bool:
        """Count it."""
        self.matched[name] += 1
        self.turns.append(self._turn)
        return super().matches(name)


async def test_a_name_is_matched_once_as_long_as_its_topic_exists() -> None:
    """A name may take 0.1 s: so the loop has a turn after each, and what a look was cancelled at is not lost."""
    pattern, names = CountedPattern("clicks-.*"), [f"clicks-{number}" for number in range(50)]
    pattern.next_turn()
    look = asyncio.create_task(pattern.matching(names))
    while len(pattern.matched) < 10:
        await asyncio.sleep(0)
    look.cancel()
    await asyncio.sleep(0)
    for _ in range(3):
        assert await pattern.matching([*names, "other"]) == sorted(names)
    assert set(pattern.matched.values()) == {1}
    assert len(pattern.turns) == len(set(pattern.turns)) == 51
    assert await pattern.matching(names[:1]) == names[:1]
    assert await pattern.matching(names[:2]) == names[:2]
    assert {name for name, times in pattern.matched.items() if times > 1} == {names[1]}


def test_all_who_look_for_topics_share_what_was_matched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start and later, each name once."""
    counted = CountedPattern(PATTERN)
    monkeypatch.setattr(inputs_module, "topic_pattern", lambda _: counted)

    async def scene(stage: MemoryStage) -> None:
        reads(stage, pattern=PATTERN)
        async with stage.start() as worker:
            await worker.logged("repartition_live")
            stage.broker.create_topic(LATER, COUNTS[LATER])
            await worker.logged("inputs_changed")
            await asyncio.sleep(3 * PatternWatch.TURN_S)
        assert {EU, US, LATER} <= counted.matched.keys()
        assert set(counted.matched.values()) == {1}

    play(tmp_path, scene)
    assert topic_pattern(PATTERN) is topic_pattern(PATTERN)


@pytest.mark.parametrize(
    "pattern",
    [
        "events",
        "^clicks-.*",
        r"(eu|us)\.orders\.v\d+",
        "[a-z]+-[a-z]+-[a-z]+",
        "(?!clicks-test-).*",
        "(clicks|views)-(eu|us|asia)(-v2)?",
    ],
)
def test_usual_patterns_are_taken(pattern: str) -> None:
    """Prefixes, choices, versions, exclusions."""
    assert refusal_of(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "(?>(?:a|a)*b)",
        "(?>(?:a*)*b)",
        "(?>a*)+",
        "(?:a|a)*+b",
        "(?:(?>a*b*)c)*",
        "(?:a++)+",
        "(?=(?:a|a)*b)x",
        "(?i:(?:a*)*)",
        "(b)?(?(1)(?:a*)*|c)",
        "(?>.*)(?>.*)(?>.*)(?>.*)",
    ],
)
def test_a_pattern_that_could_take_long_is_refused_however_it_is_grouped(pattern: str) -> None:
    """An atomic group or a possessive repeat tries all ways within, too, before it gives none back."""
    assert "could take too long" in str(refusal_of(pattern))
