"""What no crash may do: lose an event or emit one twice. Kills are real, at random moments, on a real broker."""

import random
import shutil
from pathlib import Path

import pytest

from streamdedup.filters import build
from streamdedup.snapshot import Identity, Store
from streamdedup.snapshot.read import CopyingReader
from tests.broker.base import Broker
from tests.broker.topics import committed, move_offsets, read_all
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.local import run_to_the_end

pytestmark = pytest.mark.broker

EVENTS = 100_000
KILLS = 4


@pytest.mark.parametrize("meddled", [False, True])
def test_kills_lose_and_double_nothing(broker: Broker, tmp_path: Path, meddled: bool) -> None:
    """SIGKILL at random moments, restarted each time, also if snapshots go and offsets move back while it is down."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path).create()
    deployment.expect_kills()
    deployment.config["snapshot"]["interval_s"] = 0.3
    deployment.config["delivery"] |= {"batch_events_max": 500, "commit_interval_ms": 20}
    deployment.config["kafka"]["consumer"]["max_partition_fetch_bytes"] = 32_768
    chance = random.Random(meddled)
    numbers = [chance.randrange(int(EVENTS * 0.83)) for _ in range(EVENTS)]  # some 30 % duplicates
    deployment.feed(keyed(numbers))
    killed_at_work = 0
    for attempt in range(KILLS):
        with deployment.running(f"{attempt}.log") as worker:
            worker.wait_for("shard_live", 1)
            deployment.kill_in_turn(worker, attempt, chance, EVENTS)
        if meddled and attempt % 2:
            shutil.rmtree(deployment.snapshots, ignore_errors=True)
        if meddled:
            _move_back(deployment, chance)
        killed_at_work += 0 < deployment.committed_so_far() < EVENTS
    run_to_the_end(deployment)
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert killed_at_work >= KILLS // 2, "the kills came too late to prove anything"


def _move_back(deployment: Deployment, chance: random.Random) -> None:
    at = committed(deployment.bootstrap, deployment.group, deployment.source, require_stable=False)
    back = {
        p: chance.randrange(offset) for p, offset in at.items() if offset and chance.random() < 0.6
    }
    if back:
        move_offsets(deployment.bootstrap, deployment.group, back, deployment.source)


def test_a_deleted_group_doubles_nothing(broker: Broker, tmp_path: Path) -> None:
    """A new group on the same output, as after the old one was deleted, reads all again and emits nothing."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path).create()
    deployment.feed(keyed(range(2000)))
    run_to_the_end(deployment)
    deployment.group += "-2"
    deployment.config["kafka"]["group_id"] = deployment.group
    run_to_the_end(deployment)
    assert lost_and_doubled(deployment) == (0, 0, 0)
    assert len(read_all(deployment.bootstrap, deployment.sink)) == 2000


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("flipped byte", "checksum"),
        ("truncated", "cut short"),
        ("another partition's", "partition"),
    ],
)
def test_a_harmed_snapshot_is_refused_and_the_one_before_used(
    broker: Broker, tmp_path: Path, harm: str, reason: str
) -> None:
    """A damaged or foreign generation is refused with a message; the fold begins at the generation before."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path).create()
    deployment.feed(keyed(range(400)))
    run_to_the_end(deployment)
    deployment.feed(keyed(range(400, 800)))
    run_to_the_end(deployment)
    older, newer = sorted((deployment.snapshots / "0").glob("*.snapshot"))
    if harm == "another partition's":
        shutil.copy(sorted((deployment.snapshots / "1").glob("*.snapshot"))[-1], newer)
    else:
        content = bytearray(newer.read_bytes())
        content[len(content) // 2] ^= 1
        newer.write_bytes(content if harm == "flipped byte" else content[: len(content) // 2])
    third = run_to_the_end(deployment)
    (refused,) = third.lines("snapshot_refused")
    assert refused["path"] == str(newer)
    assert reason in refused["reason"]
    loaded = [e for e in third.lines("snapshot_loaded") if e["partition"] == 0]
    assert [e["path"] for e in loaded] == [str(older)]
    assert lost_and_doubled(deployment) == (0, 0, 0)


def test_a_snapshot_beyond_the_outputs_end_is_refused(broker: Broker, tmp_path: Path) -> None:
    """A snapshot whose label lies beyond the output's end is refused with a message, and the one before is used."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path).create()
    deployment.feed(keyed(range(400)))
    run_to_the_end(deployment)
    (good,) = (deployment.snapshots / "0").glob("*.snapshot")
    store = Store(
        tmp_path / "snapshots", group=deployment.group, topic=deployment.sink, partition=0
    )
    seen = build({"kind": "bloom", "capacity": 300_000, "error_rate": 1e-9})
    beyond = store.save(seen, 10**6, lambda: 10**6, _identity(good)).path
    second = run_to_the_end(deployment)
    (refused,) = second.lines("snapshot_refused")
    assert refused["path"] == str(beyond)
    assert "the output ends at" in refused["reason"]
    loaded = [e for e in second.lines("snapshot_loaded") if e["partition"] == 0]
    assert [e["path"] for e in loaded] == [str(good)]


def _identity(path: Path) -> Identity:
    with path.open("rb") as file:

        def read_into(view: memoryview) -> None:
            assert file.readinto(view) == len(view)

        return CopyingReader(read_into, path.stat().st_size).header.identity
