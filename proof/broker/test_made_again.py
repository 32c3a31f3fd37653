"""An input that was deleted and made again between two runs, with other partitions or as many, on a real broker."""

from pathlib import Path

import pytest

from streamdedup.delivery.services import wall_clock_ms
from streamdedup.errors import ConfigError
from tests.broker.base import Broker
from tests.broker.needs import AHEAD
from tests.broker.test_members import grow
from tests.broker.topics import create_topic, delete_topic, read_all
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start, run_to_the_end

pytestmark = pytest.mark.needs_broker("topic ids")

KEYS = range(400)
HOUR_MS = 3_600_000


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Each key has been emitted once, out of four partitions."""
    made = Deployment(broker.bootstrap_servers, tmp_path).create()
    made.config["delivery"]["drain_s"] = 5
    made.feed(keyed(KEYS))
    run_to_the_end(made)
    return made


def made_again(deployment: Deployment, partitions: int) -> None:
    """The same keys come again, in an input of so many partitions."""
    delete_topic(deployment.bootstrap, deployment.source)
    create_topic(deployment.bootstrap, deployment.source, partitions)
    deployment.partitions = partitions
    deployment.feed(keyed(KEYS, partitions))


def emitted(deployment: Deployment) -> int:
    """How many events the output holds."""
    return len(read_all(deployment.bootstrap, deployment.sink))


@pytest.mark.parametrize("left", ["snapshots", "output"])
@pytest.mark.rule(14)
async def test_fewer_partitions_are_refused_or_accepted(
    deployment: Deployment, start: Start, left: str
) -> None:
    """Three of four keys would pass again; once accepted, the worker says it once and does not ask again."""
    made_again(deployment, 2)
    if left == "output":
        deployment.delete_snapshots()
    async with start(deployment) as worker:
        stopped = await worker.logged("shard_stopped", 2)
        assert all("has 2 partitions, and what was emitted is of 4" in s["error"] for s in stopped)
        assert all("source.on_growth: accept" in line["error"] for line in stopped)
    assert emitted(deployment) == 400
    deployment.config["source"]["on_growth"] = "accept"
    async with start(deployment) as worker:
        await worker.consumed(400)
        assert len(worker.lines("input_grown")) == 2
    assert emitted(deployment) == 400 + 200  # those that keep their partition do not come twice
    deployment.config["source"]["on_growth"] = "refuse"
    async with start(deployment) as worker:
        await worker.live()
        assert worker.lines("input_grown") == []


@pytest.mark.rule(14)
async def test_more_partitions_are_refused(
    broker: Broker, deployment: Deployment, start: Start
) -> None:
    """Also where the output has as many by then, and the new ones know nothing."""
    made_again(deployment, 8)
    with pytest.raises(ConfigError, match=rf"make {deployment.source} again with 4, or set"):
        await start(deployment).task
    grow(broker, deployment, 9)
    async with start(deployment) as worker:
        stopped = await worker.logged("shard_stopped", 9)
        assert all("has 9 partitions, and what was emitted is of 4" in s["error"] for s in stopped)
    assert emitted(deployment) == 400


async def test_as_many_partitions_go_on_and_say_why(deployment: Deployment, start: Start) -> None:
    """The offsets went with the input; the snapshots know that it is another one."""
    made_again(deployment, 4)
    async with start(deployment) as worker:
        await worker.consumed(400)
        lines = worker.lines("shard_live")
    assert {line["why"] for line in lines} == {"the input topic was made again"}
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.needs_broker(AHEAD)
@pytest.mark.parametrize("hours", [0, 3])
@pytest.mark.rule(14)
async def test_partitions_that_the_window_has_outlived_do_not_count(
    broker: Broker, tmp_path: Path, start: Start, hours: int
) -> None:
    """Their keys would be forgotten by now, wherever they came."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2)
    for topic in (deployment.source, deployment.sink):
        create_topic(deployment.bootstrap, topic, 2, message_timestamp_after_max_ms=10**12)
    window = {"kind": "window", "retention": "1h", "capacity": 1000, "error_rate": 1e-6}
    deployment.config["filter"] = window
    deployment.config["delivery"]["drain_s"] = 5
    now_ms = wall_clock_ms()
    deployment.feed([(1, b"old", b"", [], now_ms), (0, b"new", b"", [], now_ms + hours * HOUR_MS)])
    await start(deployment).through(2)
    deployment.delete_snapshots()
    delete_topic(deployment.bootstrap, deployment.source)
    create_topic(deployment.bootstrap, deployment.source, 1)
    deployment.partitions = 1
    async with start(deployment) as worker:
        await (worker.live() if hours else worker.logged("shard_stopped"))
        assert bool(worker.lines("shard_stopped")) == (hours == 0)
