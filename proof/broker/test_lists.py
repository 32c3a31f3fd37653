"""The topic of events that a list blocks, on a real broker, with a filter and without one, despite kills.

What is counted, reported and refused: tests/worker/test_block_lists.py.
"""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.broker.base import Broker
from tests.broker.topics import Record, read_all
from tests.deployment import Deployment
from tests.lists.numbered import KEYS, addressed, build_lists, is_blocked
from tests.local import run_to_the_end

pytestmark = pytest.mark.broker

EVENTS = 40_000
KILLS = 3


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions, both lists, and a topic for what is blocked; transactions are small."""
    made = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    made.config["key"] = {"from": "key", "normalize": "email"}
    made.config |= build_lists(tmp_path)
    made.config["snapshot"]["interval_s"] = 0.3
    made.config["delivery"] |= {"batch_events_max": 500, "commit_interval_ms": 20}
    made.config["kafka"]["consumer"]["max_partition_fetch_bytes"] = 32_768
    made.create_side_topic("blocked_topic")
    return made


def without_filter(deployment: Deployment) -> Deployment:
    """The same, but it only screens: nothing is said of snapshots."""
    deployment.config["filter"] = {"kind": "none"}
    del deployment.config["snapshot"]
    return deployment


def numbers_of(records: Iterable[Record], partition: int) -> list[int]:
    """What stands in the values, in their order."""
    return [int(r.value or b"") for r in records if r.partition == partition]


def check_blocked(deployment: Deployment, numbers: list[int]) -> None:
    """Each blocked event is there once, whole, and says where it stood and by what it was blocked."""
    stood = {(r.partition, r.offset): r for r in read_all(deployment.bootstrap, deployment.source)}
    letters = read_all(deployment.bootstrap, deployment.config["sink"]["blocked_topic"])
    assert len(letters) == sum(is_blocked(n) is not None for n in numbers)
    found, versions = set(), set()
    for letter in letters:
        headers = {name: value or b"" for name, value in letter.headers}
        event = stood[letter.partition, int(headers["streamdedup.offset"])]
        found.add((event.partition, event.offset))
        assert (letter.key, letter.value) == (event.key, event.value)
        assert int(headers["streamdedup.timestamp"]) == event.timestamp_ms
        assert headers["streamdedup.list"] == b"blocked"
        assert headers["streamdedup.rule"].decode() == is_blocked(int(event.value or b""))
        versions.add(headers["streamdedup.list-version"])
    assert len(found) == len(letters)
    assert len(versions) == 1


def kill_at_work(deployment: Deployment, chance: random.Random) -> None:
    """Start a worker and kill it, several times, at least once in the middle of the work."""
    deployment.expect_kills()
    at_work = 0
    for attempt in range(KILLS):
        with deployment.running(f"{attempt}.log") as worker:
            worker.wait_for("shard_live", 1)
            deployment.kill_in_turn(worker, attempt, chance, EVENTS)
        at_work += 0 < deployment.committed_so_far() < EVENTS
    assert at_work, "the kills came too late to prove anything"


def test_kills_lose_and_double_nothing_of_what_is_blocked(deployment: Deployment) -> None:
    """Output and topic of the blocked hold each event once; what is on both lists passes once, as other keys do."""
    chance = random.Random(1)
    numbers = [chance.randrange(KEYS) for _ in range(EVENTS)]
    deployment.feed(addressed(numbers, 2))
    kill_at_work(deployment, chance)
    run_to_the_end(deployment)
    output = read_all(deployment.bootstrap, deployment.sink)
    passing = list(dict.fromkeys(n for n in numbers if is_blocked(n) is None))
    for partition in range(2):
        expected = [n for n in passing if n % 2 == partition]
        assert numbers_of(output, partition) == expected
    check_blocked(deployment, numbers)


def test_without_a_filter_kills_lose_and_double_nothing_either(deployment: Deployment) -> None:
    """Each event that is not blocked passes, as often as it came and in its place; nothing is folded or saved."""
    chance = random.Random(2)
    numbers = [chance.randrange(KEYS) for _ in range(EVENTS)]
    without_filter(deployment).feed(addressed(numbers, 2))
    kill_at_work(deployment, chance)
    last = run_to_the_end(deployment)
    output = read_all(deployment.bootstrap, deployment.sink)
    for partition in range(2):
        expected = [n for n in numbers if n % 2 == partition and is_blocked(n) is None]
        assert numbers_of(output, partition) == expected
    check_blocked(deployment, numbers)
    assert not last.lines("output_folded")
    assert not last.lines("snapshot_saved")
    assert not list(deployment.directory.rglob("*.snapshot"))
