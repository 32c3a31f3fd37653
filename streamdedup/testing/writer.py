"""The writers over a broker in memory: implement `kafka.base.Writer` and `kafka.base.GroupWriter`."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from aiokafka.errors import (
    ConcurrentTransactions,
    IllegalGenerationError,
    IllegalOperation,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from typing_extensions import override

from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.base import Membership
from streamdedup.kafka.client.patience import Patience, start_patiently
from streamdedup.kafka.group_sink import StaleGenerationError
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.records import Record, records_of
from streamdedup.kafka.sink import (
    BATCH_BYTES_MAX,
    RefusedError,
    check_contiguous,
    refusing,
    transaction_s_max,
    transaction_timeout_s,
)
from streamdedup.kafka.topics import sink_topics
from streamdedup.testing.broker import MemoryBroker
from streamdedup.testing.log import producer_id_of
from streamdedup.testing.network import Connection
from streamdedup.testing.transactions import Transactions

T = TypeVar("T")

RETRY_S = 0.02
ENVELOPE_BYTES = 100  # more than the fixed fields of a record take


class MemoryProducer:
    """What the writers share: a connection, a transactional id and its epoch, and what is under way."""

    def __init__(
        self,
        broker: MemoryBroker,
        options: KafkaOptions,
        transactional_id: str,
        patience: Patience,
        *,
        exactly_once: bool,
    ) -> None:
        self._broker, self._options, self._patience = broker, options, patience
        self._transactional_id, self._exactly_once = transactional_id, exactly_once
        self._connection: Connection | None = None
        self._epoch = -1
        self._sent: list[tuple[str, asyncio.Future[int], int]] = []
        self._open: dict[tuple[str, int], list[Record]] = {}
        self._added: set[tuple[str, int]] = set()  # partitions that are in the transaction

    @property
    def transaction_s_max(self) -> float:
        """The deadline of a commit, in seconds."""
        return transaction_s_max(self._options)

    @property
    def producer_id(self) -> int:
        """The id of the producer in each of its record batches; -1 before the fence, and without one."""
        return producer_id_of(self._transactional_id) if self._exactly_once else -1

    async def begin(self) -> None:
        """Begin what the next commit will end."""
        self._sent, self._open, self._added = [], {}, set()

    async def abort(self) -> None:
        """Abort what was sent since `begin`."""
        if self._exactly_once and self._connection is not None:
            await self._end(commit=False)

    async def give_up(self) -> None:
        """Abort what was sent, if the broker still answers, and release the connection."""
        with suppress(Exception):  # the next fence aborts it
            await self.abort()
        await self.drop()

    async def drop(self) -> None:
        """Release the connection at once. Requests under way may still arrive."""
        for _topic, answer, _count in self._sent:
            answer.cancel()
        self._connection, self._sent, self._open, self._added = None, [], {}, set()

    async def _fence(self) -> None:
        await self.drop()
        transaction, timeout_s = self._transaction, transaction_timeout_s(self._options)
        self._connection = self._broker.network.connect()
        self._epoch = await start_patiently(
            lambda: self._until_free("init_producer_id", lambda _: transaction.fence(timeout_s)),
            f"the producer of {self._transactional_id}",
            self._patience,
            ends=False,
        )

    async def _append(
        self, topic: str, partition: int, records: Iterable[Record], bytes_max: int
    ) -> None:
        """Append `records`; send a batch once it is full."""
        where = topic, partition
        batch = self._open.setdefault(where, [])
        bytes_max = min(bytes_max, BATCH_BYTES_MAX)
        size_bytes = sum(map(_size_bytes, batch))
        for record in records:
            size_bytes += _size_bytes(record)
            if batch and size_bytes > bytes_max:
                await self._flush(*where, batch)
                batch, size_bytes = [], _size_bytes(record)
                self._open[where] = batch
            batch.append(record)

    async def _flush_all(self) -> None:
        for where, batch in self._open.items():
            if batch:
                await self._flush(*where, batch)
        self._open = {}

    async def _flush(self, topic: str, partition: int, batch: list[Record]) -> None:
        if self._exactly_once and (topic, partition) not in self._added:
            transaction, epoch = self._transaction, self._epoch
            log = self._broker.log(topic, partition)
            await self._until_free(
                "add_partitions_to_txn", lambda now: transaction.add(epoch, log, now)
            )
            self._added.add((topic, partition))
        writer = (self._transactional_id, self._epoch) if self._exactly_once else None
        act = partial(self._broker.append, topic, partition, batch, writer)
        answer = self._broker.request(self._connected, "produce", lambda _: act())
        self._sent.append((topic, answer, len(batch)))

    async def _end(self, *, commit: bool) -> None:
        transaction, epoch = self._transaction, self._epoch
        await self._until_free("end_txn", lambda _: transaction.end(epoch, commit=commit))

    @property
    def _transaction(self) -> Transactions:
        return self._broker.transaction(self._transactional_id)

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


class MemoryWriter(MemoryProducer):
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
        fence = f"{sink.topic}/{partition}"
        super().__init__(broker, options, fence, patience, exactly_once=exactly_once)
        self._sink, self._partition = sink, partition

    async def fence(self) -> None:
        """Fence every earlier writer of this partition, and end the transaction that it left open."""
        await self._fence()

    async def mark_again(self, group: str, *, commit: bool) -> None:  # noqa: ARG002 - all is of one group
        """End an empty transaction with that outcome, in this partition of each topic and in the group's offsets."""
        transaction, epoch = self._transaction, self._epoch
        logs = [self._broker.log(topic, self._partition) for topic in sink_topics(self._sink)]
        await self._until_free(
            "end_txn", lambda _: transaction.end_empty(epoch, logs, commit=commit)
        )

    async def copy(self, topic: str, batch: EventBatch, rows: Integers, bytes_max: int) -> None:
        """Append the events of `rows` (ascending) of `batch` to this partition, byte for byte; send what is full."""
        await self._append(topic, self._partition, records_of(batch, rows), bytes_max)

    async def settle(self, label: int | None) -> int | None:
        """Wait until the broker has acknowledged every record; return the output offset after our last event.

        The errors are those of `kafka.sink.KafkaWriter.settle`.
        """
        await self._flush_all()
        end = None
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
        transaction, epoch = self._transaction, self._epoch
        where, committed = (source, self._partition), (offset, metadata)
        await self._until_free(
            "txn_offset_commit",
            lambda now: transaction.stage(epoch, self._broker.group(group), where, committed, now),
        )
        await self._end(commit=True)


class MemoryGroupWriter(MemoryProducer):
    """Writes any partition of any topic, one transaction at a time, fenced by the generation of a group."""

    def __init__(
        self,
        broker: MemoryBroker,
        options: KafkaOptions,
        transactional_id: str,
        patience: Patience,
        *,
        timeout_ms: int,
    ) -> None:
        limited = {**options.producer, "transaction_timeout_ms": timeout_ms}
        options = options.model_copy(update={"producer": limited})
        super().__init__(broker, options, transactional_id, patience, exactly_once=True)

    async def start(self) -> None:
        """Fence every earlier writer with this transactional id, and end the transaction that it left open."""
        await self._fence()

    async def mark_again(
        self,
        partitions: Mapping[str, Collection[int]],
        group: str,  # noqa: ARG002 - all is of one group
        *,
        commit: bool,
    ) -> None:
        """End an empty transaction with that outcome, in `partitions`, by topic, and in the group's offsets."""
        transaction, epoch = self._transaction, self._epoch
        logs = [self._broker.log(topic, p) for topic, its in partitions.items() for p in its]
        await self._until_free(
            "end_txn", lambda _: transaction.end_empty(epoch, logs, commit=commit)
        )

    async def copy(
        self, topic: str, partition: int, batch: EventBatch, rows: Integers, bytes_max: int
    ) -> None:
        """Append the events of `rows` (ascending) of `batch` to `partition`, byte for byte; send what is full."""
        await self._append(topic, partition, records_of(batch, rows), bytes_max)

    async def settle(self) -> None:
        """Wait until the broker has acknowledged every record.

        The errors are those of `kafka.group_sink.KafkaGroupWriter.settle`.
        """
        await self._flush_all()
        refused = None
        for topic, answer, _count in self._sent:
            try:
                with refusing(topic):
                    await answer
            except RefusedError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    async def commit(
        self,
        group: str,
        offsets: Mapping[InputPartition, tuple[int, str]],
        membership: Membership,
    ) -> None:
        """Commit what was sent together with the group's offsets, and end the transaction.

        StaleGenerationError, with the transaction still open, if `membership` is not of the current generation.
        """
        transaction, epoch = self._transaction, self._epoch

        def act(now: float) -> None:
            taking = self._broker.group(group)
            taking.check(membership.member_id, membership.generation)
            for partition, committed in offsets.items():
                transaction.stage(epoch, taking, partition, committed, now)

        try:
            await self._until_free("txn_offset_commit", act)
        except (IllegalGenerationError, UnknownMemberIdError, RebalanceInProgressError) as error:
            raise StaleGenerationError(group, membership, error.message) from error
        await self._end(commit=True)

    @override
    async def abort(self) -> None:
        """Abort what was sent since `begin`."""
        if self._added:  # else no transaction is open at the broker
            await super().abort()


def _size_bytes(record: Record) -> int:
    return len(record.body) + ENVELOPE_BYTES
