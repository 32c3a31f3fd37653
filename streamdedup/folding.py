"""A shard's memory: its filter, kept equal to the fold of its output, across doubts, assignments and restarts.

It is taken from memory, from the newest snapshot that holds for this very log, or made empty; then the output is read
from its label to its end.
"""

import asyncio
from typing import Any

import numpy as np

from streamdedup.context import Context
from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch
from streamdedup.kafka.log import TrimmedError, committed_events
from streamdedup.kafka.sink import DoubtError
from streamdedup.kafka.topics import Topology
from streamdedup.resume import Found, check_memory
from streamdedup.shard import Shard
from streamdedup.shard_snapshots import ShardSnapshots
from streamdedup.snapshot import Identity

STALL_S_MAX = 60.0


class Folding:
    """The shard of one partition, while there is one."""

    def __init__(self, context: Context, partition: int, log: Any) -> None:  # noqa: ANN401 - structlog's
        self.shard: Shard | None = None
        self.snapshots = ShardSnapshots(context.settings, partition, log)
        self._context, self._settings, self._partition = context, context.settings, partition
        self._extractor = context.extractor()
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
        if warning := check_memory(shard.label, found, self._settings.sink):
            self._log.warning("output_gap_accepted", detail=warning)
        await self._fold(shard, found, foreign)
        return shard

    async def save(self) -> None:
        """Take a snapshot where there is something new to save; failures are logged, never raised."""
        if self.shard is not None and self._folded is not None:
            await self.snapshots.save(self.shard, self._folded)

    async def _restore(self, identity: Identity, found: Found) -> Shard:
        snapshot = await self.snapshots.load(identity, found.output_end)
        stops = self._context.stops_when_full
        if snapshot is None:
            empty = await asyncio.to_thread(self._context.empty_filter)
            return Shard(self._partition, empty, stop_when_full=stops)
        shard = Shard(self._partition, snapshot.filter, stop_when_full=stops)
        shard.label, shard.end_label = snapshot.label, snapshot.end_label
        return shard

    async def _fold(self, shard: Shard, found: Found, foreign: tuple[int, int] | None) -> None:
        start = max(shard.label, found.output_start)
        folded = skipped = 0
        first = last = None
        batches = committed_events(
            self._settings.kafka,
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
                shard.fold(keys, batch.next_offset)
                first, last = first if folded else int(batch.offsets[0]), int(batch.offsets[-1])
                folded += len(batch)
                skipped += sum(key is None for key in keys.keys)
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
