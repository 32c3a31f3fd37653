"""The life of one shard: fence the output, fold it, then decide, emit, commit, admit.

Whatever goes wrong is doubt: drop the producer and pending, keep the filter, and fence again; the broker then tells
what is true. Only a contradiction that an operator must settle stops a shard, which then stays in the group.
"""

import asyncio
import random
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import structlog

from streamdedup.emission import Emission
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.events import EventBatch
from streamdedup.filters import build
from streamdedup.filters.base import Filter
from streamdedup.kafka.connection import describe_error, refusal
from streamdedup.kafka.log import TrimmedError, committed_events, offset_at
from streamdedup.kafka.offsets import Note, committed
from streamdedup.kafka.protocol import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from streamdedup.kafka.sink import DoubtError, ForeignWriteError, Writer
from streamdedup.kafka.source import Source
from streamdedup.kafka.topics import Topology, check, describe, sink_topics
from streamdedup.keys.extract import Extractor
from streamdedup.keys.hashing import HASH_CHECK, HASH_ID
from streamdedup.resume import Found, Resume, check_memory, input_offset
from streamdedup.settings import Settings
from streamdedup.shard import Shard
from streamdedup.shard_snapshots import ShardSnapshots
from streamdedup.snapshot import Identity

log = structlog.get_logger(__name__)

OPEN_TRANSACTION_S_MAX = 60.0
BROKER_ANSWER_S_MAX = 60.0
STALL_S_MAX = 60.0
IDLE_WAIT_S = 0.2
DEADLINE_SHARE = (
    0.75  # of the request time-out: what is resent after it could hit the next transaction
)
BACKOFF_S = 0.1
BACKOFF_S_MAX = 10.0


class State(StrEnum):
    """Where a shard stands in its life."""

    ASSIGNED = "assigned"
    FENCING = "fencing"
    FOLDING = "folding"
    LIVE = "live"
    FULL = "full"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Context:
    """What all shards of a worker share."""

    settings: Settings
    client: Any
    source: Source
    topology: Topology
    folds: asyncio.Semaphore

    @property
    def exactly_once(self) -> bool:
        """Whether output and offsets are committed in one transaction."""
        return self.settings.delivery.guarantee == "exactly_once"

    @property
    def shard_capacity(self) -> int:
        """A shard's share of `filter.capacity`, with its headroom for skew; never more than the whole."""
        options = self.settings.filter
        partitions = self.topology[self.settings.source.topic].partitions
        share = options.capacity * (1 + options.partition_headroom) / partitions
        return min(options.capacity, int(np.ceil(share)))

    def empty_filter(self) -> Filter:
        """A new filter for one shard."""
        options = self.settings.filter
        return build(
            {
                "kind": options.kind,
                "capacity": self.shard_capacity,
                "error_rate": options.error_rate,
            }
        )

    def extractor(self) -> Extractor:
        """Takes the key of an event, of the input and of the output alike."""
        key = self.settings.key
        fields = (key.field,) if isinstance(key.field, str) else key.field or ()
        return Extractor(key.from_, fields, self.settings.source.tombstones)


class Delivery:
    """Drives the shard of one partition. `run` lives as long as the partition is ours."""

    def __init__(self, context: Context, partition: int) -> None:
        settings = context.settings
        self.state = State.ASSIGNED
        self.partition = partition
        self.shard: Shard | None = None
        self._context, self._settings = context, settings
        self._topology = context.topology
        self._extractor = context.extractor()
        self._writer = Writer(
            settings.kafka, settings.sink, partition, exactly_once=context.exactly_once
        )
        self._emission = Emission(settings, self._writer)
        self._leaving = asyncio.Event()
        self._backoff_s = BACKOFF_S
        self._foreign: tuple[int, int] | None = None
        self._log = log.bind(topic=settings.source.topic, partition=partition)
        self.snapshots = ShardSnapshots(settings, partition, self._log)

    async def run(self, epoch: int) -> None:
        """Serve the partition in assignment `epoch` until `leave` is called."""
        self._leaving.clear()
        self._backoff_s = BACKOFF_S
        while not self._leaving.is_set():
            try:
                await self._live(epoch)
            except (DeliveryError, ConfigError) as error:
                await self._stop(error)
            except Exception as error:
                if refused := refusal(error):
                    await self._stop(refused)
                    continue
                self._log.warning("doubt", state=self.state, **describe_error(error))
                await self._pause(self._backoff_s * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
                self._backoff_s = min(self._backoff_s * 2, BACKOFF_S_MAX)
            finally:
                if self.shard:
                    self.shard.forget()
        await self._writer.drop()
        self.state = State.ASSIGNED

    @property
    def busy(self) -> bool:
        """Whether `leave` should wait for a batch in hand."""
        return self.state is State.LIVE

    def leave(self) -> None:
        """Ask `run` to end after the batch in hand."""
        self._leaving.set()

    async def drop(self) -> None:
        """Let go of the producer, whatever it is doing."""
        await self._writer.drop()

    async def save(self) -> None:
        """Take a snapshot where there is something new to save; failures are logged, never raised."""
        if self.shard is not None:
            await self.snapshots.save(self.shard, self._identity())

    async def _live(self, epoch: int) -> None:
        self.state = State.FENCING
        self._context.source.hold(self.partition)
        found = await self._fence()
        resume = input_offset(found, self._settings.source, self._settings.sink)
        self.state = State.FOLDING
        async with self._context.folds:
            shard = await self._fold(found)
        if resume.birth:
            await self._commit_birth(resume, shard)
        self._context.source.go_to(self.partition, resume.offset)
        self.state = State.LIVE
        self._log.info("shard_live", offset=resume.offset, why=resume.why, label=shard.label)
        while not self._leaving.is_set() and self._context.source.epoch == epoch:
            await self._transaction(shard, epoch)
            if shard.full:
                await self._wait_full(shard)

    async def _fence(self) -> Found:
        """Shut out other writers, wait until the output is decided, and look at everything that follows."""
        settings, client, context = self._settings, self._context.client, self._context
        source, output = settings.source.topic, settings.sink.topic
        await self._writer.fence()
        async with asyncio.timeout(BROKER_ANSWER_S_MAX):
            self._topology = await describe(client, [source, *sink_topics(settings.sink)])
            check(self._topology, source, settings.sink)
            self._emission.observe(self._topology)
            output_end = await offset_at(client, output, self.partition, LATEST, READ_UNCOMMITTED)
        await self._wait_decided(output_end)
        async with asyncio.timeout(BROKER_ANSWER_S_MAX):
            return Found(
                await committed(
                    client,
                    settings.kafka.group_id,
                    source,
                    self.partition,
                    stable=context.exactly_once,
                ),
                self._topology.cluster_id,
                self._topology[source].topic_id,
                self._topology[output].topic_id,
                await offset_at(client, source, self.partition, EARLIEST, READ_UNCOMMITTED),
                await offset_at(client, source, self.partition, LATEST, READ_UNCOMMITTED),
                await offset_at(client, output, self.partition, EARLIEST, READ_UNCOMMITTED),
                output_end,
                self.shard is not None or await asyncio.to_thread(self.snapshots.exist),
            )

    async def _wait_decided(self, end: int) -> None:
        """Until the output's last stable offset has reached `end`: what is undecided may still be committed."""
        output, stable = self._settings.sink.topic, -1
        try:
            async with asyncio.timeout(OPEN_TRANSACTION_S_MAX):
                while stable < end:
                    stable = await offset_at(
                        self._context.client, output, self.partition, LATEST, READ_COMMITTED
                    )
                    if stable < end:
                        await asyncio.sleep(IDLE_WAIT_S)
        except TimeoutError:
            raise DeliveryError(
                f"{output}/{self.partition}: a transaction that is not ours is open from offset {stable} on, so what"
                " the output holds is undecided; end it (kafka-transactions.sh find-hanging) and keep other writers off"
            ) from None

    async def _fold(self, found: Found) -> Shard:
        """The filter as the fold of the whole output: from memory, from a snapshot, or empty."""
        if self.shard is None:
            shard, label = await self._restore(found)
        else:
            shard, label = self.shard, self.shard.label
        if warning := check_memory(label, found, self._settings.sink):
            self._log.warning("output_gap_accepted", detail=warning)
        self.shard = shard
        start = max(shard.label, found.output_start)
        folded = skipped = 0
        first = last = None
        try:
            async for batch in committed_events(
                self._settings.kafka,
                self._settings.sink.topic,
                self.partition,
                start,
                found.output_end,
                stall_s=STALL_S_MAX,
            ):
                self._check_foreign(batch)
                keys = self._extractor.extract(batch)
                shard.fold(keys, batch.next_offset)
                first, last = first if folded else int(batch.offsets[0]), int(batch.offsets[-1])
                folded += len(batch)
                skipped += sum(key is None for key in keys.keys)
        except TrimmedError as error:
            raise DoubtError(str(error)) from error  # the next fencing sees the new start
        shard.end_fold(found.output_end)
        self._foreign = None
        self._log.info(
            "output_folded",
            start=start,
            end=found.output_end,
            first_offset=first,
            last_offset=last,
            events=folded,
            without_key=skipped,
        )
        return shard

    async def _restore(self, found: Found) -> tuple[Shard, int | None]:
        """A shard from the newest snapshot that holds for this output, with its label, or an empty one."""
        stop_when_full = self._settings.filter.on_full == "stop"
        snapshot = await self.snapshots.load(self._identity(), found.output_end)
        if snapshot is None:
            seen = await asyncio.to_thread(self._context.empty_filter)
            return Shard(self.partition, seen, stop_when_full=stop_when_full), None
        shard = Shard(self.partition, snapshot.filter, stop_when_full=stop_when_full)
        shard.label, shard.reach = snapshot.label, snapshot.end_label
        return shard, shard.label

    def _check_foreign(self, batch: EventBatch) -> None:
        """After our events came to stand too far on: whoever wrote in between is a second writer."""
        if self._foreign is None:
            return
        low, high = np.searchsorted(batch.offsets, self._foreign)
        if high > low:
            raise DeliveryError(
                f"{self._settings.sink.topic}/{self.partition} has a second writer: offset {batch.offsets[low]} is not"
                " ours; every output partition takes one writer, so stop the other and restart"
            )

    async def _commit_birth(self, resume: Resume, shard: Shard) -> None:
        """Resolve `source.start` once: a crash cannot move it."""
        await self._writer.begin()
        await self._commit(resume.offset, shard.label)

    async def _transaction(self, shard: Shard, epoch: int) -> None:
        """Gather, decide and emit until the interval, the events or the bytes are reached; commit; admit."""
        source, delivery = self._context.source, self._settings.delivery
        batch = await source.read(self.partition, epoch, IDLE_WAIT_S)
        if batch is None:
            return
        loop = asyncio.get_running_loop()
        closes_at = loop.time() + delivery.commit_interval_ms / 1000
        events = size_bytes = 0
        async with asyncio.timeout(self._writer.request_timeout_s * DEADLINE_SHARE):
            await self._writer.begin()
            while batch is not None:
                batch, whole = await self._decide_and_send(shard, batch)
                offset = batch.next_offset
                events += len(batch)
                size_bytes += len(batch.keys.buffer) + len(batch.values.buffer)
                left_s = closes_at - loop.time()
                if (
                    not whole
                    or left_s <= 0
                    or events >= delivery.batch_events_max
                    or size_bytes >= delivery.batch_bytes_max
                    or self._leaving.is_set()
                ):
                    break
                batch = await source.read(self.partition, epoch, left_s)
            await self._settle_and_commit(shard, offset)

    async def _decide_and_send(self, shard: Shard, batch: EventBatch) -> tuple[EventBatch, bool]:
        """Emit what passes; the events taken, and whether they are all: they are not where the filter is full."""
        now_ms = int(time.time() * 1000)
        keys = self._extractor.extract(batch)
        rejected = self._emission.refused(batch, now_ms)
        verdicts = shard.decide(keys, list(rejected))
        whole = len(verdicts) == len(batch)
        taken = batch if whole else batch.head(len(verdicts))
        await self._emission.emit(taken, verdicts, keys, rejected, now_ms)
        return taken, whole

    async def _settle_and_commit(self, shard: Shard, offset: int) -> None:
        try:
            label = await self._writer.settle(shard.label)
        except ForeignWriteError as error:
            if self._context.exactly_once:
                self._foreign = (error.expected, error.found)
                await self._writer.abort()
            raise
        if self._writer.wrote_output and self._context.exactly_once:
            label += 1  # the transaction's own marker follows its last event
        await self._commit(offset, label)
        shard.admit(label)
        self._backoff_s = BACKOFF_S

    async def _commit(self, offset: int, label: int) -> None:
        settings = self._settings
        note = Note(
            self._topology.cluster_id,
            self._topology[settings.source.topic].topic_id,
            self._topology[settings.sink.topic].topic_id,
            label,
        ).encode()
        if self._context.exactly_once:
            group = settings.kafka.group_id
            await self._writer.commit(settings.source.topic, offset, note, group)
        else:
            await self._context.source.commit(self.partition, offset, note)

    async def _wait_full(self, shard: Shard) -> None:
        self.state = State.FULL
        self._context.source.hold(self.partition)
        self._log.error(
            "filter_full",
            keys=len(shard.seen),
            capacity=shard.seen.capacity,
            remedy="raise filter.capacity and restart (the output is folded again), or set filter.on_full: warn",
        )
        await self._leaving.wait()

    async def _stop(self, error: Exception) -> None:
        self.state = State.STOPPED
        self._context.source.hold(self.partition)
        self._log.error(
            "shard_stopped", error=str(error), remedy="settle it, then restart the worker"
        )
        await self._writer.drop()
        await self._leaving.wait()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        except TimeoutError:
            return

    def _identity(self) -> Identity:
        settings, source = self._settings, self._settings.source.topic
        output = self._topology[settings.sink.topic]
        return Identity(
            hash=HASH_ID,
            hash_check=HASH_CHECK,
            key={
                "from": settings.key.from_,
                "fields": list(self._extractor.fields),
                "tombstones": settings.source.tombstones,
            },
            normalize=settings.key.normalize,
            filter={
                "kind": settings.filter.kind,
                "capacity": self._context.shard_capacity,
                "error_rate": settings.filter.error_rate,
            },
            topic=output.name,
            partition=self.partition,
            partitions=self._topology[source].partitions,
            cluster_id=self._topology.cluster_id,
            topic_id=output.topic_id,
        )
