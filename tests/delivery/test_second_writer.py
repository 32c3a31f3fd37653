"""What is said of a second writer of the output: what it wrote, when, and who wrote last; over a broker in memory."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from typing_extensions import override

from streamdedup.delivery import second_writer
from streamdedup.kafka.records.records import Record
from streamdedup.testing.log import producer_id_of
from streamdedup.testing.network import DirectNetwork
from tests import memory
from tests.deployment import keyed
from tests.local import LocalWorker, Start
from tests.memory import over

T = TypeVar("T")

AT_MS = 1_700_000_000_000
AT = "2023-11-14T22:13:20Z"
REMEDY = "every output partition takes one writer, so stop the other and restart"


class Silent(DirectNetwork):
    """Never answers a question who has written to a partition."""

    @override
    def connect(self) -> "Silent":
        return self

    @override
    def request(self, call: str, act: Callable[[], T]) -> "asyncio.Future[T]":
        if call == "describe_producers":
            return asyncio.get_running_loop().create_future()
        return super().request(call, act)


class Stage(memory.Stage):
    """One partition. Ten events are in the output, with offsets from 0 to 9, and our marker."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start)
        self.log = self.broker.log(self.sink, 0)
        self.broker.produce(self.source, [event[:3] for event in keyed(range(10), 1)])

    def write(self, count: int, writer: str | None, epoch: int = 0) -> None:
        """Append foreign events, and commit them if the writer has a transactional id."""
        records = [Record.of(AT_MS, b"foreign-%d" % n, b"s3cr3t") for n in range(count)]
        self.log.append(records, writer, epoch)
        if writer:
            self.log.decide(writer, committed=True)
            self.log.mark(writer)

    async def stopped(self, worker: LocalWorker) -> str:
        """Why the shard stops once it goes on."""
        self.broker.produce(self.source, [event[:3] for event in keyed(range(10, 20), 1)])
        return await worker.stopped()


@pytest.mark.finding("second-writer")
@over(Stage)
async def test_a_second_writer_is_named_by_what_it_wrote(stage: Stage) -> None:
    """The time, id and epoch of its first batch, how many events it wrote and where; never a key."""
    async with stage.start() as worker:
        await worker.consumed(10)
        stage.write(3, "another", epoch=7)  # at 11 to 13, and a marker
        stage.write(2, "another", epoch=8)  # at 15 and 16
        message = await stage.stopped(worker)
    theirs = producer_id_of("another")
    assert message.startswith(f"{stage.sink}/0 has a second writer: offset 11 is not ours; ")
    assert "it wrote 5 events, at offsets from 11 to 16, the first " in message
    assert f"the first of {AT} by producer id {theirs}, epoch 7; " in message
    assert "their keys count as emitted from now on" in message
    assert "streamdedup explain -c FILE --at INPUT/PARTITION:OFFSET says of which offset" in message
    assert f"; of all others with an id, producer id {theirs}, epoch 8 wrote last, at 20" in message
    assert message.endswith(REMEDY)
    assert not re.search("s3cr3t|foreign-", message)


@over(Stage)
async def test_a_writer_without_an_id_is_said_to_have_none(stage: Stage) -> None:
    """A plain producer has none, and the broker does not list it; our own id is not another's."""
    async with stage.start() as worker:
        await worker.consumed(10)
        stage.write(1, None)
        message = await stage.stopped(worker)
    assert (
        f"it wrote 1 event, at offset 11, the first of {AT} by a producer without an id; "
        in message
    )
    assert "the broker knows of no other producer with an id that wrote lately; " in message


@over(Stage)
async def test_a_broker_that_does_not_tell_who_wrote_leaves_that_open(stage: Stage) -> None:
    """One before 2.8, or that gives us no right: the rest is said all the same."""
    stage.broker.describes_producers = False
    async with stage.start() as worker:
        await worker.consumed(10)
        stage.write(1, "another")
        message = await stage.stopped(worker)
    assert f"by producer id {producer_id_of('another')}, epoch 0; " in message
    assert "which producer wrote last is not known" in message
    assert message.endswith(REMEDY)


@over(Stage)
async def test_a_broker_that_does_not_answer_holds_up_no_message(stage: Stage) -> None:
    """After a few seconds the rest is said."""
    stage.broker.network = Silent()
    loop = asyncio.get_running_loop()
    async with stage.start() as worker:
        await worker.consumed(10)
        stage.write(1, "another")
        asked_s = loop.time()
        message = await stage.stopped(worker)
    assert loop.time() - asked_s < 2 * second_writer.ANSWER_S_MAX
    assert "which producer wrote last is not known" in message


@over(Stage)
async def test_of_very_many_foreign_events_not_all_are_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have written for days: the message does not wait for a count."""
    monkeypatch.setattr(second_writer, "COUNTED_MAX", 100)
    stage.broker.fetch_events_max = 60
    async with stage.start() as worker:
        await worker.consumed(10)
        stage.write(500, None)
        message = await stage.stopped(worker)
    assert "it wrote 120 or more events, at offsets from 11 to 510, " in message


@over(Stage)
async def test_foreign_keys_count_as_emitted_after_the_restart(stage: Stage) -> None:
    """As the message says: an event of the input with one of these keys is a duplicate then."""
    async with stage.start() as worker:
        await worker.consumed(10)
        stage.write(2, None)
        await stage.stopped(worker)
    stage.broker.produce(stage.source, [(0, b"foreign-0", b"x"), (0, b"new", b"x")])
    worker = await stage.to_the_end()
    assert not worker.lines("shard_stopped")
    keys = [event.key for event in stage.log.committed()]
    assert keys.count(b"foreign-0") == 1
    assert keys.count(b"new") == 1
