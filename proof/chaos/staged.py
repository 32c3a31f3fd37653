"""The ground of a round with `source.repartition`: events without record keys, workers with both stages or one.

Its oracle compares ids across all partitions, and looks at each copy that the middle topic still holds.
"""

import json
import time
from collections import Counter
from functools import partial

from aiokafka.partitioner import murmur2
from confluent_kafka import IsolationLevel
from typing_extensions import override

from proof.chaos.asking import patiently
from proof.chaos.feeding import KeylessFeeder
from proof.chaos.oracle import Finding, left_in
from proof.chaos.trial import CATCH_UP_S, DRAIN_S, Trial, reached, undecided
from proof.chaos.worker import Wanted, with_purges
from streamdedup.kafka.records.origin_header import ORIGIN
from tests.broker.base import wait_until
from tests.broker.topics import Record, read_all, unique_name
from tests.deployment import WorkerProcess

ROLES = {"both": "both", "copies": "repartition", "judges": "deduplicate"}
"""The stage that each worker runs; there is one of each."""
PLACES = 5
FED_A_SECOND = 500
SESSION_MS = 3000
PURGE_EVERY_S = 0.25
POSITIVE = 0x7FFFFFFF


class StagedTrial(Trial):
    """A trial whose workers make the middle topic and the output. `reread`: some input was copied twice on purpose."""

    FEEDER = KeylessFeeder
    reread = False

    @property
    def copying_group(self) -> str:
        """The group of the first stage."""
        return f"{self.deployment.group}-repartition"

    def start_role(self, role: str, wanted: Wanted | None = None) -> WorkerProcess:
        """Start a worker of ROLES."""
        wanted = {**with_purges(PURGE_EVERY_S), **(wanted or {})}
        arguments = ["--stage", ROLES[role]]
        if self._static:
            arguments += ["--set", f"kafka.group_instance_id={role}"]
        return self.start(wanted, arguments)

    @override
    def open_transactions(self) -> bool:
        return any(
            undecided(partial(self.ends_of, topic, PLACES))
            for topic in (self.middle, self.deployment.sink)
        )

    def copied(self, *, stable: bool = False) -> dict[int, int]:
        """The offsets of the first stage's group."""
        return self.committed_by(
            self.copying_group, self.deployment.source, self.partitions, stable=stable
        )

    def judged(self, *, stable: bool = False) -> dict[int, int]:
        """The offsets of the second stage's group."""
        return self.committed_by(self.deployment.group, self.middle, PLACES, stable=stable)

    def middle_ends(self) -> dict[int, int]:
        """The end of each partition of the middle topic, as far as it is decided."""
        ends = self.ends_of(self.middle, PLACES, IsolationLevel.READ_COMMITTED)
        return {partition: end.offset for partition, end in ends.items()}

    @override
    def wait_for_progress(self, what: str, within_s: float = CATCH_UP_S) -> None:
        self._wait_for(self.fed_ends(what, within_s), what, within_s)

    @override
    def wait_until_all_read(self) -> None:
        self._wait_for(patiently(self.deployment.input_ends), "the end", CATCH_UP_S)

    @override
    def finish(self) -> Finding:
        """Have one worker of each role read to the end, drain, and judge."""
        self.feeder.finish()
        self.end_workers()
        last = [self.start_role(role) for role in ROLES]
        for worker in last:
            worker.wait_for("connecting")  # a signal before that ends Python, not the worker
        self.wait_until_all_read()
        for worker in last:
            began = time.monotonic()
            if status := worker.interrupt():
                self.failed(f"a worker ended with status {status}: {worker.events()[-2:]}")
            self.took("drain", time.monotonic() - began)
        if self.count.longest_s["drain"] > DRAIN_S + 2:
            self.failed(f"a drain took {self.count.longest_s['drain']:.1f} s")
        return self._judged()

    @override
    def _topics(self) -> list[str]:
        return [self.deployment.source]

    @override
    def _settle_on_small_steps(self) -> None:
        super()._settle_on_small_steps()
        self.middle = unique_name("middle")
        self._rate = FED_A_SECOND
        self._static = self.chance.random() < 0.5
        config = self.deployment.config
        config["source"] |= {
            "repartition": {
                "topic": self.middle,
                "partitions": PLACES,
                "unread_max": self.chance.choice([1000, 1_000_000]),
            }
        }
        config["key"] = {"field": "id"}
        config["sink"]["create_topics"] = True
        config["kafka"]["consumer"] |= {
            "session_timeout_ms": SESSION_MS,
            "metadata_max_age_ms": 2000,
        }

    def _wait_for(self, ends: dict[int, int], what: str, within_s: float) -> None:
        """Until the first stage has reached `ends`, and the second one what is in the middle topic by then."""
        wait_until(
            lambda: reached(self.copied(), ends),
            within_s,
            lambda: f"the first stage does not go on after {what}: {self.copied()} of {ends}",
        )
        middle = self.middle_ends()
        wait_until(
            lambda: reached(self.judged(), middle),
            within_s,
            lambda: f"the second stage does not go on after {what}: {self.judged()} of {middle}",
        )

    def _judged(self) -> Finding:
        deployment = self.deployment
        events = patiently(lambda: read_all(deployment.bootstrap, deployment.source))
        output = patiently(lambda: read_all(deployment.bootstrap, deployment.sink))
        copies = patiently(lambda: read_all(deployment.bootstrap, self.middle))
        read, emitted = {_id(record) for record in events}, Counter(map(_id, output))
        for topic, records in ((deployment.sink, output), (self.middle, copies)):
            if wrong := sum(_place(record) != record.partition for record in records):
                self.failed(f"{wrong} events of {topic} are in another partition than their own")
        if marked := sum(any(name == ORIGIN for name, _ in r.headers) for r in output):
            self.failed(f"{marked} events of the output have the header {ORIGIN}")
        origins = Counter(dict(record.headers).get(ORIGIN) for record in copies)
        if origins[None]:
            self.failed(f"{origins[None]} copies have no origin")
        self.count.seen["copies left in the middle"] = origins.total()
        twice = origins.total() - len(origins)
        if twice and not self.reread and not self._finished_a_transaction():
            self.failed(f"{twice} events of {origins.total()} were copied twice")
        logs = [
            self.brokers.nodes[0].log_of(topic, partition)
            for topic in (deployment.sink, self.middle)
            for partition in range(PLACES)
        ]
        return Finding(
            lost=len(read - emitted.keys()),
            doubled=emitted.total() - len(emitted),
            foreign=len(emitted.keys() - read),
            events=len(events),
            emitted=len(output),
            **left_in(logs),
        )

    def _finished_a_transaction(self) -> bool:
        """Whether a worker had to commit what brokers had lost the markers of, which may copy events twice."""
        return any(worker.events("transaction_finished") for worker in self.workers)


def _id(record: Record) -> str:
    found: str = json.loads(record.value or b"")["id"]
    return found


def _place(record: Record) -> int:
    """Where the event belongs, by another implementation than the worker's."""
    return int(murmur2(_id(record).encode()) & POSITIVE) % PLACES
