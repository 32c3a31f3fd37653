"""The life of one shard: fence the output, fold it, then decide, emit, commit, admit.

Whatever goes wrong is doubt: drop the producer and pending, keep the filter, and fence again; the broker then tells
what is true. Only a contradiction that an operator must settle stops a shard, which then stays in the group.
"""

import asyncio
from enum import StrEnum

import structlog

from streamdedup.delivery.commit import Committer, Ground
from streamdedup.delivery.consume import InputReader
from streamdedup.delivery.decide import Decider
from streamdedup.delivery.emit import Emitter
from streamdedup.delivery.fence import fence
from streamdedup.delivery.fold import FoldedMemory
from streamdedup.delivery.memory import Fold, Memory, NoMemory
from streamdedup.delivery.pace import Pace
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.resume import Found, growth, noted_end
from streamdedup.delivery.services import Services
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.delivery.transactions import InFlight, Transaction, run_together
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.client.connection import describe_error, refusal
from streamdedup.kafka.client.patience import Backoff, is_away
from streamdedup.kafka.doubt_causes import doubt_cause
from streamdedup.kafka.sink import RefusedError
from streamdedup.kafka.topics import Topology

log = structlog.get_logger(__name__)

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


class Delivery:
    """Drives the shard of one partition. `run` lives as long as the partition is ours."""

    def __init__(self, recipe: Recipe, services: Services, partition: int) -> None:
        settings = recipe.settings
        self.state = State.ASSIGNED
        self.partition = partition
        self.trouble: str | None = None  # why it is full or stopped
        self._meters = services.meters.of(partition)
        self._committed_offset = 0
        self._input_end: int | None = None  # as last asked for
        self._recipe, self._services, self._settings = recipe, services, settings
        self._log = log.bind(
            topic=settings.source.topic, partition=partition, output=settings.sink.topic
        )
        self._leaving = asyncio.Event()
        self._backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX)
        self._live_at = 0.0  # by the loop's clock
        self._told_beyond = False
        self._writer = services.cluster.writer(
            settings.sink, partition, exactly_once=recipe.exactly_once
        )
        self._name = f"{settings.source.topic}/{partition}"
        self._memory: Memory = (
            FoldedMemory(recipe, services, partition, self._log)
            if settings.filter.remembers
            else NoMemory(recipe, services, partition)
        )
        self._emitter = Emitter(settings, self._writer)
        self._reader = InputReader(recipe, services, partition)
        self._pace = pace = Pace(settings.delivery.batch_events_max)
        self._decider = Decider(
            recipe,
            services,
            memory=self._memory,
            emitter=self._emitter,
            reader=self._reader,
            pace=pace,
        )
        self._committer: Committer | None = None  # since the last fencing

    @property
    def shard(self) -> Shard | None:
        """What is in memory of the partition."""
        return self._memory.shard

    @property
    def snapshots(self) -> ShardSnapshots | None:
        """The shard's snapshots; None if it saves nothing."""
        return self._memory.snapshots

    @property
    def writes_snapshot(self) -> bool:
        """Whether a thread is writing a snapshot of the shard."""
        return self.snapshots is not None and self.snapshots.writes

    def cut_saves_short(self) -> None:
        """Give up the snapshot that is being written, if any."""
        if self.snapshots:
            self.snapshots.cut_short()

    @property
    def fold(self) -> Fold | None:
        """The last fold, which may be under way."""
        return self._memory.progress

    @property
    def lag(self) -> int | None:
        """How many offsets lie between what is done and the end of the input; None until that is known."""
        if self._input_end is None:
            return None
        if self.state is not State.LIVE:
            return max(0, self._input_end - self._committed_offset)
        read = self._input_end - self._reader.next_offset
        return max(0, read, self._services.source.lag(self.partition))

    async def look_up_end(self) -> None:
        """Ask for the end of the input where nothing is fetched that would tell it; not for the first time."""
        if self._input_end is not None and self.state is not State.LIVE:
            self._input_end = await self._services.cluster.end_offset(
                self._settings.source.topic, self.partition
            )

    def lookup_waits(self, above_s: float) -> str | None:
        """What it says of a lookup in a list's store that takes so long; None where none does. Any thread may ask."""
        return self._services.threads.lookups.waits(self._name, above_s)

    @property
    def beyond_capacity(self) -> bool:
        """Whether the filter holds more than its error rate was promised for, as the operator allowed."""
        held = self.shard is not None and self.shard.beyond_capacity
        return held and not self._recipe.stops_when_full

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
            except Exception as error:
                final = error if isinstance(error, DeliveryError | ConfigError) else refusal(error)
                if final is not None:
                    self._meters.take_back("stopped")
                    await self._stop(final)
                    continue
                self._meters.doubt(doubt_cause(error))
                self._tell(error)
                if self.state is State.LIVE and self._live_s > BACKOFF_S_MAX:
                    self._backoff.reset()
                self.state = State.FENCING
                if not isinstance(error, RefusedError):  # after which fewer are tried at once
                    await self._pause(self._backoff.next_s())
            finally:
                self._meters.take_back("left")
                if self.shard:
                    self.shard.forget()
        await self.drop()
        self.state = State.ASSIGNED

    @property
    def _live_s(self) -> float:
        return asyncio.get_running_loop().time() - self._live_at

    def leave(self) -> None:
        """Ask `run` to end after the batch in hand."""
        self._leaving.set()

    async def drop(self) -> None:
        """Let go of the producer, whatever it is doing; nobody waits for a broker here any more."""
        self._services.cluster.patience.forget(self._name)
        await self._writer.drop()

    async def look_at_log(self, within_s: float) -> None:
        """Before a save: see `Memory.look_at_log`."""
        await self._memory.look_at_log(within_s)

    async def save(self) -> None:
        """Take a snapshot where there is something new to save; failures are logged, never raised."""
        await self._memory.save()

    async def outrun(self, log_start: int) -> None:
        """Take one also where the output, which begins at `log_start`, is deleted up to the last but one."""
        await self._memory.outrun(log_start)

    async def _live(self, epoch: int) -> None:
        settings, cluster, source = self._settings, self._services.cluster, self._services.source
        self.state, self.trouble = State.FENCING, None
        source.hold(self.partition)
        if not await self._confirmed(epoch):
            return
        remembers = await self._memory.remembers()
        topology, found = await fence(
            settings, cluster, self._writer, self.partition, has_memory=remembers
        )
        self._services.cluster.patience.back(self._name)
        self._emitter.observe(topology)
        resume = self._memory.resume(found)
        if warning := growth(found, self._settings.source):
            self._log.warning("input_grown", detail=warning)
            source.grown(found.partitions)
        self._committed_offset, self._input_end = resume.offset, found.input_end
        self.state = State.FOLDING
        foreign = self._committer.foreign if self._committer else None
        shard = await self._memory.catch_up(found, topology, foreign)
        committer = self._committer = self._committer_on(found, shard)
        if resume.birth:  # `source.start` is resolved once: a crash cannot move it
            await self._commit_birth(committer, shard, topology, resume.offset)
        if source.epoch != epoch:
            return
        self._reader.begin(epoch, resume.offset)
        self.state, self._live_at = State.LIVE, asyncio.get_running_loop().time()
        self._log.info("shard_live", offset=resume.offset, why=resume.why, label=shard.label)
        in_flight = InFlight(self._settings.delivery.max_in_flight)
        closes_s_max = self._writer.transaction_s_max / 2
        await run_together(
            self._decider.run(shard, in_flight, closes_s_max, self._leaving),
            committer.run(shard, topology, in_flight),
        )
        if self._decider.full:
            await self._wait_full(shard)

    def _committer_on(self, found: Found, shard: Shard) -> Committer:
        """What commits the transactions of `shard` until the next fencing, on the ground of what is `found`."""
        ours_end = noted_end(found)
        ground = Ground(
            output_end=self._memory.must_follow(found),
            ours_end=shard.label if ours_end is None else ours_end,
            born=found.born,
            floor=found.floor,
            since=found.since,
        )
        return Committer(
            self._recipe,
            self._services,
            self.partition,
            self._writer,
            ground,
            emitter=self._emitter,
            memory=self._memory,
            pace=self._pace,
            passed=self._passed,
        )

    async def _confirmed(self, epoch: int) -> bool:
        """Wait until the group says that the partition is still ours; False where it is not.

        A worker that was paused would else shut out the one that took its place.
        """
        source, backoff = self._services.source, Backoff(BACKOFF_S, BACKOFF_S_MAX)
        while source.epoch == epoch and not self._leaving.is_set():
            if await source.confirms(epoch):
                return True
            await self._pause(backoff.next_s())
        return False

    def _tell(self, error: Exception) -> None:
        """Doubt, in the log; but not from each shard again while a broker is away, which is told for all of them."""
        if is_away(error):
            self._services.cluster.patience.away(self._name, error)
        if self.state is State.LIVE or not is_away(error):
            self._log.warning("doubt", state=self.state, **describe_error(error))

    def _passed(self, transaction: Transaction) -> None:
        """`transaction` is committed and admitted."""
        self._committed_offset = transaction.next_offset
        self._meters.commit(transaction.next_offset)
        self._pace.passed(transaction.next_offset)
        self._reader.passed()
        self._backoff.reset()
        if self.shard:
            self._tell_beyond(self.shard)

    async def _commit_birth(
        self, committer: Committer, shard: Shard, topology: Topology, offset: int
    ) -> None:
        birth = Transaction()
        shard.seal()
        birth.close(offset, shard.watermark)
        await committer.commit(shard, topology, birth)

    async def _wait_full(self, shard: Shard) -> None:
        self._services.source.hold(self.partition)
        held, larger = self._recipe.held(shard.filter), self._recipe.larger(shard.filter)
        self.trouble = f"{held}: {larger}"
        self.state = State.FULL
        self._log.error(
            "filter_full",
            keys=len(shard.filter),
            capacity=shard.filter.capacity,
            reason=held,
            remedy=f"{larger} and restart (if need be, the output is folded again), or set filter.on_full: warn",
        )
        await self._leaving.wait()

    def _tell_beyond(self, shard: Shard) -> None:
        """Once: the error rate is above the one that was asked for, as `on_full: warn` allows."""
        if self.beyond_capacity and not self._told_beyond:
            self._told_beyond = True
            self._log.warning(
                "filter_beyond_capacity",
                keys=len(shard.filter),
                capacity=shard.filter.capacity,
                error_rate_now=shard.filter.error_rate_now,
                remedy=f"{self._recipe.larger(shard.filter)} and restart: the output is folded again",
            )

    async def _stop(self, error: Exception) -> None:
        self.trouble = str(error)
        self.state = State.STOPPED
        self._services.cluster.patience.forget(self._name)
        self._services.source.hold(self.partition)
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
