"""A shard's memory: its filter, kept equal to the fold of its output, across doubts, assignments and restarts.

The filter is the one in memory, or comes from the newest snapshot that belongs to this very log, or is new and empty.
Then the output is read from the filter's label to its end.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from streamdedup.delivery.memory import FoldProgress, Memory
from streamdedup.delivery.middle import Middle
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.resume import (
    PartitionState,
    Resume,
    check_memory,
    input_offset,
    is_complete,
    is_outlived,
    is_short,
)
from streamdedup.delivery.schemas import refuse_unknown
from streamdedup.delivery.second_writer import ForeignRange, second_writer
from streamdedup.delivery.services import MemoryServices, shard_over
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.delivery.turns import beside, digests_of, in_turns, is_large, keys_of
from streamdedup.errors import DeliveryError
from streamdedup.events import Column, EventBatch, Fingerprint, Integers, Verdict, Verdicts
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kafka.base import ANSWER_S_MAX
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.records.marks import marks_of
from streamdedup.kafka.sink import DoubtError
from streamdedup.kafka.topics import Topology
from streamdedup.keys.extract import Keys
from streamdedup.snapshot import Identity, Snapshot, Store
from streamdedup.snapshot.fingerprint import contradiction, doubt_of
from streamdedup.snapshot.header import Log

_MALFORMED_REMEDY = (
    "none if they passed by key.on_malformed: pass, or were emitted under another key; if not, find out who writes to"
    " the output: events without a key are in no filter"
)
_UNKNOWN_REMEDY = (
    "without its key, duplicates of it would pass; set kafka.schema_registry to the registry that has it, and"
    " restart the worker"
)
STALL_S_MAX = 60.0  # for a fold that makes no progress
LOG_ANSWER_S_MAX = 1.0  # a save goes on without the answer: it must not wait for a broker


class FoldedMemory(Memory):
    """The memory of one partition: a filter that is the fold of its output, in memory and as snapshots."""

    shard: Shard | None = None
    progress: FoldProgress | None = None

    store: type[Store] = Store

    def __init__(
        self,
        recipe: Recipe,
        services: MemoryServices,
        partition: int,
        log: Any,  # noqa: ANN401 - structlog's
    ) -> None:
        self.lock = asyncio.Lock()
        self._meters = services.meters.of(partition)
        self._snapshots = ShardSnapshots(
            recipe.settings,
            partition,
            log,
            self._meters,
            services.fs,
            threads=services.threads,
            store=self.store,
        )
        self._recipe, self._services = recipe, services
        self._settings, self._partition = recipe.settings, partition
        self._extractor = recipe.extractor()
        self._middle = Middle.read_by(recipe.settings)
        self._growth: asyncio.Task[None] | None = None
        self._folded: Identity | None = None  # of the log that the shard's filter is the fold of
        self._input_id: str | None = None  # of the input at the last fencing
        self._fingerprint: Fingerprint | None = None  # of a record batch of it, below the label
        self._replaced = False  # whether the log holds another record batch now where that one was
        # The label up to which snapshots are trusted; None if all are.
        self._trusted_to: int | None = None
        self._log = log

    @property
    @override
    def still(self) -> asyncio.Lock:
        return self._snapshots.still

    @property
    @override
    def snapshots(self) -> ShardSnapshots:
        return self._snapshots

    @override
    async def remembers(self) -> bool:
        held = self.shard is not None and self.shard.label > 0
        return held or await self.snapshots.exist()

    @override
    async def past(self) -> Sequence[Log]:
        return await self.snapshots.past()

    @override
    def resume(self, found: PartitionState) -> Resume:
        return input_offset(found, self._settings.source, self._settings.sink)

    @override
    def forget_from(self, label: int) -> None:
        self.shard, self._trusted_to = None, label

    @override
    def must_follow(self, found: PartitionState) -> int | None:
        return found.output_end

    @override
    async def catch_up(
        self, found: PartitionState, topology: Topology, foreign: ForeignRange | None
    ) -> Shard:
        self._input_id = found.input_id
        identity = self._recipe.identity(topology, self._partition, found.floor)
        shard = await self._remembered(identity)
        if shard is None or await self._is_outdone(shard, identity, found):
            shard = await self._restore(identity, found, topology)
        # The load above holds no place in `folds`: a shard whose disk hangs must not keep others from folding.
        async with self._services.folds:
            await self._bridge(shard, found, topology)
            await self._fold(shard, found, foreign)
        self._fingerprint = await self._last_batch(shard.label) or self._fingerprint
        self._trusted_to = None
        return shard

    @override
    async def ready_for(self, events: int) -> None:
        if self._replaced:
            raise DoubtError("the output is not the log that was folded")
        while (shard := self.shard) is not None and shard.grows_within(events):
            if self._growth is None or self._growth.done():
                memory = self._services.threads.memory
                growth = memory.run(self.snapshots.name, "its filter to grow", shard.grow)
                self._growth = asyncio.create_task(growth)
            await asyncio.shield(self._growth)

    @override
    async def look_at_log(self, within_s: float) -> None:
        shard, known = self.shard, self._fingerprint
        if shard is None or shard.label == self.snapshots.label:
            return
        with suppress(Exception):
            async with asyncio.timeout(within_s):
                held, last = await asyncio.gather(
                    self._in_place_of(known), self._last_batch(shard.label)
                )
            if self.shard is shard and self._fingerprint is known:  # no doubt came in between
                self._replaced = contradiction(known, held) is not None
                self._fingerprint = known if self._replaced else last or known

    @override
    async def save(self, *, again: bool = False) -> None:
        if self.shard is not None and self._folded is not None and not self._replaced:
            await self.snapshots.save(
                self.shard,
                self._folded,
                self._fingerprint,
                self._input_id,
                schemas=self._extractor.schemas.met if self._extractor.schemas else {},
                again=again,
            )

    @override
    async def outrun(self, log_start: int) -> None:
        shard = self.shard
        if shard is None or not self.snapshots.due(shard.label, log_start):
            return
        await self.look_at_log(LOG_ANSWER_S_MAX)
        exposed = self.snapshots.exposes(shard.label, log_start)
        (self._log.warning if exposed else self._log.info)(
            "snapshot_due",
            log_start=log_start,
            newest=self.snapshots.label,
            label=shard.label,
            reason="the output is deleted beyond the newest snapshot: a crash before the next one would leave a gap"
            if exposed
            else "the output is deleted beyond all snapshots but the newest",
        )
        await self.save(again=True)

    async def _batch_at(self, offset: int) -> Fingerprint | None:
        """Return the output's record batch at `offset`; None if the log does not hold it, or `offset` is below 0."""
        if offset < 0:
            return None
        async with asyncio.timeout(ANSWER_S_MAX):
            output = self._settings.sink.topic
            return await self._services.cluster.batch_at(output, self._partition, offset)

    async def _last_batch(self, label: int) -> Fingerprint | None:
        """Return the output's last record batch below `label`."""
        return await self._batch_at(label - 1)

    async def _in_place_of(self, folded: Fingerprint | None) -> Fingerprint | None:
        """Return the record batch that the output holds now at the offset of `folded`."""
        return await self._batch_at(folded.offset) if folded else None

    async def _remembered(self, identity: Identity) -> Shard | None:
        """Return the shard in memory, if its filter is the fold of this very log; else None."""
        if self.shard is None or self._folded is None:
            return None
        if identity.differences(self._folded):
            return None
        held = await self._in_place_of(self._fingerprint)
        if reason := contradiction(self._fingerprint, held):
            self._log.error(
                "memory_dropped",
                reason=reason,
                instead="the shard restarts from a snapshot of this log, or folds the whole output",
                remedy="move the group's offset back to emit again what the log lost; nothing else is emitted twice",
            )
            return None
        self._replaced = False
        return self.shard

    async def _is_outdone(self, shard: Shard, identity: Identity, found: PartitionState) -> bool:
        """Return whether a newer snapshot, saved by another worker, holds keys that the output no longer holds.

        That is so if events above the shard's label were deleted from the output while another worker owned the
        partition.
        """
        if not is_short(shard.label, found):
            return False
        newest = await self.snapshots.newest_label(identity)
        if newest <= shard.label:
            return False
        self._log.info("memory_outdone", label=shard.label, newest=newest)
        return True

    async def _bridge(self, shard: Shard, found: PartitionState, topology: Topology) -> None:
        """Pass a gap between the label and the start of the output, if the operator or the window allows it.

        The time of a window moves on as if the missing events had been folded. DeliveryError if a gap is not allowed.
        """
        outlived = self._is_outlived(found, topology)
        warning = check_memory(
            shard.label,
            found,
            self._settings.sink,
            outlived=outlived,
            unfit=self.snapshots.unfit,
            search=self.snapshots.search,
        )
        if found.output_start <= shard.label:
            return
        if warning:
            self._log.warning("output_gap_accepted", detail=warning)
        else:
            name = "output_gap_empty" if is_complete(shard.label, found) else "output_gap_outlived"
            self._log.info(name, start=found.output_start, label=shard.label)
        async with self.still:
            await in_turns(shard.start_at(_watermark(found)))

    def _is_outlived(self, found: PartitionState, topology: Topology) -> bool:
        """Return whether the window has forgotten everything that retention may have deleted from the output."""
        options, output = self._settings.filter, topology[self._settings.sink.topic]
        return options.by_event_time and is_outlived(
            output, self._services.now_ms(), _watermark(found), options.window_ms
        )

    async def _restore(
        self, identity: Identity, found: PartitionState, topology: Topology
    ) -> Shard:
        """Replace the shard in memory by one from the newest snapshot of this log, or by an empty one."""
        snapshot = await self._loaded(identity, found, whole=not self._would_miss(found, topology))
        if snapshot is None:
            make = partial(self._recipe.empty_filter, self._services.random)
            memory = self._services.threads.memory
            filter_ = await memory.run(self.snapshots.name, "memory for its filter", make)
        else:
            filter_ = self._recipe.adopt(snapshot.filter)
            if self._extractor.schemas is not None:
                self._extractor.schemas.expect(snapshot.schemas)
        shard = shard_over(filter_, self._recipe, self._services, self._partition)
        shard.label = shard.end_label = found.floor or 0  # keys below the floor are forgotten
        if snapshot is not None:
            shard.label, shard.end_label = snapshot.label, snapshot.end_label
        self.shard, self._folded = shard, identity
        self._fingerprint, self._replaced = snapshot.fingerprint if snapshot else None, False
        return shard

    async def _loaded(
        self, identity: Identity, found: PartitionState, *, whole: bool
    ) -> Snapshot | None:
        """Return the newest usable snapshot. `whole` says that the output holds all that any snapshot holds."""

        async def doubt(snapshot: Snapshot) -> str | None:
            if self._trusted_to is not None and snapshot.label > self._trusted_to:
                return "it may hold events of a commit that the brokers confirmed and then lost"
            if whole and self._recipe.is_outgrown(snapshot.filter):
                return "its filter took more keys than filter.max_size allowed, so it errs too often; it may grow now"
            return doubt_of(snapshot, identity, await self._in_place_of(snapshot.fingerprint))

        return await self.snapshots.load(identity, found.output_end, doubt)

    def _would_miss(self, found: PartitionState, topology: Topology) -> bool:
        """Return whether a fold of the whole output would miss events that were deleted from it."""
        floor = found.floor or 0
        return is_short(floor, found) and not self._is_outlived(found, topology)

    async def _fold(
        self, shard: Shard, found: PartitionState, foreign: ForeignRange | None
    ) -> None:
        start = max(shard.label, found.output_start)
        progress = self.progress = FoldProgress(shard, start, found.output_end)
        folded = skipped = withheld = malformed = 0
        first = last = foreign_at = None
        noted = found.note if self._lacks_past(shard) else None
        batches = self._services.cluster.committed_events(
            self._settings.sink.topic,
            self._partition,
            start,
            found.output_end,
            stall_s=STALL_S_MAX,
        )
        try:
            async for batch in batches:
                if (foreign_at := _foreign_at(batch, foreign)) is not None:
                    break
                first, last = first if folded else int(batch.offsets[0]), int(batch.offsets[-1])
                timed = _as_noted(batch, noted)
                nulls, broken, marked = await self._fold_parts(shard, timed)
                skipped, malformed, withheld = (
                    skipped + nulls,
                    malformed + broken,
                    withheld + marked,
                )
                folded += len(batch)
                self._meters.folded += len(batch)
                del batch, timed  # they would keep a large record batch while the next is read
        except TrimmedError as error:
            raise DoubtError(str(error)) from error  # the next fencing sees the new start
        finally:
            await batches.aclose()
        if foreign is not None and foreign_at is not None:
            output, cluster = self._settings.sink.topic, self._services.cluster
            raise await second_writer(cluster, output, self._partition, foreign_at, foreign)
        shard.end_fold(found.output_end)
        progress.end_now()
        log = self._log.warning if malformed else self._log.info
        log(
            "output_folded",
            start=start,
            end=found.output_end,
            first_offset=first,
            last_offset=last,
            events=folded,
            without_key=skipped,
            not_passed=withheld,
            **({"remedy": _MALFORMED_REMEDY} if malformed else {}),
        )

    def _lacks_past(self, shard: Shard) -> bool:
        """Return whether the events before a gap moved a window's time by jumps, which none after it may repeat."""
        if self._settings.filter.max_jump is None or not isinstance(shard.filter, Windowed):
            return False
        return shard.filter.marks.untimed != shard.filter.watermark

    async def _fold_parts(self, shard: Shard, batch: EventBatch) -> tuple[int, int, int]:
        """Fold `batch` by `_fold_in`, in parts that each take one turn of the loop."""
        parts = batch.parts(self._extractor.rows_a_turn)
        counts = [await self._fold_in(shard, part) for part in parts]
        nulls, broken, marked = (sum(column) for column in zip(*counts, strict=True))
        return nulls, broken, marked

    async def _fold_in(self, shard: Shard, batch: EventBatch) -> tuple[int, int, int]:
        """Add the keys of `batch`; return how many events have no key, are malformed, and are marked as not passed.

        An event without a key is malformed, or a tombstone that is not judged. Only events with a key count as marked:
        shadow mode emits every event, and marks those that would not have passed. Their keys were never admitted. With
        a middle topic, DeliveryError if an event is not in the partition of its key.
        """
        found = await keys_of(batch, self._extractor, self._services.threads.keys)
        keys = found.keys
        refuse_unknown(batch, found, _UNKNOWN_REMEDY)
        if self._middle is not None:
            await self._middle.check_placement(batch, keys)
        await self.ready_for(len(batch))
        marks = await beside(is_large(batch), marks_of, batch.headers)
        self._refuse_malformed(batch, found, marks)
        has_key, passed = keys.sizes >= 0, marks == Verdict.PASS
        rows = np.flatnonzero(has_key & passed)
        self._saw(batch, keys, rows)
        digests = await digests_of(keys.take(rows), shard.filter.hash)
        async with self.still:
            await in_turns(shard.fold(digests, batch.timestamps[rows], batch.next_offset))
        withheld = int(np.count_nonzero(has_key & ~passed))
        return int(np.count_nonzero(~has_key)), len(found.malformed), withheld

    def _saw(self, batch: EventBatch, keys: Column, rows: Integers) -> None:
        """Do nothing: a subclass may look at the events of `rows`, which are folded next."""

    def _refuse_malformed(self, batch: EventBatch, found: Keys, marks: Verdicts) -> None:
        """DeliveryError if an event that passed by its key has none now, by the schemas of a registry.

        It had one once, perhaps by another format or another registry, and would be forgotten. A tombstone has none.
        """
        if self._extractor.format == "json" or self._settings.key.on_malformed == "pass":
            return
        for row, reason in found.malformed.items():
            if marks[row] == Verdict.PASS and batch.values.sizes[row] >= 0:
                raise DeliveryError(
                    f"{self._settings.sink.topic}/{self._partition} offset {batch.offsets[row]} has no key: {reason};"
                    " it passed by one, so key.format, key.field or kafka.schema_registry is another now",
                    remedy="set that back, or begin with a new sink.topic",
                    finding="output-without-key",
                )


def _foreign_at(batch: EventBatch, foreign: ForeignRange | None) -> int | None:
    """Return the offset of the first event of `batch` in the range `foreign`: a second writer put it there."""
    if foreign is None:
        return None
    low, high = np.searchsorted(batch.offsets, [foreign.start, foreign.end])
    return int(batch.offsets[low]) if high > low else None


def _as_noted(batch: EventBatch, note: Note | None) -> EventBatch:
    """Return `batch`, in which no event that was committed by then is later than the note's time, if there is one."""
    if note is None or note.watermark is None:
        return batch
    limits = np.where(batch.offsets < note.label, note.watermark, batch.timestamps)
    return replace(batch, timestamps=np.minimum(batch.timestamps, limits))


def _watermark(found: PartitionState) -> int | None:
    """Return the time of the window when the input offset was committed; None if no note has it."""
    note = found.committed.note if found.committed else None
    return note.watermark if note else None
