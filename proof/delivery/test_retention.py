"""More claims about an output that is deleted from below, on a broker."""

import shutil

import pytest

from tests.broker.topics import delete_records, read_all
from tests.deployment import Deployment, keyed
from tests.local import Start


@pytest.mark.needs_broker("topic ids")
async def test_a_commit_without_output_leaves_the_marker_above_the_note(
    deployment: Deployment, start: Start
) -> None:
    """A fold takes the label behind the marker; if what was saved then is lost, the older snapshot misses none."""
    deployment.feed(keyed(range(100), 1))
    await start(deployment).through(100)
    shutil.copytree(deployment.directory / "snapshots", deployment.directory / "old")
    delete_records(deployment.bootstrap, deployment.sink, {0: -1})
    deployment.feed(keyed(range(50), 1))
    await start(deployment).through(50)
    deployment.config["snapshot"]["directory"] = str(deployment.directory / "old")
    deployment.feed(keyed(range(105), 1))
    worker = await start(deployment).through(105)
    assert not worker.lines("shard_stopped")
    assert len(read_all(deployment.bootstrap, deployment.sink)) == 5
