"""The seam between a shard's life and its filter: what a shard remembers, and how it catches up with its output.

`fold.FoldedMemory` keeps a filter that is the fold of the output. `NoMemory` serves a worker that only screens events
by lists.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from typing_extensions import override

from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.resume import PartitionState, Resume, input_offset
from streamdedup.delivery.second_writer import ForeignRange
from streamdedup.delivery.services import Services, shard_over
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.kafka.topics import Topology
from streamdedup.snapshot.header import Log


class FoldProgress:
    """The progress of a fold from the output offset `start` to `end`. Any thread may read it."""

    def __init__(self, shard: Shard, start: int, end: int) -> None:
        self.start, self.end = start, end
        self._shard = shard
        self._began_at = time.monotonic()
        self._seconds: float | None = None

    def end_now(self) -> None:
        """Note that the whole range is folded."""
        self._seconds = time.monotonic() - self._began_at

    @property
    def seconds(self) -> float:
        """How many seconds the fold took, or has taken so far."""
        seconds = self._seconds
        return time.monotonic() - self._began_at if seconds is None else seconds

    @property
    def position(self) -> int:
        """The offset up to which the output is folded."""
        done = self._seconds is not None
        return self.end if done else min(max(self._shard.label, self.start), self.end)

    @property
    def ratio(self) -> float:
        """The share of the range that is folded, from 0 to 1; 1 if the range is empty."""
        whole = self.end - self.start
        return (self.position - self.start) / whole if whole > 0 else 1.0


class Memory(Protocol):
    """The memory of one partition. It outlives doubts, and one assignment of the partition to another member."""

    lock: asyncio.Lock
    """Held while the filter is judged or changed or gets memory, so that only one of these happens at a time."""

    @property
    def still(self) -> asyncio.Lock:
        """Held by whoever changes the filter or its label, and while it is copied for a snapshot.

        Whoever needs `lock`, too, takes this one first: judging goes on while a filter is copied.
        """

    @property
    def shard(self) -> Shard | None:
        """The shard, once there is one."""

    @property
    def progress(self) -> FoldProgress | None:
        """The last fold, which may be under way; None if nothing was folded."""

    @property
    def snapshots(self) -> ShardSnapshots | None:
        """The shard's snapshots; None if nothing is saved."""

    async def remembers(self) -> bool:
        """Return whether anything was ever folded: then the shard is not newly born."""

    async def past(self) -> Sequence[Log]:
        """Return the log that the newest snapshot names; without one, the logs that those of other partitions name."""

    def resume(self, found: PartitionState) -> Resume:
        """Return where reading goes on. Raises DeliveryError if output and offset contradict one another."""

    def forget_from(self, label: int) -> None:
        """Forget the filter, and trust no snapshot that may hold what was emitted at or above the output's `label`."""

    def must_follow(self, found: PartitionState) -> int | None:
        """Return the output offset that our next event must get; None if others may write, too."""

    async def catch_up(
        self, found: PartitionState, topology: Topology, foreign: ForeignRange | None
    ) -> Shard:
        """Return the shard, its filter the fold of the whole output.

        Raises DeliveryError if that is impossible, or if the output holds an event at an offset of the range `foreign`:
        a second writer put it there.
        """

    async def ready_for(self, events: int) -> None:
        """Put memory for `events` more events in place, so that judging them does not wait for it.

        If cancelled, the thread keeps running, and the next call waits for it. Raises DoubtError if the log that was
        folded was replaced.
        """

    async def look_at_log(self, within_s: float) -> None:
        """Before a save, check that the log is still the one that was folded, for at most `within_s` seconds."""

    async def save(self, *, again: bool = False) -> None:
        """Save a snapshot if there is something new to save, or if `again`. Failures are logged, never raised."""

    async def outrun(self, log_start: int) -> None:
        """Save a snapshot if the output, which begins at `log_start`, was deleted beyond the second-newest snapshot."""


class NoMemory(Memory):
    """Asks nothing of the output's history, and nothing of the disk: a worker without a filter folds nothing."""

    shard: Shard | None = None
    progress: FoldProgress | None = None
    snapshots: ShardSnapshots | None = None

    def __init__(self, recipe: Recipe, services: Services, partition: int) -> None:
        self.lock, self._still = asyncio.Lock(), asyncio.Lock()
        self._recipe, self._services, self._partition = recipe, services, partition

    @property
    @override
    def still(self) -> asyncio.Lock:
        return self._still

    @override
    async def remembers(self) -> bool:
        return False

    @override
    async def past(self) -> Sequence[Log]:
        return ()

    @override
    def resume(self, found: PartitionState) -> Resume:
        settings = self._recipe.settings
        return input_offset(found, settings.source, settings.sink, remembers=False)

    @override
    def forget_from(self, label: int) -> None:
        return

    @override
    def must_follow(self, found: PartitionState) -> int | None:
        return None

    @override
    async def catch_up(
        self, found: PartitionState, topology: Topology, foreign: ForeignRange | None
    ) -> Shard:
        if self.shard is None:
            empty = self._recipe.empty_filter(self._services.random)
            self.shard = shard_over(empty, self._recipe, self._services, self._partition)
        self.shard.end_fold(found.output_end)  # the label only records where the output ended
        return self.shard

    @override
    async def ready_for(self, events: int) -> None:
        return

    @override
    async def look_at_log(self, within_s: float) -> None:
        return

    @override
    async def save(self, *, again: bool = False) -> None:
        return

    @override
    async def outrun(self, log_start: int) -> None:
        return
