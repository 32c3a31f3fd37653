"""What the worker promises, on a real broker: exact output, byte for byte, through drains and restarts."""

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest

from tests.broker.base import Broker
from tests.broker.topics import Event, produce, read_all
from tests.deployment import PARTITIONS, Deployment, keyed, lost_and_doubled
from tests.local import Start, run_to_the_end

EVENTS = 60_000


DUPLICATE_SHARE = 0.3


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Input and output of four partitions."""
    return Deployment(broker.bootstrap_servers, tmp_path).create()


def some_events(count: int, seed: int = 1) -> list[int]:
    """Key numbers, 30 % of them seen before."""
    chance, seen, numbers = random.Random(seed), 0, []
    for _ in range(count):
        if seen and chance.random() < DUPLICATE_SHARE:
            numbers.append(chance.randrange(seen))
        else:
            numbers.append(seen)
            seen += 1
    return numbers


def test_output_equals_the_exact_model(deployment: Deployment) -> None:
    """Of 60,000 events over four partitions, 30 % duplicates, exactly the first occurrences come out, in order."""
    numbers = some_events(EVENTS)
    deployment.feed(keyed(numbers))
    worker = deployment.run_to_the_end()
    assert lost_and_doubled(deployment) == (0, 0, 0)
    expected: dict[int, list[bytes | None]] = {p: [] for p in range(deployment.partitions)}
    for partition, key, *_ in keyed(dict.fromkeys(numbers)):
        expected[partition].append(key)
    emitted: dict[int, list[bytes | None]] = {p: [] for p in range(deployment.partitions)}
    for record in read_all(deployment.bootstrap, deployment.sink):
        emitted[record.partition].append(record.key)
    assert emitted == expected
    (stopped,) = worker.events("stopped")
    assert stopped["consumed"] == EVENTS == stopped["pass"] + stopped["duplicate"]


def test_survivors_keep_every_byte(deployment: Deployment) -> None:
    """Key, value, headers and timestamp of a survivor are those of the input, in the same partition."""
    stamp = int(time.time() * 1000) - 12_345
    events: list[Event] = [
        (0, b"k1", b"v1", [("h", b"1"), ("h", b"2"), ("null", None), ("empty", b"")], stamp),
        (1, b"\x00\xff", b"\x00" * 1000, [], stamp + 1),
        (2, b"", b"", [("\u00fc", b"\xff")], stamp + 2),
        (3, b"big", bytes(range(256)) * 3000, [], stamp + 3),
        (3, b"tombstone", None, [], stamp + 4),
    ]
    deployment.feed(events)
    run_to_the_end(deployment)
    got = [
        (r.partition, r.key, r.value, list(r.headers), r.timestamp_ms)
        for r in read_all(deployment.bootstrap, deployment.sink)
    ]
    assert got == events


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.rule(17)
def test_an_interrupt_drains(deployment: Deployment, number: signal.Signals) -> None:
    """SIGTERM and SIGINT commit the batch in hand, leave the group, snapshot, and exit with 0."""
    deployment.feed(keyed(range(2000)))
    with deployment.running() as worker:
        deployment.catch_up(worker)
        assert worker.interrupt(number) == 0
    assert len(worker.events("snapshot_saved")) == deployment.partitions
    assert len(list(deployment.snapshots.glob("*/*.snapshot"))) == deployment.partitions


async def test_a_drain_does_not_wait_for_the_commit_interval(
    deployment: Deployment, start: Start
) -> None:
    """A batch in hand is committed at once when the worker is asked to end."""
    deployment.config["delivery"]["commit_interval_ms"] = 10_000
    deployment.feed(keyed(range(40)))
    async with start(deployment) as worker:
        await worker.live()
        meters = worker.worker.status.meters
        await worker.until(
            lambda: sum(meters.of(p).in_flight for p in range(PARTITIONS)) == 40, "events in hand"
        )
        async with asyncio.timeout(8):
            await worker.stop()
    assert worker.tally.consumed == 40


def test_going_beyond_the_capacity_is_said(deployment: Deployment) -> None:
    """`on_full: warn` goes on, and says once a partition that the error rate is above the promise."""
    deployment.config["filter"] |= {"capacity": 400, "partition_headroom": 0, "on_full": "warn"}
    deployment.feed(keyed(range(2000)))
    worker = run_to_the_end(deployment)
    lines = worker.lines("filter_beyond_capacity")
    assert sorted(line["partition"] for line in lines) == [0, 1, 2, 3]
    assert all(line["error_rate_now"] > 0 and line["capacity"] == 100 for line in lines)
    assert lost_and_doubled(deployment) == (0, 0, 0)


async def test_markers_behind_the_last_event_are_committed(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """The offset passes the input's own transaction markers: their deletion is no loss of events."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    source = deployment.source
    produce(deployment.bootstrap, source, keyed(range(100), 1), transactional_id=source)
    produce(deployment.bootstrap, source, keyed(range(50), 1), transactional_id=source, abort=True)
    async with start(deployment) as worker:
        await worker.committed(152)
    assert lost_and_doubled(deployment) == (0, 0, 0)
