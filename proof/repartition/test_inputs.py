"""More claims about several inputs: audits of those that were taken out, and what the middle topic takes from all."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from streamdedup.commands.audit.extents import Extent
from streamdedup.commands.audit.staged import StagedAudit
from streamdedup.commands.trial import tried
from streamdedup.errors import ConfigError
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.topics import Topology
from streamdedup.repartition.inputs import Inputs, PatternWatch, topics_of
from streamdedup.repartition.middle import described, made, planned
from streamdedup.repartition.selection import Selection
from streamdedup.settings import Settings, load
from streamdedup.settings.stages import copying
from streamdedup.testing import connected_to
from tests.memory import over
from tests.repartition.test_inputs import (
    COUNTS,
    EU,
    IDS,
    LATER,
    PATTERN,
    US,
    audited,
    feed,
    feed_both,
    judged,
    reads,
)
from tests.staged import MemoryStage, value


async def prepared(settings: Settings, cluster: Cluster, inputs: Sequence[str]) -> Topology:
    """Make what a first stage with these inputs lacks, and return its topics."""
    there = await described(settings, cluster, inputs)
    return await made(settings, cluster, planned(settings, there, inputs), [])


@over(MemoryStage)
async def test_what_is_written_is_known_as_it_was_when_inputs_change(stage: MemoryStage) -> None:
    """A middle topic that was made again meanwhile is noticed by its id, so the new one must not be taken for it."""
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


@over(MemoryStage)
async def test_the_middle_suits_the_largest_of_the_inputs(stage: MemoryStage) -> None:
    """Its record batches, and how long the output keeps events."""
    reads(stage, topics=[EU, US, LATER])
    stage.config["filter"] |= {"kind": "window", "retention": "1d"}
    larger = {"max_message_bytes": str(3 << 20), "retention_ms": str(9 * 86_400_000)}
    stage.broker.create_topic(LATER, 1)
    del stage.broker.topics[US]
    stage.broker.create_topic(US, 1, **larger)
    async with stage.start() as worker:
        await worker.logged("repartition_live")
    topics = stage.broker.topics
    assert topics[stage.middle].topic.bytes_max == 2 * (3 << 20) + (1 << 16)
    assert topics[stage.sink].topic.retention_ms == 9 * 86_400_000


@over(MemoryStage)
async def test_the_audit_compares_inputs_that_were_taken_out(stage: MemoryStage) -> None:
    """Up to the offsets that the first stage has left there: what it read explains the output, and is due there."""
    reads(stage, topics=[EU, US])
    feed_both(stage)
    await judged(stage, len(IDS))
    feed(stage, US, ["unread"])
    stage.config["source"] |= {"topics": [EU]}
    report = await audited(stage)
    assert report.fine, report.as_text()
    assert (report.total.read, report.total.keys, report.total.foreign) == (900, 300, 0)
    assert report.repartition is not None
    assert report.as_json()["repartition"]["inputs_left"] == [US]
    assert f"named no more, and compared up to the committed offsets: {US}\n" in report.as_text()
    assert report.as_text().endswith("the promise holds\n")
    stage.broker.produce(stage.sink, [(0, None, value("unread"))])
    report = await audited(stage)
    assert report.total.foreign == 1
    (breach, *_) = report.breaches
    assert breach.endswith(
        "an input that was taken out would explain them, if its offsets have expired"
        " (offsets.retention.minutes): name it once more, for an audit alone"
    )


@over(MemoryStage)
async def test_an_audit_during_a_rolling_restart_knows_what_the_others_read(
    stage: MemoryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of the former configuration may go on with an input that was taken out, while the audit reads."""
    reads(stage, topics=[EU, US])
    feed_both(stage)
    async with stage.start() as worker:
        await worker.consumed(len(IDS))
        stage.config["source"] |= {"topics": [EU]}
        found = StagedAudit._found

        async def goes_on(
            self: StagedAudit, partitions: Sequence[InputPartition]
        ) -> dict[InputPartition, Extent]:
            before = await found(self, partitions)
            feed(stage, US, ["later"])
            await worker.consumed(len(IDS) + 1)
            return before

        monkeypatch.setattr(StagedAudit, "_found", goes_on)
        report = await audited(stage)
    assert (report.fine, report.total.emitted) == (True, 301), report.as_text()


@over(MemoryStage)
async def test_an_input_that_was_taken_out_and_is_gone_hides_what_is_foreign(
    stage: MemoryStage,
) -> None:
    """Its offsets are still there, so it is named; once they are gone, too, the breach says what may explain it."""
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


@pytest.mark.parametrize(
    ("source", "option"),
    [
        ({"topic": LATER}, "source.topic"),
        ({"topics": [LATER]}, "source.topics"),
        ({"pattern": "clicks-a.*"}, "source.pattern"),
    ],
)
@over(MemoryStage)
async def test_an_audit_of_inputs_that_nobody_has_read_is_refused(
    stage: MemoryStage, source: dict[str, Any], option: str
) -> None:
    """Although inputs that were taken out have offsets; the message names the option that is set."""
    reads(stage, topics=[EU, US])
    feed(stage, EU, ["a"])
    await judged(stage, 1)
    stage.broker.create_topic(LATER, COUNTS[LATER])
    repartition = stage.config["source"]["repartition"]
    stage.config["source"] = {"repartition": repartition, **source}
    with pytest.raises(ConfigError, match=f"check kafka.group_id and {option}, or run"):
        await audited(stage)
    stage.config["source"]["topics"] = [EU, "nowhere"]
    if option == "source.topics":
        with pytest.raises(ConfigError, match=r"nowhere does not exist .* check source\.topics"):
            await audited(stage)


@over(MemoryStage)
async def test_try_reads_all_inputs(stage: MemoryStage) -> None:
    """A key counts once, in whichever topics its events are."""
    reads(stage, pattern=PATTERN)
    feed_both(stage)
    settings = load(stage.deployment.write_config(), [])
    found = await tried(settings, 10_000, connected_to(stage.broker))
    assert (found.events, found.distinct, found.partitions) == (len(IDS), 300, 5)
    assert f"the newest 900 events of the topics that match {PATTERN}" in found.as_text()
