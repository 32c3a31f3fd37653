"""Eight broken deployments on a real broker: how each is broken, and which line of which command names the cause."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proof.chaos.brokers import OneBroker
from tests.broker.topics import Event, delete_records, end_offsets, produce, read_all
from tests.deployment import Deployment, WorkerProcess

PARTITIONS = 2


@dataclass(frozen=True)
class Asked:
    """A command, what it reads on standard input, and a pattern that is in the line that names the cause."""

    arguments: Sequence[str]
    names: str
    reads: str = ""
    statuses: Sequence[int] = (0,)


@dataclass(frozen=True)
class Case:
    """One broken deployment. `symptom` is what its operator sees; `broken` plays it while its worker runs, or ran."""

    name: str
    symptom: str
    cause: str
    broken: Callable[["There"], AbstractContextManager[Sequence[Asked]]]


class There(Deployment):
    """One of them: events are JSON, with the key in the field `id`."""

    def __init__(self, broker: OneBroker, directory: Path, name: str) -> None:
        super().__init__(broker.bootstrap_servers, directory, PARTITIONS)
        self.broker = broker
        self.source, self.sink = f"{name}-in", f"{name}-out"
        self.group = self.config["kafka"]["group_id"] = name
        self.config["source"]["topic"], self.config["sink"]["topic"] = self.source, self.sink
        self.config["key"] = {"field": "id"}
        self.config["filter"] = {"kind": "bloom", "capacity": 100_000, "error_rate": 1e-6}
        self.config["server"] = {"port": 0}

    def send(self, ids: Iterable[str], partition: int | None = None) -> None:
        """Append an event for each id to the partition of its key, or to this one."""
        self.feed(map(partial(event, partition), ids))

    @contextmanager
    def working(self) -> Iterator[WorkerProcess]:
        """A worker that has begun."""
        with self.running() as worker:
            worker.wait_for("shard_live", self.partitions)
            yield worker


def event(partition: int | None, key: str) -> Event:
    """An event whose key is in the field `id`."""
    number = sum(key.encode()) % PARTITIONS if partition is None else partition
    return number, key.encode(), json.dumps({"id": key}).encode(), [], None


def keys(prefix: str, count: int) -> list[str]:
    """So many different ones."""
    return [f"{prefix}{number}" for number in range(count)]


DOCTOR = ("doctor",)


@contextmanager
def full(there: There) -> Iterator[Sequence[Asked]]:
    """The filter is full, and stops."""
    there.config["filter"] |= {"capacity": 2000, "on_full": "stop"}
    there.create()
    there.send(keys("k", 6000))
    with there.working() as worker:
        worker.wait_for("filter_full", PARTITIONS)
        last = end_offsets(there.bootstrap, there.source)[0] - 1
        yield (
            Asked(DOCTOR, r"filter-room.*capacity", statuses=(2, 3)),
            Asked(("explain", "--at", f"{there.source}/0:{last}"), "unread", statuses=(0, 4)),
        )


@contextmanager
def second_writer(there: There) -> Iterator[Sequence[Asked]]:
    """Somebody else writes to the output."""
    there.create()
    there.send(keys("k", 1000))
    with there.working() as worker:
        there.catch_up(worker)
        produce(there.bootstrap, there.sink, [event(0, "foreign")])
        there.send(["foreign", *keys("m", 1000)], partition=0)
        worker.wait_for("shard_stopped")
        yield (
            Asked(DOCTOR, r"output-writers \[second-writer\].*offset", statuses=(2,)),
            Asked(("explain", "-"), "known in partition 0", reads="foreign\n"),
        )


@contextmanager
def wrong_field(there: There) -> Iterator[Sequence[Asked]]:
    """The configuration names a field that no event has."""
    there.config["key"] = {"field": "idd"}
    there.create()
    there.send(keys("k", 1000) * 2)
    with there.working() as worker:
        there.catch_up(worker)
        yield (
            Asked(DOCTOR, r"sample-keys.*idd", statuses=(2, 3)),
            Asked(("explain", "--at", f"{there.source}/0:0"), "malformed.*idd"),
        )


@contextmanager
def refused_list(there: There) -> Iterator[Sequence[Asked]]:
    """A block list was replaced by one that was built without the normalization of the configuration."""
    there.config["key"] = {"field": "id", "normalize": "email"}
    file = there.directory / "block.list"
    there.config["blocklist"] = {"file": str(file)}
    _build_list(there, file, "spam@example.com\n", "--normalize", "email")
    there.create()
    there.send(["spam@example.com", "ham@example.net"] * 50)
    with there.working() as worker:
        there.catch_up(worker)
        beside = file.with_suffix(".new")
        _build_list(there, beside, "spam@example.com\nnew@example.net\n")
        beside.replace(file)
        worker.wait_for("list_refused")
        yield (
            Asked(DOCTOR, r"failure  lists.*normaliz", statuses=(2,)),
            Asked(
                ("explain", "-"),
                "not known|normaliz",
                reads="new@example.net\n",
                statuses=(0, 2, 4),
            ),
        )


def _build_list(there: There, file: Path, entries: str, *options: str) -> None:
    from proof.operators.run import command  # imported here: it imports this module

    plain = there.directory / "entries.txt"
    plain.write_text(entries, "utf-8")
    ran = command("lists", "build", str(plain), "-o", str(file), "--name", "abuse", *options)
    assert ran.status == 0, ran.text


@contextmanager
def across(there: There) -> Iterator[Sequence[Asked]]:
    """A producer without record keys spreads the events of each key over all partitions."""
    there.create()
    for partition in range(PARTITIONS):
        there.send(keys("k", 2000), partition)
    with there.working() as worker:
        there.catch_up(worker)
        yield (
            Asked(DOCTOR, r"\[duplicates-across-partitions\]", statuses=(2, 3)),
            Asked(("explain", "--all", "-"), "known in partition 1", reads="k7\n"),
        )


@contextmanager
def missing(there: There) -> Iterator[Sequence[Asked]]:
    """An event did not arrive downstream: a false positive of a filter with a high error rate."""
    there.config["filter"] = {
        "kind": "bloom",
        "capacity": 4000,
        "error_rate": 1e-2,
        "on_full": "warn",
    }
    there.create()
    there.send(keys("k", 6000))
    with there.working() as worker:
        there.catch_up(worker)  # what is pending is exact: only what was admitted errs
        there.send(keys("m", 6000))
        there.catch_up(worker)
        passed = {record.value for record in read_all(there.bootstrap, there.sink)}
        lost = next(r for r in read_all(there.bootstrap, there.source) if r.value not in passed)
        at = f"{there.source}/{lost.partition}:{lost.offset}"
        yield (
            Asked(DOCTOR, r"filter-room.*capacity", statuses=(2, 3)),
            Asked(("explain", "--at", at), "false.positive", statuses=(5,)),
        )


@contextmanager
def trimmed(there: There) -> Iterator[Sequence[Asked]]:
    """The output was deleted beyond the snapshots, which somebody removed, too."""
    there.create()
    there.send(keys("k", 1000))
    there.run_to_the_end()
    there.delete_snapshots()
    ends = end_offsets(there.bootstrap, there.sink)
    delete_records(there.bootstrap, there.sink, ends)
    with there.running("again.log") as worker:
        worker.wait_for("shard_stopped", PARTITIONS)
        yield (
            Asked(DOCTOR, r"output-resume \[output-trimmed\]", statuses=(2,)),
            Asked(
                ("explain", "--at", f"{there.source}/0:0"),
                "begins at offset",
                statuses=(0, 1, 4, 5),
            ),
        )


@contextmanager
def paused(there: There) -> Iterator[Sequence[Asked]]:
    """The broker is there, and answers nothing."""
    there.create()
    there.send(keys("k", 100))
    with there.working() as worker:
        there.catch_up(worker)
        there.broker.node.pause()
        try:
            yield (
                Asked(DOCTOR, "broker-versions.*answer", statuses=(1,)),
                Asked(("explain", "-"), "no broker answered", reads="k7\n", statuses=(1,)),
            )
        finally:
            there.broker.node.resume()


CASES = (
    Case("full", "nothing arrives any more", "the filter is full", full),
    Case("writer", "a partition stands still", "a second writer", second_writer),
    Case(
        "field",
        "no duplicate is dropped",
        "`key.field` names a field that is not there",
        wrong_field,
    ),
    Case("list", "a new entry blocks nothing", "the new list is refused", refused_list),
    Case("across", "duplicates arrive", "events of one key in several partitions", across),
    Case("missing", "one event is missing", "a false positive", missing),
    Case("trimmed", "no partition starts", "the output was trimmed", trimmed),
    Case("paused", "nothing moves", "the broker does not answer", paused),
)
