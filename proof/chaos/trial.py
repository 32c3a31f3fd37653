"""One round: topics of its own, a feeder, workers that come to harm, a count of what really happened, and the finding.

A fault counts as tried when it was done to a live worker or broker, and as a hit when records of an open transaction
stood in the output at that moment: only then could it break the promise. Not every scenario asks for hits.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # it is, at run time

from proof.chaos.asking import patiently
from proof.chaos.brokers import Brokers
from proof.chaos.feeding import Feeder
from proof.chaos.oracle import Finding, Model, judge
from proof.chaos.worker import Wanted, environment
from tests.broker.base import DEADLINE_S, admin_client, client_config, wait_until
from tests.broker.topics import create_replicated
from tests.deployment import Deployment, WorkerProcess

ROOT = Path(__file__).parents[2]
WRAPPER = "proof.chaos.worker"
PARTITIONS = 4
RATE = 1500
LIVE_S = CATCH_UP_S = DEADLINE_S
AIM_S = 2.0
ANSWER_S = 5.0
DRAIN_S = 10.0
SLACK_S = 1.0  # the interpreter's own end
REQUEST_MS = 3000
TRANSACTION_MS = 4000
SESSION_MS = 1500


@dataclass(frozen=True)
class End:
    """An offset that a partition's leader told as the end, and that leader's epoch, where it has one."""

    offset: int
    epoch: int | None = None


@dataclass
class Count:
    """What was really done."""

    tried: Counter[str] = field(default_factory=Counter)
    hits: int | None = None  # where nobody asked
    longest_s: dict[str, float] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    """What the workers' logs show, if the scenario looks."""
    failures: list[str] = field(default_factory=list)


class Trial:
    """The ground on which a scenario plays one round."""

    FEEDER: type[Feeder] = Feeder

    def __init__(
        self,
        brokers: Brokers,
        directory: Path,
        seed: str,
        *,
        number: int = 0,
        partitions: int = PARTITIONS,
        rate: int = RATE,
        at_least_once: bool = False,
    ) -> None:
        self.brokers, self.directory, self.chance = brokers, directory, random.Random(seed)
        self.number = number  # of the round
        self.at_least_once = at_least_once  # without transactions
        self.broken: Wanted = {}  # a promise that every worker breaks, where the oracle itself is tested
        self.count, self.model = Count(), Model()
        self.workers: list[WorkerProcess] = []
        replicas = len(brokers.nodes)
        self.deployment = Deployment(brokers.bootstrap_servers, directory, partitions)
        for topic in self._topics():
            create_replicated(brokers.bootstrap_servers, topic, partitions, replicas, {})
        self._rate, self._seed = rate, seed
        self._admin = admin_client(brokers.bootstrap_servers)
        self._started = self._fed = 0
        self._settle_on_small_steps()
        self.feed()

    def feed(self) -> None:
        """Begin to feed the input; keys come as they came the last time, if there was one."""
        self.feeder = self.FEEDER(
            self.brokers.bootstrap_servers,
            self.deployment.source,
            self.partitions,
            self._rate,
            random.Random(f"{self._seed} feeder"),
        )

    def _topics(self) -> Sequence[str]:
        """The topics that are made before a worker starts."""
        return self.deployment.source, self.deployment.sink

    @property
    def partitions(self) -> int:
        """How many the topics have."""
        return self.deployment.partitions

    def name_the_member(self) -> None:
        """Static membership: who comes back after a kill has its partitions at once."""
        self.deployment.config["kafka"]["group_instance_id"] = "one"

    def start(self, wanted: Wanted | None = None, arguments: Sequence[str] = ()) -> WorkerProcess:
        """Start a worker, with more arguments to `run`; where something is wanted of it, in its wrapper."""
        wanted = {**(wanted or {}), **self.broken}
        module = WRAPPER if wanted else "streamdedup"
        return self._launch({"PYTHONPATH": str(ROOT), **environment(wanted)}, module, arguments)

    def start_from(self, environ: Mapping[str, str]) -> WorkerProcess:
        """Start a worker of the version that `environ` names; without the wrapper, which patches today's names."""
        return self._launch(environ, "streamdedup")

    def start_live(self, wanted: Wanted | None = None) -> WorkerProcess:
        """Start a worker and wait until it serves every partition."""
        worker = self.start(wanted)
        worker.wait_for("shard_live", self.partitions, LIVE_S)
        return worker

    def open_transactions(self) -> bool:
        """Whether records stand in the output of which it is not decided whether they are committed."""
        return undecided(self._ends)

    def aim(self) -> None:
        """Wait a moment of chance; half of the time, then, for an open transaction, as far as there is one."""
        self.pause_by_chance(0, 0.5)
        until = time.monotonic() + AIM_S
        if self.chance.random() < 0.7 and not self.at_least_once:
            while time.monotonic() < until and not self.open_transactions():
                pass

    def drain(self, worker: WorkerProcess) -> None:
        """SIGTERM: it ends with 0, in time."""
        began = time.monotonic()
        worker.process.send_signal(signal.SIGTERM)
        try:
            status = worker.process.wait(DRAIN_S + SLACK_S)
        except subprocess.TimeoutExpired:
            self.failed(f"a drain took more than {DRAIN_S:g} s: {worker.events()[-3:]}")
            worker.kill()
            return
        self.took("drain", time.monotonic() - began)
        if status:
            self.failed(f"SIGTERM ended a worker with {status}: {worker.events()[-2:]}")

    def pause_by_chance(self, least_s: float, most_s: float) -> None:
        """So the moment of a fault is chosen; it is no wait for anything."""
        time.sleep(self.chance.uniform(least_s, most_s))

    def tried(self, fault: str) -> None:
        """Count a fault that was done."""
        self.count.tried[fault] += 1

    def took(self, what: str, seconds: float) -> None:
        """Keep the longest time that something took."""
        self.count.longest_s[what] = max(seconds, self.count.longest_s.get(what, 0.0))

    def failed(self, what: str) -> None:
        """Note what must not have happened; the round has failed."""
        self.count.failures.append(what)

    def note_hit(self) -> None:
        """Whether a fault hits an open transaction: right after one that ended or stopped every worker, else before."""
        if not self.at_least_once:
            self.count.hits = (self.count.hits or 0) + self.open_transactions()

    def committed(self, *, stable: bool = False) -> dict[int, int]:
        """The group's offsets; with `stable`, once no open transaction can change them.

        Asked by a consumer: the admin client's own request crashes where the group has no coordinator yet.
        """
        there = self.deployment
        return self.committed_by(there.group, there.source, self.partitions, stable=stable)

    def committed_by(
        self, group: str, topic: str, partitions: int, *, stable: bool = False
    ) -> dict[int, int]:
        """As `committed`, of any group and topic."""
        isolation = "read_committed" if stable else "read_uncommitted"
        asked = [TopicPartition(topic, p) for p in range(partitions)]

        def ask() -> list[TopicPartition]:
            consumer = Consumer(
                client_config(self.deployment.bootstrap)
                | {"group.id": group, "isolation.level": isolation}
            )
            try:
                answers = consumer.committed(asked, DEADLINE_S if stable else ANSWER_S)
            finally:
                consumer.close()
            if failed := next((answer.error for answer in answers if answer.error), None):
                raise KafkaException(failed)
            return answers

        return {a.partition: a.offset for a in patiently(ask) if a.offset >= 0}

    def input_ends(self) -> dict[int, int]:
        """The end of each input partition as far as it is decided."""
        return _offsets(self._ends(IsolationLevel.READ_COMMITTED, self.deployment.source))

    def output_ends(self) -> dict[int, int]:
        """The high watermark of each output partition."""
        return _offsets(self._ends(IsolationLevel.READ_UNCOMMITTED))

    def wait_for_progress(self, what: str, within_s: float = CATCH_UP_S) -> None:
        """Until there is more input than the last time, or another, and each partition's offset has reached its end."""
        ends = self.fed_ends(what, within_s)
        wait_until(
            lambda: reached(self.committed(), ends),
            within_s,
            lambda: f"no progress after {what}: {self.committed()} of {ends}",
        )

    def fed_ends(self, what: str, within_s: float) -> dict[int, int]:
        """Wait until there is more input than the last time, or another; where each partition ends then."""
        wait_until(
            lambda: sum(self.input_ends().values()) not in (0, self._fed),
            within_s,
            lambda: f"nothing was fed after {what}",
        )
        ends = self.input_ends()
        self._fed = sum(ends.values())
        return ends

    def wait_until_all_read(self) -> None:
        """Until the group has committed every event of an input that nobody feeds any more."""
        ends = patiently(self.deployment.input_ends)
        wait_until(
            lambda: reached(self.committed(), ends),
            CATCH_UP_S,
            lambda: (
                f"the group stands at {self.committed()} of {ends}: {self.workers[-1].events()[-3:]}"
            ),
        )

    def finish(self) -> Finding:
        """End everything, have one worker read to the end, and judge."""
        self.feeder.finish()
        self.end_workers()
        self.deployment.config["kafka"].pop("group_instance_id", None)
        self.deployment.config["kafka"]["bootstrap_servers"] = self.brokers.bootstrap_servers
        last = self.start_live()
        self.wait_until_all_read()
        if status := last.interrupt():
            self.failed(f"the last worker ended with status {status}")
        return judge(self.deployment, self.brokers, self.model)

    def end_workers(self) -> None:
        """SIGKILL for all that are left, the stopped ones, too."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()

    def close(self) -> None:
        """Leave nothing behind that runs; the files stay."""
        self.end_workers()
        self.feeder.finish()

    def forget(self) -> None:
        """Remove the files, and the topics' data with the broker at its end."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _launch(
        self, environ: Mapping[str, str], module: str, arguments: Sequence[str] = ()
    ) -> WorkerProcess:
        self._started += 1
        log = self.directory / f"{self._started:03d}.log"
        worker = WorkerProcess(self.deployment.write_config(), log, environ, module, arguments)
        self.workers.append(worker)
        return worker

    def _settle_on_small_steps(self) -> None:
        """Small transactions, quick time-outs: many moments at which a fault can hit."""
        config = self.deployment.config
        config["kafka"]["consumer"] |= {
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 200,
            "request_timeout_ms": REQUEST_MS,
            "rebalance_timeout_ms": 6000,
            "max_partition_fetch_bytes": 16_384,
            "fetch_max_wait_ms": 50,
        }
        config["kafka"]["producer"] = {
            "request_timeout_ms": REQUEST_MS,
            "transaction_timeout_ms": TRANSACTION_MS,
        }
        config["filter"] |= {
            "capacity": 300_000,
            "kind": self.chance.choice(["bloom", "exact", "blocked"]),
        }
        config["delivery"] = {
            "guarantee": "at_least_once" if self.at_least_once else "exactly_once",
            "commit_interval_ms": self.chance.choice([10, 20, 40]),
            "batch_events_max": self.chance.choice([50, 150, 400]),
            "drain_s": DRAIN_S,
        }
        config["snapshot"]["interval_s"] = 0.5

    def _ends(self, isolation: IsolationLevel, topic: str | None = None) -> dict[int, End]:
        return self.ends_of(topic or self.deployment.sink, self.partitions, isolation)

    def ends_of(self, topic: str, partitions: int, isolation: IsolationLevel) -> dict[int, End]:
        """The end of each partition, as that isolation shows it."""
        return self._offsets_of(topic, partitions, isolation, _LATEST)

    def starts_of(self, topic: str, partitions: int) -> dict[int, int]:
        """The offset with which each partition begins."""
        every = IsolationLevel.READ_UNCOMMITTED
        return _offsets(self._offsets_of(topic, partitions, every, _EARLIEST))

    def _offsets_of(
        self, topic: str, partitions: int, isolation: IsolationLevel, spec: OffsetSpec
    ) -> dict[int, End]:
        asked = {TopicPartition(topic, p): spec for p in range(partitions)}

        def ask() -> dict[int, End]:
            answers = self._admin.list_offsets(
                asked, isolation_level=isolation, request_timeout=ANSWER_S
            )
            try:
                found = {where.partition: answer.result() for where, answer in answers.items()}
            except (KafkaException, TimeoutError):
                # After a restart this client asks with the leader's old epoch for ever.
                self._admin = admin_client(self.deployment.bootstrap)
                raise
            return {p: End(end.offset, end.leader_epoch) for p, end in found.items()}

        return patiently(ask)


_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def undecided(ask: Callable[[IsolationLevel], Mapping[int, End]]) -> bool:
    """Whether any partition has such records; a writer that goes on meanwhile makes none appear.

    The end is asked before the stable offset, which never goes back under one leader: if it is still below that end,
    then what stands between is undecided at the second of the two moments.
    """
    ends = ask(IsolationLevel.READ_UNCOMMITTED)
    stable = ask(IsolationLevel.READ_COMMITTED)
    return any(
        stable[partition].epoch == end.epoch and stable[partition].offset < end.offset
        for partition, end in ends.items()
    )


def stop_process(worker: WorkerProcess) -> None:
    """SIGSTOP."""
    worker.process.send_signal(signal.SIGSTOP)


def continue_process(worker: WorkerProcess) -> None:
    """SIGCONT, if it is still there."""
    if worker.process.poll() is None:
        worker.process.send_signal(signal.SIGCONT)


def is_stopped(worker: WorkerProcess) -> bool:
    """Whether it is stopped by a signal."""
    options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, worker.process.pid, options) is not None


def _offsets(ends: Mapping[int, End]) -> dict[int, int]:
    return {partition: end.offset for partition, end in ends.items()}


def reached(at: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Whether each partition has reached its end."""
    return all(at.get(partition, 0) >= end for partition, end in ends.items())
