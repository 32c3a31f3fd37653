"""A deployment to test: topics on a real broker, a configuration, and workers as processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tests.broker.base import DEADLINE_S, wait_until
from tests.broker.topics import (
    Event,
    GroupOffsets,
    Record,
    committed,
    create_topic,
    produce,
    read_all,
    unique_name,
)

PARTITIONS = 4


class WorkerProcess:
    """`streamdedup run` in a process of its own, its log read back as JSON lines.

    It is killed at the end of the test unless it has ended by then.
    """

    started: ClassVar[list["WorkerProcess"]] = []

    def __init__(
        self,
        config: Path,
        log: Path,
        environ: Mapping[str, str] | None = None,
        module: str = "streamdedup",
        arguments: Sequence[str] = (),
    ) -> None:
        self._log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, "run", "-c", str(config), *arguments],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **(environ or {})},
            )
        self.started.append(self)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The log lines, or those of one event; not a last line that is still being written."""
        *lines, _ = self._log.read_text("utf-8").split("\n")
        parsed = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in parsed if name in (None, line["event"])]

    def wait_for(
        self, name: str, count: int = 1, deadline_s: float = DEADLINE_S
    ) -> list[dict[str, Any]]:
        """Wait until the log has `count` lines of event `name`."""
        wait_until(
            lambda: len(self.events(name)) >= count or self.process.poll() is not None,
            deadline_s,
            lambda: f"no {count} {name} in the log:\n{self._log.read_text('utf-8')[-3000:]}",
        )
        found = self.events(name)
        assert len(found) >= count, self._log.read_text("utf-8")[-3000:]
        return found

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.process.kill()
        self.process.wait()

    def interrupt(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to drain; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@contextmanager
def drained(worker: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Let a process run during the block, then drain it; it is killed if the block fails, or if it does not end."""
    try:
        yield
        assert worker.poll() is None
        worker.terminate()
        assert worker.wait(DEADLINE_S) == 0
    finally:
        worker.kill()
        worker.wait()


class Deployment:
    """One input, one output, one group."""

    def __init__(self, bootstrap: str, directory: Path, partitions: int = PARTITIONS) -> None:
        self.bootstrap, self.directory, self.partitions = bootstrap, directory, partitions
        self.source, self.sink = unique_name("in"), unique_name("out")
        self.group = unique_name("group")
        self.config: dict[str, dict[str, Any]] = {
            "kafka": {
                "bootstrap_servers": bootstrap,
                "group_id": self.group,
                "consumer": {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 300},
            },
            "source": {"topic": self.source},
            "key": {"from": "key"},
            "filter": {"capacity": 1_000_000, "error_rate": 1e-9},
            "sink": {"topic": self.sink},
            "delivery": {"commit_interval_ms": 50},
            "snapshot": {"directory": str(directory / "snapshots"), "interval_s": 3600},
        }

    def create(self, **output: str | int) -> "Deployment":
        """Create input and output."""
        create_topic(self.bootstrap, self.source, self.partitions)
        create_topic(self.bootstrap, self.sink, self.partitions, **output)
        return self

    def create_side_topic(self, leaf: str, **config: str | int) -> str:
        """Create the topic of `sink.LEAF` and configure it."""
        name = unique_name(leaf.replace("_", "-"))
        create_topic(self.bootstrap, name, self.partitions, **config)
        self.config["sink"][leaf] = name
        return name

    def feed(self, events: Iterable[Event]) -> None:
        """Append events to the input."""
        produce(self.bootstrap, self.source, events)

    def expect_kills(self) -> None:
        """Let the group drop a killed worker soon. On a busy machine it may drop a live one, too."""
        self.config["kafka"]["consumer"]["session_timeout_ms"] = 2000

    @property
    def snapshots(self) -> Path:
        """Where the snapshots of the output lie."""
        return self.directory / "snapshots" / self.group / self.sink

    def delete_snapshots(self) -> None:
        """Delete them, so that the next worker folds the output."""
        for path in self.snapshots.rglob("*.snapshot"):
            path.unlink()

    def write_config(self) -> Path:
        """The configuration as a file, which another worker may be reading."""
        path = self.directory / "config.yaml"
        beside = path.with_suffix(".part")
        beside.write_text(yaml.safe_dump(self.config), "utf-8")
        return beside.replace(path)

    def start(
        self, log: str = "worker.log", environ: Mapping[str, str] | None = None
    ) -> WorkerProcess:
        """Start a worker."""
        return WorkerProcess(self.write_config(), self.directory / log, environ)

    @contextmanager
    def running(self, log: str = "worker.log") -> Iterator[WorkerProcess]:
        """A worker that is killed at the end unless it has ended itself."""
        worker = self.start(log)
        try:
            yield worker
        finally:
            worker.kill()

    def catch_up(self, worker: WorkerProcess) -> None:
        """Wait until the group has committed the end of the input."""
        ends = self.input_ends()
        with closing(GroupOffsets(self.bootstrap, self.group, self.source)) as offsets:

            def caught_up() -> bool:
                assert worker.process.poll() is None, worker.events()[-5:]
                return offsets() == ends

            wait_until(caught_up, DEADLINE_S, lambda: f"not at {ends}; log: {worker.events()[-5:]}")

    def committed_so_far(self) -> int:
        """How many events the group has committed, without waiting for what a killed worker left open."""
        at = committed(self.bootstrap, self.group, self.source, require_stable=False)
        return sum(at.values())

    def input_ends(self) -> dict[int, int]:
        """The end of each input partition that holds anything, as a committed offset would say it."""
        ends = dict.fromkeys(range(self.partitions), 0)
        for record in read_all(self.bootstrap, self.source):
            ends[record.partition] = record.offset + 1
        return ends

    def run_to_the_end(self, log: str = "worker.log") -> WorkerProcess:
        """Start a worker, let it catch up, drain it."""
        with self.running(log) as worker:
            worker.wait_for("shard_live", self.partitions)
            self.catch_up(worker)
            assert worker.interrupt() == 0, worker.events()[-5:]
        return worker


def keyed(numbers: Iterable[int], partitions: int = PARTITIONS) -> Iterator[Event]:
    """Events with a key a number; equal keys share a partition."""
    for number in numbers:
        key = b"user%d@example.com" % number
        yield number % partitions, key, b'{"email":"%b"}' % key, [], None


def lost_and_doubled(deployment: Deployment) -> tuple[int, int, int]:
    """Against an exact model: keys that are not in the output, that are there again, that were never in the input."""
    source = read_all(deployment.bootstrap, deployment.source)
    return differences(source, read_all(deployment.bootstrap, deployment.sink))


def differences(source: Iterable[Record], output: Iterable[Record]) -> tuple[int, int, int]:
    """As `lost_and_doubled`, of records that were read already."""
    first = {(r.partition, r.key) for r in source}
    out = Counter((r.partition, r.key) for r in output)
    doubled = sum(count - 1 for count in out.values())
    return len(first - out.keys()), doubled, len(out.keys() - first)
