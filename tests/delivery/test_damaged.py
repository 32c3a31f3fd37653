"""Record batches of the input that cannot be read: skipped if that is set, in a transaction, with a line and a count.

The broker in memory has no record batches. So a source stands in for them, which raises for some offsets what the real
one raises.
"""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import RequestTimedOutError

from streamdedup.delivery.consume import UNREADABLE_TRIES
from streamdedup.delivery.side_topics import SKIPPED_BYTES_MAX
from streamdedup.events import Damage, EventBatch
from streamdedup.kafka.sink import RefusedError
from streamdedup.kafka.source import UnreadableError
from streamdedup.testing import MemoryBroker, connected_to
from streamdedup.testing.source import MemorySource
from streamdedup.testing.writer import MemoryWriter
from tests.deployment import Deployment, keyed
from tests.local import LocalWorker, Start, on_virtual_clock

REASON = "the record batch at offset 10 is damaged: its lz4 data ends too early"
RAW = b"the bytes of a record batch"


class Stage:
    """A worker over one partition whose offsets from `first` to `last` are in a record batch that cannot be read."""

    def __init__(self, directory: Path, start: Start, on_damaged: str = "skip") -> None:
        self.deployment = Deployment("memory:1", directory, partitions=1)
        self.deployment.config["source"]["on_damaged"] = on_damaged
        self.broker = MemoryBroker()
        for name in (self.deployment.source, self.deployment.sink, "letters"):
            self.broker.create_topic(name, 1)
        self.deployment.config["sink"]["dead_letter_topic"] = "letters"
        self._start = start

    def start(self) -> LocalWorker:
        """Start a worker."""
        return self._start(self.deployment, connect=connected_to(self.broker))

    def feed(self, count: int) -> None:
        """Append so many new events to the input."""
        end = self.broker.log(self.deployment.source, 0).end
        events = [(p, key, value) for p, key, value, *_ in keyed(range(end, end + count), 1)]
        self.broker.produce(self.deployment.source, events)

    @property
    def committed(self) -> int | None:
        """The group's offset."""
        group = self.deployment.config["kafka"]["group_id"]
        return self.broker.committed(group, self.deployment.source).get(0)

    @property
    def emitted(self) -> list[bytes | None]:
        """The keys in the output."""
        return [event.value for event in self.broker.read_all(self.deployment.sink)[0]]

    @property
    def letters(self) -> list[Any]:
        """The dead letters."""
        return self.broker.read_all("letters")[0]


def play(
    directory: Path,
    scene: Callable[[Stage], Coroutine[Any, Any, None]],
    on_damaged: str = "skip",
) -> None:
    """Run `scene` on a virtual clock."""
    on_virtual_clock(lambda start: scene(Stage(directory, start, on_damaged)))


class Damaged:
    """The damage in the input, in the way of every source in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool) -> None:
        self._goes_on = goes_on
        self._places: list[tuple[int, int, Damage | None]] = []
        self._read = MemorySource.read

        async def reading(source: MemorySource, *given: Any) -> EventBatch | None:
            return await self._reading(source, *given)

        monkeypatch.setattr(MemorySource, "read", reading)

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
        self, source: MemorySource, partition: int, *given: Any
    ) -> EventBatch | None:
        position = source.position(partition)
        for first, last, damage in self._places:
            if first <= position <= last:
                if self._goes_on and damage is not None:
                    source.go_to(partition, last + 1)
                raise UnreadableError(REASON, damage)
        batch = await self._read(source, partition, *given)
        start = min((first for first, *_ in self._places if first > position), default=None)
        if batch is None or start is None or batch.next_offset <= start:
            return batch
        source.go_to(partition, start)
        return batch.head(start - position)


@pytest.fixture(params=[False, True], ids=["before", "after"])
def damaged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Damaged:
    """Nothing, at first. Where it is met, the source then stands before it, or after it."""
    return Damaged(monkeypatch, goes_on=request.param)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("is_checked", [True, False])
def test_what_is_damaged_is_skipped_and_all_else_is_emitted(
    tmp_path: Path, damaged: Damaged, guarantee: str, is_checked: bool
) -> None:
    """Its offsets are committed, logged, and counted apart from the verdicts; its bytes are a dead letter."""

    async def scene(stage: Stage) -> None:
        stage.deployment.config["delivery"]["guarantee"] = guarantee
        damaged.add(10, 14, is_checked=is_checked)
        damaged.add(15, 15, is_checked=is_checked)
        damaged.add(29, 29, is_checked=is_checked)
        stage.feed(30)
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
        assert lines[0]["topic"] == stage.deployment.source
        assert lines[0]["reason"] == REASON
        assert lines[0]["size_bytes"] == len(RAW)
        readable = [*range(10), *range(16, 29)]
        wanted = [value for _, _, value, *_ in keyed(readable, 1)]
        assert stage.emitted == wanted
        letter, *others = stage.letters
        assert (letter.key, letter.value, len(others)) == (None, RAW, 2)
        assert dict(letter.headers) == {
            "streamdedup.topic": stage.deployment.source.encode(),
            "streamdedup.partition": b"0",
            "streamdedup.offset": b"10",
            "streamdedup.last-offset": b"14",
            "streamdedup.size": b"%d" % len(RAW),
            "streamdedup.reason": REASON.encode(),
        }

    play(tmp_path, scene)


def test_a_batch_is_skipped_from_the_committed_offset_on(tmp_path: Path, damaged: Damaged) -> None:
    """What lies before that in the batch was read, or skipped, by another."""

    async def scene(stage: Stage) -> None:
        stage.feed(12)
        async with stage.start() as worker:
            await worker.until(lambda: stage.committed == 12, "committed end")
        damaged.add(10, 14)
        stage.feed(8)
        async with stage.start() as worker:
            await worker.until(lambda: stage.committed == 20, "committed end")
        (line,) = worker.lines("batch_skipped")
        assert (line["first_offset"], line["last_offset"]) == (12, 14)
        assert len(stage.emitted) == 17

    play(tmp_path, scene)


def test_a_transaction_that_fails_repeats_the_skip_and_not_its_count(
    tmp_path: Path, damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The letter is part of the transaction, so there is one; the line may come again."""
    commit, failures = MemoryWriter.commit, [RequestTimedOutError(), RequestTimedOutError()]

    async def committing(writer: MemoryWriter, *given: Any) -> None:
        if failures and len(damaged_lines()) > 0:
            raise failures.pop()
        await commit(writer, *given)

    damaged_lines: Callable[[], Any] = list

    async def scene(stage: Stage) -> None:
        nonlocal damaged_lines
        monkeypatch.setattr(MemoryWriter, "commit", committing)
        damaged.add(10, 14)
        stage.feed(30)
        async with stage.start() as worker:
            damaged_lines = lambda: worker.lines("batch_skipped")  # noqa: E731 - set while it runs
            await worker.until(lambda: stage.committed == 30, "committed end")
            await worker.until(lambda: worker.ledger.batches_skipped, "count")
            assert (worker.ledger.batches_skipped, worker.ledger.offsets_skipped) == (1, 5)
        assert not failures
        assert len(worker.lines("batch_skipped")) == 3
        assert len(stage.letters) == 1
        assert len(stage.emitted) == 25

    play(tmp_path, scene)


@pytest.mark.parametrize("on_damaged", ["stop", "skip"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_partition_stops_before_what_it_may_not_skip(
    tmp_path: Path, damaged: Damaged, on_damaged: str, is_known: bool
) -> None:
    """By default, and also if it is not known where the batch ends; the message has the remedy that there is."""
    if is_known and on_damaged == "skip":
        return

    async def scene(stage: Stage) -> None:
        damaged.add(10, 14, is_known=is_known)
        stage.feed(30)
        async with stage.start() as worker:
            said = await worker.stopped()
        skip = "set source.on_damaged: skip, or " if is_known else ""
        name = stage.deployment.source
        remedy = f"{skip}move the group's offset past it"
        assert said == f"{name}/0 offset 10 cannot be read: {REASON}; {remedy}"
        assert stage.committed == len(stage.emitted) == 10
        assert len(worker.lines("doubt")) == UNREADABLE_TRIES + 1
        assert (stage.letters, worker.lines("batch_skipped")) == ([], [])

    play(tmp_path, scene, on_damaged)


@pytest.mark.parametrize(("limit", "size"), [(4_000_000, SKIPPED_BYTES_MAX), (100_000, 97_824)])
def test_of_a_large_batch_the_letter_has_what_its_topic_takes(
    tmp_path: Path, damaged: Damaged, limit: int, size: int
) -> None:
    """From its beginning; a header says that it was cut, another how large the batch is."""

    async def scene(stage: Stage) -> None:
        stage.broker.delete_topic("letters")
        stage.broker.create_topic("letters", 1, max_message_bytes=limit)
        raw = bytes(range(256)) * 5_000
        damaged.add(0, 0, raw=raw)
        stage.feed(1)
        async with stage.start() as worker:
            await worker.until(lambda: stage.committed == 1, "committed end")
        (letter,) = stage.letters
        assert letter.value == raw[:size]
        headers = dict(letter.headers)
        assert headers["streamdedup.cut"] == b"value"
        assert headers["streamdedup.size"] == b"%d" % len(raw)

    play(tmp_path, scene)


def test_without_a_dead_letter_topic_the_line_and_the_count_are_all(
    tmp_path: Path, damaged: Damaged
) -> None:
    """Nothing else holds it up."""

    async def scene(stage: Stage) -> None:
        del stage.deployment.config["sink"]["dead_letter_topic"]
        damaged.add(0, 4)
        stage.feed(6)
        async with stage.start() as worker:
            await worker.until(lambda: stage.committed == 6, "committed end")
        assert len(worker.lines("batch_skipped")) == len(stage.emitted) == 1
        assert stage.letters == []

    play(tmp_path, scene)


@pytest.mark.parametrize("events", [0, 1, 3])
def test_a_letter_that_is_refused_stops_the_partition(
    tmp_path: Path, damaged: Damaged, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    """And is not taken for an event that is refused: none of those around it is rejected."""
    send, settle, refused = MemoryWriter.send, MemoryWriter.settle, set[MemoryWriter]()

    async def sending(writer: MemoryWriter, topic: str, *given: Any) -> None:
        if topic == "letters":
            refused.add(writer)
        await send(writer, topic, *given)

    async def settling(writer: MemoryWriter, expected: int | None) -> int | None:
        if writer in refused:
            refused.clear()
            raise RefusedError("letters", "a policy")
        return await settle(writer, expected)

    async def scene(stage: Stage) -> None:
        monkeypatch.setattr(MemoryWriter, "send", sending)
        monkeypatch.setattr(MemoryWriter, "settle", settling)
        damaged.add(events, events)
        stage.feed(2 * events + 1)
        async with stage.start() as worker:
            said = await worker.stopped()
        assert f"/0 offset {events}: letters refuses the record that reports" in said
        assert len(stage.emitted) == stage.committed == events
        assert worker.tally.consumed == events

    play(tmp_path, scene)
