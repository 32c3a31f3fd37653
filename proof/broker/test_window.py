"""A window in the worker, on a real broker: its verdicts are those of the events' own times, whatever dies when.

The model is exact: it remembers which generations hold a key, and reads the input once, in order.
"""

import random
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamdedup.errors import ConfigError
from tests.broker.base import Broker
from tests.broker.topics import Event, delete_records, read_all
from tests.deployment import Deployment
from tests.local import Start, run_to_the_end

pytestmark = pytest.mark.broker

GENERATIONS, SLOT_MS = 8, 1000
RETENTION_MS = (GENERATIONS - 1) * SLOT_MS
EVENTS = 20_000
KILLS = 4


@dataclass
class Model:
    """What a window of one partition must decide."""

    max_jump: int
    late_passes: bool = True
    watermark: int | None = None
    held: dict[bytes, int] = field(default_factory=dict)  # key -> newest generation that has it

    def passes(self, key: bytes, at: int) -> bool:
        """Whether the event passes; then, unless it is late, it is remembered."""
        if self.watermark is None:
            self.watermark = at
        reach = max(self.watermark, min(at, self.watermark + self.max_jump))
        if self.held.get(key, 0) > max(self.watermark, at) // SLOT_MS - GENERATIONS:
            return False
        if at // SLOT_MS <= self.watermark // SLOT_MS - GENERATIONS:
            return self.late_passes
        self.watermark = reach
        self.held[key] = min(at // SLOT_MS, self.watermark // SLOT_MS)
        return True


def windowed(broker: Broker, directory: Path, **options: str | float) -> Deployment:
    """A deployment of one partition whose filter forgets by event time."""
    deployment = Deployment(broker.bootstrap_servers, directory, partitions=1)
    deployment.create(**{"retention.ms": 86_400_000})
    deployment.config["filter"] = {
        "kind": "window",
        "capacity": 200_000,
        "error_rate": 1e-9,
        "retention": f"{RETENTION_MS}ms",
        "generations": GENERATIONS,
        **options,
    }
    return deployment


def timed(moments: Iterable[tuple[int, int]]) -> list[Event]:
    """Events from pairs of a key's number and a time."""
    return [(0, b"user%d@example.com" % number, b"", [], at) for number, at in moments]


def some_moments(chance: random.Random, start: int, count: int) -> list[tuple[int, int]]:
    """A stream over ten windows: mostly in order, some out of order, some late, some stamped ahead."""
    step = 10 * RETENTION_MS / count
    moments = []
    for row in range(count):
        off = chance.choice(
            [0, 0, 0, -300, -SLOT_MS, -RETENTION_MS, -2 * RETENTION_MS, 3 * SLOT_MS]
        )
        moments.append((chance.randrange(count // 8), start + int(row * step) + off))
    return moments


def emitted(deployment: Deployment) -> list[tuple[bytes | None, int | None]]:
    """Key and time of all that came out."""
    return [(r.key, r.timestamp_ms) for r in read_all(deployment.bootstrap, deployment.sink)]


@pytest.mark.parametrize("late", ["pass", "drop"])
def test_kills_change_no_verdict(broker: Broker, tmp_path: Path, late: str) -> None:
    """With snapshots or after their loss, the output of a killed worker is the model's, event for event."""
    deployment = windowed(broker, tmp_path, late=late, max_jump=f"{5 * SLOT_MS}ms")
    deployment.expect_kills()
    deployment.config["snapshot"]["interval_s"] = 0.3
    deployment.config["delivery"] |= {"batch_events_max": 300, "commit_interval_ms": 20}
    deployment.config["kafka"]["consumer"]["max_partition_fetch_bytes"] = 16_384
    chance = random.Random(late)
    start = int(time.time() * 1000) - 3_600_000
    events = timed(some_moments(chance, start, EVENTS))
    deployment.feed(events)
    for attempt in range(KILLS):
        with deployment.running(f"{attempt}.log") as worker:
            worker.wait_for("shard_live", 1)
            time.sleep(chance.uniform(0, 0.4))  # the moment of the crash, not a wait for anything
            worker.kill()
        if attempt % 2:
            shutil.rmtree(deployment.snapshots, ignore_errors=True)
    run_to_the_end(deployment)
    model = Model(5 * SLOT_MS, late == "pass")
    expected = [(key, at) for _, key, _, _, at in events if model.passes(key or b"", at or 0)]
    assert emitted(deployment) == expected
    distinct = len({key for key, _ in expected})
    assert distinct < len(expected) < EVENTS * 0.9, "nothing was forgotten, or nothing found"


def test_many_generations_in_one_transaction_fill_no_window(broker: Broker, tmp_path: Path) -> None:
    """What waits may be more than one generation has room for: it is committed, and reading goes on where it ended."""
    deployment = windowed(broker, tmp_path, capacity=1000)
    deployment.config["delivery"]["commit_interval_ms"] = 1000
    start = int(time.time() * 1000) - 3_600_000
    deployment.feed(timed((key, start + key * SLOT_MS // 100) for key in range(8000)))
    worker = run_to_the_end(deployment)
    assert len(emitted(deployment)) == 8000
    assert not worker.lines("filter_full")
    assert not worker.lines("doubt")


@pytest.mark.rule(5)
def test_the_time_of_a_trimmed_output_stands_in_the_commit(broker: Broker, tmp_path: Path) -> None:
    """What retention deletes is older than the window: no gap, and a fold begins at the time that was committed."""
    deployment = windowed(broker, tmp_path, late="drop", max_jump=f"{SLOT_MS}ms")
    now = int(time.time() * 1000) - 3_600_000
    times = [now + step * SLOT_MS for step in range(20)]
    deployment.feed(timed(enumerate(times)))
    run_to_the_end(deployment)
    before = emitted(deployment)
    shutil.rmtree(deployment.snapshots)
    delete_records(deployment.bootstrap, deployment.sink, {0: -1})  # to the end
    deployment.feed(timed([(1000, times[5]), (1001, times[19])]))
    second = run_to_the_end(deployment)
    assert len(before) == 20
    assert second.lines("output_gap_outlived")
    assert emitted(deployment) == [(b"user1001@example.com", times[19])]


@pytest.mark.rule(13)
async def test_an_output_that_stamps_by_itself_is_refused(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """A fold of it would put all keys into the window of now: the worker says so and does not start."""
    deployment = windowed(broker, tmp_path)
    other = Deployment(broker.bootstrap_servers, tmp_path, partitions=1)
    other.create(**{"message.timestamp.type": "LogAppendTime"})
    deployment.config["sink"]["topic"] = other.sink
    with pytest.raises(ConfigError, match=f"the topic {other.sink} replaces timestamps by its own"):
        await start(deployment).task
