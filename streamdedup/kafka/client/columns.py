"""The consume seam: an aiokafka consumer that returns events as columns instead of one object for each.

Membership, positions, prefetching and seeks stay aiokafka's. We rely on these private names of it, all in
`aiokafka.consumer.fetcher` unless another place is named. `Fetcher._proc_fetch_request`, a coroutine function, makes
`MemoryRecords(data)` of the fetched bytes, calls its `has_next()` and `size_in_bytes()`, and passes it to
`PartitionRecords`. `PartitionRecords` is an iterator that calls its `_unpack_records()` when it is made; it has `_tp`,
`_records`, `_isolation_level`, `_aborted_producers`, `_consume_aborted_up_to` and `next_fetch_offset`. Further:
`READ_COMMITTED`; and of `AIOKafkaConsumer`, `_client`, and `_fetcher`, which is set once, when the consumer starts.
`responses` lists the private names of connections; `fit` checks all.
"""

from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer import fetcher
from typing_extensions import override

from streamdedup.events import Column, EventBatch, Origin
from streamdedup.kafka.client import responses
from streamdedup.kafka.records.decoding import (
    CHUNK_BYTES,
    PendingDecode,
    first_of,
    origins,
    sound_columns,
)
from streamdedup.kafka.records.headers import RawHeaders
from streamdedup.kafka.records.records import skipped
from streamdedup.kafka.records.wire import (
    DamagedBatchError,
    RecordBatch,
    Records,
    Unpacked,
    check_first,
    decode,
    is_abort,
    record_batches,
)

CHUNK_EVENTS = 16_384  # handled in one turn of the loop: less than 10 ms
TOGETHER_MAX = (
    500  # record batches inspected in one turn; each costs some 5 us, apart from its events
)


class ColumnarConsumer(AIOKafkaConsumer):
    """A consumer whose `getmany` returns one EventBatch, which may be empty, in place of each record."""

    def __init__(self, **options: Any) -> None:
        self._events_max: dict[TopicPartition, int] = {}  # the limit of the next EventBatch
        self._own_fetcher: Any = None
        super().__init__(**options)
        responses.read_in_one_piece(self._client)

    async def next_batch(
        self, where: TopicPartition, timeout_ms: int, events_max: int = CHUNK_EVENTS
    ) -> EventBatch | PendingDecode | None:
        """Return the next events of one partition, at most `events_max`; None if none arrive within `timeout_ms`.

        A large record batch is returned as it is: the events are what the calls return once it is decoded.

        DamagedBatchError if the fetched bytes contradict their format: the next call may then return what follows the
        damage. OldFormatError if they are older than record batches.
        """
        self._events_max[where] = min(events_max, CHUNK_EVENTS)
        polled = await self.getmany(where, timeout_ms=timeout_ms, max_records=1)
        [found] = polled.get(where, [None])
        if isinstance(found, EventBatch) and found.damage is not None:
            raise DamagedBatchError(found.damage.reason, found.damage)
        return found or None

    def reached(self, where: TopicPartition) -> int:
        """Return the offset of the next read.

        It lies after the events read so far, and after the markers and aborted events that follow them.
        """
        return int(self._subscription.subscription.assignment.state_value(where).position)

    @property
    def _fetcher(self) -> Any:
        return self._own_fetcher

    @_fetcher.setter
    def _fetcher(self, made: Any) -> None:
        """Install our classes as soon as aiokafka makes the fetcher, before it fetches anything."""
        if made is not None:
            made._proc_fetch_request = MethodType(_columnar(self._events_max.__getitem__), made)
        self._own_fetcher = made


class RawRecords:
    """The bytes of a fetch, in place of aiokafka's `MemoryRecords`."""

    def __init__(self, data: bytes | None) -> None:
        self.data = data or b""

    def size_in_bytes(self) -> int:
        """Return the number of fetched bytes."""
        return len(self.data)

    def has_next(self) -> bool:
        """Return whether there is something to read; what is wrong with it, we report.

        If this returns False, aiokafka reports a record that is too large and continues after the first offset.
        """
        return bool(self.data)


def _columnar(events_max: Callable[[TopicPartition], int]) -> Any:
    """Return `Fetcher._proc_fetch_request` with our two classes in place of its own."""
    theirs = fetcher.Fetcher._proc_fetch_request

    def made(*arguments: Any) -> _PartitionColumns:
        return _PartitionColumns(events_max, *arguments)

    own = {**vars(fetcher), "MemoryRecords": RawRecords, "PartitionRecords": made}
    return FunctionType(theirs.__code__, own, theirs.__name__, theirs.__defaults__)


class _PartitionColumns(fetcher.PartitionRecords):
    """The bytes fetched of one partition, read as one EventBatch after the other."""

    next_fetch_offset: int

    def __init__(self, events_max: Callable[[TopicPartition], int], *arguments: Any) -> None:
        self._events_max = events_max
        self._records: Any
        super().__init__(*arguments)

    @override
    def _unpack_records(self) -> Iterator[EventBatch | PendingDecode]:
        """Yield the events; after many hidden record batches, yield an empty EventBatch.

        `next_fetch_offset` is after an EventBatch before that is yielded. At the end it is after all bytes.
        """
        check_first(self._records.data)
        for together, behind in self._joined(self._visible()):
            if together:
                yield from self._decoded(together, behind)
            else:  # an empty batch, so that the loop gets a turn
                yield self._batch(decode([]), slice(0), ())
            self.next_fetch_offset = max(self.next_fetch_offset, behind)

    def _visible(self) -> Iterator[RecordBatch | int]:
        """Yield the record batches of committed events; for every other batch, yield the offset after it."""
        committed_only = self._isolation_level == fetcher.READ_COMMITTED
        for batch in record_batches(self._records.data):
            if committed_only and batch.producer_id >= 0:
                self._consume_aborted_up_to(batch.base_offset)
                ends = batch.is_control and batch.producer_id in self._aborted_producers
                if ends and is_abort(batch):
                    self._aborted_producers.discard(batch.producer_id)
            hidden = batch.is_transactional and batch.producer_id in self._aborted_producers
            if batch.is_control or (committed_only and hidden):
                yield batch.last_offset + 1
            elif batch.last_offset + 1 > self.next_fetch_offset:
                yield batch

    def _joined(
        self, visible: Iterator[RecordBatch | int]
    ) -> Iterator[tuple[list[RecordBatch], int]]:
        """Yield lists of small record batches, each with the offset after it and after the hidden batches that follow.

        A list is empty if it covers only hidden batches: TOGETHER_MAX in a row, or the last ones.
        """
        together: list[RecordBatch] = []
        events = size_bytes = passed = behind = 0
        try:
            for batch in visible:
                most, is_full = self._events_max(self._tp), passed >= TOGETHER_MAX
                if not isinstance(batch, int):
                    more = size_bytes + len(batch.raw) > CHUNK_BYTES or events + batch.count > most
                    is_full |= bool(together) and more
                if is_full:
                    yield together, behind
                    together, events, size_bytes, passed = [], 0, 0, 0
                passed += 1
                if isinstance(batch, int):
                    behind = batch
                    continue
                together.append(batch)
                events, size_bytes = events + batch.count, size_bytes + len(batch.raw)
                behind = batch.last_offset + 1
        except DamagedBatchError:
            if passed:  # the batches before the damaged one are sound
                yield together, behind
            raise
        if passed:
            yield together, behind

    def _decoded(
        self, together: Sequence[RecordBatch], behind: int
    ) -> Iterator[EventBatch | PendingDecode]:
        """Yield the events of consecutive record batches, as many at once as one turn of the loop may decompress.

        In the place of a batch that cannot be read, yield one of no events, with its damage.
        """
        while together:
            parts: Sequence[Unpacked] = first_of(together)
            try:
                if not parts:
                    first, rest = together[0], together[1:]
                    yield from self._large(first, first.last_offset + 1 if rest else behind)
                    together = rest
                    continue
                parts, records = sound_columns(parts)
            except DamagedBatchError as error:
                if error.damage is None:
                    raise
                first, together = together[0], together[1:]
                self.next_fetch_offset = first.last_offset + 1 if together else behind
                yield skipped(self._tp.topic, self._tp.partition, error.damage)
                continue
            taken, together = together[: len(parts)], together[len(parts) :]
            yield from self._cut(taken, records, taken[-1].last_offset + 1 if together else behind)

    def _large(self, batch: RecordBatch, behind: int) -> Iterator[EventBatch | PendingDecode]:
        """Yield the events of a large record batch, and what decodes it as long as it is not decoded.

        Only that holds what was decoded, so whoever drops it releases the memory, wherever the reader stands.
        """
        large = PendingDecode(batch, lambda records: self._cut([batch], records, behind))

        def following() -> EventBatch | PendingDecode | None:
            return None if self.next_fetch_offset > large.last_offset else large.take()

        return iter(following, None)

    def _cut(
        self, together: Sequence[RecordBatch], records: Records, behind: int
    ) -> Iterator[EventBatch]:
        """Yield the events of consecutive record batches from `next_fetch_offset` on, in pieces of bounded size.

        After the last piece, `next_fetch_offset` is `behind`.
        """
        row = int(np.searchsorted(records.offsets, self.next_fetch_offset))
        count = len(records.offsets)
        size_bytes = np.cumsum(records.bodies.sizes)
        ends = np.cumsum(records.counts)
        large = origins(together, records, size_bytes)
        while row < count:
            most = self._events_max(self._tp)
            before = size_bytes[row] - records.bodies.sizes[row]
            fits = int(np.searchsorted(size_bytes, before + CHUNK_BYTES, side="right"))
            end = max(row + 1, min(count, row + most, fits))
            if (cut := int(ends[ends <= end].max(initial=0))) > row:
                end = cut  # a record batch that stays whole may be written as it is
            self.next_fetch_offset = behind if end == count else int(records.offsets[end - 1]) + 1
            whole = [
                Origin(start - row, stop - row, batch)
                for start, stop, batch in large
                if row <= start and stop <= end
            ]
            yield self._batch(records, slice(row, end), whole)
            row = end

    def _batch(self, records: Records, rows: slice, whole: Sequence[Origin]) -> EventBatch:
        bodies, starts = records.bodies.take(rows), records.header_starts[rows]
        header_sizes = bodies.starts + bodies.sizes - starts
        return EventBatch(
            topic=self._tp.topic,
            partition=self._tp.partition,
            offsets=records.offsets[rows],
            timestamps=records.timestamps[rows],
            keys=records.keys.take(rows),
            values=records.values.take(rows),
            headers=RawHeaders(Column(bodies.buffer, starts, header_sizes)),
            next_offset=self.next_fetch_offset,
            bodies=bodies,
            origins=whole,
        )
