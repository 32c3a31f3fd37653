"""A directory of snapshots that cannot be read costs a fold, and nothing else; on a real broker and file system."""

import shutil
from pathlib import Path

import pytest

from tests.broker.base import Broker
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import Start

pytestmark = pytest.mark.broker


def spoil(directory: Path) -> Path:
    """Make a file of the directory below, in which there are snapshots; its path."""
    (snapshot,) = directory.rglob("*.snapshot")
    shutil.rmtree(snapshot.parent)
    snapshot.parent.touch()
    return snapshot.parent


async def test_what_cannot_be_listed_is_folded(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """If the directory of the partition became a file, the shard is live, logs it, and cannot save."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    first = start(deployment)
    deployment.feed(keyed(range(100), 1))
    await first.consumed(100)
    await first.stop()
    (saved,) = first.lines("snapshot_saved")
    place = spoil(tmp_path)

    second = start(deployment)
    deployment.feed(keyed(range(50, 150), 1))
    await second.consumed(100)
    await second.stop()

    assert saved["label"] > 0
    (refused,) = second.lines("snapshot_refused")
    assert refused["path"] == str(place)
    assert refused["reason"].startswith(f"cannot list {place}: Not a directory")
    assert refused["instead"] == "the output is folded"
    assert second.lines("snapshot_failed")
    assert not second.lines("doubt")
    assert lost_and_doubled(deployment) == (0, 0, 0)
