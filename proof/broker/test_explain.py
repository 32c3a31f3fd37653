"""Claims about `streamdedup explain` on a real broker: twenty events of known fates, and keys while a worker runs.

Each fate by itself, in all its forms: tests/explain.
"""

import asyncio
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from streamdedup.cli import main
from streamdedup.commands import reset
from streamdedup.commands.reset_plan import Target
from streamdedup.explain import known
from streamdedup.settings import load
from tests.broker.base import DEADLINE_S, Broker, client_config
from tests.broker.topics import Event, produce, read_all
from tests.deployment import Deployment, keyed
from tests.lists.numbered import build_lists
from tests.local import run_to_the_end

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def as_nice_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes its own process nicer, which is that of the tests here."""
    monkeypatch.setattr(os, "nice", lambda _: 0)


class Stage:
    """A deployment of two partitions; `asked` runs the command, and returns its status and its answers."""

    def __init__(self, broker: Broker, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
        made = self.deployment = Deployment(broker.bootstrap_servers, directory, partitions=2)
        made.config["key"] = {"from": "key", "normalize": "email"}
        made.config["filter"] = {
            "kind": "window",
            "retention": "30d",
            "late": "drop",
            "capacity": 1_000,
            "error_rate": 0.01,
            "hash": "murmur3",  # so which keys are taken for others is the same in each run
            "on_full": "warn",
        }
        made.config |= build_lists(directory)
        made.config["sink"]["on_rejected"] = "dead_letter"
        made.create(retention_ms=-1, max_message_bytes=4_000)
        for leaf in ("duplicates_topic", "blocked_topic", "dead_letter_topic"):
            made.create_side_topic(leaf)
        self._capfd = capfd
        self.next = [0, 0]  # the offset of the next event of the input, by partition

    def feed(self, events: Iterable[Event]) -> list[tuple[int, int]]:
        """Append events to the input; return their places."""
        places = []
        listed = list(events)
        for partition, *_ in listed:
            places.append((partition, self.next[partition]))
            self.next[partition] += 1
        self.deployment.feed(listed)
        return places

    def asked(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        """The status, and the answers."""
        self._capfd.readouterr()
        config = self.deployment.write_config()
        status = main(["explain", "-c", str(config), "--json", *arguments])
        lines = self._capfd.readouterr().out.splitlines()
        return status, [json.loads(line) for line in lines if line.startswith("{")]

    def fate(self, place: tuple[int, int]) -> tuple[str, int]:
        """The outcome of an event, and the status."""
        status, (answer,) = self.asked("--at", f"{self.deployment.source}/{place[0]}:{place[1]}")
        return answer["outcome"], status


def event(key: bytes, value: bytes | None = b"v", at: int = 0, time_ms: int | None = None) -> Event:
    """An event of a partition."""
    return at, key, value, [], time_ms


def test_twenty_fates(broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each is told right: 20 of 20."""
    stage, now_ms = Stage(broker, tmp_path, capfd), int(time.time() * 1000)
    expected = dict[tuple[int, int], tuple[str, int]]()
    passed, duplicate = ("passed", 0), ("duplicate", 0)
    fates: list[tuple[Event, tuple[str, int]]] = [
        (event(b"user1@example.com"), passed),
        (event(b"User1@Example.com", b"within the batch"), duplicate),
        (event(b"twice@x.org", time_ms=now_ms), passed),
        (event(b"twice@x.org", time_ms=now_ms), duplicate),  # a producer's repeat
        (event(b"user5@example.com"), ("blocked", 4)),  # by its address
        (event(b"user3@junk.org"), ("blocked", 4)),  # by its domain
        (event(b"user15@junk.org"), passed),  # exempt
        (event(b"no address"), ("malformed", 4)),
        (event(b"large@x.org", os.urandom(5_000)), ("rejected", 4)),
        (event(b"gone@x.org", None), passed),  # a tombstone, unjudged
        (event(b"late@x.org", time_ms=now_ms - 90 * DAY_MS), ("late", 4)),
        (event(b"both@x.org"), passed),
        (event(b"both@x.org", at=1), passed),
        (event(b"alone@x.org", at=1), passed),
    ]
    expected |= zip(stage.feed(each for each, _ in fates), (fate for _, fate in fates), strict=True)
    run_to_the_end(stage.deployment)
    (again,) = stage.feed([event(b"user1@example.com", b"after a restart")])
    expected[again] = duplicate
    for part in range(2):  # a key is admitted once its event is committed
        drawn = stage.feed(event(b"n%d-%d@x.org" % (part, n)) for n in range(1_200))
        run_to_the_end(stage.deployment)
    keys = {record.key for record in read_all(broker.bootstrap_servers, stage.deployment.sink)}
    false = [place for n, place in enumerate(drawn) if b"n1-%d@x.org" % n not in keys]
    assert len(false) >= 2, "no false positives at 1e-2 among 1,200"
    expected |= dict.fromkeys(false[:2], ("false_positive", 5))
    (unread,) = stage.feed([event(b"unread@x.org")])
    expected[unread] = ("unread", 4)
    found = {place: stage.fate(place) for place in expected}
    assert found == expected
    run_to_the_end(stage.deployment)
    settings = load(stage.deployment.write_config())

    async def forgotten() -> None:
        await reset.move(settings, await reset.plan(settings, Target("latest"), forget=True))

    asyncio.run(forgotten())
    after = stage.feed(
        [event(b"user1@example.com", b"new"), event(b"user1@example.com", b"once more")]
    )
    run_to_the_end(stage.deployment)
    more = {after[0]: passed, after[1]: duplicate, (0, 0): passed}
    assert {place: stage.fate(place) for place in more} == more
    assert len(expected) + 2 == 20


def test_what_is_no_event_is_said(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The marker of a transaction, and what was aborted; beyond the end."""
    stage = Stage(broker, tmp_path, capfd)
    source = stage.deployment.source
    produce(broker.bootstrap_servers, source, [event(b"a@x.org")], "other", abort=True)
    for offset, said in ((0, "is no event"), (1, "is no event"), (2, "is beyond the end")):
        status, _ = stage.asked("--at", f"{source}/0:{offset}")
        assert status == 2, said


def test_a_key_in_an_open_transaction_is_not_said_to_be_unknown(
    broker: Broker,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The status is 1, and the note names the transaction; once that has ended, the key is known."""
    stage = Stage(broker, tmp_path, capfd)
    stage.feed([event(b"first@x.org")])
    run_to_the_end(stage.deployment)
    monkeypatch.setattr(known, "DECIDED_S_MAX", 1.0)
    producer = Producer(client_config(broker.bootstrap_servers) | {"transactional.id": "other"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(stage.deployment.sink, b"v", b"pending@x.org", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    status, (answer,) = stage.asked("pending@x.org")
    assert (status, answer["verdict"]) == (1, "unknown")
    assert "is open from offset" in answer["notes"][0]
    assert stage.asked("first@x.org")[0] == 0
    producer.commit_transaction(DEADLINE_S)
    monkeypatch.undo()
    monkeypatch.setattr(os, "nice", lambda _: 0)
    assert stage.asked("pending@x.org")[0] == 0


def test_a_key_is_known_while_a_worker_runs(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the output, whose newest transactions are waited for; and after the worker by its snapshot."""
    stage = Stage(broker, tmp_path, capfd)
    stage.deployment.config["filter"] = {"capacity": 100_000, "error_rate": 1e-6}
    with stage.deployment.running() as worker:
        worker.wait_for("shard_live", 2)
        for n in range(5):
            stage.feed(keyed(range(n * 1_000, n * 1_000 + 1_000), 2))
            stage.deployment.catch_up(worker)
            status, (answer,) = stage.asked(f"user{n * 1_000 + 999}@example.com", "--all")
            assert (status, answer["verdict"]) == (0, "duplicate"), answer
        assert stage.asked("nobody@example.com")[0] == 4
        assert worker.interrupt() == 0
    status, (answer,) = stage.asked("user4999@example.com")
    (there,) = answer["known_in"]
    assert (status, there["by"], there["input"]["found"]) == (0, "snapshot", True)


def test_an_output_that_the_broker_stamps(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its events have other times than those of the input, and are known again all the same."""
    made = Stage(broker, tmp_path, capfd)
    stage = Deployment(broker.bootstrap_servers, tmp_path, 1)
    stage.create(message_timestamp_type="LogAppendTime")
    made.deployment = stage
    stage.feed(event(b"k%d" % (n % 2), b"%d" % n, time_ms=1_700_000_000_000 + n) for n in range(4))
    run_to_the_end(stage)
    assert [made.fate((0, n)) for n in range(4)] == [("passed", 0)] * 2 + [("duplicate", 0)] * 2
    _, (answer,) = made.asked("k1")
    assert answer["known_in"][0]["input"]["offset"] == 1
