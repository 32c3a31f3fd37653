"""The consume seam: an aiokafka consumer that gives events as columns, not one object for each.

Membership, positions, fetching ahead and seeks stay aiokafka's. Of its private names we rely on these, all in
`aiokafka.consumer.fetcher` unless told otherwise: `Fetcher._proc_fetch_request`, a coroutine function that makes
`MemoryRecords(data)` of what came, asks it `has_next()` and `size_in_bytes()`, and gives it to `PartitionRecords`;
`PartitionRecords`, an iterator that calls its `_unpack_records()` at its making, with `_tp`, `_records`,
`_isolation_level`, `_aborted_producers`, `_consume_aborted_up_to` and `next_fetch_offset`; `READ_COMMITTED`; and
`AIOKafkaConsumer._fetcher` of `aiokafka.consumer.consumer`, which is set once, when it starts. `unfit` looks at them.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from types import FunctionType, MethodType
from typing import Any, overload

import aiokafka
import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer import fetcher

from streamdedup.events import EventBatch, Headers, Integers
from streamdedup.kafka.records import CHUNK_EVENTS as OBJECTS_MAX
from streamdedup.kafka.records import to_batch
from streamdedup.kafka.wire import (
    HEAD_BYTES,
    MAGIC,
    DamagedError,
    RecordBatch,
    Records,
    decode,
    is_abort,
    read_headers,
    record_batches,
)

CHUNK_EVENTS = 8_192  # events handled between two turns of the loop: below 10 ms
TOGETHER_MAX = 500  # record batches that are decoded at once, each some 5 us before its events
KNOWN = "0.14."  # the versions of aiokafka that this was written for
_ARGUMENTS = (
    *("tp", "records", "aborted_transactions", "fetch_offset"),
    *("key_deserializer", "value_deserializer", "check_crcs", "isolation_level"),
)
_TAKEN = ("_consume_aborted_up_to", "_unpack_records", "__next__")


class ColumnarConsumer(AIOKafkaConsumer):
    """A consumer whose `getmany` gives an EventBatch in place of each record; `max_records` counts these.

    `events_max` is asked, for each of them, how many events it may have.
    """

    def __init__(
        self, *topics: str, events_max: Callable[[TopicPartition], int], **options: Any
    ) -> None:
        self._events_max = events_max
        self._own_fetcher: Any = None
        super().__init__(*topics, **options)

    @property
    def _fetcher(self) -> Any:
        return self._own_fetcher

    @_fetcher.setter
    def _fetcher(self, made: Any) -> None:
        """From its making on; nothing is fetched before."""
        if made is not None:
            made._proc_fetch_request = MethodType(_columnar(self._events_max), made)
        self._own_fetcher = made


def unfit() -> str | None:
    """Why the aiokafka that is installed cannot be relied on for this; None where it can."""
    version = aiokafka.__version__
    if not version.startswith(KNOWN):
        return f"aiokafka {version} is not one of {KNOWN}x"
    records = getattr(fetcher, "PartitionRecords", None)
    process = getattr(getattr(fetcher, "Fetcher", None), "_proc_fetch_request", None)
    if not inspect.iscoroutinefunction(process) or not isinstance(records, type):
        return "Fetcher._proc_fetch_request or PartitionRecords is not what it was"
    if tuple(inspect.signature(records).parameters) != _ARGUMENTS:
        return "PartitionRecords is made of other arguments"
    if missing := {"PartitionRecords", "MemoryRecords"} - set(process.__code__.co_names):
        return f"Fetcher._proc_fetch_request does not use {', '.join(sorted(missing))}"
    if missing := {name for name in _TAKEN if not hasattr(records, name)}:
        return f"PartitionRecords has no {', '.join(sorted(missing))}"
    return None


class RawRecords:
    """The bytes of a fetch, in the place of `MemoryRecords`."""

    def __init__(self, data: bytes | None) -> None:
        self.data = data or b""

    def size_in_bytes(self) -> int:
        """All of them."""
        return len(self.data)

    @property
    def is_old(self) -> bool:
        """Whether it begins in a format before that of record batches."""
        return self.data[16] < MAGIC

    def has_next(self) -> bool:
        """Whether there is a whole record batch; a fetch may end within one."""
        size = 12 + int.from_bytes(self.data[8:12], "big", signed=True)
        return len(self.data) >= max(size, HEAD_BYTES)


def _columnar(events_max: Callable[[TopicPartition], int]) -> Any:
    """`Fetcher._proc_fetch_request`, with our two classes in the place of its own."""
    theirs = fetcher.Fetcher._proc_fetch_request

    def made(*arguments: Any) -> _PartitionColumns:
        return _PartitionColumns(events_max, *arguments)

    own = {**vars(fetcher), "MemoryRecords": RawRecords, "PartitionRecords": made}
    return FunctionType(theirs.__code__, own, theirs.__name__, theirs.__defaults__)


class _PartitionColumns(fetcher.PartitionRecords):
    """What was fetched of one partition, EventBatch by EventBatch."""

    def __init__(self, events_max: Callable[[TopicPartition], int], *arguments: Any) -> None:
        self._events_max = events_max
        self._records: Any
        super().__init__(*arguments)

    def _unpack_records(self) -> Iterator[EventBatch]:
        """Sets `next_fetch_offset` behind each before it is given, and at the end behind all."""
        if self._records.is_old:
            yield from self._of_objects()
            return
        for together in self._joined(self._visible()):
            yield from self._cut(together)
            self.next_fetch_offset = together[-1].last_offset + 1

    def _of_objects(self) -> Iterator[EventBatch]:
        """What was written before Kafka 0.11, as aiokafka parses it."""
        self._records = fetcher.MemoryRecords(self._records.data)
        parsed = super()._unpack_records()
        while records := list(islice(parsed, min(OBJECTS_MAX, self._events_max(self._tp)))):
            yield to_batch(self._tp.topic, self._tp.partition, records, self.next_fetch_offset)

    def _visible(self) -> Iterator[RecordBatch | None]:
        """The record batches of committed events; None where others stand between, which are behind us then."""
        committed_only = self._isolation_level == fetcher.READ_COMMITTED
        for batch in record_batches(self._records.data):
            if committed_only and batch.producer_id >= 0:
                self._consume_aborted_up_to(batch.base_offset)
                if batch.is_control and is_abort(batch):
                    self._aborted_producers.discard(batch.producer_id)
            hidden = batch.is_transactional and batch.producer_id in self._aborted_producers
            if batch.is_control or (committed_only and hidden):
                yield None
                self.next_fetch_offset = max(self.next_fetch_offset, batch.last_offset + 1)
            elif batch.last_offset + 1 > self.next_fetch_offset:
                yield batch

    def _joined(self, visible: Iterator[RecordBatch | None]) -> Iterator[list[RecordBatch]]:
        """Small ones together, as long as nothing is between them."""
        together: list[RecordBatch] = []
        events = 0
        try:
            for batch in visible:
                most = self._events_max(self._tp)
                if together and (
                    batch is None or events + batch.count > most or len(together) >= TOGETHER_MAX
                ):
                    yield together
                    together, events = [], 0
                if batch is not None:
                    together.append(batch)
                    events += batch.count
        except DamagedError:
            if together:  # it is of no use to those before it
                yield together
            raise
        if together:
            yield together

    def _cut(self, together: Sequence[RecordBatch]) -> Iterator[EventBatch]:
        """The events of consecutive record batches from `next_fetch_offset` on."""
        records = decode(together)
        row = int(np.searchsorted(records.offsets, self.next_fetch_offset))
        count = len(records.offsets)
        while row < count:
            most = self._events_max(self._tp)
            end = min(count, row + most)
            whole = not row and end == count and len(together) == 1
            after = (
                together[-1].last_offset + 1 if end == count else int(records.offsets[end - 1]) + 1
            )
            self.next_fetch_offset = after
            yield self._batch(records, slice(row, end), together[0] if whole else None)
            row = end

    def _batch(self, records: Records, rows: slice, origin: RecordBatch | None) -> EventBatch:
        return EventBatch(
            self._tp.topic,
            self._tp.partition,
            records.offsets[rows],
            records.timestamps[rows],
            records.keys.take(rows),
            records.values.take(rows),
            _HeaderColumn(records, rows),
            self.next_fetch_offset,
            records.bodies.take(rows),
            origin,
        )


class _HeaderColumn(Sequence[Headers]):
    """The headers of each event, read where somebody asks for them."""

    def __init__(self, records: Records, rows: slice) -> None:
        self._records, self._rows = records, rows
        self._starts: Integers = records.header_starts[rows]

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, at: int) -> Headers: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Headers]: ...
    def __getitem__(self, at: int | slice) -> Headers | Sequence[Headers]:
        if isinstance(at, slice):
            start, end, _ = self._rows.indices(len(self._records.offsets))
            first, last, _ = at.indices(end - start)
            return _HeaderColumn(self._records, slice(start + first, start + last))
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        bodies = self._records.bodies.take(self._rows)
        end = int(bodies.starts[at] + bodies.sizes[at])
        return read_headers(bodies.buffer, int(self._starts[at]), end)
