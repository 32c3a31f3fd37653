"""Record batches of the input that cannot be read: skipped if that is set, in a transaction, with a line and a count.

The broker in memory has no record batches. So a source stands in for them, which raises for some offsets what the real
one raises.
"""

from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import RequestTimedOutError

from streamdedup.delivery.consume import UNREADABLE_TRIES
from streamdedup.delivery.side_topics import SKIPPED_BYTES_MAX
from streamdedup.events import Damage, EventBatch
from streamdedup.kafka.base import Source
from streamdedup.kafka.records.decoding import PendingDecode
from streamdedup.kafka.sink import RefusedError
from streamdedup.kafka.source import UnreadableError
from streamdedup.testing.writer import MemoryWriter
from tests import memory
from tests.deployment import keyed
from tests.local import Start
from tests.memory import over

REASON = "the record batch at offset 10 is damaged: its lz4 data ends too early"
RAW = b"the bytes of a record batch"


class Stage(memory.Stage):
    """One partition, whose record batches that cannot be read are skipped; the topic of dead letters is `letters`."""

    def __init__(self, directory: Path, start: Start) -> None:
        super().__init__(directory, start)
        self.config["source"]["on_damaged"] = "skip"
        self.broker.create_topic("letters")
        self.config["sink"]["dead_letter_topic"] = "letters"

    @property
    def emitted(self) -> list[bytes | None]:
        """The values in the output."""
        return [event.value for event in self.output]

    @property
    def letters(self) -> list[Any]:
        """The dead letters."""
        return self.broker.read_all("letters")[0]


class Damaged:
    """The damage in the input, in the way of every source in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool) -> None:
        self._goes_on = goes_on
        self._places: list[tuple[int, int, Damage | None]] = []
        self._read = Source.read

        async def reading(source: Source, *given: Any) -> EventBatch | PendingDecode | None:
            return await self._reading(source, *given)

        monkeypatch.setattr(Source, "read", reading)

    def add(
        self,
        first: int,
        last: int,
        *,
        is_checked: bool = True,
        is_known: bool = True,
        raw: bytes = RAW,
    ) -> None:
        """Put the offsets from `first` to `last` into a record batch that cannot be read."""
        damage = Damage(
            reason=REASON,
            first_offset=first,
            last_offset=last,
            raw=memoryview(raw),
            is_checked=is_checked,
        )
        self._places.append((first, last, damage if is_known else None))

    async def _reading(
        self, source: Source, partition: int, *given: Any
    ) -> EventBatch | PendingDecode | None:
        position = source.position(partition)
        for first, last, damage in self._places:
            if first <= position <= last:
                if self._goes_on and damage is not None:
                    source.go_to(partition, last + 1)
                raise UnreadableError(REASON, damage)
        batch = await self._read(source, partition, *given)
        start = min((first for first, *_ in self._places if first > position), default=None)
        if not isinstance(batch, EventBatch) or start is None or batch.next_offset <= start:
            return batch
        source.go_to(partition, start)
        return batch.head(start - position)


@pytest.fixture(params=[False, True], ids=["before", "after"])
def damaged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Damaged:
    """Nothing, at first. Where it is met, the source then stands before it, or after it."""
    return Damaged(monkeypatch, goes_on=request.param)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("is_checked", [True, False])
@over(Stage)
async def test_what_is_damaged_is_skipped_and_all_else_is_emitted(
    stage: Stage, damaged: Damaged, guarantee: str, is_checked: bool
) -> None:
    """Its offsets are committed, logged, and counted apart from the verdicts; its bytes are a dead letter."""
    stage.config["delivery"]["guarantee"] = guarantee
    damaged.add(10, 14, is_checked=is_checked)
    damaged.add(15, 15, is_checked=is_checked)
    damaged.add(29, 29, is_checked=is_checked)
    stage.feed(range(30))
    async with stage.start() as worker:
        await worker.until(lambda: stage.committed == 30, "committed end")
        await worker.until(lambda: worker.ledger.batches_skipped == 3, "count")
        assert worker.tally.consumed == worker.ledger.consumed == 23
        assert worker.ledger.offsets_skipped == 7
        assert worker.ledger.difference == 0
        assert bool(worker.lines("doubt")) != is_checked
    lines = worker.lines("batch_skipped")
    offsets = [(line["first_offset"], line["last_offset"]) for line in lines]
    assert offsets == [(10, 14), (15, 15), (29, 29)]
    assert {line["log_level"] for line in lines} == {"error"}
    assert lines[0]["topic"] == stage.source
    assert lines[0]["reason"] == REASON
    assert lines[0]["size_bytes"] == len(RAW)
    readable = [*range(10), *range(16, 29)]
    wanted = [value for _, _, value, *_ in keyed(readable, 1)]
    assert stage.emitted == wanted
    letter, *others = stage.letters
    assert (letter.key, letter.value, len(others)) == (None, RAW, 2)
    assert dict(letter.headers) == {
        "streamdedup.topic": stage.source.encode(),
        "streamdedup.partition": b"0",
        "streamdedup.offset": b"10",
        "streamdedup.last-offset": b"14",
        "streamdedup.size": b"%d" % len(RAW),
        "streamdedup.reason": REASON.encode(),
    }


@over(Stage)
async def test_a_batch_is_skipped_from_the_committed_offset_on(
    stage: Stage, damaged: Damaged
) -> None:
    """What lies before that in the batch was read, or skipped, by another."""
    stage.feed(range(12))
    await stage.to_the_end()
    damaged.add(10, 14)
    stage.feed(range(12, 20))
    worker = await stage.to_the_end()
    (line,) = worker.lines("batch_skipped")
    assert (line["first_offset"], line["last_offset"]) == (12, 14)
    assert len(stage.emitted) == 17


@over(Stage)
async def test_a_transaction_that_fails_repeats_the_skip_and_not_its_count(
    stage: Stage, damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The letter is part of the transaction, so there is one; the line may come again."""
    commit, failures = MemoryWriter.commit, [RequestTimedOutError(), RequestTimedOutError()]

    async def committing(writer: MemoryWriter, *given: Any) -> None:
        if failures and worker.lines("batch_skipped"):
            raise failures.pop()
        await commit(writer, *given)

    monkeypatch.setattr(MemoryWriter, "commit", committing)
    damaged.add(10, 14)
    stage.feed(range(30))
    async with stage.start() as worker:
        await worker.until(lambda: stage.committed == 30, "committed end")
        await worker.until(lambda: worker.ledger.batches_skipped, "count")
        assert (worker.ledger.batches_skipped, worker.ledger.offsets_skipped) == (1, 5)
    assert not failures
    assert len(worker.lines("batch_skipped")) == 3
    assert len(stage.letters) == 1
    assert len(stage.emitted) == 25


@pytest.mark.finding("batch-unreadable")
@pytest.mark.parametrize(
    ("on_damaged", "is_known"), [("stop", True), ("stop", False), ("skip", False)]
)
@over(Stage)
async def test_a_partition_stops_before_what_it_may_not_skip(
    stage: Stage, damaged: Damaged, on_damaged: str, *, is_known: bool
) -> None:
    """By default, and also if it is not known where the batch ends; the message has the remedy that there is."""
    stage.config["source"]["on_damaged"] = on_damaged
    damaged.add(10, 14, is_known=is_known)
    stage.feed(range(30))
    async with stage.start() as worker:
        said = await worker.stopped()
    skip = "set source.on_damaged: skip, or " if is_known else ""
    remedy = f"{skip}move the group's offset past it"
    assert said == f"{stage.source}/0 offset 10 cannot be read: {REASON}; {remedy}"
    assert stage.committed == len(stage.emitted) == 10
    assert len(worker.lines("doubt")) == UNREADABLE_TRIES + 1
    assert (stage.letters, worker.lines("batch_skipped")) == ([], [])


@pytest.mark.parametrize(("limit", "size"), [(4_000_000, SKIPPED_BYTES_MAX), (100_000, 97_824)])
@over(Stage)
async def test_of_a_large_batch_the_letter_has_what_its_topic_takes(
    stage: Stage, damaged: Damaged, limit: int, size: int
) -> None:
    """From its beginning; a header says that it was cut, another how large the batch is."""
    stage.broker.delete_topic("letters")
    stage.broker.create_topic("letters", 1, max_message_bytes=limit)
    raw = bytes(range(256)) * 5_000
    damaged.add(0, 0, raw=raw)
    stage.feed(range(1))
    await stage.to_the_end()
    (letter,) = stage.letters
    assert letter.value == raw[:size]
    headers = dict(letter.headers)
    assert headers["streamdedup.cut"] == b"value"
    assert headers["streamdedup.size"] == b"%d" % len(raw)


@over(Stage)
async def test_without_a_dead_letter_topic_the_line_and_the_count_are_all(
    stage: Stage, damaged: Damaged
) -> None:
    """Nothing else holds it up."""
    del stage.config["sink"]["dead_letter_topic"]
    damaged.add(0, 4)
    stage.feed(range(6))
    worker = await stage.to_the_end()
    assert len(worker.lines("batch_skipped")) == len(stage.emitted) == 1
    assert stage.letters == []


@pytest.mark.finding("letter-refused")
@pytest.mark.parametrize("events", [0, 1, 3])
@over(Stage)
async def test_a_letter_that_is_refused_stops_the_partition(
    stage: Stage, damaged: Damaged, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    """And is not taken for an event that is refused: none of those around it is rejected."""
    copy, settle, refused = MemoryWriter.copy, MemoryWriter.settle, set[MemoryWriter]()

    async def copying(writer: MemoryWriter, topic: str, *given: Any) -> None:
        if topic == "letters":
            refused.add(writer)
        await copy(writer, topic, *given)

    async def settling(writer: MemoryWriter, expected: int | None) -> int | None:
        if writer in refused:
            refused.clear()
            raise RefusedError("letters", "a policy")
        return await settle(writer, expected)

    monkeypatch.setattr(MemoryWriter, "copy", copying)
    monkeypatch.setattr(MemoryWriter, "settle", settling)
    damaged.add(events, events)
    stage.feed(range(2 * events + 1))
    async with stage.start() as worker:
        said = await worker.stopped()
    assert f"/0 offset {events}: letters refuses the record that reports" in said
    assert len(stage.emitted) == stage.committed == events
    assert worker.tally.consumed == events
