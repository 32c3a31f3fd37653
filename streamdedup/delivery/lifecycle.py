"""The life of one shard: fence the output, fold it, then decide, emit, commit, admit.

Every failure is a doubt, and there is one way back from it: drop the producer and pending, keep the filter, and fence
again; the broker then says what was committed. Only a contradiction that an operator must resolve stops a shard. A
stopped shard stays in the group.
"""

# Theory of operation
# ===================
#
# A shard is everything that belongs to one partition of the input. Its filter is the fold of the output partition of
# the same number: the set of the keys of all events in it. (Except events that shadow mode has marked as not passed,
# events below a floor that `reset --forget` has set, and, with a window, keys that have left it.) The label is the
# output offset up to which the filter has folded the output. A digest is pending from the moment its event passes until
# that event is known to be committed. Two rules hold in every state:
#
#   - Admission follows commit. A digest enters the filter only after its event is known to be committed in the output.
#   - Never ahead. The filter holds no key that is not in this very output, and the label never lies beyond its end.
#
# So we never have to guess whether a commit succeeded. We can always ask the output, and fold what is new in it.
#
#              run(epoch)          found           folded           filter full
#    ASSIGNED -----------> FENCING ------> FOLDING -------> LIVE -------------> FULL
#       ^                   ^   |             |              |                   |
#       |                   |   v             v              v                   |
#       |                   +---+--- doubt ---+--------------+                   |
#       |                       |             |              |                   |
#       |                       +-------------+--------------+--> STOPPED        |
#       |                        DeliveryError, ConfigError,         |           |
#       |                        the broker refuses us               |           |
#       +---- leave(), from any state -------------------------------+-----------+
#
# ASSIGNED   The shard does not run: the partition was just assigned, or `run` has ended. There is no producer. A filter
#            may be in memory, from an earlier assignment.
# FENCING    The consumer fetches nothing from the partition. First the group must confirm that the partition is still
#            ours: a worker that slept must not fence the one that took its place. If it is not ours, the shard waits
#            for `leave`. Then `fence` starts a producer under the transactional id OUTPUT/PARTITION, which fences every
#            earlier producer with that id. Only after that it reads the committed input offset and the output's end,
#            and waits until no transaction is open below that end. From here on no earlier worker can write. (With
#            `at_least_once` only the id is fenced, if the broker can, and an earlier worker may still send what it has
#            in hand.) `resume` decides, without I/O, where reading goes on. Pending is empty; filter and label are
#            those of before, and events of ours may lie above the label.
# FOLDING    `fold` (it implements `memory`) keeps the filter in memory, or loads the newest usable snapshot with
#            `snapshots`, or begins with an empty filter. Then it reads the committed events of the output from the
#            label to the end that FENCING read. The label rises with them; at last it equals that end. If the partition
#            is new (a birth), or its committed offset no longer counts, the offset to begin at is committed now,
#            before anything is read, so that a crash cannot move it. A worker without a filter folds nothing
#            (`memory.NoMemory`): its label only records the end, and others may write, too.
# LIVE       The consumer reads from the resumed offset. Everything below the label is in the filter. Above it the
#            output may hold markers and those events of ours that are not yet admitted. If it holds any other event, a
#            second writer is at work. Pending holds the digests of the transactions in flight. If the group rebalances,
#            the shard reads nothing more, commits what is decided, and waits for `leave`.
# FULL       The filter has reached its capacity and may not grow. Everything decided is committed. The consumer fetches
#            nothing, the producer stays open, and the shard waits for `leave`. If memory could not be had several times
#            in a row, in any state, the shard waits in the same way, but without a producer.
# STOPPED    The output, the offset or the topics contradict what we know, and `trouble` says how. Our transaction is
#            aborted if the broker answers, the producer is dropped, and nothing is read, decided or committed. A filter
#            that refuses a chosen key (`filters.strain`) stops the shard, too: the transaction is committed then, and
#            every fold would meet that key again.
#
# The worker's supervisor saves snapshots (`snapshots`) in every state. A snapshot is the filter with its label, and
# both agree in every state, except between two steps of an admission or a fold (`Shard.moving`): then the save tries
# again, and after some tries leaves it to the next save.
#
# The one way back
# ----------------
# A send, commit or question whose outcome is unknown is a doubt: a time-out, a fenced producer, a replaced connection,
# an event that the broker refuses, and any other exception that is not one of those that stop. `run` forgets pending,
# keeps the filter, waits with back-off (not after a refused event, since `pace` has already reduced the batch), and
# enters FENCING again, where the old producer is dropped. If the transaction was committed, the fold adds its keys and
# reading resumes after it. If it was not, its events are read and decided again. Nothing else needs to be repaired.
#
# What happens between a fetch and a commit
# -----------------------------------------
# Two tasks run side by side (`transactions.run_together`), joined by a queue of transactions (`transactions.InFlight`).
#
# The first decides (`decide`):
#   1. `consume` reads the next events of the input. They must begin where the last ones ended, in the same epoch. A
#      large record batch ends the transaction before it, and is decoded once there is a permit for it among those of
#      all shards (`kafka.large`). The shard holds its permit until all is committed that it read of that batch, or
#      until it is taken back. While it waits for a permit it has none, and no open transaction, so nothing waits in a
#      circle.
#   2. Keys are extracted and normalized. Malformed events, and those that the output would refuse (`emit.refused_by`:
#      too large; too old or stamped ahead by the broker's clock, see `kafka.broker_clock`), get their verdicts before
#      any rule.
#   3. `shard` decides the others by the lists, then by filter and pending. What passes becomes pending.
#   4. The events join the open transaction. It takes more until its interval, its events or its bytes are used up;
#      after the interval it still takes more while the transaction before it commits. Then `Shard.seal` closes it.
# The second commits (`commit`), one transaction after the other, in the order in which they were opened:
#   5. It begins a transaction at the broker as soon as the first events are decided, and does not wait for the seal.
#   6. `emit` sends each event to the output or a side topic (`side_topics`), or nowhere, by its verdict.
#   7. It awaits the acknowledgment of every send. Our events must follow our last transaction in the output without a
#      gap. If not, that is a doubt; with `exactly_once` it aborts, and the next fold stops if it finds an event of
#      another writer in that gap.
#   8. It commits the input offset with a note (topic ids, label, watermark) in the same transaction. With
#      `at_least_once` it commits the offset after the sends.
#   9. It admits the transaction's pending digests to the filter, and raises the label to the end of our last event.
#
# Steps 3 and 9 use the same filter, so each holds `Memory.lock`. At most `delivery.max_in_flight` transactions are in
# flight, so the first task is at most that far ahead. If one task fails, the other is cancelled, and all transactions
# in flight are taken back together.
#
# Where a cancellation may arrive
# -------------------------------
# At any `await`. After `leave` a LIVE shard finishes the transactions in flight, and is cancelled only if that takes
# too long. A shard in another state is cancelled at once (both in `worker.assignment`). If cancelled, `run` leaves
# `state` as it was; the next `run` begins with FENCING. A cancellation is safe at any place, because
#   - `Shard.decide` never awaits, so no batch is decided by half;
#   - `turns.in_turns` does the remaining steps of an admission or a fold at once, before the cancellation goes on;
#   - a thread (a load, a save, the growth of a filter) goes on, and the next call for the same shard waits for it;
#   - a commit that is cancelled is a doubt like any other.
#
# Why a snapshot is refused, and where that is decided
# ----------------------------------------------------
# `fold` asks `snapshots` for the newest usable snapshot, and `snapshots` tries one generation after the other. One is
# refused, and logged as `snapshot_refused`, if
#   - it is damaged, or another format version wrote it (`snapshot.read`, `snapshot.header`); or it was renamed, is of
#     another log, other settings or another floor (`Recipe.identity`), or is ahead of the output's end
#     (`snapshot.store`); or it cannot be read: `snapshot.Store.load` catches all of these;
#   - the output now holds another record batch at the place of the last one that the snapshot folded, or nothing shows
#     that it is still the same log: `snapshot.fingerprint.doubt_of` decides. `fold` checks a filter in memory in the
#     same way, and drops it if the record batch is another one;
#   - it may hold events of a commit that the brokers confirmed and then lost, or its filter took more keys than
#     `filter.max_size` allowed, may grow now, and the output still holds all of them: `fold._loaded` decides both.
# A snapshot is not refused for its age. If the output no longer holds all events above its label, `resume.check_memory`
# stops the shard, or accepts the gap, as `sink.on_gap` says.

import asyncio
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Any

import structlog

from streamdedup.delivery.commit import Committer, Ground
from streamdedup.delivery.consume import InputReader
from streamdedup.delivery.decide import Decider
from streamdedup.delivery.emit import Emitter
from streamdedup.delivery.fence import fence
from streamdedup.delivery.fold import FoldedMemory
from streamdedup.delivery.memory import FoldProgress, Memory, NoMemory
from streamdedup.delivery.pace import Pace
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.resume import PartitionState, Resume, growth, noted_end
from streamdedup.delivery.services import Services
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.delivery.transactions import InFlight, Transaction, run_together
from streamdedup.errors import DeliveryError
from streamdedup.filters.base import Growing
from streamdedup.filters.strain import chosen_keys_remedy
from streamdedup.kafka.base import ANSWER_S_MAX
from streamdedup.kafka.client.connection import describe_error, fatal_of
from streamdedup.kafka.client.patience import Backoff, is_away
from streamdedup.kafka.doubt_causes import IF_REPEATED, doubt_cause
from streamdedup.kafka.sink import RefusedError
from streamdedup.kafka.topics import Topology
from streamdedup.logs import RateLimit
from streamdedup.metrics import findings
from streamdedup.metrics.counts import ShardMeters
from streamdedup.metrics.findings import Finding
from streamdedup.settings.meaning import shown_check

log = structlog.get_logger(__name__)

BACKOFF_S = 0.1  # the first pause after a doubt; each further one is longer
BACKOFF_S_MAX = 10.0
MEMORY_TRIES = 8  # within about half a minute
FENCINGS, FENCINGS_S = 3, 300.0  # so many within so many seconds are no accident
CONFIRMED_S_MAX = 2.0
# The doubts that another deployment causes, with transactions and without.
_OF_RIVALS = ("fenced", "foreign_write")
_FENCED = "another producer took our transactional id, or the broker ended our transaction"
_MOVED = "none needed: the partition leaves this worker, and the next one asks the broker what was committed"


class State(StrEnum):
    """The states of a shard; see the theory of operation above."""

    ASSIGNED = "assigned"
    FENCING = "fencing"
    FOLDING = "folding"
    LIVE = "live"
    FULL = "full"
    STOPPED = "stopped"


class Delivery:
    """Drives the shard of one partition. `run` runs for as long as the partition is assigned to this worker."""

    def __init__(self, recipe: Recipe, services: Services, partition: int) -> None:
        settings = recipe.settings
        self.state = State.ASSIGNED
        self.partition = partition
        self.trouble: Finding | None = None  # why the shard is full or stopped; else None
        self._meters = services.meters.of(partition)
        self._committed_offset = 0
        self.known_commit: int | None = None
        """The input offset of the last commit of this shard that was confirmed; None while there is none."""
        self._input_end: int | None = None  # as last read from the broker
        self._recipe, self._services, self._settings = recipe, services, settings
        self._log = log.bind(
            topic=settings.source.topic, partition=partition, output=settings.sink.topic
        )
        self._leaving = asyncio.Event()
        self._backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX)
        self._fencings: deque[float] = deque(maxlen=FENCINGS)  # of a shard that is ours
        self._fenced_lines = RateLimit()
        self._live_at = 0.0  # by the loop's clock
        self._warned_beyond = self._warned_strained = False
        self._buffers = 0  # of the filter; each stage has its own
        self._without_memory = 0  # how often in a row memory could not be had
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
            name=self._name,
        )
        self._committer: Committer | None = None  # since the last fencing

    @property
    def shard(self) -> Shard | None:
        """The shard in memory; None before the first fold."""
        return self._memory.shard

    @property
    def snapshots(self) -> ShardSnapshots | None:
        """The shard's snapshots; None for a worker without a filter, which saves none."""
        return self._memory.snapshots

    @property
    def writes_snapshot(self) -> bool:
        """Whether a thread is writing a snapshot of the shard."""
        return self.snapshots is not None and self.snapshots.writes

    def cut_saves_short(self) -> None:
        """Give up the snapshot that is being written, if any, and every later one."""
        if self.snapshots:
            self.snapshots.cut_short()

    @property
    def fold(self) -> FoldProgress | None:
        """The last fold, which may still be running; None before the first one."""
        return self._memory.progress

    @property
    def lag(self) -> int | None:
        """How many offsets of the input are not done yet; None until the end of the input is known."""
        if self._input_end is None:
            return None
        if self.state is not State.LIVE:
            return max(0, self._input_end - self._committed_offset)
        read = self._input_end - self._reader.next_offset
        return max(0, read, self._services.source.lag(self.partition))

    @property
    def read_ms(self) -> int | None:
        """The time of the event of the input that was read last, ms since 1970; None before one was read."""
        return self._reader.read_ms

    async def look_up_end(self) -> None:
        """Read the end of the input again, unless the shard is live: then its fetches report the end.

        Before the first fencing this does nothing.
        """
        if self._input_end is not None and self.state is not State.LIVE:
            self._input_end = await self._services.cluster.end_offset(
                self._settings.source.topic, self.partition
            )

    def lookup_waits(self, above_s: float) -> str | None:
        """Return, as text, which lookup in a list's file or exact store has waited for `above_s` seconds or more.

        None if no lookup has. Any thread may call this.
        """
        threads = self._services.threads
        in_file = threads.lists.waits(self._name, above_s)
        return in_file or threads.lookups.waits(self._name, above_s)

    def memory_waits(self, above_s: float = 0.0) -> str | None:
        """Return, as text, that the shard has waited for `above_s` seconds or more to decode a large record batch.

        None if it has not. Any thread may call this.
        """
        large, output = self._services.cluster.large, self._settings.sink.topic
        of_output = large.waits(f"{output}/{self.partition}", above_s)
        return large.waits(self._name, above_s) or of_output

    @property
    def beyond_capacity(self) -> bool:
        """Whether the filter holds more keys than its promised error rate allows, with `filter.on_full: warn`."""
        held = self.shard is not None and self.shard.beyond_capacity
        return held and not self._recipe.stops_when_full

    @property
    def larger(self) -> str:
        """The remedy for a filter that is beyond its capacity, as text."""
        return f"{self._recipe.larger()} and restart: the output is folded again"

    @property
    def busy(self) -> bool:
        """Whether `leave` should wait: the shard is live, and may have transactions in flight."""
        return self.state is State.LIVE

    async def run(self, epoch: int) -> None:
        """Serve the partition in assignment `epoch` until `leave` is called."""
        self._leaving.clear()
        self._backoff.reset()
        self._without_memory = 0
        while not self._leaving.is_set():
            try:
                await self._live(epoch)
                # The shard is full, or another epoch has begun and the partition may not be ours any more.
                await self._leaving.wait()
            except Exception as error:
                if (fatal := fatal_of(error)) is not None:
                    self._meters.take_back("stopped")
                    _release(error)
                    await self._stop(fatal)
                    continue
                await self._note_doubt(error, epoch)
                _release(error)
                self._without_memory += isinstance(error, MemoryError)
                if self._without_memory >= MEMORY_TRIES:
                    await self._wait_without_memory()
                    continue
                if self.state is State.LIVE and self._live_s > BACKOFF_S_MAX:
                    self._backoff.reset()
                self.state = State.FENCING
                if not isinstance(error, RefusedError):  # then `pace` takes fewer events at once
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

    def died(self) -> None:
        """Note that `run` has ended without being asked: nothing is decided until it is called again."""
        self.state = State.ASSIGNED

    def leave(self) -> None:
        """Ask `run` to end after the transactions in flight."""
        self._leaving.set()

    async def drop(self) -> None:
        """Release the producer, whatever it is doing. The shard no longer counts as one that waits for a broker."""
        self._services.cluster.patience.forget(self._name)
        await self._writer.drop()

    async def look_at_log(self, within_s: float) -> None:
        """Check the log before a save; see `Memory.look_at_log`."""
        await self._memory.look_at_log(within_s)

    async def save(self) -> None:
        """Save a snapshot if there is something new to save. Failures are logged, never raised."""
        await self._memory.save()

    async def outrun(self, log_start: int) -> None:
        """Save a snapshot if the output, which begins at `log_start`, was deleted beyond the second-newest snapshot."""
        await self._memory.outrun(log_start)

    async def _live(self, epoch: int) -> None:
        settings, cluster, source = self._settings, self._services.cluster, self._services.source
        self.state, self.trouble = State.FENCING, None
        source.hold(self.partition)
        if not await self._confirmed(epoch):
            return
        remembers = await self._memory.remembers()
        topology, found = await fence(
            settings,
            cluster,
            self._writer,
            self.partition,
            has_memory=remembers,
            past=self._memory.past,
        )
        self._services.cluster.patience.back(self._name)
        if self._committer and self._committer.unended and self._recipe.exactly_once:
            start, begun_s = self._committer.unended
            await self._services.clocks.ended(self.partition, start, found.output_end, begun_s)
        self._forget_lost(found)
        self._emitter.observe(topology)
        resume = self._memory.resume(found)
        outlives = settings.filter.by_event_time and bool(found.beyond)
        warned = self._check_partitions(replace(found, beyond=()) if outlives else found)
        self._check_meaning(found)
        self._committed_offset, self._input_end = resume.offset, found.input_end
        self.state = State.FOLDING
        foreign = self._committer.foreign if self._committer else None
        shard = await self._memory.catch_up(found, topology, foreign)
        self._buffers = len(shard.filter.buffers())
        self._warn_strained(shard)
        if outlives and not warned:
            self._check_partitions(await self._without_outlived(found, shard))
        committer = self._committer = self._committer_on(found, shard)
        if resume.birth or resume.anew:  # resolved once, so that a crash cannot move it
            await self._commit_start(committer, shard, topology, resume)
        if source.epoch != epoch:
            return
        self._reader.begin(epoch, resume.offset)
        self.state, self._live_at = State.LIVE, asyncio.get_running_loop().time()
        self._log.info("shard_live", offset=resume.offset, why=resume.why, label=shard.label)
        in_flight = InFlight(self._settings.delivery.max_in_flight)
        closes_s_max = self._writer.transaction_s_max / 2
        try:
            await run_together(
                self._decider.run(shard, in_flight, closes_s_max, self._leaving),
                committer.run(shard, topology, in_flight),
            )
        finally:
            self._reader.permit.give_back()
        if self._decider.full:
            await self._wait_full(shard)

    def _forget_lost(self, found: PartitionState) -> None:
        """Drop the memory if it holds events of a commit that the brokers confirmed and then lost (`lost_markers`)."""
        confirmed = self._committer.confirmed_end if self._committer else None
        ours_end = noted_end(found)
        if confirmed is None or ours_end is None or ours_end >= confirmed:
            return
        self._log.warning(
            "commit_lost",
            confirmed_end=confirmed,
            label=ours_end,
            reason="the brokers confirmed a commit, and do not have it any more",
            instead="its events are read again, and the filter is made anew of the output",
        )
        self._memory.forget_from(ours_end)

    def _check_partitions(self, found: PartitionState) -> bool:
        """Return whether the input has another number of partitions than the memory, and the operator accepts that.

        DeliveryError if the operator does not.
        """
        if (warning := growth(found, self._settings.source)) is None:
            return False
        self._log.warning("input_grown", detail=warning)
        self._services.source.grown(found.partitions)
        return True

    async def _without_outlived(self, found: PartitionState, shard: Shard) -> PartitionState:
        """Return `found` without those output partitions of which the shard's window would hold nothing any more."""
        if shard.watermark is None:
            return found
        since_ms = shard.watermark - self._settings.filter.window_ms
        cluster, output = self._services.cluster, self._settings.sink.topic
        async with asyncio.timeout(ANSWER_S_MAX):
            left = [
                partition
                for partition in found.beyond
                if await cluster.offset_of_time(output, partition, since_ms) is not None
            ]
        return replace(found, beyond=left)

    def _check_meaning(self, found: PartitionState) -> None:
        """Warn if the last commit was made by a worker of another meaning, until the next commit is ours.

        Another `key.format` alone is no reason: keys do not depend on it.

        DeliveryError with `source.repartition`: the output may be spread over partitions by another rule.

        The filter is the fold of the output nevertheless, because a snapshot or a memory of other keys has another
        identity. Events of the output that have no key by our meaning are in no filter.
        """
        ours = self._recipe.meaning.check
        if found.meaning in (None, ours) or found.meaning in self._recipe.meaning.kin:
            return
        if self._settings.source.repartition:
            raise DeliveryError(
                f"the offset was committed by a worker of another meaning ({shown_check(found.meaning)}, ours is"
                f" {shown_check(ours)}): with another key, output, middle topic or number of its partitions. So what"
                " was emitted may be in other partitions than its key's",
                remedy="set that back, or begin with a new kafka.group_id, middle and output (docs/partitioning.md)",
                finding="meaning-differs",
            )
        self._log.warning(
            "keys_changed",
            theirs=shown_check(found.meaning),
            ours=shown_check(ours),
            reason="the offset was committed by a worker with another key, input, output, or with or without a"
            " filter: its log line worker_starts has a meaning that begins with `theirs`",
            remedy="none if that was changed on purpose: the output is folded by the new key. If not, events were"
            " dropped that are new by the right key: stop all workers, set the key back, run `streamdedup audit`,"
            " then `streamdedup reset --to earliest`, and start (docs/operate.md)",
        )

    def _committer_on(self, found: PartitionState, shard: Shard) -> Committer:
        """Return what commits the transactions of `shard` until the next fencing, on the ground of what was `found`."""
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
        """Wait until the group confirms that the partition is still ours; return False if it is not.

        Otherwise a worker that was paused would fence the worker that took its place.
        """
        source, backoff = self._services.source, Backoff(BACKOFF_S, BACKOFF_S_MAX)
        while source.epoch == epoch and not self._leaving.is_set():
            if await source.confirms(epoch):
                return True
            await self._pause(backoff.next_s())
        return False

    async def _note_doubt(self, error: Exception, epoch: int) -> None:
        """Count and log a doubt. If a broker is away, only a live shard logs it; `patience` logs that for all shards.

        If another deployment fences this one again and again, that is one line a minute; `output_shared` names it.
        """
        cause = doubt_cause(error)
        self._meters.doubt(cause)
        if is_away(error):
            self._services.cluster.patience.away(self._name, error)
            if self.state is not State.LIVE:
                return
        details, now_s = describe_error(error), asyncio.get_running_loop().time()
        if cause == "fenced":  # aiokafka's text blames a time-out
            details = {"error": f"{type(error).__name__}: {_FENCED}"}
        ours = await self._still_ours(epoch, ask=cause in _OF_RIVALS)
        if ours is False:
            self._log.info("doubt", state=self.state, remedy=_MOVED, **details)
            return
        if ours and cause in _OF_RIVALS:
            self._fencings.append(now_s)
        if not self.is_fenced_by_others(now_s) or self._fenced_lines.due(now_s):
            self._log.warning("doubt", state=self.state, remedy=IF_REPEATED, **details)

    async def _still_ours(self, epoch: int, *, ask: bool) -> bool | None:
        """Return whether the partition is still ours; None if the group does not answer, or if we do not `ask` it."""
        source = self._services.source
        if self._leaving.is_set() or source.epoch != epoch:
            return False
        with suppress(Exception):  # the group may be away, too
            async with asyncio.timeout(CONFIRMED_S_MAX):
                return await source.confirms(epoch) if ask else None
        return None

    def is_fenced_by_others(self, now_s: float) -> bool:
        """Return whether, at the loop's time `now_s`, others fence this shard again and again though it is ours."""
        often = len(self._fencings) == FENCINGS
        return often and now_s - self._fencings[0] <= FENCINGS_S

    def _passed(self, transaction: Transaction) -> None:
        """Note that `transaction` is committed and admitted."""
        self._committed_offset = self.known_commit = transaction.next_offset
        self._meters.commit(transaction.next_offset)
        self._pace.passed(transaction.next_offset)
        self._reader.passed(transaction.next_offset)
        self._backoff.reset()
        self._without_memory = 0
        if self.shard:
            self._tell_growth(self.shard)
            self._warn_beyond_capacity(self.shard)
            self._warn_strained(self.shard)

    async def _commit_start(
        self, committer: Committer, shard: Shard, topology: Topology, resume: Resume
    ) -> None:
        """Commit the offset at which reading begins, and no event; then report why the committed one did not count."""
        start = Transaction()
        shard.seal()
        start.close(resume.offset, shard.watermark)
        await committer.commit(shard, topology, start)
        warn_of_start(self._log, self._meters, resume)

    async def _wait_full(self, shard: Shard) -> None:
        self._services.source.hold(self.partition)
        held = self._recipe.held(shard.filter)
        self.trouble = findings.FILTER_FULL.at(self._name, f"full: {held}", self._recipe.larger())
        self.state = State.FULL
        self._log.error(
            "filter_full",
            keys=len(shard.filter),
            capacity=shard.filter.capacity,
            reason=held,
            remedy=self._recipe.remedy(),
        )
        await self._leaving.wait()

    async def _wait_without_memory(self) -> None:
        reason = f"memory that it needs could not be had {MEMORY_TRIES} times"
        remedy = (
            "give the worker more memory, or fewer partitions by starting another worker, or lower filter.capacity;"
            " then restart it"
        )
        self.trouble = findings.WITHOUT_MEMORY.at(self._name, f"full: {reason}", remedy)
        self.state = State.FULL
        self._services.cluster.patience.forget(self._name)
        self._services.source.hold(self.partition)
        self._log.error("filter_without_memory", reason=reason, remedy=remedy)
        await self._writer.give_up()
        await self._leaving.wait()

    def _tell_growth(self, shard: Shard) -> None:
        """Log if the filter has more stages than after the transaction before, or than when it was folded."""
        if not isinstance(shard.filter, Growing):
            return
        before, self._buffers = self._buffers, len(shard.filter.buffers())
        if self._buffers > before:
            self._log.info(
                "filter_grown",
                keys=len(shard.filter),
                size_bytes=shard.filter.size_bytes,
                size_bytes_max=shard.filter.size_bytes_max,
                reason="more keys came than its stages were made for",
            )

    def _warn_beyond_capacity(self, shard: Shard) -> None:
        """Warn, once, that the error rate is above the configured one, which `filter.on_full: warn` allows."""
        if self.beyond_capacity and not self._warned_beyond:
            self._warned_beyond = True
            self._log.warning(
                "filter_beyond_capacity",
                keys=len(shard.filter),
                capacity=shard.filter.capacity,
                error_rate_now=shard.filter.error_rate_now,
                remedy=self.larger,
            )

    def _warn_strained(self, shard: Shard) -> None:
        """Warn, once, that keys take so long in the filter that it soon refuses one, which stops the shard."""
        if shard.strained and not self._warned_strained:
            self._warned_strained = True
            self._log.warning(
                "filter_strained",
                keys=len(shard.filter),
                hash=shard.filter.hash.name,
                reason="keys take longer than keys at random ever do, so somebody seems to choose them;"
                " twice that stops this partition",
                remedy=chosen_keys_remedy(shard.filter.hash),
            )

    async def _stop(self, error: Exception) -> None:
        self.trouble = findings.of_error(
            error, findings.PARTITION_STOPPED, self._name, State.STOPPED.value
        )
        self.state = State.STOPPED
        self._services.cluster.patience.forget(self._name)
        self._services.source.hold(self.partition)
        self._log.error(
            "shard_stopped", error=str(error), remedy="resolve that, then restart the worker"
        )
        await self._writer.give_up()
        await self._leaving.wait()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        except TimeoutError:
            return


def warn_of_start(log: Any, meters: ShardMeters, resume: Resume) -> None:  # noqa: ANN401 - structlog's
    """Warn, and count what was passed over, if the committed offset no longer counts.

    `log` names the partition.
    """
    if resume.skipped_from is not None:
        meters.gap_offsets += resume.skipped
        log.warning(
            "input_gap_skipped",
            reason=resume.why,
            from_offset=resume.skipped_from,
            to_offset=resume.offset,
            offsets=resume.skipped,
            remedy="none: source.on_gap is skip; keep the input longer (retention.ms) than the worker may be down",
        )
    elif resume.anew:
        log.warning(
            "input_begun_anew",
            reason=resume.why,
            offset=resume.offset,
            remedy="none if that was meant: the input is read from its earliest event",
        )


def _release(error: BaseException) -> None:
    """Release the variables of the calls that `error` ended: events, maybe of a large record batch.

    It is kept for as long as the shard is stopped.
    """
    chain: BaseException | None = error
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__cause__ or chain.__context__
