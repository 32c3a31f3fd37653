"""Claims about `streamdedup reset`: where offsets go, what their notes say, what is forgotten, and who is refused."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streamdedup.commands.reset import note_after
from streamdedup.commands.reset_plan import ResetPlan, Step, Target
from streamdedup.commands.reset_text import as_text
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.cluster import kafka_cluster
from streamdedup.kafka.offsets import Committed
from streamdedup.settings import load
from tests.broker.base import DEADLINE_S, Broker
from tests.broker.topics import delete_records, move_offsets, produce, read_all
from tests.commands.test_reset import FOUND, NOW_MS, at, emitted, reset
from tests.deployment import Deployment, keyed, lost_and_doubled
from tests.lists.tools import built
from tests.local import run_to_the_end


@pytest.fixture
def deployment(broker: Broker, tmp_path: Path) -> Deployment:
    """Two partitions."""
    return Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()


def command(
    deployment: Deployment, *arguments: str, stdout: int = subprocess.PIPE
) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own, without a terminal."""
    config = str(deployment.write_config())
    return subprocess.run(
        [sys.executable, "-m", "streamdedup", "reset", "-c", config, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.broker
def test_offsets_move_and_nothing_is_emitted_twice(deployment: Deployment) -> None:
    """To the end, to a time, to the start; afterwards the worker reads again and emits nothing anew."""
    base = int(time.time() * 1000) // 1000 * 1000 - 3_600_000
    deployment.feed([(n % 2, b"k%d" % n, b"", [], base + n * 1000) for n in range(200)])
    run_to_the_end(deployment)
    reset(deployment, "earliest")
    assert at(deployment) == {0: 0, 1: 0}
    reset(deployment, "latest")
    assert at(deployment) == {0: 100, 1: 100}
    moment = datetime.fromtimestamp(base / 1000 + 101, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    said = reset(deployment, moment)
    assert at(deployment) == {0: 51, 1: 50}, said
    assert re.search(r"^all .* 99 +0$", said, re.MULTILINE)
    reset(deployment, "1s")  # younger than all: the end
    assert at(deployment) == {0: 100, 1: 100}
    reset(deployment, "earliest")
    run_to_the_end(deployment)
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.broker
def test_another_tools_move_takes_the_floor_along(deployment: Deployment) -> None:
    """Without its note an offset has no floor: all of the output counts again, so nothing in it is doubled."""
    deployment.feed(keyed(range(100), 2))
    run_to_the_end(deployment)
    reset(deployment, "latest", forget=True)
    move_offsets(deployment.bootstrap, deployment.group, {0: 0, 1: 0}, deployment.source)
    assert "Another tool committed the offsets" in reset(deployment, "earliest")
    run_to_the_end(deployment)
    assert set(emitted(deployment).values()) == {1}


@pytest.mark.broker
def test_a_gap_above_the_floor_stops(deployment: Deployment) -> None:
    """What retention deletes below the floor is no gap; what it deletes above it is one."""
    deployment.feed(keyed(range(100), 2))
    run_to_the_end(deployment)
    floor = read_all(deployment.bootstrap, deployment.sink)[49].offset + 2  # the marker follows
    reset(deployment, "earliest", forget=True)
    delete_records(deployment.bootstrap, deployment.sink, {0: 20, 1: 20})
    run_to_the_end(deployment)
    assert len(read_all(deployment.bootstrap, deployment.sink)) == 160
    shutil.rmtree(deployment.snapshots)
    delete_records(deployment.bootstrap, deployment.sink, {0: floor + 5})
    with deployment.running() as worker:
        (stopped,) = worker.wait_for("shard_stopped")
        assert f"the events from {floor} up to there" in stopped["error"]


@pytest.mark.broker
def test_an_active_group_is_refused(deployment: Deployment) -> None:
    """With its members counted, status 1; nothing is moved, and the worker is not disturbed."""

    async def moved() -> None:
        # As if the worker had joined after we looked: the broker itself refuses offsets of no member.
        async with kafka_cluster(load(deployment.write_config()).kafka) as cluster:
            await cluster.move(deployment.group, deployment.source, {0: (0, ""), 1: (0, "")})

    deployment.feed(keyed(range(100), 2))
    with deployment.running() as worker:
        deployment.catch_up(worker)
        done = command(deployment, "--to", "earliest", "--forget", "--yes")
        assert done.returncode == 1
        assert "has 1 member: stop all workers first" in done.stderr
        assert at(deployment) == {0: 50, 1: 50}
        deployment.feed(keyed(range(50, 150), 2))
        deployment.catch_up(worker)
        assert not worker.events("doubt")
        with pytest.raises(DeliveryError, match="has members: a worker joined meanwhile"):
            asyncio.run(moved())
    assert at(deployment) == {0: 100, 1: 100}
    assert lost_and_doubled(deployment) == (0, 0, 0)


@pytest.mark.broker
def test_nobody_is_asked_without_a_terminal(deployment: Deployment) -> None:
    """The plan is shown, nothing is moved, status 2; with --yes it is, status 0."""
    deployment.feed(keyed(range(10), 2))
    done = command(deployment, "--to", "latest")
    assert (done.returncode, "add --yes" in done.stderr, "partition" in done.stdout) == (2, 1, 1)
    assert at(deployment) == {}
    assert command(deployment, "--to", "latest", "--yes").returncode == 0
    assert at(deployment) == {0: 5, 1: 5}
    reader, writer = os.pipe()
    os.close(
        reader
    )  # as `| head` does when it has enough: the plan is not read, and carried out all the same
    done = command(deployment, "--to", "earliest", "--yes", stdout=writer)
    os.close(writer)
    assert (done.returncode, at(deployment)) == (0, {0: 0, 1: 0})
    with pytest.raises(ConfigError, match="the topic nowhere does not exist"):
        deployment.config["sink"]["topic"] = "nowhere"
        reset(deployment, "latest")


@pytest.mark.broker
@pytest.mark.parametrize(("answer", "status", "moved"), [("y", 0, True), ("", 1, False)])
def test_a_person_is_asked(deployment: Deployment, answer: str, status: int, moved: bool) -> None:
    """On a terminal `y` moves, anything else does not."""
    produce(deployment.bootstrap, deployment.source, keyed(range(10), 2))
    ours, theirs = os.openpty()
    command = ["-c", str(deployment.write_config()), "--to", "latest"]
    with subprocess.Popen(
        [sys.executable, "-m", "streamdedup", "reset", *command],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        os.write(ours, answer.encode() + b"\n")
        _, errors = process.communicate(timeout=DEADLINE_S)
    os.close(ours)
    os.close(theirs)
    assert (process.returncode, b"Move the offsets? [y/N]" in errors) == (status, True)
    assert at(deployment) == ({0: 5, 1: 5} if moved else {})


@pytest.mark.broker
@pytest.mark.needs_broker("topic ids")
def test_what_would_stop_the_worker_is_not_hidden(broker: Broker, tmp_path: Path) -> None:
    """Of another output than its note says, a group is only moved with --forget."""
    one = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    other = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    one.feed(keyed(range(10), 1))
    run_to_the_end(one)
    one.config["sink"]["topic"] = one.sink = other.sink
    with pytest.raises(DeliveryError, match=r"partition 0: .* made again.*or add --forget"):
        reset(one, "earliest")
    reset(one, "earliest", forget=True)
    run_to_the_end(one)
    assert lost_and_doubled(one) == (0, 0, 0)


@pytest.mark.broker
def test_who_only_screens_has_nothing_to_forget(broker: Broker, tmp_path: Path) -> None:
    """--forget is refused by the setting's name; a plain move goes on with another output, which harms nothing."""
    one = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    other = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    built(tmp_path, ["user3@example.com"])
    one.config["filter"] = {"kind": "none"}
    one.config["blocklist"] = {"file": str(tmp_path / "out.list")}
    del one.config["snapshot"]
    one.feed(keyed(range(10), 1))
    run_to_the_end(one)
    refused = command(one, "--to", "earliest", "--forget", "--yes")
    assert refused.returncode == 2
    assert "filter.kind: none (filter: null)" in refused.stderr
    assert at(one) == {0: 10}
    one.config["sink"]["topic"] = one.sink = other.sink
    assert "judged by the lists alone" in reset(one, "earliest")
    run_to_the_end(one)
    assert emitted(one) == Counter(b"user%d@example.com" % n for n in range(10) if n != 3)


@pytest.mark.parametrize(
    ("at", "to", "again", "skipped"),
    [
        (30, 10, 20, 0),
        (30, 90, 0, 60),
        (30, 30, 0, 0),
        (None, 10, 0, 0),
        (500, 10, 80, 0),  # beyond the end: nothing there was read
        (0, 20, 0, 10),  # below the start: what is gone cannot be skipped
    ],
)
def test_what_is_read_again_or_skipped_is_counted(
    at: int | None, to: int, again: int, skipped: int
) -> None:
    """In offsets that the input holds, here from 10 to 90."""
    step = Step(0, at, to, FOUND)
    assert (step.again, step.skipped) == (again, skipped)


def said_of(directory: Path, target: Target, *steps: Step, **options: Any) -> str:
    """The plan's text, where the filter has these options."""
    deployment = Deployment("nowhere:9092", directory)
    deployment.config["filter"] |= options
    return as_text(load(deployment.write_config()), ResetPlan(target, False, steps))


@pytest.mark.parametrize(
    ("options", "again", "advice"),
    [
        ({"kind": "bloom"}, False, "none of these is emitted again"),
        ({"kind": "window", "retention": "7d"}, True, "because filter.late is pass"),
        (
            {"kind": "window", "retention": "7d", "late": "drop"},
            True,
            "emitted again by a younger event if its first event is older",
        ),
        ({"kind": "window"}, True, "at least the last filter.capacity keys"),
    ],
    ids=["bloom", "late-pass", "late-drop", "by-count"],
)
def test_a_window_is_not_promised_what_it_forgets(
    tmp_path: Path, options: dict[str, str], again: bool, advice: str
) -> None:
    """Who moves back is told that forgotten keys are emitted again, and what `late` has to do with it."""
    said = said_of(tmp_path, Target("earliest"), Step(0, 30, 10, FOUND), **options)
    assert ("EMITTED AGAIN" in said, "none of these is emitted again" in said) == (again, not again)
    assert advice in said


def test_offsets_that_are_there_already_are_not_moved(tmp_path: Path) -> None:
    """Nothing to move is said, unless the offset is another tool's or of another log, which a move would put right."""
    there = Step(0, 30, 30, FOUND)
    assert "Nothing to move" in said_of(tmp_path, Target("latest"), there)
    for other in (replace(FOUND, committed=Committed(30, None)), replace(FOUND, input_id="other")):
        assert "Nothing to move" not in said_of(
            tmp_path, Target("latest"), there, Step(1, 30, 30, other)
        )


def test_a_time_that_no_event_reaches_means_the_end(tmp_path: Path) -> None:
    """That it is as good as latest is said, of the partitions where it is so."""
    ahead = Target("time", NOW_MS)
    steps = Step(0, 30, 90, FOUND), Step(1, 30, 90, replace(FOUND, partition=1))
    said = said_of(tmp_path, ahead, *steps)
    assert "No event is from that time or later (all partitions)" in said
    said = said_of(tmp_path, ahead, Step(0, 30, 89, FOUND), steps[1])
    assert "or later (partitions 1)" in said
    assert "or later" not in said_of(tmp_path, Target("latest"), *steps)


def test_a_group_that_committed_nothing_is_named(tmp_path: Path) -> None:
    """A name that was mistyped has no offsets anywhere, and the plan says so."""
    said = said_of(tmp_path, Target("latest"), Step(0, None, 90, FOUND))
    assert re.search(r"The group \S+ has committed nothing on \S+: .* check kafka.group_id", said)
    said = said_of(tmp_path, Target("latest"), Step(0, None, 90, FOUND), Step(1, 3, 90, FOUND))
    assert "has committed nothing" not in said


@pytest.mark.parametrize("forget", [False, True])
def test_a_move_hides_no_other_number_of_partitions(forget: bool) -> None:
    """An input that was made again has no offsets; the next worker must see what the output is of, unless forgotten."""
    found = replace(FOUND, committed=None, beyond=[FOUND.partitions + 1])
    moved = note_after(found, 10, forget=forget)
    assert moved.partitions == FOUND.partitions + (0 if forget else 2)
