"""Two deployments with one output, on a real broker: nothing is lost or doubled, and each names the other."""

import asyncio
from pathlib import Path

import pytest

from tests.broker.base import Broker
from tests.broker.topics import create_topic, produce, read_all, unique_name
from tests.deployment import Deployment, keyed
from tests.local import Start
from tests.memory import page

PARTITIONS = 2


@pytest.mark.rule(1)
async def test_two_deployments_with_one_output_name_each_other(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """In the log and at `/readyz`; and no line blames a time-out."""
    first = Deployment(broker.bootstrap_servers, tmp_path, PARTITIONS).create()
    second = Deployment(broker.bootstrap_servers, tmp_path, PARTITIONS)
    second.config["sink"] = first.config["sink"]
    create_topic(broker.bootstrap_servers, second.source, PARTITIONS)
    second.config["snapshot"]["directory"] = str(tmp_path / unique_name("snapshots"))
    one, two = start(first), start(second)
    await one.live()
    await two.live()
    fed = 0
    while not (one.lines("output_shared") and two.lines("output_shared")):
        events = list(keyed(range(fed, fed + 100), PARTITIONS))
        for source in (first.source, second.source):
            await asyncio.to_thread(produce, broker.bootstrap_servers, source, events)
        fed += 100
        assert not one.task.done()
        assert not two.task.done()
    for worker, other in ((one, second), (two, first)):
        (line,) = worker.lines("output_shared")
        assert line["groups"] == [f"{other.group}, with streamdedup at /127.0.0.1"]
        assert f"another deployment (the group {other.group}, with " in page(worker).text
        doubts = worker.lines("doubt")
        assert all(doubt["remedy"].startswith("none") for doubt in doubts)
        assert not any("timeout occurred" in doubt["error"] for doubt in doubts)
    await two.stop()
    await one.caught_up()
    await one.stop()
    keys = [record.key for record in read_all(broker.bootstrap_servers, first.sink)]
    assert len(keys) == len(set(keys)) == fed
