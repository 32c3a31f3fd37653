"""Broken deployments on a real broker: each is named by doctor, with the place and the remedy, and by nothing else.

The worker runs meanwhile, where the fault needs one, and as a process of its own, as an operator has it.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker.base import DEADLINE_S, Broker, OwnedBroker, wait_until
from tests.broker.proxy import Delay, Frame, Proxy
from tests.broker.topics import Event, committed, delete_records, produce
from tests.deployment import Deployment, WorkerProcess

PARTITIONS = 2
DESCRIBE_GROUPS, LIST_GROUPS, DESCRIBE_ACLS = 15, 16, 29  # requests, by Kafka's keys
ALWAYS_S_MAX = 20.0  # doctor's own time, as promised for a quiet machine
# What may be said of every deployment here: of an old broker, of this machine, or because the fault stops a partition.
NOT_THE_FAULT = frozenset({"clock", "compiled", "disk-speed", "group-unread", "broker-versions"})

Line = dict[str, Any]


class Ailing(Deployment):
    """A deployment with JSON events."""

    def __init__(self, bootstrap: str, directory: Path, **changes: Any) -> None:
        super().__init__(bootstrap, directory, PARTITIONS)
        self.config["key"] = {"field": "id"}
        for section, options in changes.items():
            self.config.setdefault(section, {}).update(options)
        self.create(retention_ms=-1)

    def put(self, keys: Iterable[str], topic: str = "", *, spread: bool = False) -> None:
        """Append an event for each key; with `spread`, in turn to all partitions and without record keys."""
        events: list[Event] = [
            (n % PARTITIONS, None, _value(key), [], None)
            if spread
            else (sum(key.encode()) % PARTITIONS, key.encode(), _value(key), [], None)
            for n, key in enumerate(keys)
        ]
        produce(self.bootstrap, topic or self.source, events)

    @contextmanager
    def working(self) -> Iterator[WorkerProcess]:
        """Run a worker in the block; it is live at its beginning."""
        worker = WorkerProcess(self.write_config(), self.directory / "log")
        try:
            worker.wait_for("shard_live", PARTITIONS)
            yield worker
        finally:
            worker.kill()

    def await_read(self, events: int) -> None:
        """Wait until so many events of the input are committed."""
        wait_until(
            lambda: sum(committed(self.bootstrap, self.group, self.source).values()) == events,
            DEADLINE_S,
            lambda: f"{events} events are not committed",
        )

    def doctor(self) -> tuple[int, list[Line], float]:
        """The exit status, the lines that are not ok, and the seconds that it took."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "streamdedup", "doctor", str(self.write_config()), "--json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
            env=dict(os.environ),
        )
        report = json.loads(done.stdout)
        seconds = time.monotonic() - began
        return (
            done.returncode,
            [each for each in report["lines"] if each["status"] != "ok"],
            seconds,
        )

    def named(self, check: str, status: str, finding: str | None = None) -> Line:
        """The line of the fault, after it was looked at that nothing else is said."""
        exit_status, lines, seconds = self.doctor()
        faults = [line for line in lines if line["check"] == check]
        assert {(line["status"], line["finding"]) for line in faults} == {(status, finding)}, lines
        others = {line["check"] for line in lines if line["status"] != "unknown"}
        assert others - NOT_THE_FAULT <= {check}, lines
        assert exit_status == {"failure": 2, "warning": 3}[status]
        assert seconds < ALWAYS_S_MAX
        return faults[0]


def _value(key: str) -> bytes:
    return json.dumps({"id": key, "user": {"email": "x@example.org"}}).encode()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """With the directory of the snapshots in it."""
    (tmp_path / "snapshots").mkdir(mode=0o700)
    return tmp_path


def test_a_full_filter(broker: Broker, directory: Path) -> None:
    """The partitions are named, and that they stand still."""
    options = {"kind": "bloom", "capacity": 2000, "on_full": "stop"}
    there = Ailing(broker.bootstrap_servers, directory, filter=options)
    there.put(f"k{n}" for n in range(1600))
    with there.working() as worker:
        there.put(f"k{n}" for n in range(1600, 9000))
        worker.wait_for("filter_full", PARTITIONS)
        exit_status, lines, _ = there.doctor()
    by = {line["check"]: line for line in lines}
    assert exit_status == 2
    assert by["filter-room"]["finding"] == "filter-full"
    assert "raise filter.capacity" in by["filter-room"]["remedy"]
    assert "stands still" in by["group-unread"]["sentence"]


def test_a_second_writer(broker: Broker, directory: Path) -> None:
    """What it wrote is named, and when."""
    there = Ailing(broker.bootstrap_servers, directory)
    there.put(f"k{n}" for n in range(200))
    with there.working() as worker:
        there.await_read(200)
        produce(there.bootstrap, there.sink, [(0, None, _value("foreign"), [], None)])
        there.put(f"m{n}" for n in range(200))
        worker.wait_for("shard_stopped")
        line = there.named("output-writers", "failure", "second-writer")
    assert "it wrote 1 event" in line["sentence"]
    assert f"{there.sink}/0 has a second writer" in line["sentence"]
    assert "foreign" not in json.dumps(line)


def test_a_wrong_field(broker: Broker, directory: Path) -> None:
    """The reason is named, before any worker runs."""
    there = Ailing(broker.bootstrap_servers, directory, key={"field": "idd"})
    there.put(f"k{n}" for n in range(500))
    exit_status, lines, _ = there.doctor()
    assert exit_status == 3
    (line,) = [line for line in lines if line["check"] == "sample-keys"]
    assert line["finding"] == "verdict-prevails"
    assert "500 of the newest 500 events are malformed" in line["sentence"]


def test_a_list_of_another_normalization(broker: Broker, directory: Path) -> None:
    """As a start would refuse it."""
    text, file = directory / "block.txt", directory / "block.list"
    text.write_text("spam@example.com\n")
    command = [sys.executable, "-m", "streamdedup", "lists", "build", str(text), "-o", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    there = Ailing(
        broker.bootstrap_servers,
        directory,
        key={"normalize": "email"},
        blocklist={"file": str(file)},
    )
    there.put(f"user{n}@example.com" for n in range(200))
    exit_status, lines, _ = there.doctor()
    assert exit_status == 2
    (line,) = [line for line in lines if line["check"] == "lists"]
    assert (line["status"], line["finding"]) == ("failure", "list-refused")
    assert "lists build -c" in line["remedy"]


def test_keys_across_partitions(broker: Broker, directory: Path) -> None:
    """From a sample."""
    there = Ailing(broker.bootstrap_servers, directory)
    for start in range(2):
        there.put((f"k{n}" for n in range(start, 400 + start)), spread=True)
    line = there.named("sample-partitions", "warning", "duplicates-across-partitions")
    assert "source.repartition" in line["remedy"]


def test_a_filter_beyond_its_capacity(broker: Broker, directory: Path) -> None:
    """Which drops events wrongly, and goes on."""
    options = {"kind": "bloom", "capacity": 2000, "error_rate": 1e-2, "on_full": "warn"}
    there = Ailing(broker.bootstrap_servers, directory, filter=options)
    there.put(f"k{n}" for n in range(5000))
    with there.working():
        there.await_read(5000)
        exit_status, lines, _ = there.doctor()
    assert exit_status == 3
    (line, *_rest) = [line for line in lines if line["check"] == "filter-room"]
    assert line["finding"] == "filter-beyond-capacity"


def test_a_trimmed_output(broker: Broker, directory: Path) -> None:
    """Beyond the snapshots, of which there are none."""
    there = Ailing(broker.bootstrap_servers, directory)
    there.put(f"k{n}" for n in range(200))
    with there.working() as worker:
        there.await_read(200)
        worker.kill()
    delete_records(there.bootstrap, there.sink, {0: 10})
    line = there.named("output-resume", "failure", "output-trimmed")
    assert line["place"] == f"{there.source}/0"


def test_a_worker_in_peace(broker: Broker, directory: Path) -> None:
    """Nothing is said but what is not known, and the worker goes on: its group has no other member, its epoch stays."""
    there = Ailing(broker.bootstrap_servers, directory)
    there.put(f"k{n}" for n in range(500))
    with there.working() as worker:
        there.await_read(500)
        exit_status, lines, seconds = there.doctor()
        there.put(f"m{n}" for n in range(100))
        there.await_read(600)
        doubts = worker.events("doubt")
    said = {line["check"] for line in lines if line["status"] != "unknown"}
    assert said <= {"compiled", "disk-speed", "broker-versions"}, lines
    assert exit_status in (0, 3)
    assert seconds < ALWAYS_S_MAX
    assert not doubts


def test_a_paused_broker(private_broker: OwnedBroker, directory: Path) -> None:
    """Status 1, and the line says at which address nobody answered."""
    there = Ailing(private_broker.bootstrap_servers, directory)
    private_broker.pause()
    try:
        exit_status, lines, seconds = there.doctor()
    finally:
        private_broker.resume()
    (first,) = [line for line in lines if line["check"] == "broker-versions"]
    assert exit_status == 1
    assert there.bootstrap in first["sentence"]
    assert seconds < ALWAYS_S_MAX


@pytest.mark.parametrize(
    ("api", "hanging"),
    [
        (
            DESCRIBE_GROUPS,
            {"group-members", "group-meaning", "group-partitions", "group-unread"},
        ),
        pytest.param(LIST_GROUPS, {"output-shared"}, marks=pytest.mark.needs_broker("topic ids")),
        (DESCRIBE_ACLS, {"rights-topics", "rights-groups", "rights-transactions"}),
    ],
)
def test_a_broker_that_hangs_in_one_answer(
    broker: Broker, directory: Path, api: int, hanging: set[str]
) -> None:
    """Its lines are unknown after 10 s, and all others are as without it: none waits for it."""
    there = Ailing(broker.bootstrap_servers, directory)
    there.put(f"k{n}" for n in range(200))
    late = Delay(2 * ALWAYS_S_MAX)

    def hang(frame: Frame) -> Delay | None:
        return late if frame.is_answer and frame.api == api else None

    _, before, _ = there.doctor()
    with Proxy(there.bootstrap, hang) as proxy:
        there.config["kafka"]["bootstrap_servers"] = proxy.bootstrap_servers
        _, lines, seconds = there.doctor()
    waited = {line["check"] for line in lines if line["sentence"] == "no answer within 10 s"}
    assert waited == hanging, lines
    known = {"disk-speed", *(line["check"] for line in before)}
    assert {line["check"] for line in lines} - known == hanging
    assert seconds < ALWAYS_S_MAX
