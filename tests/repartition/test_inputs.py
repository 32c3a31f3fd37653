"""Several inputs of one deployment, by name or by a pattern, over a broker in memory."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

import streamdedup.repartition.inputs as inputs_module
from streamdedup.commands.audit import audit
from streamdedup.commands.audit.report import Report
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.records import Record
from streamdedup.kafka.topic_pattern import TopicPattern, refusal_of, topic_pattern
from streamdedup.repartition.inputs import PatternWatch
from streamdedup.settings import load
from streamdedup.testing import connected_to
from tests.memory import measured, over, page
from tests.staged import PLACES, MemoryStage, value

EU, US, LATER = "clicks-eu", "clicks-us", "clicks-asia"
COUNTS = {EU: 2, US: 3, LATER: 1}
PATTERN = "clicks-.*"
COPIED_OF_US = f'repartition_events_total{{partition="0",topic="{US}"}}'
IDS = [number % 300 for number in range(900)]
EACH_ONCE = Counter({str(number): 1 for number in range(300)})


def reads(stage: MemoryStage, **source: object) -> None:
    """Have the workers read these inputs, and make the first two."""
    given = stage.config["source"]
    stage.config["source"] = {"repartition": given["repartition"], **source}
    for topic in (EU, US):
        stage.broker.create_topic(topic, COUNTS[topic])


def feed(stage: MemoryStage, topic: str, ids: Iterable[object]) -> None:
    """Append an event of each id to `topic`, to one partition after the other."""
    events = [(at % COUNTS[topic], None, value(number)) for at, number in enumerate(ids)]
    stage.broker.produce(topic, events)


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


@pytest.mark.parametrize("source", [{"topics": [US, EU]}, {"pattern": PATTERN}])
@pytest.mark.rule(30)
@over(MemoryStage)
async def test_each_key_passes_once_over_all_inputs(
    stage: MemoryStage, source: dict[str, Any]
) -> None:
    """Two workers; the audit agrees, and the metrics name the topic of each partition."""
    reads(stage, **source)
    feed_both(stage)
    async with stage.start() as one, stage.start() as other:
        await one.until(lambda: one.tally.consumed + other.tally.consumed == len(IDS), "all judged")
        shown = page(one, "/metrics").text + page(other, "/metrics").text
        for topic, count in COUNTS.items():
            for partition in range(count):
                name = f'repartition_events_total{{partition="{partition}",topic="{topic}"}}'
                assert (name in shown) == (topic != LATER)
    assert stage.ids() == EACH_ONCE
    assert {len(offsets_on(stage, topic)) for topic in (EU, US)} == {2, 3}
    report = await audited(stage)
    assert report.fine and report.total.read == len(IDS)


@pytest.mark.rule(30)
@over(MemoryStage)
async def test_a_topic_that_appears_later_is_read_from_its_first_event(stage: MemoryStage) -> None:
    """Although `source.start` is latest: that resolved once, for all partitions, at the birth."""
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


@pytest.mark.rule(30)
@over(MemoryStage)
async def test_a_topic_that_is_listed_later_is_read_from_its_first_event(
    stage: MemoryStage,
) -> None:
    """Topics may be added and taken away at a restart, without a new group; who goes on from one to several, too."""
    reads(stage, topic=EU, start="latest")
    feed(stage, EU, ["before"])
    async with stage.start() as worker:
        await worker.logged("repartition_live")
        feed(stage, EU, ["a"])
        await worker.consumed(1)
    feed(stage, US, ["a", "b"])
    stage.config["source"] |= {"topic": None, "topics": [EU, US]}
    async with stage.start() as worker:
        await worker.consumed(2)
        assert not worker.lines("inputs_left")
    feed(stage, EU, ["c"])
    stage.config["source"] |= {"topics": [US]}
    feed(stage, US, ["d"])
    async with stage.start() as worker:
        await worker.consumed(1)
        (line,) = worker.lines("inputs_left")
        assert line["topics"] == [EU]
    assert stage.ids() == Counter({"a": 1, "b": 1, "d": 1})
    stage.config["source"] |= {"topics": [EU, US]}
    async with stage.start() as worker:  # goes on where it left off
        await worker.consumed(1)
    assert stage.ids() == Counter({"a": 1, "b": 1, "c": 1, "d": 1})


@pytest.mark.rule(30)
@over(MemoryStage)
async def test_the_deployments_own_topics_never_match(stage: MemoryStage) -> None:
    """Output, middle, side topics, the control topic, and those of Kafka: it would be a loop."""
    reads(stage, pattern=".*")
    stage.broker.create_topic("letters", 4)
    stage.broker.create_topic("duplicates", 4)
    stage.broker.create_topic("__secret", 1)
    stage.config["sink"] |= {
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


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.rule(30)
@over(MemoryStage)
async def test_an_input_of_a_pattern_that_is_deleted_ends_no_other(
    stage: MemoryStage, again: bool
) -> None:
    """Made again, it is read from its first event: its offsets are those of another log."""
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
        await worker.until(
            lambda: bool(measured(worker, COPIED_OF_US)) == again, "its metrics gone"
        )
        copying = worker.worker.status.copying
        assert copying is not None
        assert copying.copied == len(IDS) + (2 if again else 1)
    assert stage.ids()["more"] == 1
    assert stage.ids()["after"] == (1 if again else 0)


@pytest.mark.finding("repartition-stopped")
@over(MemoryStage)
async def test_a_listed_input_that_is_deleted_ends_the_worker(stage: MemoryStage) -> None:
    """Somebody has named it, so it is missed, as the one input is."""
    reads(stage, topics=[EU, US])
    feed_both(stage)
    worker = stage.start()
    await worker.consumed(len(IDS))
    del stage.broker.topics[US]
    with pytest.raises(Exception, match=f"deleted, or deleted and created again.*{US}"):
        await worker.task


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
@over(MemoryStage)
async def test_an_input_that_is_missing_is_refused(
    stage: MemoryStage, source: dict[str, Any], why: str
) -> None:
    """At the start, as the one input is."""
    reads(stage, **source)
    await stage.refused(why)


@pytest.mark.rule(30)
@over(MemoryStage)
async def test_an_input_that_comes_and_does_not_suit_is_left_out(stage: MemoryStage) -> None:
    """Its record batches may be larger than the middle takes: said once, and no other one stops."""
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


@over(MemoryStage)
async def test_a_partition_that_stops_is_named_by_its_topic(stage: MemoryStage) -> None:
    """In the log, on the page, in the line of progress; the partition of the same number goes on."""
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
        shown = page(worker).text
        assert f"{US}/1: stopped: {US}/1: the offset 0 was committed by a stage" in shown
        await worker.consumed(len(IDS) - 200)
    assert set(copying.stage.stopped if copying.stage else ()) == {InputPartition(US, 1)}


@over(MemoryStage)
async def test_letters_name_the_topic_of_their_event(stage: MemoryStage) -> None:
    """Of both stages: events without a key are judged in the second."""
    reads(stage, topics=[EU, US])
    stage.config["sink"]["dead_letter_topic"] = "letters"
    for topic in (EU, US):
        stage.broker.produce(topic, [(1, None, b"no json")])
    async with stage.start() as worker:
        await worker.consumed(2)
    letters = [event for events in stage.broker.read_all("letters") for event in events]
    named = {dict(letter.headers)["streamdedup.topic"] for letter in letters}
    assert named == {EU.encode(), US.encode()}
    report = await audited(stage)
    assert report.fine and report.total.malformed == 2


@pytest.mark.parametrize("named", [[EU, US], [EU]])
@over(MemoryStage)
async def test_the_audit_names_the_topic_of_a_lost_event(
    stage: MemoryStage, named: list[str]
) -> None:
    """Offsets that were moved ahead in one input lose its events, whether or not it is still named; no other's."""
    reads(stage, topics=[EU, US])
    feed(stage, EU, ["a"])
    await judged(stage, 1)
    feed(stage, US, ["lost"])
    offsets = stage.broker.group(stage.copying_group).offsets
    offsets[US, 0] = (1, offsets[US, 0][1])
    stage.config["source"] |= {"topics": named}
    report = await audited(stage)
    assert report.repartition is not None
    assert report.repartition.places["missing"] == [(InputPartition(US, 0), 0)]
    (breach,) = report.breaches
    assert f"first: {US}/0 at offset 0" in breach
    json.dumps(report.as_json())


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        ({"topics": [US, EU]}, f"{EU}, {US}"),
        ({"pattern": PATTERN}, f"the topics that match {PATTERN}"),
    ],
)
@over(MemoryStage)
async def test_the_start_names_the_inputs_and_the_skew(
    stage: MemoryStage, source: dict[str, Any], inputs: str
) -> None:
    """The second stage, too, whose source is the middle topic; the skew that holds, although it is not set."""
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


@pytest.mark.rule(30)
@over(MemoryStage)
async def test_the_partitions_of_all_inputs_are_kept_together(stage: MemoryStage) -> None:
    """A backlog of one topic holds back the other one, so no event is late in the windows."""
    hour_ms = 3_600_000
    reads(stage, topics=[EU, US])
    window = {"kind": "window", "retention": "1d", "capacity": 10_000}
    stage.broker.create_topic(
        stage.sink, PLACES, retention_ms=-1, message_timestamp_after_max_ms=1 << 62
    )
    hours, now = 30 * 24, stage.broker.now_ms()
    for topic in (EU, US):
        for at in range(1, hours, 1 if topic == EU else 6):
            event = Record.of(now - (hours - at) * hour_ms, None, value(f"{topic}{at}"))
            stage.broker.log(topic, 0).append([event], None)
    every = hours - 1 + len(range(1, hours, 6))
    async with stage.start(filter=window, delivery={"batch_events_max": 20}) as worker:
        await worker.consumed(every)
        assert worker.tally.late == 0
    assert stage.ids().total() == every


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


@over(MemoryStage)
async def test_all_who_look_for_topics_share_what_was_matched(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start and later, each name once."""
    counted = CountedPattern(PATTERN)
    monkeypatch.setattr(inputs_module, "topic_pattern", lambda _: counted)
    reads(stage, pattern=PATTERN)
    async with stage.start() as worker:
        await worker.logged("repartition_live")
        stage.broker.create_topic(LATER, COUNTS[LATER])
        await worker.logged("inputs_changed")
        await asyncio.sleep(3 * PatternWatch.TURN_S)
    assert {EU, US, LATER} <= counted.matched.keys()
    assert set(counted.matched.values()) == {1}
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
