"""Claims about two deployments with one output: they stay exact, and each names the other; over a broker in memory."""

import asyncio
from pathlib import Path

import pytest

from streamdedup.delivery.lifecycle import FENCINGS_S
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.cluster import MemoryCluster
from tests.deployment import Deployment
from tests.local import LocalWorker, Start
from tests.memory import measured, over, page

GAUGE = "output_shared_partitions"


class Stage:
    """A broker in memory with one output of two partitions, and deployments that write to it."""

    def __init__(self, directory: Path, start: Start) -> None:
        self.broker, self._start, self._directory = MemoryBroker(), start, directory
        self.guarantee = "exactly_once"
        self.output = "unique"
        self.broker.create_topic(self.output, 2)
        self.inputs: list[str] = []

    def deployment(self, name: str, source: str) -> Deployment:
        """Return one of the group `name`, which reads `source`."""
        directory = self._directory / name
        directory.mkdir()
        made = Deployment("memory:1", directory, 2)
        made.source, made.group, made.sink = source, name, self.output
        made.config["kafka"]["group_id"], made.config["source"]["topic"] = name, source
        made.config["sink"]["topic"] = self.output
        made.config["delivery"] |= {"guarantee": self.guarantee, "drain_s": 5}
        if source not in self.broker.topics:
            self.broker.create_topic(source, 2)
            self.inputs.append(source)
        return made

    def start(self, deployment: Deployment) -> LocalWorker:
        """Start a worker."""
        return self._start(deployment, connect=connected_to(self.broker))

    async def feed(self, seconds: int) -> None:
        """Append new events to both partitions of all inputs, ten times a second."""
        for turn in range(10 * seconds):
            for source in self.inputs:
                keys = (b"%d-%d" % (self.written, each) for each in range(4))
                self.broker.produce(source, [(n % 2, key, b"") for n, key in enumerate(keys)])
            self.written += 1
            await asyncio.sleep(0.1 + turn % 2 / 100)

    written = 0


def shown(worker: LocalWorker) -> tuple[list[str], list[float]]:
    """The warnings of `/readyz` about others, and the value of the gauge."""
    lines = page(worker).text.splitlines()
    return [line for line in lines if "another deployment" in line], measured(worker, GAUGE)


@pytest.mark.finding("output-shared")
@pytest.mark.parametrize("theirs", ["events", "others"], ids=["the same input", "another input"])
@pytest.mark.rule(1)
@over(Stage)
async def test_another_deployment_on_the_same_output_is_named(stage: Stage, theirs: str) -> None:
    """In the log of both, once a minute, at `/readyz` and in a metric, until it is gone; no key is lost or doubled."""
    first = stage.start(stage.deployment("one", "events"))
    await first.live()
    second = stage.start(stage.deployment("two", theirs))
    await second.live()
    await stage.feed(50)
    for worker, other in ((first, "two"), (second, "one")):
        (line,) = await worker.logged("output_shared")
        assert (line["output"], line["log_level"]) == (stage.output, "warning")
        assert line["groups"][0].startswith(f"{other}, with ")
        assert "give it an output of its own" in line["remedy"]
        # Of many fencings: two times FENCINGS, and one a minute.
        assert len(worker.lines("doubt")) <= 8
        await worker.until(lambda of=worker: shown(of)[0], "a warning")  # type: ignore[misc]
        (warning,), gauge = shown(worker)
        assert f"(the group {other}, with " in warning
        assert gauge == [2]
    await second.stop()
    await asyncio.sleep(FENCINGS_S + 5)
    assert shown(first) == ([], [0])
    await first.stop()
    keys = [event.key for log in stage.broker.read_all(stage.output) for event in log]
    assert len(keys) == len(set(keys)) == 4 * stage.written


@over(Stage)
async def test_without_transactions_the_other_is_named_too(stage: Stage) -> None:
    """Its events stand between ours, and the line says what that does."""
    stage.guarantee = "at_least_once"
    first = stage.start(stage.deployment("one", "events"))
    await first.live()
    second = stage.start(stage.deployment("two", "events"))
    await second.live()
    await stage.feed(20)
    for worker, other in ((first, "two"), (second, "one")):
        (line,) = await worker.logged("output_shared")
        assert line["groups"][0].startswith(f"{other}, with ")
        assert "keys pass twice" in line["reason"]


@over(Stage)
async def test_a_fence_that_is_no_rival_is_not_taken_for_one(stage: Stage) -> None:
    """Two fencings, as by an operator's tool, are two doubts with a remedy, in our words, and no more."""
    deployment = stage.deployment("one", "events")
    worker = stage.start(deployment)
    await worker.live()
    for times in (1, 2):
        await fence(stage, worker)
        await stage.feed(2)
        lines = await worker.logged("doubt", times)
    await worker.live()
    assert {line["log_level"] for line in lines} == {"warning"}
    for line in lines:
        assert "another producer took our transactional id" in line["error"]
        assert "transaction_timeout_ms" not in line["error"]
        assert line["remedy"].startswith("none if it is rare")
    await asyncio.sleep(5)
    assert worker.lines("output_shared") == []
    assert shown(worker) == ([], [0])


async def fence(stage: Stage, worker: LocalWorker) -> None:
    """Take the transactional id of partition 0, as another program may."""
    cluster = worker.worker.status.cluster
    assert isinstance(cluster, MemoryCluster)
    sink = worker.worker._settings.sink
    writer = cluster.writer(sink, 0, exactly_once=True)
    await writer.fence()
    await writer.drop()
    assert sink.topic == stage.output


@over(Stage)
async def test_a_doubt_of_a_partition_that_leaves_is_no_warning(stage: Stage) -> None:
    """At a plain rebalance the next owner may fence a transaction that is under way: info, and none needs to act."""
    deployment = stage.deployment("one", "events")
    deployment.config["delivery"]["commit_interval_ms"] = 3000
    first = stage.start(deployment)
    await first.live()
    feeding = asyncio.create_task(stage.feed(60))
    second = stage.start(deployment)
    await second.live(1)
    for _ in range(3):
        await second.stop()
        await first.live()
        second = stage.start(deployment)
        await second.live(1)
    await feeding
    lines = first.lines("doubt")
    assert lines
    assert {line["log_level"] for line in lines} == {"info"}
    assert all(line["remedy"].startswith("none needed: ") for line in lines)
