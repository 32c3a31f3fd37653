"""A transaction of ours that has ended, of which the broker forgot markers, over a broker in memory."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamdedup.kafka.offsets import Note
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.transactions import LOGS, OFFSETS
from tests.deployment import Deployment
from tests.lists.files import list_file
from tests.local import Start, on_virtual_clock


@pytest.mark.parametrize("kind", ["bloom", "none"])
@pytest.mark.parametrize(
    ("committed", "lost", "outcome"),
    [
        (True, {OFFSETS}, "committed"),
        (True, {LOGS}, "committed"),
        (True, {LOGS, OFFSETS}, "committed"),
        (False, {OFFSETS}, "aborted"),
        (False, {LOGS}, "aborted"),
        (False, {LOGS, OFFSETS}, "committed"),  # it is whole, and nobody has seen how it ended
    ],
)
@pytest.mark.rule(2)
def test_it_ends_as_it_had_ended(
    tmp_path: Path, kind: str, committed: bool, lost: set[str], outcome: str
) -> None:
    """The next worker goes on, and each event is in the output once."""
    deployment, broker = Deployment("memory:1", tmp_path, partitions=1), MemoryBroker()
    remember(deployment, tmp_path, kind)
    lines = leave_undecided(broker, deployment, committed=committed, lost=lost)
    assert [event.key for event in broker.read_all(deployment.sink)[0]] == [b"a", b"b", b"c"]
    assert [line["outcome"] for line in lines] == [outcome]


@pytest.mark.parametrize("kind", ["bloom", "none"])
@pytest.mark.rule(2)
def test_what_the_next_one_ends_otherwise_is_forgotten(tmp_path: Path, kind: str) -> None:
    """A worker that runs takes a transaction for committed, and its next one aborts it: its events are read again."""
    deployment, broker = Deployment("memory:1", tmp_path, partitions=1), MemoryBroker()
    remember(deployment, tmp_path, kind)
    lost: list[Mapping[str, Any]] = []

    def stands_at(offset: int) -> bool:
        return broker.committed(deployment.group, deployment.source) == {0: offset}

    async def scene(start: Start) -> None:
        fill(broker, deployment)
        worker = start(deployment, connect=connected_to(broker))
        await worker.until(lambda: stands_at(1), "the first event")
        transaction = broker.transaction(f"{deployment.sink}/0")
        transaction.loses = frozenset((LOGS, OFFSETS))
        broker.produce(deployment.source, [(0, b"b", b"value")])
        await worker.until(lambda: worker.worker.tally.consumed == 2, "the second event")
        transaction.loses = frozenset()
        broker.produce(deployment.source, [(0, b"c", b"value")])
        await worker.until(lambda: stands_at(3), "the end")
        lost.extend(worker.lines("commit_lost"))

    on_virtual_clock(scene)
    assert [event.key for event in broker.read_all(deployment.sink)[0]] == [b"a", b"b", b"c"]
    # Without a filter others may write, too. So nothing is amiss for the next transaction, which commits both.
    assert len(lost) == (kind == "bloom")


@pytest.mark.rule(2)
def test_what_another_left_open_is_not_ended(tmp_path: Path) -> None:
    """Its outcome is not ours to choose: the shard stops, and says what to do."""
    deployment, broker = Deployment("memory:1", tmp_path, partitions=1), MemoryBroker()
    deployment.config["delivery"]["open_transaction_s"] = 2

    async def scene(start: Start) -> None:
        fill(broker, deployment)
        foreign = broker.transaction("foreign")
        group = broker.group(deployment.group)
        foreign.stage(foreign.fence(900.0), group, (deployment.source, 0), (1, ""), now())
        worker = start(deployment, connect=connected_to(broker))
        await worker.until(lambda: worker.lines("shard_stopped"), "the shard that stops")
        (line,) = worker.lines("shard_stopped")
        assert "a transaction that is not ours has not ended" in line["error"]
        assert foreign.open

    on_virtual_clock(scene)


def remember(deployment: Deployment, directory: Path, kind: str) -> None:
    """Have it remember what was emitted; or nothing, and then it screens by a list."""
    if kind == "none":
        deployment.config["filter"] = {"kind": kind}
        deployment.config["blocklist"] = {"file": str(list_file(directory / "block.list", [b"x"]))}


def fill(broker: MemoryBroker, deployment: Deployment) -> None:
    """Make both topics; three events are in the input."""
    broker.create_topic(deployment.source)
    broker.create_topic(deployment.sink)
    broker.produce(deployment.source, [(0, b"a", b"value")])


def now() -> float:
    """The loop's clock."""
    return asyncio.get_running_loop().time()


def leave_undecided(
    broker: MemoryBroker, deployment: Deployment, *, committed: bool, lost: set[str]
) -> list[Mapping[str, Any]]:
    """Run a worker over one event, lose markers of the transaction of the second, and let a worker go on to a third.

    The second event is read again if its transaction was aborted. Returns what the worker says of that transaction.
    """
    said: list[Mapping[str, Any]] = []

    def stands_at(offset: int) -> bool:
        return broker.committed(deployment.group, deployment.source) == {0: offset}

    async def scene(start: Start) -> None:
        fill(broker, deployment)
        first = start(deployment, connect=connected_to(broker))
        await first.until(lambda: stands_at(1), "the first event")
        await first.stop()
        broker.produce(deployment.source, [(0, b"b", b"value")])
        group, output = broker.group(deployment.group), broker.log(deployment.sink, 0)
        transaction = broker.transaction(f"{deployment.sink}/0")
        epoch = transaction.fence(60.0)
        transaction.add(epoch, output, now())
        transaction.produce(epoch, output, [(broker.now_ms(), b"b", b"value", ())])
        noted = Note.decode(group.offsets[deployment.source, 0][1])
        assert noted is not None
        note = replace(noted, label=output.end).encode()
        transaction.stage(epoch, group, (deployment.source, 0), (2, note), now())
        transaction.loses = frozenset(lost)
        transaction.end(epoch, commit=committed)
        await asyncio.sleep(1)
        transaction.loses = frozenset()
        broker.produce(deployment.source, [(0, b"c", b"value")])
        second = start(deployment, connect=connected_to(broker))
        await second.until(lambda: stands_at(3), "the end")
        said.extend(second.lines("transaction_finished"))

    on_virtual_clock(scene)
    return said
