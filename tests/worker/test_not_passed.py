"""Claims about the events that did not pass lately: which are noted, when, and what is said of them at SIGUSR2."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamdedup.delivery.not_passed import (
    EMITTED_BEFORE,
    IS_LATE,
    IS_TOMBSTONE,
    KEPT_MAX,
    ON_THE_LIST,
    LastNotPassed,
    not_passed,
)
from streamdedup.delivery.transactions import DecidedBatch
from streamdedup.events import NO_TIMESTAMP, EventBatch, Verdict
from streamdedup.kafka.records.records import Record, batch_of
from streamdedup.kafka.sink import DoubtError
from streamdedup.testing.writer import MemoryWriter
from tests.broker.base import DEADLINE_S
from tests.broker.topics import Event
from tests.deployment import WorkerProcess
from tests.lists.numbered import addressed, build_lists
from tests.lists.screening import header
from tests.local import LocalWorker
from tests.memory import Stage, over
from tests.memory_deployment import MemoryDeployment

NAMES = ["topic", "partition", "offset", "verdict", "reason", "event_time_ms"]
NAMES += ["list", "list_version", "list_source", "rule"]
NO_ADDRESS = "the key is not an e-mail address: An email address must have an @-sign"
SECRET = b"someone@secret.example"


def noted(worker: LocalWorker) -> list[dict[str, Any]]:
    """What `/api/status` would have."""
    found = worker.worker.status.not_passed.as_json()
    assert all(list(each) == NAMES for each in found)
    return found


def shown(found: Iterable[dict[str, Any]]) -> list[tuple[int, str, str]]:
    """Offset, verdict and reason of each."""
    return [(each["offset"], each["verdict"], each["reason"]) for each in found]


@pytest.fixture
def deployment(tmp_path: Path) -> MemoryDeployment:
    """One partition, both lists, keys that are addresses; malformed events become dead letters."""
    made = MemoryDeployment(tmp_path).create()
    made.config["key"] = {"from": "key", "normalize": "email", "on_malformed": "dead_letter"}
    made.config["source"]["tombstones"] = "drop"
    made.config |= build_lists(tmp_path)
    for leaf in ("blocked_topic", "dead_letter_topic"):
        made.create_side_topic(leaf)
    return made


MIXED: list[Event] = [
    *addressed([1, 1, 2, 1]),
    *addressed([5, 3, 9]),  # an address of the list, two of a domain
    (0, b"no address", b"m", [], 1_700_000_000_000),
    (0, None, b"m", [], None),
    (0, b"user7@example.com", None, [], None),
]


def test_one_event_of_each_verdict_and_reason_is_noted(deployment: MemoryDeployment) -> None:
    """The last one of its batch: where it lies, when it was, which version of which list; and no key."""
    deployment.feed(MIXED)
    found = noted(deployment.work())
    assert sorted(shown(found)) == [
        (3, "duplicate", EMITTED_BEFORE),
        (4, "blocked", ON_THE_LIST),
        (6, "blocked", ON_THE_LIST),
        (7, "malformed", NO_ADDRESS),
        (8, "malformed", "the record key is null"),
        (9, "blocked", IS_TOMBSTONE),
    ]
    assert {(each["topic"], each["partition"]) for each in found} == {(deployment.source, 0)}
    by_list = [each for each in found if each["list"]]
    assert {each["offset"]: each["rule"] for each in by_list} == {4: "address", 6: "domain"}
    [letter, *_] = deployment.read_all(deployment.config["sink"]["blocked_topic"])
    for each in by_list:
        assert (each["list"], each["list_source"]) == ("blocked", "file")
        assert each["list_version"] == header(letter, "list-version")
    [malformed] = [each for each in found if each["offset"] == 7]
    assert malformed["event_time_ms"] == 1_700_000_000_000
    assert not any(key in json.dumps(found) for key in ("User", "user", "junk", "no address"))


def test_in_shadow_mode_only_what_the_output_refuses_is_noted(deployment: MemoryDeployment) -> None:
    """All else passes, whatever its verdict."""
    deployment.config["sink"]["shadow"] = True
    deployment.alter(deployment.sink, max_message_bytes=2000)
    large = np.random.default_rng(1).bytes(2000)
    deployment.feed([*MIXED, (0, b"user8@example.com", large, [], None)])
    assert shown(noted(deployment.work())) == [(10, "rejected", "too large")]


def test_malformed_events_that_pass_are_not_noted(deployment: MemoryDeployment) -> None:
    """Nor is anything else that goes to the output."""
    deployment.config["key"]["on_malformed"] = "pass"
    deployment.config["source"]["tombstones"] = "pass"
    deployment.feed([*addressed([1, 2]), *MIXED[-3:]])
    assert noted(deployment.work()) == []


@over(Stage)
async def test_late_events_that_are_dropped_are_noted(stage: Stage) -> None:
    """A late event is BLOCKED, by no list."""
    window = {"kind": "window", "retention": "1h", "generations": 4, "capacity": 100}
    stage.config["filter"] = {**window, "late": "drop"}
    late = [Record.of(at * 3_600_000, b"k%d" % at, b"v") for at in (400_000, 400_009, 400_001)]
    stage.broker.append(stage.source, 0, late, None)
    async with stage.start() as worker:
        await worker.consumed(3)
    assert shown(noted(worker)) == [(2, "blocked", IS_LATE)]


@over(Stage)
async def test_what_is_taken_back_is_not_noted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as its transaction is not committed, nobody is told of an event; then once."""
    commit, seen = MemoryWriter.commit, list[list[Any]]()
    stage.feed([1, 1, 2, 2])

    async def doubted(self: MemoryWriter, *arguments: Any) -> None:
        if arguments[1] and len(seen) < 3:
            seen.append(noted(worker))
            raise DoubtError("the answer was lost")
        await commit(self, *arguments)

    monkeypatch.setattr(MemoryWriter, "commit", doubted)
    worker = stage.start()
    await worker.consumed(4)
    await worker.stop()
    assert seen == [[]] * 3
    assert shown(noted(worker)) == [(3, "duplicate", EMITTED_BEFORE)]


# --- the pieces ---


def part(verdicts: Sequence[Verdict], **of: Any) -> DecidedBatch:
    """Events with these verdicts, whose keys and values are secret."""
    records = [Record.of(NO_TIMESTAMP, SECRET, SECRET)] * len(verdicts)
    batch = batch_of("in", 0, range(len(records)), records, len(records))
    given = {"malformed": {}, "rejected": {}, **of}
    return DecidedBatch(
        batch=batch, verdicts=np.array(verdicts, dtype=np.uint8), letter_ms=0, **given
    )


def test_a_malformed_event_that_is_rejected_is_noted_as_rejected() -> None:
    """And what was malformed beyond the events that were decided, as the filter was full, is not there."""
    bad, large = Verdict.MALFORMED, Verdict.REJECTED
    whys = {0: "no id", 1: "no id", 2: "no json", 7: "no id"}
    mixed = part([bad, large, bad], malformed=whys, rejected={1: "too large"})
    found = not_passed(mixed, [bad, large], drops_tombstones=False)
    assert [(each.offset, each.verdict, each.reason) for each in found] == [
        (0, bad, "no id"),
        (2, bad, "no json"),
        (1, large, "too large"),
    ]


def test_so_many_are_kept_and_no_more() -> None:
    """The last ones, in the order of their commits, whatever a batch has."""
    lately, bad = LastNotPassed(), Verdict.MALFORMED
    for turn in range(3):
        whys = {row: f"unknown schema {turn} {row}" for row in range(2 * KEPT_MAX)}
        found = not_passed(part([bad] * len(whys), malformed=whys), [bad], drops_tombstones=False)
        assert len(found) == KEPT_MAX
        lately.add(found)
    lately.add(not_passed(part([Verdict.DUPLICATE]), [Verdict.DUPLICATE], drops_tombstones=False))
    assert len(lately.events) == KEPT_MAX
    assert lately.events[-1].reason == EMITTED_BEFORE
    assert all(each.reason.startswith("unknown schema 2") for each in lately.events[:-1])


def test_no_key_is_kept() -> None:
    """Of an event only numbers and known texts, of whatever verdict: nothing that holds its bytes."""
    verdicts = [each for each in Verdict if each is not Verdict.PASS]
    held = part(verdicts, malformed={2: "no id"}, rejected={3: "too large"})
    for event in not_passed(held, verdicts, drops_tombstones=True):
        assert SECRET.decode() not in repr(event)
        assert not any(isinstance(each, bytes | EventBatch | np.ndarray) for each in event)
        assert all(each is None or type(each) in (str, int) for each in event.as_json().values())


# --- the signal ---

WORKER = """
import asyncio, sys
from functools import partial
from pathlib import Path
from streamdedup import logs
from streamdedup.settings import load
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.worker import process
broker = MemoryBroker()
for topic in ("events", "unique"):
    broker.create_topic(topic)
for key in (b"someone@secret.example", b"other", b"someone@secret.example"):
    broker.produce("events", [(0, key, b"{}")])
process.Worker = partial(process.Worker, connect=connected_to(broker))
logs.set_up(queued=True)
sys.exit(process.serve(load(Path(sys.argv[1]))))
"""


def test_sigusr2_logs_what_did_not_pass(tmp_path: Path) -> None:
    """A line of JSON for each, without its key, as often as it is asked; the worker goes on, and drains as ever."""
    config = tmp_path / "config.json"
    options = {
        "kafka": {"bootstrap_servers": "memory:1", "group_id": "g"},
        "source": {"topic": "events"},
        "key": {"from": "key"},
        "filter": {"capacity": 1000},
        "sink": {"topic": "unique"},
        "snapshot": {"directory": str(tmp_path / "snapshots")},
    }
    config.write_text(json.dumps(options), "utf-8")
    command = [sys.executable, "-c", WORKER, str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        lines, asked = list[dict[str, Any]](), 0
        for text in worker.stderr:
            line = json.loads(text)
            lines.append(line)
            if line["event"] in ("shard_live", "not_passed_lately") and not _is_told_twice(lines):
                os.kill(worker.pid, signal.SIGUSR2)
            elif _is_told_twice(lines) and not asked:
                asked += 1
                worker.terminate()
        assert worker.wait(DEADLINE_S) == 0
    told = [line for line in lines if line["event"] == "not_passed"]
    assert shown(told) == [(2, "duplicate", EMITTED_BEFORE)] * len(told)
    assert all(line.keys() >= set(NAMES) for line in told)
    assert SECRET.decode() not in json.dumps(lines)


def _is_told_twice(lines: list[dict[str, Any]]) -> bool:
    return [line["event"] for line in lines].count("not_passed") >= 2


def test_sigusr2_before_there_is_a_broker_ends_no_worker(tmp_path: Path) -> None:
    """There is nothing yet, and the worker says so."""
    process = WorkerProcess(_alone(tmp_path), tmp_path / "worker.log")
    process.wait_for("connecting")
    process.process.send_signal(signal.SIGUSR2)
    [line] = process.wait_for("not_passed_lately")
    assert line["events"] == 0
    assert process.interrupt() == 0


def _alone(directory: Path) -> Path:
    made = MemoryDeployment(directory)
    made.config["kafka"]["bootstrap_servers"] = "127.0.0.1:1"
    return made.write_config()
