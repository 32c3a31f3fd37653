"""Claims about what a worker says if events of one key come in several partitions; over a broker in memory."""

import asyncio
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from streamdedup.delivery.cross_partition import REMEDY
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.testing import MemoryBroker, connected_to
from tests.deployment import Deployment, keyed
from tests.local import LocalWorker, Start, on_virtual_clock
from tests.spread import PARTITIONS, Spread, spread

METRICS = "streamdedup_cross_partition_"
SUSPICION, EVIDENCE = "partitioning_unknown", "duplicates_across_partitions"


class Stage:
    """A broker in memory, its topics, and a way to start workers."""

    def __init__(self, directory: Path, start: Start, partitions: int) -> None:
        self.deployment = Deployment("memory:1", directory, partitions)
        self.deployment.config["key"] = {"field": "id"}
        self.broker, self._start = MemoryBroker(), start
        for topic in (self.deployment.source, self.deployment.sink):
            self.broker.create_topic(topic, partitions)

    def feed(self, events: Any) -> None:
        """Append to the input."""
        self.broker.produce(self.deployment.source, [event[:3] for event in events])

    async def through(self, events: int) -> LocalWorker:
        """Start a worker, and let it consume so many."""
        worker = self._start(self.deployment, connect=connected_to(self.broker))
        await worker.consumed(events)
        await asyncio.sleep(1)
        return worker


def play(
    directory: Path,
    scene: Callable[[Stage], Coroutine[Any, Any, None]],
    partitions: int = PARTITIONS,
) -> None:
    """Run `scene` on a virtual clock."""
    on_virtual_clock(lambda start: scene(Stage(directory, start, partitions)))


@pytest.fixture(scope="module")
def stream() -> Spread:
    """A small one."""
    return spread(3000, 948)


def test_a_stream_without_record_keys_is_told_everywhere(tmp_path: Path, stream: Spread) -> None:
    """The log at once, each `progress`, /readyz, and the metrics, with the share and the remedy; nowhere a key."""

    async def scene(stage: Stage) -> None:
        stage.feed(stream.events)
        worker = await stage.through(3000)
        (suspicion,) = worker.lines(SUSPICION)
        assert suspicion["log_level"] == "warning"
        assert suspicion["reason"].startswith("100% of the events have no record key")
        assert suspicion["remedy"] == REMEDY
        evidence = worker.lines(EVIDENCE)[-1]
        assert evidence["log_level"] == "warning"
        assert evidence["remedy"] == REMEDY
        await asyncio.sleep(120)
        lines = worker.lines("progress")
        assert len(lines) == 2
        share = round(stream.unseen_share, 3)
        for line in lines:
            assert line["log_level"] == "warning"
            assert line["share_of_duplicates_across_partitions"] == share
            assert line["remedy"] == REMEDY
        served = pages(worker.worker.status, Pulse())
        ready = served["/readyz"]()
        assert ready.status == HTTPStatus.OK
        assert f"about {stream.unseen_share:.1%} of all duplicates pass" in ready.text
        assert REMEDY in ready.text
        metrics = served["/metrics"]().text.splitlines()
        values = dict(line.split() for line in metrics if line.startswith(METRICS))
        assert float(values[f"{METRICS}events_total"]) == stream.passing - stream.distinct
        assert float(values[f"{METRICS}duplicates_ratio"]) == pytest.approx(stream.unseen_share)
        assert 0.5 < float(values[f"{METRICS}keys_ratio"]) < 1
        assert "user" not in str(worker.lines()) + ready.text

    play(tmp_path, scene)


def test_a_stream_by_key_is_not_told_of(tmp_path: Path) -> None:
    """The record key need not be the key: equal keys come with equal record keys, in one partition."""

    async def scene(stage: Stage) -> None:
        events = [
            (number % 6, b"%d" % (number % 6), b'{"id": "user%d"}' % number)
            for number in [*range(300), *range(300)]
        ]
        stage.feed(events)
        worker = await stage.through(600)
        await asyncio.sleep(60)
        assert not worker.lines(SUSPICION)
        assert not worker.lines(EVIDENCE)
        (line,) = worker.lines("progress")
        assert "remedy" not in line
        assert "partition" not in pages(worker.worker.status, Pulse())["/readyz"]().text

    play(tmp_path, scene)


def test_one_partition_raises_no_suspicion(tmp_path: Path) -> None:
    """Whatever the record keys are, it has all events of a key."""

    async def scene(stage: Stage) -> None:
        stage.feed((0, None, value) for _, _, value, *_ in spread(100, 50).events)
        worker = await stage.through(100)
        assert not worker.lines(SUSPICION)
        assert not worker.lines(EVIDENCE)

    play(tmp_path, scene, partitions=1)


def test_two_record_keys_of_one_key_are_suspicious(tmp_path: Path) -> None:
    """A normalizer makes one key of two record keys, which may be in two partitions: said before it happens."""

    async def scene(stage: Stage) -> None:
        stage.deployment.config["key"] = {"from": "key", "normalize": "lowercase"}
        stage.feed([(1, b"Anna", b""), (1, b"anna", b"")])
        worker = await stage.through(2)
        (line,) = worker.lines(SUSPICION)
        assert line["reason"].startswith("events of one key have different record keys")
        assert not worker.lines(EVIDENCE)

    play(tmp_path, scene)


def test_it_is_told_again_if_the_share_has_grown_much(tmp_path: Path) -> None:
    """Few duplicates pass at first, most later: one more line, and no more for the same share."""

    async def scene(stage: Stage) -> None:
        by_key = [(p, key, b'{"id": "%s"}' % key) for p, key, *_ in keyed(range(400), 6)]
        stage.feed([*by_key, *by_key, (5, b"", by_key[0][2]), (4, b"", by_key[0][2])])
        worker = await stage.through(802)
        assert len(worker.lines(EVIDENCE)) == 1
        assert worker.lines(EVIDENCE)[0]["share_of_duplicates"] < 0.01
        stage.feed([((p + 1) % 6, key, value) for p, key, value in by_key])
        await worker.consumed(1202)
        await asyncio.sleep(60)
        *_, last = worker.lines(EVIDENCE)
        assert last["share_of_duplicates"] == pytest.approx(0.5, abs=0.01)
        assert len(worker.lines(EVIDENCE)) <= 4
        told = len(worker.lines(EVIDENCE))
        await asyncio.sleep(60)
        assert len(worker.lines(EVIDENCE)) == told

    play(tmp_path, scene)
