"""Each check finds what is wrong: a table of causes, with at least one for each check."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from streamdedup.delivery import schemas
from streamdedup.doctor import brokers, groups, machine
from streamdedup.doctor.examine import CHECKS, OF_SAMPLE
from streamdedup.doctor.lines import Status
from streamdedup.kafka.brokers import OLDEST, Broker
from streamdedup.kafka.topics import DESCRIBE, READ, WRITE, Replicas
from streamdedup.kernel import cache
from streamdedup.kernel.cache import CacheDirectory
from tests.doctor.stage import KEY, Stage, wall_ms
from tests.lists.files import list_file

OK, WARNING, FAILURE, UNKNOWN = Status.OK, Status.WARNING, Status.FAILURE, Status.UNKNOWN
HOUR_MS = 3_600_000


class Case(NamedTuple):
    """What is changed, and the line of `check` that follows: its status, the finding that it names, a part of it."""

    check: str
    status: Status
    finding: str | None
    said: str
    cause: Callable[[Stage, pytest.MonkeyPatch], None]


def _broker(**told: object) -> Callable[[Stage, pytest.MonkeyPatch], None]:
    given = {"node": 0, "address": "a:1", "since": "4.1", "features": {}, **told}

    def cause(stage: Stage, _: pytest.MonkeyPatch) -> None:
        stage.broker.brokers = [Broker(**given)]  # type: ignore[arg-type]  # a part of its fields

    return cause


def _racks(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.broker.brokers = [
        Broker(node=n, address="a:1", since="4.1", rack=rack) for n, rack in enumerate("abb")
    ]
    stage.topic(stage.sink, placed={0: Replicas((0, 1), (0, 1)), 1: Replicas((1, 2), (1, 2))})


def _two_brokers(stage: Stage) -> None:
    stage.broker.brokers = [Broker(node=n, address="a:1", since="4.1") for n in range(2)]


def _too_few_in_sync(stage: Stage, _: pytest.MonkeyPatch) -> None:
    _two_brokers(stage)
    stage.topic(
        stage.sink,
        replicas=2,
        settings={"min.insync.replicas": "2"},
        placed={0: Replicas((0, 1), (0, 1)), 1: Replicas((0, 1), (0,))},
    )


def _one_replica(stage: Stage, _: pytest.MonkeyPatch) -> None:
    _two_brokers(stage)


def _lags(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.feed([KEY] * 3)
    stage.commit(1, label=0)
    stage.has_members(monkeypatch)


def _two_behind(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.feed([KEY])
    stage.feed([KEY] * 2, partition=1)


def _unread(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.feed([KEY] * 3)
    stage.commit(1, label=0)


def _foreign(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.feed([KEY])
    stage.emit(2)
    stage.commit(1, label=2)
    stage.emit(1)


def _shared(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.commit(0, label=0, group="another")
    stage.has_members(monkeypatch)
    stage.group = "another"


def _trimmed(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.feed([KEY])
    stage.emit(10)
    stage.commit(1, label=10)
    stage.broker.log(stage.sink, 0).trim(5)


def _deleted_unread(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.feed([KEY] * 5)
    stage.commit(1, label=0)
    stage.broker.log(stage.source, 0).trim(3)


def _filter(**options: object) -> Callable[[Stage, pytest.MonkeyPatch], None]:
    def cause(stage: Stage, _: pytest.MonkeyPatch) -> None:
        stage.config["filter"] = options
        stage.emit(30)

    return cause


def _keys(*keys: bytes | None) -> Callable[[Stage, pytest.MonkeyPatch], None]:
    return lambda stage, _: stage.feed(keys)


def _across(stage: Stage, _: pytest.MonkeyPatch) -> None:
    for partition in range(2):
        stage.feed((b"user%d" % n for n in range(200)), partition)


def _secret(stage: Stage, _: pytest.MonkeyPatch) -> None:
    file = stage.there.directory / "secret"
    file.write_text("00" * 16)
    file.chmod(0o644)
    stage.config["filter"]["hash_key_file"] = str(file)


def _list(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.config["key"]["normalize"] = "email"
    stage.config["blocklist"] = {
        "file": str(list_file(stage.there.directory / "blocked.list", [KEY]))
    }


def _control(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    _list(stage, monkeypatch)
    stage.broker.create_topic("changes", 1, cleanup_policy="delete")
    stage.config["blocklist"]["control_topic"] = "changes"


def _registry(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "AWAY_S_MAX", 0.3)
    stage.config["key"] = {"format": "avro", "field": "id"}
    stage.config["kafka"]["schema_registry"] = {"url": "http://127.0.0.1:1"}


def _rights(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.broker.checks_rights = True
    stage.topic(stage.source, rights=1 << DESCRIBE)
    stage.topic(stage.sink, rights=1 << READ | 1 << WRITE | 1 << DESCRIBE)


def _group_rights(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.broker.checks_rights = True
    stage.broker.group_rights[stage.group] = 1 << DESCRIBE


def _transaction_rights(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.broker.checks_rights = True
    stage.broker.hidden_transactions.add(f"{stage.sink}/0")


def _ahead(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.broker.now_ms = lambda: wall_ms() + HOUR_MS
    for log in stage.broker.topics[stage.sink].logs:
        log._now_ms = stage.broker.now_ms
    stage.broker.produce(stage.sink, [(0, KEY, b"{}")], abort=True)


def _large(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.config["filter"] = {"capacity": 300_000_000_000, "error_rate": 1e-6, "on_full": "stop"}


def _window(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.config["filter"] = {"kind": "window", "capacity": 1000, "retention": "7d"}
    stage.topic(stage.sink, settings={"message.timestamp.type": "LogAppendTime"})


def _small(stage: Stage, _: pytest.MonkeyPatch) -> None:
    stage.config["filter"]["capacity"] = 100
    stage.feed(b"user%d" % n for n in range(200))


def _silent(stage: Stage, topic: str) -> None:
    stage.broker.topics[topic].topic.settings.clear()  # type: ignore[attr-defined]  # a dict


CASES = (
    Case("broker-versions", OK, None, "of Kafka 4.1 or later", lambda *_: None),
    Case("broker-versions", WARNING, None, "no topic ids", _broker(since="2.7")),
    Case("broker-versions", FAILURE, None, "exactly_once needs 2.5", _broker(since=OLDEST)),
    Case("broker-versions", WARNING, "broker-away", "does not answer (X)", _broker(failure="X")),
    Case("broker-features", OK, None, "is 2", _broker(features={"transaction.version": 2})),
    Case(
        "broker-limits",
        FAILURE,
        None,
        "group.max.session.timeout.ms is 5000",
        _broker(settings={"group.max.session.timeout.ms": "5000"}),
    ),
    Case("broker-limits", UNKNOWN, None, "grant DescribeConfigs", _broker(settings=None)),
    Case(
        "broker-offsets",
        WARNING,
        None,
        "is 60",
        _broker(settings={"offsets.retention.minutes": "60"}),
    ),
    Case("broker-racks", WARNING, None, "1 partition are in one rack", _racks),
    Case("clock", WARNING, "clock-differs", "behind the clock of broker 0", _ahead),
    Case("topics", FAILURE, None, "does not exist", lambda s, _: s.broker.delete_topic(s.sink)),
    Case("topic-replicas", FAILURE, None, "fewer replicas in sync", _too_few_in_sync),
    Case("topic-replicas", WARNING, None, "it has one replica", _one_replica),
    Case(
        "topic-leaders",
        FAILURE,
        "partition-without-leader",
        "has no leader",
        lambda s, _: s.topic(s.source, leaderless=(1,)),
    ),
    Case(
        "topic-sizes",
        WARNING,
        None,
        "max.message.bytes=1000",
        lambda s, _: s.topic(s.sink, settings={"max.message.bytes": "1000"}),
    ),
    Case("topic-sizes", UNKNOWN, None, "not reported", lambda s, _: _silent(s, s.sink)),
    Case(
        "topic-retention",
        WARNING,
        "output-forgets-first",
        "retention.ms=1000",
        lambda s, _: s.topic(s.sink, settings={"retention.ms": "1000"}),
    ),
    Case(
        "topic-timestamps",
        FAILURE,
        None,
        "LogAppendTime",
        _window,
    ),
    Case("control-topic", FAILURE, None, "deletes old messages", _control),
    Case("registry", FAILURE, None, "schema_registry.url", _registry),
    Case("rights-topics", FAILURE, None, "the right Read is missing", _rights),
    Case("rights-groups", FAILURE, None, "--group", _group_rights),
    Case("rights-transactions", FAILURE, None, "--transactional-id", _transaction_rights),
    Case(
        "rights-transactions",
        UNKNOWN,
        None,
        "--transactional-id",
        lambda s, _: setattr(s.broker, "checks_rights", True),
    ),
    Case(
        "group-members",
        FAILURE,
        "group-of-another-protocol",
        "java at /10.0.0.8",
        lambda s, patch: s.has_members(patch, newer=("java at /10.0.0.8",)),
    ),
    Case(
        "group-meaning",
        FAILURE,
        "group-of-another-configuration",
        "another program",
        lambda s, patch: s.has_members(patch, assignor="range"),
    ),
    Case(
        "group-meaning",
        FAILURE,
        "meaning-differs",
        "committed with the meaning",
        lambda s, _: s.commit(0, label=0, meaning=1),
    ),
    Case(
        "group-partitions",
        WARNING,
        "partitions-unserved",
        "no member of the group has 1 partition",
        lambda s, patch: s.has_members(patch, assigned=frozenset({(s.source, 0)})),
    ),
    Case(
        "group-offsets",
        WARNING,
        None,
        "another program",
        lambda s, _: s.broker.move_offsets(s.group, s.source, {0: 0}),
    ),
    Case("group-unread", WARNING, None, "nobody reads them", _unread),
    Case("group-unread", WARNING, None, "stands still", _lags),
    Case("group-unread", OK, None, "1: 2 for ", _two_behind),
    Case(
        "open-transactions",
        WARNING,
        "input-transaction-open",
        "producer id",
        lambda s, _: s.write_open(s.source, wall_ms() - HOUR_MS),
    ),
    Case(
        "open-transactions",
        FAILURE,
        "foreign-transaction",
        "producer id",
        lambda s, _: s.write_open(s.sink, wall_ms() - HOUR_MS),
    ),
    Case("broker-features", UNKNOWN, None, "no broker answered", _broker(failure="X")),
    Case("topics", UNKNOWN, None, "compacted is not known", lambda s, _: _silent(s, s.sink)),
    Case("output-writers", UNKNOWN, None, "whose they are", lambda s, _: s.emit(1)),
    Case(
        "output-shared",
        UNKNOWN,
        None,
        "may not list all groups",
        lambda s, _: setattr(s.broker, "lists_groups", False),
    ),
    Case("output-writers", FAILURE, "second-writer", "offset 2 is not ours", _foreign),
    Case("output-shared", FAILURE, "output-shared", "worker at /10.0.0.7", _shared),
    Case("output-resume", FAILURE, "output-trimmed", "begins at offset 5", _trimmed),
    Case("output-resume", FAILURE, "input-trimmed", "deleted before", _deleted_unread),
    Case(
        "filter-room",
        FAILURE,
        "filter-full",
        "is full, and stops",
        _filter(kind="bloom", capacity=20, on_full="stop"),
    ),
    Case(
        "filter-room",
        WARNING,
        "filter-beyond-capacity",
        "beyond its capacity",
        _filter(kind="bloom", capacity=20, on_full="warn"),
    ),
    Case("memory", FAILURE, None, "in all", _large),
    Case("disk-space", WARNING, None, "give the disk more room", _large),
    Case(
        "disk-speed",
        WARNING,
        None,
        "64 MiB were written",
        lambda _, patch: patch.setattr(machine, "SLOW_S", 0.0),
    ),
    Case("file-modes", WARNING, None, "filter.hash_key_file", _secret),
    Case(
        "descriptors",
        WARNING,
        None,
        "16 file descriptors",
        lambda _, patch: patch.setattr(resource, "getrlimit", lambda _: (16, 16)),
    ),
    Case(
        "compiled",
        WARNING,
        None,
        "STREAMDEDUP_CACHE",
        lambda _, patch: patch.setattr(
            cache, "place", lambda _: CacheDirectory(None, is_writable=False)
        ),
    ),
    Case("lists", FAILURE, "list-refused", "normalized by", _list),
    Case(
        "sample-keys",
        WARNING,
        "verdict-prevails",
        "200 times the record key is null",
        _keys(*[None] * 200),
    ),
    Case(
        "sample-keys", WARNING, "verdict-prevails", "3 of the newest 3 events", _keys(*[None] * 3)
    ),
    Case("sample-keys", UNKNOWN, None, "no event", lambda *_: None),
    Case("sample-partitions", WARNING, "duplicates-across-partitions", "several", _across),
    Case("sample-frequent", WARNING, None, "100.0% of the events", _keys(*[KEY] * 200)),
    Case(
        "sample-capacity",
        WARNING,
        None,
        "200 distinct keys",
        _small,
    ),
)


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.check}-{case.status}-{case.finding}"
)
def test_each_check_finds_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    """By its status, the finding of a worker if there is one, and a sentence; without a key."""
    monkeypatch.setattr(brokers, "STAMPS_S_MAX", 0.1)
    monkeypatch.setattr(groups, "STANDS_S", 0.3)
    monkeypatch.setattr(groups, "STANDS_EVERY_S", 0.1)
    stage = Stage(tmp_path)
    case.cause(stage, monkeypatch)
    lines = stage.lines(case.check)
    found = [(line.status, line.finding and line.finding.id) for line in lines]
    assert (case.status, case.finding) in found, lines
    fitting = [line for line in lines if line.status is case.status]
    assert any(case.said in line.text for line in fitting), fitting
    assert all(line.remedy for line in lines if line.status is not OK)
    assert not any(KEY.decode() in line.text for line in lines)


@pytest.mark.parametrize(
    ("cause", "check"),
    [
        (_foreign, "output-writers"),
        (_filter(kind="bloom", capacity=20, on_full="stop"), "filter-room"),
    ],
)
def test_a_partition_that_stands_still_refers_to_the_cause(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cause: Callable[[Stage, pytest.MonkeyPatch], None],
    check: str,
) -> None:
    """The line that says why has its place and its remedy; another partition's is where to look."""
    monkeypatch.setattr(groups, "STANDS_S", 0.3)
    monkeypatch.setattr(groups, "STANDS_EVERY_S", 0.1)
    stage = Stage(tmp_path)
    cause(stage, monkeypatch)
    for partition in range(2):
        stage.feed([KEY], partition)
    stage.has_members(monkeypatch)
    lines = stage.look().lines
    failures = [line.place for line in lines if line.check == check and line.status is FAILURE]
    assert failures == [f"{stage.sink}/0"]
    first, second = [line for line in lines if line.check == "group-unread"]
    assert (first.place, first.remedy) == (f"{stage.source}/0", f"see the line of {check}")
    assert "stands still" in first.sentence
    assert second.place == f"{stage.source}/1"
    assert str(second.remedy).startswith("look at /readyz")


def test_each_check_has_a_cause() -> None:
    """So that none is left which nothing can make say anything."""
    assert {case.check for case in CASES} == {check.id for check in (*CHECKS, *OF_SAMPLE)}
