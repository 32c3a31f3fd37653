"""What no crash may do: lose an event or emit one twice. Kills are real, at random moments, on a real broker."""

import random
import shutil
from pathlib import Path

import pytest

from tests.broker.base import Broker
from tests.broker.topics import committed, move_offsets
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
