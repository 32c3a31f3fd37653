"""A worker over a broker in memory, at one fixed moment: what it writes to topics, to its group, and to its disk.

All that another program, or a later version, reads: events with their headers, the notes beside offsets, snapshots.
"""

import asyncio
import shutil
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import structlog
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

import streamdedup
from streamdedup import filters
from streamdedup.kafka.records.records import Record
from streamdedup.server.pulse import Pulse
from streamdedup.server.request import Page
from streamdedup.server.routes import pages
from streamdedup.settings import Settings
from streamdedup.testing import MemoryBroker, VirtualLoop, connected_to
from streamdedup.worker.worker import Worker
from tests.lists.files import list_file

NOW_MS = 1_700_000_000_000
HASH_KEY = "000102030405060708090a0b0c0d0e0f"
CAUGHT_UP_S_MAX = 120.0  # of the loop, which is in no hurry

DIRECTORY = Path(__file__).parent / "snapshots"

Tree = dict[str, dict[str, Any]]


@dataclass
class Ran:
    """What is left when a worker has ended; the `pages` of its server are of the moment before."""

    broker: MemoryBroker
    log: Sequence[MutableMapping[str, Any]]
    pages: Mapping[str, Page]

    @property
    def topics(self) -> dict[str, Any]:
        """The committed events of each partition."""
        return {
            name: [[_shown(event) for event in events] for events in self.broker.read_all(name)]
            for name in self.broker.topics
            if name != "in"
        }

    @property
    def offsets(self) -> dict[str, Any]:
        """What the group has committed: offset and note, by partition."""
        offsets = self.broker.group("group").offsets
        return {f"{name}/{partition}": [*at] for (name, partition), at in sorted(offsets.items())}


def _shown(event: Any) -> list[Any]:
    headers = [[name, _text(value)] for name, value in event.headers]
    return [event.offset, event.timestamp - NOW_MS, _text(event.key), _text(event.value), headers]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def settings_of(directory: Path, **sections: Mapping[str, Any]) -> Settings:
    """A small configuration, with more in its sections."""
    tree: Tree = {
        "kafka": {"bootstrap_servers": "memory:1", "group_id": "group"},
        "source": {"topic": "in"},
        "key": {"field": "id"},
        "filter": {"capacity": 200, "error_rate": 0.01, "on_full": "stop", "hash": "murmur3"},
        "sink": {"topic": "out"},
        "delivery": {"commit_interval_ms": 1000, "max_in_flight": 1},
        "snapshot": {"directory": directory, "interval_s": 86_400},
    }
    for name, options in sections.items():
        tree[name] = {**tree.get(name, {}), **options}
    if tree["filter"].get("kind") == "none":
        tree["filter"], _ = {"kind": "none"}, tree.pop("snapshot")
    return Settings.model_validate(tree)


def broker_with(records: Sequence[Sequence[Record]], *others: str) -> MemoryBroker:
    """A broker whose input holds `records`, by partition, with the output and `others` beside it."""
    broker = MemoryBroker(now_ms=lambda: NOW_MS)
    for name in ("in", *others):
        broker.create_topic(name, len(records), message_timestamp_after_max_ms=2**62)
    broker.create_topic("out", len(records), message_timestamp_after_max_ms=3_600_000)
    feed(broker, records)
    return broker


def feed(broker: MemoryBroker, records: Sequence[Sequence[Record]]) -> None:
    """Append to the input, partition by partition."""
    for partition, held in enumerate(records):
        if held:
            broker.append("in", partition, list(held), None)


def run(settings: Settings, broker: MemoryBroker) -> Ran:
    """Have a worker read all of the input, and end."""
    loop, shown = VirtualLoop(), dict[str, Page]()

    async def main() -> None:
        worker = Worker(
            settings,
            connect=connected_to(broker),
            now_ms=lambda: NOW_MS,
            random=lambda size: bytes(range(size)),
        )
        working = asyncio.create_task(worker.run())
        until = loop.time() + CAUGHT_UP_S_MAX
        while not (_caught_up(broker) or working.done()) and loop.time() < until:
            await asyncio.sleep(0.1)
        shown.update(_pages(worker))
        worker.stop()
        await working
        assert _caught_up(broker), log

    with _closing(loop), capture_logs() as log:
        loop.run_until_complete(main())
    return Ran(broker, log, shown)


def pages_before(settings: Settings) -> Mapping[str, Page]:
    """The pages of a worker that has not begun."""
    return _pages(Worker(settings))


def _pages(worker: Worker) -> dict[str, Page]:
    return {path: make() for path, make in pages(worker.status, Pulse()).items()}


def _caught_up(broker: MemoryBroker) -> bool:
    offsets = broker.committed("group", "in")
    ends = [log.end for log in broker.topics["in"].logs]
    return all(offsets.get(partition, 0) == end for partition, end in enumerate(ends))


@contextmanager
def _closing(loop: VirtualLoop) -> Iterator[None]:
    before = structlog.get_config()
    try:
        yield
    finally:
        structlog.configure(**before)
        loop.close()


def event(key: str | None, value: str, *headers: tuple[str, bytes | None], ms: int = 0) -> Record:
    """An event of the input."""
    return Record.of(NOW_MS + ms, None if key is None else key.encode(), value.encode(), headers)


STREAM: Sequence[Sequence[Record]] = [
    [
        event("k", '{"id": "a"}', ("trace", b"1")),
        event(None, '{"id": "b"}'),
        event("again", '{"id": "a"}', ("trace", None)),
        event("listed", '{"id": "listed"}', ("trace", b"2")),
        event("no field", "{}", ("trace", b"3")),
        event("no json", "secret"),
        event("a number", '{"id": 7, "of": "b"}'),
        event("ahead", '{"id": "ahead"}', ms=7_200_000),
        event("old", '{"id": "old"}', ms=-10 * 86_400_000),
        Record.of(NOW_MS, b"tombstone", None),
        event("marked", '{"id": "marked"}', ("streamdedup.verdict", b"duplicate")),
        event("marked again", '{"id": "marked"}', ("streamdedup.verdict", b"pass")),
    ],
    [event("k", '{"id": "a"}'), event("k", '{"id": "c"}', ms=-5)],
    [],
]
SIDES = {"duplicates_topic": "again", "blocked_topic": "blocked", "dead_letter_topic": "dead"}


def _list_file(directory: Path) -> Path:
    return list_file(directory / "block.list", [b"listed"])


@dataclass(frozen=True)
class Scenario:
    """What differs from the small configuration, and which topics there are."""

    sections: Mapping[str, Mapping[str, Any]]
    topics: Sequence[str] = ()
    listed: bool = False


SCENARIOS: Mapping[str, Scenario] = {
    "plain": Scenario({}),
    "all topics": Scenario({"sink": SIDES}, ("again", "blocked", "dead"), listed=True),
    "shadow": Scenario(
        {"sink": {"shadow": True, "dead_letter_topic": "dead"}}, ("dead",), listed=True
    ),
    "screening": Scenario(
        {"filter": {"kind": "none"}, "sink": {"blocked_topic": "blocked", "on_rejected": "stop"}},
        ("blocked",),
        listed=True,
    ),
    "at least once": Scenario({"delivery": {"guarantee": "at_least_once"}}),
    "window": Scenario({"filter": {"kind": "window", "retention": "1h", "late": "drop"}}),
}
REJECTED = (b"ahead", b"old")


def deliveries() -> Any:
    """What a worker leaves at the broker, and the names on its disk, by scenario."""
    return {name: _delivery(scenario) for name, scenario in SCENARIOS.items()}


def _delivery(scenario: Scenario) -> Any:
    with TemporaryDirectory() as name:
        directory = Path(name)
        sections = dict(scenario.sections)
        if scenario.listed:
            sections["blocklist"] = {"file": _list_file(directory)}
        stream = STREAM
        if "dead" not in scenario.topics:  # it would stop
            stream = [[record for record in part if record.key not in REJECTED] for part in STREAM]
        broker = broker_with(stream, *scenario.topics)
        ran = run(settings_of(directory / "snapshots", **sections), broker)
        files = sorted((directory / "snapshots").rglob("*"))
        names = [str(path.relative_to(directory)) for path in files if path.is_file()]
    return {"topics": ran.topics, "offsets": ran.offsets, "files": names}


@dataclass(frozen=True)
class Kind:
    """A filter of a worker; its snapshot is a golden file."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Of its golden file."""
        return DIRECTORY / f"{self.name}.snapshot"

    def settings(self, directory: Path) -> Settings:
        """Of the worker that makes it, and of every later one that reads it."""
        kind = self.name.split("-", 1)[0]
        return settings_of(directory, filter={"kind": kind, **self.options})

    def snapshot(self) -> bytes:
        """What a worker with such a filter writes at its end."""
        with TemporaryDirectory() as directory:
            run(self.settings(Path(directory)), broker_with(fed()))
            (path,) = Path(directory).rglob("*.snapshot")
            return path.read_bytes()


GROWN = {"on_full": "grow", "capacity": 40}
KINDS: Sequence[Kind] = [
    *(Kind(name) for name in filters.KINDS if name not in filters.STATIC),
    *(Kind(f"{name}-grown", GROWN) for name in filters.GROWABLE if name != "window"),
    Kind("bloom-double", {"probe": "double"}),
    Kind("bloom-siphash", {"hash": "siphash", "hash_key": HASH_KEY}),
    Kind("bloom-drawn", {"hash": "siphash"}),
    Kind(
        "window-time",
        {"retention": "7s", "generations": 12, "max_jump": "1h", "on_full": "stop"},
    ),
    Kind("window-grown", {"retention": "7s", "generations": 12, **GROWN}),
]
FED = [f"key {number}" for number in range(150)]
ABSENT = [f"absent {number}" for number in range(5_000)]
FALSE_POSITIVES_MAX = 10


def fed() -> list[list[Record]]:
    """Every key, and some of them twice; as far apart as a window has room for."""
    names = [*FED, *FED[:50:7]]
    return [[event(None, f'{{"id": "{key}"}}', ms=n * 40) for n, key in enumerate(names)]]


def snapshots() -> Any:
    """What the golden snapshots hold: keys, and those that are taken for others, as anybody can load them."""
    made = {}
    for kind in KINDS:
        hash_key = bytes.fromhex(HASH_KEY) if "siphash" in kind.name else b""
        seen = streamdedup.load(kind.path, hash_key=hash_key)
        digests = seen.digests(ABSENT)
        made[kind.name] = {
            "kind": seen.kind,
            "keys": len(seen),
            "found": int(seen.contains_many(seen.digests(FED)).sum()),
            "false positives": [
                int(at) for at in seen.contains_many(digests).nonzero()[0][:FALSE_POSITIVES_MAX]
            ],
        }
    return made


def taken_up() -> Any:
    """What a worker of today makes of each golden snapshot."""
    return {kind.name: _taken_up(kind) for kind in KINDS}


def _taken_up(kind: Kind) -> Any:
    """What it says when it starts with the snapshot and the log that this is of, and what it emits then.

    The same keys come again, and another one.
    """
    with TemporaryDirectory() as name:
        first, second = Path(name) / "first", Path(name) / "second"
        broker = broker_with(fed())
        run(kind.settings(first), broker)
        (written,) = first.rglob("*.snapshot")
        golden = second / written.relative_to(first)
        golden.parent.mkdir(parents=True)
        shutil.copy(kind.path, golden)
        golden.chmod(0o600)  # as a worker writes it: git keeps no such mode
        end = broker.log("out", 0).end
        feed(broker, fed())
        feed(broker, [[event(None, '{"id": "another"}', ms=7000)]])
        ran = run(kind.settings(second), broker)
        told = [line for line in ran.log if line["event"].startswith("snapshot")]
        emitted = [record for record in broker.read_all("out")[0] if record.offset >= end]
    return {
        "end": end,
        "log": [[line["event"], line.get("label")] for line in told],
        "emitted": [_text(record.value) for record in emitted],
    }


def metrics() -> Any:
    """The metrics of a worker as they are served: type, labels and their values; without the process's own."""
    scenario = SCENARIOS["all topics"]
    with TemporaryDirectory() as name:
        directory = Path(name)
        sections = {**scenario.sections, "blocklist": {"file": _list_file(directory)}}
        ran = run(
            settings_of(directory / "snapshots", **sections), broker_with(STREAM, *scenario.topics)
        )
    made: dict[str, Any] = {}
    for family in text_string_to_metric_families(ran.pages["/metrics"].text):
        if not family.name.startswith("process_"):
            samples = sorted({_sample(sample) for sample in family.samples})
            made[family.name] = {"type": family.type, "samples": samples}
    return made


_VARYING = ("version", "python")


def _sample(sample: Any) -> str:
    labels = (
        f"{name}={'*' if name in _VARYING else value}" for name, value in sample.labels.items()
    )
    return f"{sample.name}{{{','.join(labels)}}}"
