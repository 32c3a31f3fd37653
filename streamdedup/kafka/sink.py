"""The writer of one output partition: sends to it and to the side topics, waits for acknowledgments, and commits.

With `exactly_once`, everything in one commit is one transaction, and the fence is named after what it protects: the
transactional id is `output topic/partition`. After any exception, time-out or replaced connection the outcome is in
doubt: drop the writer, fence again, and ask the broker. `group_sink` has the writer of any partition, which is fenced
in another way; both are a `TransactionalProducer`.

`open_batches`, the produce seam, makes the record batches. Here, we rely on this private name of aiokafka's client:
`_conns`.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnsupportedVersionError,
)
from aiokafka.structs import OffsetAndMetadata
from typing_extensions import override

from streamdedup.errors import StreamdedupError
from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.client.closing import (
    close_producer,
    disregard,
    disregard_transaction,
    starting,
)
from streamdedup.kafka.client.connection import client_arguments
from streamdedup.kafka.client.creation import never_creating
from streamdedup.kafka.client.marking import end_empty, producer_id
from streamdedup.kafka.client.open_batches import OpenBatches
from streamdedup.kafka.client.patience import Patience, start_patiently
from streamdedup.kafka.client.protocol import InvalidRecordError
from streamdedup.kafka.client.requests import encode_in_one_piece
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.records.codecs import CODECS
from streamdedup.kafka.topics import sink_topics

# Below the default of max.message.bytes, with room for the batch's header.
BATCH_BYTES_MAX = 900_000
DEFAULTS = {
    "request_timeout_ms": 40_000,
    "transaction_timeout_ms": 60_000,
    "max_batch_size": BATCH_BYTES_MAX,
}
DEADLINE_SHARE = 0.75  # of the shortest time-out, for a commit (`transaction_s_max`)
ABORT_S_MAX = 5.0  # for the abort of a producer that is given up

_OF_A_RECORD = (
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    InvalidTimestampError,
    InvalidRecordError,
)


class DoubtError(StreamdedupError):
    """The output may or may not contain what was sent. Only the broker can answer that, after a fence."""


class ForeignWriteError(DoubtError):
    """The broker put our events at offset `found`, above `expected`, where the log should have ended."""

    def __init__(self, message: str, expected: int, found: int) -> None:
        super().__init__(message)
        self.expected, self.found = expected, found


class RefusedError(DoubtError):
    """The broker will never take one of the records sent to `topic`, for this `reason`. Nothing else is in doubt.

    `by_time`: the reason is the timestamp.
    """

    def __init__(self, topic: str, reason: str, *, by_time: bool = False) -> None:
        super().__init__(f"{topic} refuses a record: {reason}")
        self.topic, self.reason, self.by_time = topic, reason, by_time


class ReplacedConnectionError(DoubtError):
    """A connection was replaced within a transaction, so a request may have been sent twice."""


@contextmanager
def refusing(topic: str) -> Iterator[None]:
    """Turn the error of a broker that will never take a record into a RefusedError."""
    try:
        yield
    except _OF_A_RECORD as error:
        name = type(error).__name__.removesuffix("Error")
        by_time = isinstance(error, InvalidTimestampError)
        raise RefusedError(topic, name, by_time=by_time) from error


def check_contiguous(topic: str, partition: int, base: int, expected: int | None) -> None:
    """Check the place of a batch of ours whose first offset is `base`, as the broker reported it.

    Raise DoubtError if the broker reported no offset; ForeignWriteError if `expected` is given and `base` is another
    offset.
    """
    if base < 0:
        raise DoubtError(f"the broker took a batch for {topic} but reported no offset")
    if expected is not None and base != expected:
        raise ForeignWriteError(
            f"{topic}/{partition}: our events were written at offset {base}, not at {expected}",
            expected,
            base,
        )


def transaction_s_max(options: KafkaOptions) -> float:
    """Return the deadline of a commit, in seconds.

    It is shorter than the time-out of a request, because a request that is repeated after its time-out could hit the
    next transaction.
    """
    return DEADLINE_SHARE * min(_timeout_s(options, "request"), transaction_timeout_s(options))


def transaction_timeout_s(options: KafkaOptions) -> float:
    """Return after how many seconds the broker aborts a transaction that its writer does not end."""
    return _timeout_s(options, "transaction")


def _timeout_s(options: KafkaOptions, name: str) -> float:
    defaulted: Mapping[str, Any] = {**DEFAULTS, **options.producer}
    return float(defaulted[f"{name}_timeout_ms"]) / 1000


class TransactionalProducer:
    """What the writers share: a producer of aiokafka's, its start and its ways out, and the checks of a transaction.

    `exactly_once`: what is sent between `begin` and the commit is one transaction.
    """

    def __init__(
        self,
        options: KafkaOptions,
        sink: SinkOptions,
        patience: Patience,
        *,
        exactly_once: bool,
    ) -> None:
        self._options, self._sink = options, sink
        self._patience, self._exactly_once = patience, exactly_once
        self._defaulted: Mapping[str, Any] = {**DEFAULTS, **options.producer}
        self._producer: Any = None
        self._connections: Mapping[Any, Any] = {}
        # Each record batch since `begin`: its topic, the future of its offset, and the number of its events.
        self._sent: list[tuple[str, asyncio.Future[Any], int]] = []

    @property
    def transactional_id(self) -> str:
        """The transactional id, which names the fence."""
        raise NotImplementedError

    @property
    def transaction_s_max(self) -> float:
        """The deadline of a commit, in seconds."""
        return transaction_s_max(self._options)

    @property
    def producer_id(self) -> int:
        """The id of the producer in each of its record batches; -1 before the fence, and without one."""
        return producer_id(self._producer) if self._producer else -1

    async def begin(self) -> None:
        """Begin what the next commit will end."""
        self._forget()
        if self._exactly_once:
            await self._producer.begin_transaction()
            disregard_transaction(self._producer)
        self._connections = dict(self._producer.client._conns)

    async def abort(self) -> None:
        """Abort what was sent since `begin`."""
        if self._exactly_once and self._producer is not None:
            await self._producer.abort_transaction()

    async def give_up(self) -> None:
        """Abort what was sent, if the broker still answers, so that readers need not wait; release the producer."""
        with suppress(Exception):  # the next fence aborts it
            async with asyncio.timeout(ABORT_S_MAX):
                await self.abort()
        await self.drop()

    async def drop(self) -> None:
        """Release the producer without flushing: it may be fenced or stuck."""
        producer, self._producer = self._producer, None
        for _topic, future, _count in self._sent:
            disregard(future)
        self._forget()
        if producer is not None:
            await close_producer(producer)

    async def _post(self, topic: str, partition: int, batch: Any) -> None:
        batch.close()
        future = await self._producer.send_batch(batch, topic, partition=partition)
        self._sent.append((topic, future, batch.record_count()))

    def _forget(self) -> None:
        """Drop the list of what was sent; a writer that collects events begins new batches, too."""
        self._sent = []

    def _new_open(self) -> OpenBatches:
        return OpenBatches(CODECS[self._sink.compression], transactional=self._exactly_once)

    def _size_max(self, bytes_max: int) -> int:
        """Return the limit of a record batch: that of the topic, or of the producer, which has one for all topics."""
        return min(int(self._defaulted["max_batch_size"]), bytes_max)

    async def _acknowledged(self, topic: str, future: asyncio.Future[Any]) -> int:
        """Return the offset that the broker gave to a record batch."""
        with refusing(topic):
            # If this is cancelled, `future` is not: aiokafka would lose what may still fail it.
            return int((await asyncio.shield(future)).offset)

    async def _started(self, **identity: object) -> Any:
        async def start() -> Any:
            producer = never_creating(AIOKafkaProducer(**await self._arguments(), **identity))
            encode_in_one_piece(producer.client)
            try:
                with starting():
                    await producer.start()
            except BaseException:
                await close_producer(producer)
                raise
            return producer

        what = f"the producer of {self.transactional_id}"
        return await start_patiently(start, what, self._patience, ends=False)

    async def _arguments(self) -> dict[str, Any]:
        compression = self._sink.compression
        return {
            **self._defaulted,
            **await client_arguments(self._options),
            "compression_type": None if compression == "none" else compression,
        }

    def _check_connections(self) -> None:
        """Raise if a connection was replaced since the last check.

        A request that was sent twice can hit the next transaction, and a replaced connection is its only trace.
        """
        now = self._producer.client._conns
        if any(now.get(name) is not conn for name, conn in self._connections.items()):
            raise ReplacedConnectionError("a connection was replaced within a transaction")
        self._connections = dict(now)  # from here on, also check those opened since


class KafkaWriter(TransactionalProducer):
    """Writes partition `partition` of the output and of the side topics, one commit at a time."""

    def __init__(
        self,
        options: KafkaOptions,
        sink: SinkOptions,
        partition: int,
        patience: Patience,
        *,
        exactly_once: bool,
    ) -> None:
        super().__init__(options, sink, patience, exactly_once=exactly_once)
        self._partition = partition
        self._open = self._new_open()

    @property
    @override
    def transactional_id(self) -> str:
        """The name of the fence; `/` is illegal in topic names, so each partition has another one."""
        return f"{self._sink.topic}/{self._partition}"

    async def fence(self) -> None:
        """Fence every earlier writer of this partition, and end the transaction that it left open."""
        await self.drop()
        if self._exactly_once:
            self._producer = await self._started(transactional_id=self.transactional_id)
            return
        try:
            fencing = await self._started(transactional_id=self.transactional_id)
        except (IncompatibleBrokerVersion, UnsupportedVersionError, NotImplementedError):
            self._producer = await self._started(acks="all")
        else:
            await close_producer(fencing)
            self._producer = await self._started(enable_idempotence=True)

    async def mark_again(self, group: str, *, commit: bool) -> None:
        """End an empty transaction with that outcome, in this partition of each topic and in the group's offsets.

        This gives the same outcome to what the brokers left undecided of the one before. Call it right after
        the fence; the caller sets a time-out.
        """
        await end_empty(
            self._producer,
            self.transactional_id,
            {topic: [self._partition] for topic in sink_topics(self._sink)},
            group,
            commit=commit,
        )

    async def copy(self, topic: str, batch: EventBatch, rows: Integers, bytes_max: int) -> None:
        """Append the events of `rows` (ascending) of `batch` to this partition of `topic`, byte for byte.

        Record batches have at most `bytes_max` bytes; full ones are sent at once.
        What would hold up the event loop is copied and compressed in a thread.
        """
        copying = self._open.copy(topic, batch, rows, self._size_max(bytes_max))
        takes_long = int(batch.bodies.sizes[rows].sum()) > self._open.loop_bytes_max
        # If this is cancelled, the thread goes on, and only with these open batches: `drop` puts others in their place.
        made = await asyncio.to_thread(list, copying) if takes_long else copying
        for full in made:
            await self._post(topic, self._partition, full)

    async def settle(self, expected: int | None) -> int | None:
        """Wait until the broker has acknowledged every record; return the output offset after our last event.

        Return None if nothing was sent to the output. Raise ForeignWriteError unless our events in the output follow
        `expected` without a gap, if `expected` is given. Raise RefusedError if a record is at fault, and never for a
        time-out, fencing, unavailability or a missing right.
        """
        for topic in self._open.topics:
            for rest in self._open.finish(topic):
                await self._post(topic, self._partition, rest)
        self._check_connections()
        end = None
        for topic, future, count in self._sent:
            base = await self._acknowledged(topic, future)
            if topic == self._sink.topic:
                check_contiguous(topic, self._partition, base, expected)
                end = base + count
                expected = None if expected is None else end
        return end

    async def commit(self, source: str, offset: int, metadata: str, group: str) -> None:
        """Commit what was sent together with the input offset, and end the transaction."""
        where = TopicPartition(source, self._partition)
        offsets = {where: OffsetAndMetadata(offset, metadata)}
        self._check_connections()
        try:
            await self._producer.send_offsets_to_transaction(offsets, group)
        except BaseException:
            disregard_transaction(self._producer)
            raise
        self._check_connections()
        await self._producer.commit_transaction()
        self._check_connections()

    @override
    def _forget(self) -> None:
        super()._forget()
        self._open = self._new_open()
