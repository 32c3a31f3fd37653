"""The life of one shard: fence the output, fold it, then decide, emit, commit, admit.

Whatever goes wrong is doubt: drop the producer and pending, keep the filter, and fence again; the broker then tells
what is true. Only a contradiction that an operator must settle stops a shard, which then stays in the group.
"""

import asyncio
from enum import StrEnum

import structlog

from streamdedup.context import Context
from streamdedup.emission import Emission
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.events import EventBatch
from streamdedup.fencing import fence
from streamdedup.folding import Fold, Folding, in_turns
from streamdedup.kafka.connection import Backoff, describe_error, refusal
from streamdedup.kafka.doubts import doubt_cause
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.sink import DoubtError, ForeignWriteError
from streamdedup.kafka.source import UnreadableError
from streamdedup.kafka.topics import Topology
from streamdedup.resume import input_offset
from streamdedup.shard import Shard
from streamdedup.shard_snapshots import ShardSnapshots

log = structlog.get_logger(__name__)

IDLE_WAIT_S = 0.2
IDLE_COMMIT_S = 5.0
BACKOFF_S = 0.1
BACKOFF_S_MAX = 10.0
UNREADABLE_TRIES = 3
ONE_BY_ONE_EVENTS = 100_000  # more than one fetch holds, so that what was unreadable is behind


class State(StrEnum):
    """Where a shard stands in its life."""

    ASSIGNED = "assigned"
    FENCING = "fencing"
    FOLDING = "folding"
    LIVE = "live"
    FULL = "full"
    STOPPED = "stopped"


class Delivery:
    """Drives the shard of one partition. `run` lives as long as the partition is ours."""

    def __init__(self, context: Context, partition: int) -> None:
        settings = context.settings
        self.state = State.ASSIGNED
        self.partition = partition
        self.trouble: str | None = None  # why it is full or stopped
        self._meters = context.meters.of(partition)
        self._context, self._settings = context, settings
        self._extractor = context.extractor()
        self._writer = context.cluster.writer(
            settings.sink, partition, exactly_once=context.exactly_once
        )
        self._emission = Emission(settings, self._writer)
        self._leaving = asyncio.Event()
        self._backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX)
        self._foreign: tuple[int, int] | None = None
        self._next_offset = self._committed_offset = 0
        self._input_end: int | None = None  # as last asked for
        self._committed_at = 0.0
        self._one_by_one = 0  # how many events are still to be read so
        self._unreadable_tries = 0
        self._told_beyond = False
        self._log = log.bind(
            topic=settings.source.topic, partition=partition, output=settings.sink.topic
        )
        self._folding = Folding(context, partition, self._log)

    @property
    def shard(self) -> Shard | None:
        """What is in memory of the partition."""
        return self._folding.shard

    @property
    def snapshots(self) -> ShardSnapshots:
        """The shard's snapshots."""
        return self._folding.snapshots

    @property
    def fold(self) -> Fold | None:
        """The last fold, which may be under way."""
        return self._folding.progress

    @property
    def lag(self) -> int | None:
        """How many offsets lie between what is done and the end of the input; None until that is known."""
        if self._input_end is None:
            return None
        if self.state is not State.LIVE:
            return max(0, self._input_end - self._committed_offset)
        read = self._input_end - self._next_offset
        return max(0, read, self._context.source.lag(self.partition))

    async def look_up_end(self) -> None:
        """Ask for the end of the input where nothing is fetched that would tell it; not for the first time."""
        if self._input_end is not None and self.state is not State.LIVE:
            self._input_end = await self._context.cluster.end_offset(
                self._settings.source.topic, self.partition
            )

    @property
    def hangs(self) -> bool:
        """Whether a thread is at work that nobody can end."""
        return self._folding.busy

    @property
    def beyond_capacity(self) -> bool:
        """Whether the filter holds more than its error rate was promised for, as the operator allowed."""
        held = self.shard is not None and self.shard.beyond_capacity
        return held and not self._context.stops_when_full

    @property
    def busy(self) -> bool:
        """Whether `leave` should wait for a batch in hand."""
        return self.state is State.LIVE

    async def run(self, epoch: int) -> None:
        """Serve the partition in assignment `epoch` until `leave` is called."""
        self._leaving.clear()
        self._backoff.reset()
        while not self._leaving.is_set():
            try:
                await self._live(epoch)
                await self._leaving.wait()  # another epoch has begun: whose we are is not known yet
            except (DeliveryError, ConfigError) as error:
                self._meters.take_back("stopped")
                await self._stop(error)
            except Exception as error:
                if refused := refusal(error):
                    self._meters.take_back("stopped")
                    await self._stop(refused)
                    continue
                self._meters.doubt(doubt_cause(error))
                self._log.warning("doubt", state=self.state, **describe_error(error))
                self.state = State.FENCING
                await self._pause(self._backoff.next_s())
            finally:
                self._meters.take_back("left")
                if self.shard:
                    self.shard.forget()
        await self._writer.drop()
        self.state = State.ASSIGNED

    def leave(self) -> None:
        """Ask `run` to end after the batch in hand."""
        self._leaving.set()

    async def drop(self) -> None:
        """Let go of the producer, whatever it is doing."""
        await self._writer.drop()

    async def save(self) -> None:
        """Take a snapshot where there is something new to save; failures are logged, never raised."""
        await self._folding.save()

    async def _live(self, epoch: int) -> None:
        source = self._context.source
        self.state, self.trouble = State.FENCING, None
        source.hold(self.partition)
        remembers = await self._folding.remembers()
        topology, found = await fence(
            self._context, self._writer, self.partition, has_memory=remembers
        )
        self._emission.observe(topology)
        resume = input_offset(found, self._settings.source, self._settings.sink)
        self._next_offset = self._committed_offset = resume.offset
        self._input_end = found.input_end
        self.state = State.FOLDING
        async with self._context.folds:
            shard = await self._folding.catch_up(found, topology, self._foreign)
        self._foreign = None
        if resume.birth:  # `source.start` is resolved once: a crash cannot move it
            await self._commit_nothing(shard, topology)
        if source.epoch != epoch:
            return
        source.go_to(self.partition, resume.offset)
        self.state = State.LIVE
        self._log.info("shard_live", offset=resume.offset, why=resume.why, label=shard.label)
        while not self._leaving.is_set() and source.epoch == epoch:
            before = self._next_offset
            whole = await self._transaction(shard, topology, epoch)
            if shard.full or not (whole or self._next_offset > before):
                await self._wait_full(shard)
            elif not whole and source.epoch == epoch:  # what waited took more room than it does now
                self._meters.take_back("full")
                source.go_to(self.partition, self._next_offset)

    async def _transaction(self, shard: Shard, topology: Topology, epoch: int) -> bool:
        """Gather, decide and emit until the interval, the events or the bytes are reached; commit; admit.

        False where there was no more room before all that was read could be decided: the rest is to be read again.
        """
        delivery, loop = self._settings.delivery, asyncio.get_running_loop()
        batch = await self._read(epoch, IDLE_WAIT_S, delivery.batch_events_max)
        if batch is None:
            await self._commit_position(shard, topology)
            return True
        began_at, deadline_s = loop.time(), self._writer.transaction_s_max
        closes_at = began_at + min(delivery.commit_interval_ms / 1000, deadline_s / 2)
        events = size_bytes = 0
        async with asyncio.timeout(deadline_s):
            await self._writer.begin()
            while batch is not None:
                batch, whole = await self._decide_and_send(shard, batch)
                self._next_offset = batch.next_offset
                events += len(batch)
                size_bytes += batch.size_bytes
                await asyncio.sleep(0)  # what is prefetched comes without waiting
                if not whole or size_bytes >= delivery.batch_bytes_max:
                    break
                batch = await self._read_on(epoch, closes_at, delivery.batch_events_max - events)
            await self._settle_and_commit(shard, topology, began_at)
        self._tell_beyond(shard)
        return whole

    async def _read(self, epoch: int, wait_s: float, events_max: int) -> EventBatch | None:
        """The next events, those that follow `_next_offset`."""
        source = self._context.source
        if source.epoch != epoch:
            return None
        if (position := source.position(self.partition)) != self._next_offset:
            raise DoubtError(f"the consumer stands at offset {position}, not {self._next_offset}")
        one_by_one = self._one_by_one > 0
        try:
            batch = await source.read(
                self.partition, epoch, wait_s, 1 if one_by_one else events_max
            )
        except UnreadableError as error:
            if one_by_one and self._unreadable_tries >= UNREADABLE_TRIES:
                topic = self._settings.source.topic
                raise DeliveryError(
                    f"{topic}/{self.partition} offset {self._next_offset} cannot be read ({error}):"
                    " its record batch is damaged, or not as Kafka's format wants it; move the group's offset behind it"
                ) from None
            self._unreadable_tries = self._unreadable_tries + 1 if one_by_one else 0
            self._one_by_one = ONE_BY_ONE_EVENTS
            raise
        if batch is not None:
            self._meters.read(batch)
            self._one_by_one = max(0, self._one_by_one - len(batch))
            await self._folding.ready_for(len(batch))
        elif source.epoch == epoch:
            self._next_offset = source.position(self.partition)  # behind markers and aborted events
        return batch

    async def _read_on(self, epoch: int, closes_at: float, events_max: int) -> EventBatch | None:
        """The next events for the open transaction; None where it is time to commit it."""
        loop, source = asyncio.get_running_loop(), self._context.source
        while (
            events_max > 0
            and (left_s := closes_at - loop.time()) > 0
            and not self._leaving.is_set()
            and source.epoch == epoch
        ):
            try:
                batch = await self._read(epoch, min(left_s, IDLE_WAIT_S), events_max)
            except UnreadableError:  # it must not take back what was read before it
                return None
            if batch is not None:
                return batch
        return None

    async def _decide_and_send(self, shard: Shard, batch: EventBatch) -> tuple[EventBatch, bool]:
        """Emit what passes; the events taken, and whether they are all: they are not where the filter is full."""
        now_ms = self._context.now_ms()
        keys = self._extractor.extract(batch)
        rejected = self._emission.rejected(batch, keys, now_ms)
        verdicts = shard.decide(keys, batch.timestamps, list(rejected))
        whole = len(verdicts) == len(batch)
        taken = batch if whole else batch.head(len(verdicts))
        await self._emission.emit(taken, verdicts, keys, rejected, now_ms)
        return taken, whole

    async def _settle_and_commit(self, shard: Shard, topology: Topology, began_at: float) -> None:
        try:
            label = await self._writer.settle(shard.label)
        except ForeignWriteError as error:
            if self._context.exactly_once:
                self._foreign = (error.expected, error.found)
                await self._writer.abort()
            raise
        if self._writer.wrote_output and self._context.exactly_once:
            label += 1  # the transaction's own marker follows its last event
        await self._commit(shard, topology, label)
        self._context.meters.transactions.observe(self._committed_at - began_at)
        await in_turns(shard.admit(label))
        self._meters.commit(self._next_offset)
        self._unreadable_tries = 0
        self._backoff.reset()

    async def _commit_position(self, shard: Shard, topology: Topology) -> None:
        """Nothing to read: commit, now and then, that markers and aborted events are behind us.

        Otherwise their deletion would look like that of events which were not read.
        """
        quiet_s = asyncio.get_running_loop().time() - self._committed_at
        if self._next_offset > self._committed_offset and quiet_s >= IDLE_COMMIT_S:
            await self._commit_nothing(shard, topology)

    async def _commit_nothing(self, shard: Shard, topology: Topology) -> None:
        async with asyncio.timeout(self._writer.transaction_s_max):
            await self._writer.begin()
            await self._commit(shard, topology, shard.label)

    async def _commit(self, shard: Shard, topology: Topology, label: int) -> None:
        settings, offset = self._settings, self._next_offset
        source = settings.source.topic
        note = Note(
            topology.cluster_id,
            topology[source].topic_id,
            topology[settings.sink.topic].topic_id,
            label,
            shard.watermark,
        ).encode()
        if self._context.exactly_once:
            await self._writer.commit(source, offset, note, settings.kafka.group_id)
        else:
            await self._context.source.commit(self.partition, offset, note)
        self._committed_offset = offset
        self._committed_at = asyncio.get_running_loop().time()

    async def _wait_full(self, shard: Shard) -> None:
        self._meters.take_back("full")
        self._context.source.hold(self.partition)
        self.trouble = f"its filter holds {len(shard.seen)} keys of {shard.seen.capacity}: {self._context.larger}"
        self.state = State.FULL
        self._log.error(
            "filter_full",
            keys=len(shard.seen),
            capacity=shard.seen.capacity,
            remedy=f"{self._context.larger} and restart (if need be, the output is folded again), or set"
            " filter.on_full: warn",
        )
        await self._leaving.wait()

    def _tell_beyond(self, shard: Shard) -> None:
        """Once: the error rate is above the one that was asked for, as `on_full: warn` allows."""
        if self.beyond_capacity and not self._told_beyond:
            self._told_beyond = True
            self._log.warning(
                "filter_beyond_capacity",
                keys=len(shard.seen),
                capacity=shard.seen.capacity,
                error_rate_now=shard.seen.error_rate_now,
                remedy=f"{self._context.larger} and restart: the output is folded again",
            )

    async def _stop(self, error: Exception) -> None:
        self.trouble = str(error)
        self.state = State.STOPPED
        self._context.source.hold(self.partition)
        self._log.error(
            "shard_stopped", error=str(error), remedy="once that is settled, restart the worker"
        )
        await self._writer.give_up()
        await self._leaving.wait()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        except TimeoutError:
            return
