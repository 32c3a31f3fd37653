"""The log of one partition in memory: events, the markers that end transactions, and what a reader sees of them.

It behaves like Kafka's: a marker takes an offset, a reader of committed events stops at the first undecided one, and
trimmed events are gone for readers. They are kept for the checks of a test.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from streamdedup.events import EventBatch, Fingerprint, Headers
from streamdedup.kafka.partitions import LastWrite
from streamdedup.kafka.records.records import Record, batch_of


@dataclass(frozen=True, slots=True)
class Logged:
    """An event in a log."""

    offset: int
    record: Record

    @property
    def timestamp(self) -> int:
        """The time of the event."""
        return self.record.timestamp

    @property
    def key(self) -> bytes | None:
        """The key; None if it is null."""
        return self.record.key

    @property
    def value(self) -> bytes | None:
        """The value; None if it is null."""
        return self.record.value

    @property
    def headers(self) -> Headers:
        """The headers, parsed."""
        return self.record.headers


def batch_of_logged(
    topic: str, partition: int, events: Sequence[Logged], next_offset: int
) -> EventBatch:
    """Return consecutive `events` of a log as they are read; `next_offset` is that of the next read."""
    offsets, records = [event.offset for event in events], [event.record for event in events]
    return batch_of(topic, partition, offsets, records, next_offset)


def producer_id_of(transactional_id: str) -> int:
    """Return the producer id of a transactional id: the same for good, while no epoch overflows."""
    return crc32c(transactional_id.encode())


class _Span:
    """What one transaction wrote to one partition. `committed` is None until the coordinator has decided."""

    __slots__ = ("committed", "epoch", "first", "producer_id")

    def __init__(
        self, first: int, producer_id: int = -1, epoch: int = -1, *, committed: bool | None = None
    ) -> None:
        self.first, self.committed = first, committed
        self.producer_id, self.epoch = producer_id, epoch


class MemoryLog:
    """One partition's log. `start` is the first offset that it still holds, `end` the high watermark.

    `now_ms` stamps the markers, ms since 1970.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.start = 0
        self._now_ms = now_ms
        self._stamps: dict[int, int] = {}  # of the markers, by offset
        self._entries: list[tuple[Logged | None, _Span]] = []  # a marker is None
        self._open: dict[str, _Span] = {}
        self._plain = _Span(0, committed=True)
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def end(self) -> int:
        """The offset after the last entry."""
        return len(self._entries)

    @property
    def stable(self) -> int:
        """The last stable offset: everything below it is decided."""
        return min((span.first for span in self._open.values()), default=self.end)

    def append(
        self, records: Iterable[Record], transactional_id: str | None = None, epoch: int = 0
    ) -> int:
        """Append `records`, undecided if they belong to a transaction; return the offset of the first."""
        base, span = self.end, self._plain
        if transactional_id is not None:
            span = self._open.setdefault(
                transactional_id, _Span(base, producer_id_of(transactional_id), epoch)
            )
        for offset, record in enumerate(records, base):
            self._entries.append((Logged(offset, record), span))
        self._wake()
        return base

    def decide(self, transactional_id: str, *, committed: bool) -> None:
        """Note how the coordinator decided that transaction; readers learn of it only by its marker."""
        if transactional_id in self._open:
            self._open[transactional_id].committed = committed

    def mark(self, transactional_id: str) -> None:
        """Write the marker of a decided transaction; it takes an offset."""
        self._stamps[self.end] = self._now_ms()
        self._entries.append((None, self._open.pop(transactional_id, self._plain)))
        self._wake()

    def trim(self, before: int) -> None:
        """Delete the events before an offset, as retention does."""
        self.start = max(self.start, min(before, self.end))
        self._wake()

    def read(self, position: int, events_max: int) -> tuple[list[Logged], int]:
        """Return at most `events_max` committed events from `position` on, and the offset of the next read.

        That offset is after the last event returned, or, if no further event follows, after everything that is
        decided.
        """
        found: list[Logged] = []
        for logged, span in self._entries[position : self.stable]:
            if logged is None or not span.committed:
                continue
            if len(found) == events_max:
                return found, found[-1].offset + 1
            found.append(logged)
        return found, max(position, self.stable)

    def offset_of_time(self, time_ms: int) -> int | None:
        """Return the offset of the first event or marker of `time_ms` or later; None if there is none."""
        for offset in range(self.start, self.end):
            event, _span = self._entries[offset]
            if (event.timestamp if event else self._stamps[offset]) >= time_ms:
                return offset
        return None

    def stamp(self, start: int, end: int) -> tuple[int, int] | None:
        """Return offset and stamp of the first marker from `start` to `end` (exclusive)."""
        within = range(max(start, self.start), min(end, self.end))
        return next(((at, self._stamps[at]) for at in within if at in self._stamps), None)

    def batch_at(self, offset: int) -> Fingerprint | None:
        """Return the fingerprint of the entry at `offset`, as if each entry were a record batch of its own.

        None if the log does not hold that offset.
        """
        if not self.start <= offset < self.end:
            return None
        logged, span = self._entries[offset]
        content = logged.record.body if logged else b"marker"
        stamped_ms = logged.timestamp if logged else 0
        return Fingerprint(
            offset=offset,
            producer_id=span.producer_id,
            epoch=span.epoch,
            crc=crc32c(content + b"%d" % span.first),
            stamped_ms=stamped_ms,
        )

    def producer_at(self, offset: int) -> int | None:
        """Return the id of the producer of the entry at `offset`; None if the log does not hold it."""
        return self._entries[offset][1].producer_id if self.start <= offset < self.end else None

    def last_writes(self) -> list[LastWrite]:
        """Return the last write of each producer with an id, as far as the log still holds it."""
        last = {
            span.producer_id: LastWrite(
                span.producer_id, span.epoch, logged.timestamp if logged else self._stamps[offset]
            )
            for offset, (logged, span) in enumerate(self._entries)
            if offset >= self.start and span.producer_id >= 0
        }
        return list(last.values())

    def committed(self) -> list[Logged]:
        """Return all events that a reader of committed events sees."""
        return self.read(self.start, self.end)[0]

    def emitted(self) -> list[Logged]:
        """Return all events that were ever committed, also trimmed ones, and those whose marker is not written yet."""
        return [logged for logged, span in self._entries if logged is not None and span.committed]

    @property
    def end_decided(self) -> int:
        """The end of the log once the markers of all decided transactions are written."""
        return self.end + sum(span.committed is not None for span in self._open.values())

    def aborted(self) -> Sequence[Logged]:
        """Return the events of aborted transactions."""
        return [logged for logged, span in self._entries if logged and span.committed is False]

    def moved(self) -> "asyncio.Future[None]":
        """Return a future that is done at the next change."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done() and not future.get_loop().is_closed():
                future.set_result(None)
