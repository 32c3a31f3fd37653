"""The writer of one output partition over a broker in memory: implements `kafka.base.Writer`."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from aiokafka.errors import ConcurrentTransactions, IllegalOperation

from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.client.patience import Patience, start_patiently
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.records.records import Record, copies
from streamdedup.kafka.sink import (
    BATCH_BYTES_MAX,
    DEFAULTS,
    check_contiguous,
    refusing,
    transaction_s_max,
)
from streamdedup.kafka.topics import sink_topics
from streamdedup.testing.broker import MemoryBroker
from streamdedup.testing.log import producer_id_of
from streamdedup.testing.network import Connection

T = TypeVar("T")

RETRY_S = 0.02
ENVELOPE_BYTES = 100  # more than the fixed fields of a record take


class MemoryWriter:
    """Writes partition `partition` of the output and of the side topics, one commit at a time."""

    def __init__(
        self,
        broker: MemoryBroker,
        options: KafkaOptions,
        sink: SinkOptions,
        partition: int,
        patience: Patience,
        *,
        exactly_once: bool,
    ) -> None:
        self._broker, self._options, self._sink = broker, options, sink
        self._partition, self._patience, self._exactly_once = partition, patience, exactly_once
        self._transactional_id = f"{sink.topic}/{partition}"
        self._connection: Connection | None = None
        self._epoch = -1
        self._sent: list[tuple[str, asyncio.Future[int], int]] = []
        self._open: dict[str, list[Record]] = {}

    @property
    def transaction_s_max(self) -> float:
        """The deadline of a commit, in seconds."""
        return transaction_s_max(self._options)

    async def fence(self) -> None:
        """Fence every earlier writer of this partition, and end the transaction that it left open."""
        await self.drop()
        timeout_ms = {**DEFAULTS, **self._options.producer}["transaction_timeout_ms"]
        transaction = self._broker.transaction(self._transactional_id)
        self._connection = self._broker.network.connect()
        self._epoch = await start_patiently(
            lambda: self._until_free(
                "init_producer_id", lambda _: transaction.fence(float(timeout_ms) / 1000)
            ),
            f"the producer of {self._transactional_id}",
            self._patience,
            ends=False,
        )

    @property
    def producer_id(self) -> int:
        """The id of the producer in each of its record batches; -1 before the fence, and without one."""
        return producer_id_of(self._transactional_id) if self._exactly_once else -1

    async def mark_again(self, group: str, *, commit: bool) -> None:  # noqa: ARG002 - all is of one group
        """End an empty transaction with that outcome, in this partition of each topic and in the group's offsets."""
        transaction, epoch = self._broker.transaction(self._transactional_id), self._epoch
        logs = [self._broker.log(topic, self._partition) for topic in sink_topics(self._sink)]
        await self._until_free(
            "end_txn", lambda _: transaction.end_empty(epoch, logs, commit=commit)
        )

    async def begin(self) -> None:
        """Begin what the next commit will end."""
        self._sent, self._open = [], {}

    async def copy(self, topic: str, batch: EventBatch, rows: Integers, bytes_max: int) -> None:
        """Append the events of `rows` (ascending) of `batch`, byte for byte; in all else like `send`."""
        await self.send(topic, copies(batch, rows), bytes_max)

    async def send(self, topic: str, records: Iterable[Record], bytes_max: int) -> None:
        """Append `records` to this partition of `topic`; send a batch once it is full."""
        batch = self._open.setdefault(topic, [])
        bytes_max = min(bytes_max, BATCH_BYTES_MAX)
        size_bytes = sum(map(_size_bytes, batch))
        for record in records:
            size_bytes += _size_bytes(record)
            if batch and size_bytes > bytes_max:
                await self._flush(topic, batch)
                batch, size_bytes = [], _size_bytes(record)
                self._open[topic] = batch
            batch.append(record)

    async def settle(self, label: int | None) -> int | None:
        """Wait until the broker has acknowledged every record; return the output offset after our last event.

        The errors are those of `kafka.sink.KafkaWriter.settle`.
        """
        for topic, batch in self._open.items():
            if batch:
                await self._flush(topic, batch)
        self._open, end = {}, None
        for topic, answer, count in self._sent:
            with refusing(topic):
                base = await answer
            if topic == self._sink.topic:
                check_contiguous(topic, self._partition, base, label)
                end = base + count
                label = None if label is None else end
        return end

    async def commit(self, source: str, offset: int, metadata: str, group: str) -> None:
        """Commit what was sent together with the input offset, and end the transaction."""
        transaction, epoch = self._broker.transaction(self._transactional_id), self._epoch
        where, committed = (source, self._partition), (offset, metadata)
        await self._until_free(
            "txn_offset_commit",
            lambda now: transaction.stage(epoch, self._broker.group(group), where, committed, now),
        )
        await self._until_free("end_txn", lambda _: transaction.end(epoch, commit=True))

    async def abort(self) -> None:
        """Abort what was sent since `begin`."""
        if self._exactly_once and self._connection is not None:
            transaction, epoch = self._broker.transaction(self._transactional_id), self._epoch
            await self._until_free("end_txn", lambda _: transaction.end(epoch, commit=False))

    async def give_up(self) -> None:
        """Abort what was sent, if the broker still answers, and release the connection."""
        with suppress(Exception):  # the next fence aborts it
            await self.abort()
        await self.drop()

    async def drop(self) -> None:
        """Release the connection at once. Requests under way may still arrive."""
        for _topic, answer, _count in self._sent:
            answer.cancel()
        self._connection, self._sent, self._open = None, [], {}

    async def _flush(self, topic: str, batch: list[Record]) -> None:
        if self._exactly_once and all(topic != sent for sent, _, _ in self._sent):
            transaction, epoch = self._broker.transaction(self._transactional_id), self._epoch
            log = self._broker.log(topic, self._partition)
            await self._until_free(
                "add_partitions_to_txn", lambda now: transaction.add(epoch, log, now)
            )
        writer = (self._transactional_id, self._epoch) if self._exactly_once else None
        act = partial(self._broker.append, topic, self._partition, batch, writer)
        answer = self._broker.request(self._connected, "produce", lambda _: act())
        self._sent.append((topic, answer, len(batch)))

    @property
    def _connected(self) -> Connection:
        if self._connection is None:
            raise IllegalOperation("the writer was dropped, or has not fenced yet")
        return self._connection

    async def _until_free(self, call: str, act: Callable[[float], T]) -> T:
        """Return the answer; repeat the request while the transaction before is being ended."""
        while True:
            try:
                return await self._broker.request(self._connected, call, act)
            except ConcurrentTransactions:
                await asyncio.sleep(RETRY_S)


def _size_bytes(record: Record) -> int:
    _timestamp, key, value, headers = record
    names = sum(len(name) + len(cell or b"") for name, cell in headers)
    return len(key or b"") + len(value or b"") + names + ENVELOPE_BYTES
