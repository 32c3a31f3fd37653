"""A shard's memory: its filter, kept equal to the fold of its output, across doubts, assignments and restarts.

It is taken from memory, from the newest snapshot that holds for this very log, or made empty; then the output is read
from its label to its end.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from streamdedup.context import Context
from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.sink import DoubtError
from streamdedup.kafka.topics import Topology
from streamdedup.resume import Found, check_memory, is_outlived
from streamdedup.shard import Shard
from streamdedup.shard_snapshots import ShardSnapshots
from streamdedup.snapshot import Identity

STALL_S_MAX = 60.0


async def in_turns(steps: Iterator[None]) -> None:
    """Do them all, with a turn for everybody else after each; who is cancelled does the rest at once."""
    try:
        for _ in steps:
            await asyncio.sleep(0)
    finally:
        deque(steps, maxlen=0)  # half of them would be the fold of no offset


class Folding:
    """The shard of one partition, while there is one."""

    def __init__(self, context: Context, partition: int, log: Any) -> None:  # noqa: ANN401 - structlog's
        self.shard: Shard | None = None
        self.turn = (
            asyncio.Lock()
        )  # the filter is judged, or changed, or gets memory: one at a time
        self.snapshots = ShardSnapshots(context.settings, partition, log, context.fs)
        self._context, self._settings, self._partition = context, context.settings, partition
        self._extractor = context.extractor()
        self._growth: asyncio.Task[None] | None = None
        self._folded: Identity | None = None  # of the log that the shard's filter is the fold of
        self._log = log

    async def remembers(self) -> bool:
        """Whether anything was ever folded: then the shard is not newly born."""
        held = self.shard is not None and self.shard.label > 0
        return held or await asyncio.to_thread(self.snapshots.exist)

    async def catch_up(
        self, found: Found, topology: Topology, foreign: tuple[int, int] | None
    ) -> Shard:
        """The shard, its filter the fold of the whole output.

        DeliveryError where that is not to be had, or where an event stands at one of the offsets `foreign`, from the
        first up to, without, the second: a second writer put it there.
        """
        identity = self._context.identity(topology, self._partition)
        if self.shard is None or self._folded is None or identity.differences(self._folded):
            self.shard, self._folded = await self._restore(identity, found), identity
        shard = self.shard
        await self._bridge(shard, found, topology)
        await self._fold(shard, found, foreign)
        return shard

    @property
    def busy(self) -> bool:
        """Whether a thread is at work for the shard, which cannot be broken off."""
        growing = self._growth is not None and not self._growth.done()
        return growing or self.snapshots.saving

    async def ready_for(self, events: int) -> None:
        """Have memory for so many events in place before they are judged: the first touch of it takes long.

        Who is cancelled leaves a thread behind that goes on, and is waited for by the next.
        """
        while (shard := self.shard) is not None and shard.grows_within(events):
            if self._growth is None or self._growth.done():
                self._growth = asyncio.create_task(asyncio.to_thread(shard.grow))
            await asyncio.shield(self._growth)

    async def save(self) -> None:
        """Take a snapshot where there is something new to save; failures are logged, never raised."""
        if self.shard is not None and self._folded is not None:
            await self.snapshots.save(self.shard, self._folded)

    async def _bridge(self, shard: Shard, found: Found, topology: Topology) -> None:
        """Go on where events of the output are missing, if that may be: a window's time is taken on to theirs."""
        options, output = self._settings.filter, topology[self._settings.sink.topic]
        note = found.committed.note if found.committed else None
        watermark = note.watermark if note else None
        outlived = options.by_event_time and is_outlived(
            output, self._context.now_ms(), watermark, options.window_ms
        )
        warning = check_memory(shard.label, found, self._settings.sink, outlived=outlived)
        if found.output_start <= shard.label:
            return
        if warning:
            self._log.warning("output_gap_accepted", detail=warning)
        else:
            self._log.info("output_gap_outlived", start=found.output_start, label=shard.label)
        await in_turns(shard.start_at(watermark))

    async def _restore(self, identity: Identity, found: Found) -> Shard:
        snapshot = await self.snapshots.load(identity, found.output_end)
        if snapshot is None:
            empty = await asyncio.to_thread(self._context.empty_filter)
            return self._context.shard(self._partition, empty)
        shard = self._context.shard(self._partition, self._context.adopt(snapshot.filter))
        shard.label, shard.end_label = snapshot.label, snapshot.end_label
        return shard

    async def _fold(self, shard: Shard, found: Found, foreign: tuple[int, int] | None) -> None:
        start = max(shard.label, found.output_start)
        folded = skipped = 0
        first = last = None
        batches = self._context.cluster.committed_events(
            self._settings.sink.topic,
            self._partition,
            start,
            found.output_end,
            stall_s=STALL_S_MAX,
        )
        try:
            async for batch in batches:
                self._check_foreign(batch, foreign)
                keys = self._extractor.extract(batch)
                await self.ready_for(len(batch))
                await in_turns(shard.fold(keys, batch.timestamps, batch.next_offset))
                first, last = first if folded else int(batch.offsets[0]), int(batch.offsets[-1])
                folded += len(batch)
                skipped += int(np.count_nonzero(keys.keys.sizes < 0))
        except TrimmedError as error:
            raise DoubtError(str(error)) from error  # the next fencing sees the new start
        finally:
            await batches.aclose()
        shard.end_fold(found.output_end)
        self._log.info(
            "output_folded",
            start=start,
            end=found.output_end,
            first_offset=first,
            last_offset=last,
            events=folded,
            without_key=skipped,
        )

    def _check_foreign(self, batch: EventBatch, foreign: tuple[int, int] | None) -> None:
        """After our events came to stand too far on: whoever wrote in between is a second writer."""
        if foreign is None:
            return
        low, high = np.searchsorted(batch.offsets, foreign)
        if high > low:
            raise DeliveryError(
                f"{self._settings.sink.topic}/{self._partition} has a second writer: offset {batch.offsets[low]} is not"
                " ours; every output partition takes one writer, so stop the other and restart"
            )
