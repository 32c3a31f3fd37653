"""Claims about what a worker says if events of one key come in several partitions; over a broker in memory."""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from streamdedup.delivery.cross_partition import REMEDY
from tests import memory
from tests.local import LocalWorker, Start
from tests.memory import measured, over, page
from tests.spread import PARTITIONS, Spread, spread

METRICS = ("events_total", "duplicates_ratio", "keys_ratio")
SUSPICION, EVIDENCE = "partitioning_unknown", "duplicates_across_partitions"


class Stage(memory.Stage):
    """Partitions of events whose key is their id."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start, PARTITIONS)
        self.config["key"] = {"field": "id"}

    async def through(self, events: Sequence[Any]) -> LocalWorker:
        """Append these, start a worker, and let it consume them."""
        self.broker.produce(self.source, [event[:3] for event in events])
        worker = self.start()
        await worker.consumed(len(events))
        await asyncio.sleep(1)
        return worker


@pytest.fixture(scope="module")
def stream() -> Spread:
    """A small one."""
    return spread(3000, 948)


@pytest.mark.finding("duplicates-across-partitions")
@over(Stage)
async def test_a_stream_without_record_keys_is_told_everywhere(
    stage: Stage, stream: Spread
) -> None:
    """The log at once, each `progress`, /readyz, and the metrics, with the share and the remedy; nowhere a key."""
    worker = await stage.through(stream.events)
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
    ready = page(worker)
    assert ready.status == HTTPStatus.OK
    assert f"about {stream.unseen_share:.1%} of all duplicates pass" in ready.text
    assert REMEDY in ready.text
    values = {name: measured(worker, f"cross_partition_{name}") for name in METRICS}
    assert values["events_total"] == [stream.passing - stream.distinct]
    assert values["duplicates_ratio"] == [pytest.approx(stream.unseen_share)]
    assert 0.5 < values["keys_ratio"][0] < 1
    assert "user" not in str(worker.lines()) + ready.text


@over(Stage)
async def test_a_stream_by_key_is_not_told_of(stage: Stage) -> None:
    """The record key need not be the key: equal keys come with equal record keys, in one partition."""
    events = [
        (number % 6, b"%d" % (number % 6), b'{"id": "user%d"}' % number)
        for number in [*range(300), *range(300)]
    ]
    worker = await stage.through(events)
    await asyncio.sleep(60)
    assert not worker.lines(SUSPICION)
    assert not worker.lines(EVIDENCE)
    (line,) = worker.lines("progress")
    assert "remedy" not in line
    assert "partition" not in page(worker).text
