"""Several inputs of one deployment on a real broker: each key once over all of them, whatever dies when."""

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from proof.broker.staged import Staged
from streamdedup.commands.audit import audit
from streamdedup.commands.audit.report import Report
from streamdedup.errors import ConfigError
from streamdedup.kafka.cluster import KafkaCluster
from streamdedup.repartition.inputs import PatternWatch
from streamdedup.settings import load
from tests.broker.base import DEADLINE_S, Broker, wait_until
from tests.broker.topics import (
    Event,
    committed,
    create_topic,
    delete_topic,
    produce,
    unique_name,
)
from tests.deployment import WorkerProcess
from tests.local import Start
from tests.memory import page


class Inputs(Staged):
    """A deployment with two inputs, of 2 and of 3 partitions."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        super().__init__(bootstrap, directory, 2)
        self.prefix = unique_name("clicks")
        self.eu, self.us = f"{self.prefix}-eu", f"{self.prefix}-us"
        self.counts = {self.eu: 2, self.us: 3}
        for topic, partitions in self.counts.items():
            create_topic(bootstrap, topic, partitions)

    def reads(self, **source: object) -> None:
        """Have the workers read these inputs."""
        given = self.config["source"]
        self.config["source"] = {"repartition": given["repartition"], **source}

    def feed_to(self, topic: str, ids: Iterable[str]) -> None:
        """Append an event of each id to `topic`, to one partition after the other, without record keys."""
        count = self.counts[topic]
        events: list[Event] = [
            (at % count, None, json.dumps({"id": name}).encode(), [], None)
            for at, name in enumerate(ids)
        ]
        produce(self.bootstrap, topic, events)

    def offsets(self) -> Mapping[str, int]:
        """Return how many events of each input the first stage has committed."""
        group = f"{self.group}-repartition"
        return {
            topic: sum(committed(self.bootstrap, group, topic).values()) for topic in self.counts
        }


async def audited(staged: Staged) -> Report:
    """Return the report of an audit."""
    return await audit(load(staged.write_config(), []))


@pytest.mark.rule(30)
async def test_two_topics_and_two_workers_that_are_killed(broker: Broker, tmp_path: Path) -> None:
    """Each id once, each event copied once, and the audit agrees."""
    staged, chance = Inputs(broker.bootstrap_servers, tmp_path), random.Random(3)
    staged.reads(topics=[staged.us, staged.eu])
    staged.expect_kills()
    config = staged.write_config()
    ids = [f"id{chance.randrange(3_000)}" for _ in range(12_000)]
    every = set(ids)

    def feed(events: list[str]) -> None:
        staged.feed_to(staged.eu, events[::2])
        staged.feed_to(staged.us, events[1::2])

    await asyncio.to_thread(feed, ids[:6_000])
    running = [WorkerProcess(config, tmp_path / f"{number}.log") for number in range(2)]
    for turn in range(4):
        await asyncio.sleep(chance.uniform(1.0, 3.0))
        which = chance.randrange(2)
        await asyncio.to_thread(running[which].kill)
        running[which] = WorkerProcess(config, tmp_path / f"{which}-{turn}.log")
        if turn == 1:
            await asyncio.to_thread(feed, ids[6_000:])
    await asyncio.to_thread(
        wait_until,
        lambda: len(staged.ids()) == len(every),
        120.0,
        lambda: f"{len(staged.ids())} of {len(every)} ids passed",
    )
    await asyncio.to_thread(
        wait_until,
        lambda: sum(staged.offsets().values()) >= len(ids),
        DEADLINE_S,
        lambda: f"copied up to {staged.offsets()}",
    )
    for process in running:
        assert await asyncio.to_thread(process.interrupt, signal.SIGTERM) == 0
    assert staged.ids().total() == len(every)
    report = await audited(staged)
    assert report.fine, report.as_text()
    assert report.total.read == len(ids)


@pytest.mark.rule(30)
async def test_a_topic_that_appears_later_under_a_pattern(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running workers read it from its first event on; deleted, it ends nobody, and made again, it begins anew."""
    monkeypatch.setattr(PatternWatch, "TURN_S", 0.5)
    staged = Inputs(broker.bootstrap_servers, tmp_path)
    staged.reads(pattern=f"{staged.prefix}-.*", start="latest")
    later = f"{staged.prefix}-later"
    async with start(staged) as one, start(staged) as other:
        for worker in (one, other):
            await worker.logged("repartition_live")
        await asyncio.to_thread(staged.feed_to, staged.eu, ["a", "b"])
        await one.until(lambda: one.tally.consumed + other.tally.consumed == 2, "the first two")
        await asyncio.to_thread(create_topic, staged.bootstrap, later, 2)
        staged.counts[later] = 2
        await asyncio.to_thread(staged.feed_to, later, ["b", "c", "d"])
        await one.until(lambda: one.tally.consumed + other.tally.consumed == 5, "those of it")
        shown = page(one, "/metrics").text + page(other, "/metrics").text
        assert f'repartition_events_total{{partition="0",topic="{later}"}}' in shown
        await asyncio.to_thread(delete_topic, staged.bootstrap, later)
        for worker in (one, other):
            await worker.until(
                lambda worker=worker: any(  # type: ignore[misc]
                    line["went"] == [later] for line in worker.lines("inputs_changed")
                ),
                "the topic that went",
            )
        await asyncio.to_thread(staged.feed_to, staged.us, ["e"])
        await one.until(lambda: one.tally.consumed + other.tally.consumed == 6, "that of another")
        await asyncio.to_thread(create_topic, staged.bootstrap, later, 2)
        await asyncio.to_thread(staged.feed_to, later, ["d", "f"])
        await one.until(lambda: one.tally.consumed + other.tally.consumed == 8, "made again")
        assert [*one.lines("broker_away"), *other.lines("broker_away")] == []
    assert await asyncio.to_thread(staged.ids) == Counter("abcdef")


async def test_a_middle_of_others_is_known_by_notes_and_by_its_last_event(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern that matches it leaves it out, and commits nothing there; a worker without repartition is refused."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    staged, other = (Inputs(broker.bootstrap_servers, tmp_path / name) for name in ("one", "other"))
    other.reads(topics=[other.eu])
    async with start(other) as theirs:
        await asyncio.to_thread(other.feed_to, other.eu, ["x", "y"])
        await theirs.consumed(2)
    staged.reads(pattern=f"{staged.prefix}-.*|{other.middle}")
    await asyncio.to_thread(staged.feed_to, staged.eu, ["a"])

    async def refused(said: str) -> None:
        async with start(staged) as worker:
            await worker.logged("repartition_live")
            (line,) = worker.lines("input_refused")
            assert line["topic"] == other.middle and other.group in line["reason"]
            assert said in line["reason"]
        group = f"{staged.group}-repartition"
        assert await asyncio.to_thread(committed, staged.bootstrap, group, other.middle) == {}

    async def none(*_: object) -> dict[str, str]:
        return {}

    await refused("reads it as its middle topic")
    with monkeypatch.context() as patched:
        patched.setattr(KafkaCluster, "middles", none)
        await refused("its last event is a copy")
    staged.config["source"] = {"topic": other.middle}
    staged.config["kafka"]["group_id"] = unique_name("group")
    with pytest.raises(ConfigError, match=f"the topic {other.middle} cannot be an input"):
        await start(staged).task
