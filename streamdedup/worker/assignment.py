"""The shards of one worker: those of its partitions, and those that just went to other members.

An assignment ends them all and begins those that it names; a filter stays in memory where its partition stays, or comes
back with the next assignment.
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
from streamdedup.kafka.client.patience import is_away

log = structlog.get_logger(__name__)

HANGING_CLIENT_S = 2.0
REASSIGN_S_MAX = 10.0  # far below max_poll_interval_ms, whatever a drain may take
RETENTION_ANSWER_S_MAX = 10.0


class Assignment:
    """By partition; `deliveries` is the worker's, which others look at, too.

    In memory are, at most, the filters of this assignment, those that went to others with it, and, of those that went
    before, as many as threads write snapshots of: `SAVES_MAX`. No partition has two.
    """

    def __init__(self, deliveries: dict[int, Delivery]) -> None:
        self._deliveries = deliveries
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._kept: dict[int, Delivery] = {}  # went to other members with the last assignment
        self._apart: dict[Delivery, asyncio.Task[None]] = {}  # saved for others

    @property
    def running(self) -> int:
        """How many are served."""
        return len(self._tasks)

    async def reassign(self, recipe: Recipe, services: Services, drain_s: float) -> int:
        """End every shard of the last assignment, begin those of this one; its epoch. What stays keeps its filter."""
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
        """Begin a shard again whose task ended though nobody asked: a client library may cancel its caller."""
        for partition, task in self._tasks.items():
            if task.done():
                error = None if task.cancelled() else task.exception()
                details = describe_error(error) if error else {"error": "cancelled"}
                log.error("shard_died", partition=partition, remedy="it begins again", **details)
                self._tasks[partition] = asyncio.create_task(self._deliveries[partition].run(epoch))

    def _save_apart(self, delivery: Delivery) -> None:
        """Its partition went to another member, which may have use for a snapshot; nobody waits for it."""
        if delivery not in self._apart:
            self._apart[delivery] = saving = asyncio.create_task(
                _save([delivery], LOG_ANSWER_S_MAX)
            )
            saving.add_done_callback(lambda _: self._apart.pop(delivery))

    def _give_up_saves(self, assigned: Collection[int]) -> None:
        """Of what went to others before this assignment, only that is still saved which is being written."""
        for delivery, saving in self._apart.items():
            wanted = delivery.partition in assigned or delivery.partition in self._kept
            if not wanted and not delivery.writes_snapshot:
                delivery.cut_saves_short()
                saving.cancel()

    def all(self) -> list[Delivery]:
        """Those of our partitions, and those that are still being saved for others."""
        return list(dict.fromkeys((*self._deliveries.values(), *self._apart)))

    async def end(self, within_s: float) -> None:
        """Let batches in hand finish, cut everything else short, and close the producers."""
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
                    remedy="none: they are settled at the next start",
                )
                await asyncio.wait(late, timeout=HANGING_CLIENT_S)
        await asyncio.gather(*(self._deliveries[partition].drop() for partition in self._tasks))
        self._tasks = {}

    async def save(self, within_s: float = LOG_ANSWER_S_MAX) -> None:
        """Save what all shards remember, one after the other, once the logs of all were looked at for `within_s`."""
        await _save(self.all(), within_s)

    async def outrun_retention(self, services: Services, output: str) -> None:
        """Compare where the output begins with the snapshots' labels."""
        partitions = list(self._deliveries)
        try:
            async with asyncio.timeout(RETENTION_ANSWER_S_MAX):
                starts = await services.cluster.first_offsets(output, partitions)
        except Exception as error:
            if is_away(error):  # asked again later
                return
            raise
        for partition, log_start in starts.items():
            if delivery := self._deliveries.get(partition):
                await delivery.outrun(log_start)

    async def look_up_ends(self, within_s: float) -> None:
        """Ask for the ends of what is not read, `within_s` each: the lag of a live shard is known."""
        for delivery in list(self._deliveries.values()):
            with suppress(Exception):  # the next turn asks again
                async with asyncio.timeout(within_s):
                    await delivery.look_up_end()


async def _save(deliveries: Sequence[Delivery], within_s: float) -> None:
    await asyncio.gather(*(delivery.look_at_log(within_s) for delivery in deliveries))
    for delivery in deliveries:
        await delivery.save()
