"""Claims about a block list while events flow: files that are replaced, changes from a topic, what must not harm."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewPartitions
from disposable_email_domains import blocklist as disposable

from tests.broker.base import DEADLINE_S, admin_client, wait_until
from tests.broker.topics import (
    Event,
    produce,
    read_all,
)
from tests.deployment import Deployment, WorkerProcess
from tests.lists.screening import blocked, build, command, header, sign_ups

pytestmark = pytest.mark.broker


DOMAINS = sorted(name for name in disposable if "xn--" not in name)  # one is none by IDNA 2008


def test_the_disposable_domains_of_a_package_are_screened(
    screened: Deployment, tmp_path: Path
) -> None:
    """Every address of theirs is blocked, as is that of one below a domain with a dot; everybody else passes."""
    build(tmp_path / "block.list", [*(f"@{domain}" for domain in DOMAINS), ".spam.example"])
    caught = [f"User.{n}@{domain.upper()}" for n, domain in enumerate(DOMAINS)]
    caught += ["a@spam.example", "a@deep.er.spam.example"]
    others = [f"user{n}@company{n % 7}.example" for n in range(2000)] + ["a@notspam.example"]
    screened.feed(sign_ups([*caught, *others]))
    screened.run_to_the_end()
    assert sorted(r.value or b"" for r in read_all(screened.bootstrap, screened.sink)) == sorted(
        a.encode() for a in others
    )
    letters = blocked(screened)
    assert sorted(r.value or b"" for r in letters) == sorted(a.encode() for a in caught)
    assert {header(r, "rule") for r in letters} == {"domain"}


def test_sighup_reads_the_lists_again(screened: Deployment, tmp_path: Path) -> None:
    """Also if the file looks as it did; the worker goes on."""
    version = build(tmp_path / "block.list", ["@first.example"])
    with screened.running() as worker:
        worker.wait_for("shard_live", 2)
        worker.process.send_signal(signal.SIGHUP)
        found = worker.wait_for("list_in_force", 2)
        assert [line["version"].partition("+")[0] for line in found] == [version, version]
        assert worker.interrupt() == 0


def test_a_new_worker_knows_all_changes_before_it_serves(
    screened: Deployment, tmp_path: Path
) -> None:
    """The last of those that raced for one key counts, and ten thousand that are none change nothing."""
    build(tmp_path / "block.list", ["listed@x.example"])
    control = screened.config["blocklist"]["control_topic"]
    wrong: list[Any] = [b"", b"{", b"[]", b'{"op": "drop"}', b"\xff"]
    produce(
        screened.bootstrap,
        control,
        [(n % 3, b"user%d@x.example" % n, wrong[n % len(wrong)], [], None) for n in range(10_000)],
    )
    add, remove = (json.dumps({"op": op}).encode() for op in ("add", "remove"))
    raced = [add, remove] * 50
    produce(
        screened.bootstrap,
        control,
        [(1, b"raced@x.example", value, [], None) for value in [*raced, add]],
    )
    produce(
        screened.bootstrap,
        control,
        [(2, b"back@x.example", value, [], None) for value in (add, None)],
    )
    screened.feed(
        sign_ups(["raced@x.example", "back@x.example", "user7@x.example", "listed@x.example"])
    )
    worker = screened.run_to_the_end()
    assert {r.value for r in blocked(screened)} == {b"raced@x.example", b"listed@x.example"}
    logged = worker.events("change_malformed")
    assert len(logged) == 1
    assert logged[0]["topic"] == control
    assert "user" not in json.dumps(worker.events())


def test_all_workers_agree_on_changes_after_partitions_were_added(
    screened: Deployment, tmp_path: Path
) -> None:
    """Of an entry that moved to a new partition, the later change is in force, before a restart and after it.

    What takes changes back is written to all partitions, so nothing of an entry is left in the one that it came from.
    """
    build(tmp_path / "block.list", ["listed@x.example"])
    control, config = screened.config["blocklist"]["control_topic"], str(screened.write_config())
    entries = [f"user{n}@x.example" for n in range(24)]

    def changed(worker: WorkerProcess, op: str, position: int, keys: int) -> None:
        command(["lists", op, "-c", config, *entries])
        holds(worker, position, keys)

    def holds(worker: WorkerProcess, position: int, keys: int) -> None:
        worker.wait_for("list_changed")
        wait_until(
            lambda: (
                [worker.events("list_changed")[-1][name] for name in ("position", "keys_changed")]
                == [position, keys]
            ),
            DEADLINE_S,
            lambda: str(worker.events("list_changed")),
        )

    with screened.running("running.log") as running:
        running.wait_for("shard_live", 2)
        changed(running, "add", 24, 24)
        screened.feed(sign_ups(entries))
        screened.catch_up(running)
        assert len(blocked(screened)) == 24
        admin = admin_client(screened.bootstrap)
        admin.create_partitions([NewPartitions(control, 7)])[control].result()
        wait_until(lambda: can_write(screened, control, [], 7), DEADLINE_S, lambda: "no partition")
        changed(running, "remove", 48, 24)
        screened.feed(sign_ups(entries))
        screened.catch_up(running)
        assert running.interrupt() == 0
    with screened.running("new.log") as new:
        new.wait_for("shard_live", 2)
        screened.feed(sign_ups(entries))
        screened.catch_up(new)
        assert len(blocked(screened)) == 24
        changed(new, "undo", 48 + 24 * 7, 0)


def can_write(
    deployment: Deployment, topic: str, events: list[Event], partitions: int | None = None
) -> bool:
    """Whether all partitions, by default as many as events, take their events by now."""
    found = admin_client(deployment.bootstrap).list_topics(topic, timeout=DEADLINE_S).topics[topic]
    if len(found.partitions) < (partitions or len(events)):
        return False
    produce(deployment.bootstrap, topic, events)
    return True
