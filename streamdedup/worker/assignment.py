"""The shards of one worker: those of its partitions, and those whose partitions just went to other members.

Each assignment ends all shards and starts those of its partitions. A filter stays in memory if its partition stays, or
comes back with the next assignment.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress

import structlog

from streamdedup.delivery.fold import LOG_ANSWER_S_MAX
from streamdedup.delivery.lifecycle import Delivery
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.services import Services
from streamdedup.kafka.client.connection import describe_error
from streamdedup.kafka.client.patience import Backoff, is_away
from streamdedup.metrics.counts import Meters

log = structlog.get_logger(__name__)

HANGING_CLIENT_S = 2.0  # for shards that were cancelled to end
REASSIGN_S_MAX = 10.0  # far below max_poll_interval_ms, however long delivery.drain_s is
RETENTION_ANSWER_S_MAX = 10.0
REVIVE_S, REVIVE_S_MAX = 0.2, 15.0


class _Death:
    """The last death of a shard: the task that ended, and when another one may begin, by the loop's clock."""

    def __init__(self) -> None:
        self.of: asyncio.Task[None] | None = None
        self.revived_at = 0.0
        self._backoff = Backoff(REVIVE_S, REVIVE_S_MAX)

    def note(self, task: asyncio.Task[None], now_s: float) -> None:
        """Note that `task` ended, just before the loop's time `now_s`."""
        if now_s - self.revived_at > REVIVE_S_MAX:
            self._backoff.reset()
        self.of, self.revived_at = task, now_s + self._backoff.next_s()


class Assignment:
    """Starts and ends the shards of a worker.

    `deliveries` maps each partition to its shard; the worker and its server read the same mapping. At most these
    filters are in memory: those of the current assignment; those whose partitions left with it; and, of those that left
    earlier, the ones whose snapshot a thread is writing, at most `SAVES_MAX`. No partition has two filters.
    """

    def __init__(self, deliveries: dict[int, Delivery], meters: Meters) -> None:
        self._deliveries, self._meters = deliveries, meters
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._deaths: dict[int, _Death] = {}  # of shards of this assignment
        # Shards whose partitions went to other members with the last assignment.
        self._kept: dict[int, Delivery] = {}
        # Shards that are being saved for the members that have their partitions now.
        self._apart: dict[Delivery, asyncio.Task[None]] = {}

    @property
    def running(self) -> int:
        """How many shards are running."""
        return len(self._tasks)

    async def reassign(self, recipe: Recipe, services: Services, drain_s: float) -> int:
        """End all shards of the last assignment, start those of the current one, and return its epoch.

        A shard whose partition stays keeps its filter. Batches in hand get `drain_s` seconds, at most `REASSIGN_S_MAX`.
        """
        await self.end(min(drain_s, REASSIGN_S_MAX))
        epoch, assigned = services.source.epoch, services.source.assigned
        if assigned is None:
            log.info("revoked")
            return epoch
        log.info("assigned", partitions=sorted(assigned))
        held = {delivery.partition: delivery for delivery in (*self._kept.values(), *self.all())}
        self._kept = {p: self._deliveries.pop(p) for p in sorted(set(self._deliveries) - assigned)}
        self._give_up_saves(assigned)
        for delivery in self._kept.values():
            self._save_apart(delivery)
        for partition in sorted(assigned):
            delivery = held.get(partition) or Delivery(recipe, services, partition)
            self._deliveries[partition] = delivery
            self._tasks[partition] = asyncio.create_task(delivery.run(epoch))
        return epoch

    def revive(self, epoch: int) -> None:
        """Start each shard again whose task ended without being asked: a client library may cancel its caller.

        One that dies again and again is started with back-off.
        """
        now_s = asyncio.get_running_loop().time()
        for partition, task in self._tasks.items():
            if not task.done():
                continue
            death = self._deaths.setdefault(partition, _Death())
            if death.of is not task:
                death.note(task, now_s)
                self._deliveries[partition].died()
                self._meters.task_errors["shard"] += 1
                error = None if task.cancelled() else task.exception()
                details = describe_error(error) if error else {"error": "cancelled"}
                log.error("shard_died", partition=partition, remedy="none: it restarts", **details)
            if now_s >= death.revived_at:
                self._tasks[partition] = asyncio.create_task(self._deliveries[partition].run(epoch))

    def _save_apart(self, delivery: Delivery) -> None:
        """Save a shard whose partition went to another member, in the background: that member may load the snapshot."""
        if delivery not in self._apart:
            self._apart[delivery] = saving = asyncio.create_task(
                _save([delivery], LOG_ANSWER_S_MAX)
            )
            saving.add_done_callback(lambda _: self._apart.pop(delivery))

    def _give_up_saves(self, assigned: Collection[int]) -> None:
        """Give up the saves of partitions that left before this assignment, unless a thread is writing already.

        A save goes on, too, if its partition is in `assigned` or left with this assignment.
        """
        for delivery, saving in self._apart.items():
            wanted = delivery.partition in assigned or delivery.partition in self._kept
            if not wanted and not delivery.writes_snapshot:
                delivery.cut_saves_short()
                saving.cancel()

    def all(self) -> list[Delivery]:
        """Return the shards of our partitions, and those that are still being saved for other members."""
        return list(dict.fromkeys((*self._deliveries.values(), *self._apart)))

    def committed(self) -> dict[int, int]:
        """Return the input offsets below which we know that everything is committed, by partition."""
        return {
            partition: offset
            for partition, delivery in self._deliveries.items()
            if (offset := delivery.known_commit) is not None
        }

    async def end(self, within_s: float) -> None:
        """Let live shards finish their batches in hand, cancel all others, and close the producers.

        A shard that is still running shortly before `within_s` seconds are over is cancelled, too.
        """
        for partition, task in self._tasks.items():
            delivery = self._deliveries[partition]
            delivery.leave()
            if not delivery.busy:
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(
                self._tasks.values(), timeout=max(0.1, within_s - HANGING_CLIENT_S)
            )
            for task in late:
                task.cancel()
            if late:
                log.warning(
                    "transactions_abandoned",
                    count=len(late),
                    remedy="none: the next start finds out whether they were committed",
                )
                await asyncio.wait(late, timeout=HANGING_CLIENT_S)
        await asyncio.gather(*(self._deliveries[partition].drop() for partition in self._tasks))
        self._tasks, self._deaths = {}, {}

    async def save(self, within_s: float = LOG_ANSWER_S_MAX) -> None:
        """Save all shards, one after the other. Before that, check all their logs, for at most `within_s` seconds."""
        await _save(self.all(), within_s)

    async def outrun_retention(self, services: Services, output: str) -> None:
        """Compare where the output begins with the labels of the snapshots, and save each shard that is due."""
        partitions = list(self._deliveries)
        try:
            async with asyncio.timeout(RETENTION_ANSWER_S_MAX):
                starts = await services.cluster.first_offsets(output, partitions)
        except Exception as error:
            if is_away(error):  # the next call asks again
                return
            raise
        for partition, log_start in starts.items():
            if delivery := self._deliveries.get(partition):
                await delivery.outrun(log_start)

    async def look_up_ends(self, within_s: float) -> None:
        """Ask for the input's end of each shard that is not live, `within_s` seconds each, so that its lag is known.

        A live shard learns it from its fetches.
        """
        for delivery in list(self._deliveries.values()):
            with suppress(Exception):  # the next round asks again
                async with asyncio.timeout(within_s):
                    await delivery.look_up_end()


async def _save(deliveries: Sequence[Delivery], within_s: float) -> None:
    await asyncio.gather(*(delivery.look_at_log(within_s) for delivery in deliveries))
    for delivery in deliveries:
        await delivery.save()
