"""A transaction of ours that has ended, of which the broker forgot markers, over a broker in memory."""

import asyncio
from dataclasses import replace

import pytest

from streamdedup.kafka.offsets import Note
from streamdedup.kafka.records.records import Record
from streamdedup.testing.transactions import LOGS, OFFSETS
from tests import memory
from tests.lists.files import list_file
from tests.local import LocalWorker
from tests.memory import over

LOST_BOTH = frozenset((LOGS, OFFSETS))


class Stage(memory.Stage):
    """One partition, and the transaction of its worker."""

    def remember(self, kind: str) -> None:
        """Have workers remember what was emitted; or nothing, and then they screen by a list."""
        if kind == "none":
            screen = list_file(self.deployment.directory / "block.list", [b"x"])
            self.config["filter"] = {"kind": kind}
            self.config["blocklist"] = {"file": str(screen)}

    def send(self, key: bytes) -> None:
        """Append an event to the input."""
        self.broker.produce(self.source, [(0, key, b"value")])

    async def until_at(self, worker: LocalWorker, offset: int) -> None:
        """Wait until this offset is committed."""
        await worker.until(lambda: self.committed == offset, f"the offset {offset}")

    @property
    def keys(self) -> list[bytes | None]:
        """Those of the output."""
        return [event.key for event in self.output]


def now() -> float:
    """The loop's clock."""
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("kind", ["bloom", "none"])
@pytest.mark.parametrize(
    ("committed", "lost", "outcome"),
    [
        (True, {OFFSETS}, "committed"),
        (True, {LOGS}, "committed"),
        (True, {LOGS, OFFSETS}, "committed"),
        (False, {OFFSETS}, "aborted"),
        (False, {LOGS}, "aborted"),
        # It is whole, and nobody has seen how it ended.
        (False, {LOGS, OFFSETS}, "committed"),
    ],
)
@pytest.mark.rule(2)
@over(Stage)
async def test_it_ends_as_it_had_ended(
    stage: Stage, kind: str, committed: bool, lost: set[str], outcome: str
) -> None:
    """The next worker goes on, and each event is in the output once: one that was aborted is read again."""
    stage.remember(kind)
    stage.send(b"a")
    async with stage.start() as first:
        await stage.until_at(first, 1)
    stage.send(b"b")
    group, output = stage.broker.group(stage.deployment.group), stage.broker.log(stage.sink, 0)
    transaction = stage.broker.transaction(f"{stage.sink}/0")
    epoch = transaction.fence(60.0)
    transaction.add(epoch, output, now())
    transaction.produce(epoch, output, [Record.of(stage.broker.now_ms(), b"b", b"value")])
    noted = Note.decode(group.offsets[stage.source, 0][1])
    assert noted is not None
    note = replace(noted, label=output.end).encode()
    transaction.stage(epoch, group, (stage.source, 0), (2, note), now())
    transaction.loses = frozenset(lost)
    transaction.end(epoch, commit=committed)
    await asyncio.sleep(1)
    transaction.loses = frozenset()
    stage.send(b"c")
    second = stage.start()
    await stage.until_at(second, 3)
    assert [line["outcome"] for line in second.lines("transaction_finished")] == [outcome]
    assert stage.keys == [b"a", b"b", b"c"]


@pytest.mark.parametrize("kind", ["bloom", "none"])
@pytest.mark.rule(2)
@over(Stage)
async def test_what_the_next_one_ends_otherwise_is_forgotten(stage: Stage, kind: str) -> None:
    """A worker that runs takes a transaction for committed, and its next one aborts it: its events are read again."""
    stage.remember(kind)
    stage.send(b"a")
    worker = stage.start()
    await stage.until_at(worker, 1)
    transaction = stage.broker.transaction(f"{stage.sink}/0")
    transaction.loses = LOST_BOTH
    stage.send(b"b")
    await worker.consumed(2)
    transaction.loses = frozenset()
    stage.send(b"c")
    await stage.until_at(worker, 3)
    assert stage.keys == [b"a", b"b", b"c"]
    # Without a filter others may write, too. So nothing is amiss for the next transaction, which commits both.
    assert len(worker.lines("commit_lost")) == (kind == "bloom")


@pytest.mark.finding("foreign-offsets")
@pytest.mark.rule(2)
@over(Stage)
async def test_what_another_left_open_is_not_ended(stage: Stage) -> None:
    """Its outcome is not ours to choose: the shard stops, and says what to do."""
    stage.config["delivery"]["open_transaction_s"] = 2
    stage.send(b"a")
    foreign, group = stage.broker.transaction("foreign"), stage.broker.group(stage.deployment.group)
    foreign.stage(foreign.fence(900.0), group, (stage.source, 0), (1, ""), now())
    assert "a transaction that is not ours has not ended" in await stage.start().stopped()
    assert foreign.open
