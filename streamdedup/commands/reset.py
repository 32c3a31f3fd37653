"""`streamdedup reset`: move a group's offsets on purpose, and keep their notes true; `forget` also sets a floor.

The moves are planned and shown first. Then every earlier writer of the output is fenced, so that no open transaction
can end after the reset. Then all partitions are moved in one request, which the broker refuses while the group has
members. With `source.repartition` there are two groups (`reset_stages`).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog

from streamdedup.commands.reset_plan import STAY, ResetPlan, Step, Target
from streamdedup.commands.reset_stages import Stages, refuse_members
from streamdedup.delivery.fence import (
    FENCE_S_MAX,
    beyond,
    committed_offset,
    look,
    others,
    wait_decided,
)
from streamdedup.delivery.lost_markers import finish_lost
from streamdedup.delivery.resume import PartitionState, check_output, differs
from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster, Connect
from streamdedup.kafka.cluster import kafka_cluster, soon
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.topics import Topology, refuse_missing
from streamdedup.settings import Settings
from streamdedup.settings.stages import deduplicating
from streamdedup.snapshot.header import Log
from streamdedup.threads import Threads

log = structlog.get_logger(__name__)

FENCES_MAX = 16


async def plan(
    settings: Settings, target: Target, connect: Connect = kafka_cluster, *, forget: bool
) -> ResetPlan:
    """Return what the reset would do now. Nothing is changed.

    ConfigError if a topic is missing, or if there is nothing to forget. DeliveryError if the group has members or the
    broker refuses us.
    """
    if forget and not settings.filter.remembers:
        raise ConfigError(
            "--forget has nothing to forget: with filter.kind: none (filter: null) no key is remembered, and events"
            " that are read again are judged by the lists alone; leave --forget out"
        )
    async with _opened(settings, connect) as group:
        return await group.plan(target, forget)


async def move(settings: Settings, planned: ResetPlan, connect: Connect = kafka_cluster) -> None:
    """Move the offsets. DeliveryError, and nothing is moved, if the group now has members or the broker refuses us."""
    async with _opened(settings, connect) as group:
        await group.move(planned)


@asynccontextmanager
async def _opened(settings: Settings, connect: Connect) -> AsyncIterator["_Group | Stages"]:
    unanswered = "the broker does not answer: it is not known whether offsets were moved; check it, and try again"
    async with soon(connect, settings.kafka, unanswered) as cluster:
        if settings.source.repartition is None:
            yield _Group(settings, cluster)
        else:
            yield Stages(settings, cluster, _Group(deduplicating(settings), cluster))


class _Group:
    """The group, its input and its output."""

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self._settings, self._cluster = settings, cluster
        self._threads = Threads()
        self._name = settings.kafka.group_id
        self._input, self._output = settings.source.topic, settings.sink.topic

    async def plan(self, target: Target, forget: bool) -> ResetPlan:
        async with asyncio.timeout(ANSWER_S_MAX):
            await refuse_members(self._cluster, self._name)
            topology = await self._topology()
            partitions = range(topology[self._input].partitions)
            steps = [await self._step(topology, partition, target) for partition in partitions]
        if not forget:
            for step in steps:
                self._refuse_contradiction(step.partition, step.found)
        return ResetPlan(target, forget, tuple(steps))

    async def move(self, planned: ResetPlan) -> None:
        async with asyncio.timeout(ANSWER_S_MAX):
            await refuse_members(self._cluster, self._name)
            topology = await self._topology()
        permits = asyncio.Semaphore(FENCES_MAX)

        async def fenced(step: Step) -> tuple[int, str]:
            async with permits:
                await self._fence(topology, step.partition)
                within_s = self._settings.delivery.open_transaction_s
                own = await committed_offset(
                    self._settings, self._cluster, step.partition, within_s
                )
                async with asyncio.timeout(ANSWER_S_MAX):
                    found = await self._found(topology, step.partition, own)
            if not planned.forget:
                self._refuse_contradiction(step.partition, found)
            to = _stays_at(found) if planned.target == STAY else step.to
            return to, self._note(found, to, forget=planned.forget).encode()

        moved = await asyncio.gather(*map(fenced, planned.steps))
        offsets = {step.partition: to for step, to in zip(planned.steps, moved, strict=True)}
        async with asyncio.timeout(ANSWER_S_MAX):
            await self._cluster.move(self._name, self._input, offsets)

    def _note(self, found: PartitionState, to: int, *, forget: bool) -> Note:
        """Return the note of a move to `to`.

        With a middle topic, another meaning or placement stays refused even after `forget`, so the note keeps both.
        """
        note = note_after(found, to, forget=forget)
        if self._settings.source.repartition is None:
            return note
        return replace(note, meaning=found.meaning, placed=found.partitions)

    async def _topology(self) -> Topology:
        names = [self._input, self._output]
        topology = await self._cluster.describe(names)
        refuse_missing(topology, self._input, names)
        return topology

    async def _step(self, topology: Topology, partition: int, target: Target) -> Step:
        # Only the fence ends what a killed worker left open, so here what is undecided does not count.
        own = await self._cluster.committed_all(self._name, self._input, [partition], stable=False)
        found = await self._found(topology, partition, own.get(partition))
        to = found.input_start if target.name == "earliest" else found.input_end
        if target.name == "time":
            young = await self._cluster.offset_of_time(self._input, partition, target.time_ms)
            to = found.input_end if young is None else young
        elif target == STAY:
            to = _stays_at(found)
        return Step(partition, found.committed.offset if found.committed else None, to, found)

    async def _found(
        self, topology: Topology, partition: int, own: Committed | None
    ) -> PartitionState:
        settings, cluster = self._settings, self._cluster
        return await look(
            settings,
            cluster,
            topology,
            partition,
            own,
            output_end=await cluster.end_offset(self._output, partition),
            input_end_of=cluster.end_offset,
            others=await others(settings, cluster, topology, own),
            snapshots=await self._snapshots(partition),
            beyond=await beyond(settings, cluster, topology, own),
        )

    async def _snapshots(self, partition: int) -> Sequence[Log]:
        """Return the logs that the newest snapshots name, if this machine has any."""
        if not self._settings.filter.remembers:
            return ()
        snapshots = ShardSnapshots(self._settings, partition, log, threads=self._threads)
        return await snapshots.past()

    async def _fence(self, topology: Topology, partition: int) -> None:
        """Fence a worker that may be paused: its open transaction is settled, its later writes are refused."""
        writer = self._cluster.writer(
            self._settings.sink, partition, exactly_once=self._settings.delivery.exactly_once
        )
        try:
            async with asyncio.timeout(FENCE_S_MAX):
                await writer.fence()
            await finish_lost(self._settings, self._cluster, writer, topology, partition)
        finally:
            await writer.drop()
        async with asyncio.timeout(ANSWER_S_MAX):
            end = await self._cluster.end_offset(self._output, partition)
        within_s = self._settings.delivery.open_transaction_s
        await wait_decided(self._cluster, self._output, partition, end, within_s)

    def _refuse_contradiction(self, partition: int, found: PartitionState) -> None:
        """DeliveryError if the log would stop the shard, because our note must not hide that.

        Without a filter nothing is remembered, so there is nothing to hide.
        """
        if not self._settings.filter.remembers:
            return
        try:
            check_output(found, self._settings.sink)
        except DeliveryError as error:
            raise DeliveryError(
                f"partition {partition}: {error}; or add --forget, to go on and forget what was emitted"
            ) from None


def _stays_at(found: PartitionState) -> int:
    """Return the committed offset; the start of the input if there is none, or if it is of another log."""
    note = found.committed.note if found.committed else None
    is_other = note is not None and (
        differs(note.cluster_id, found.cluster_id) or differs(note.input_id, found.input_id)
    )
    return found.input_start if found.committed is None or is_other else found.committed.offset


def note_after(found: PartitionState, to: int, *, forget: bool) -> Note:
    """Return the note that is true after the input of a partition, found after fencing, is moved to the offset `to`.

    The output has not moved: its label is its end, and the window's time and a floor stay. The output above a floor
    comes from input that was read before or is read from `to` on; `since` is the lesser of the two. Another number of
    partitions of the input that was not accepted is not hidden.
    """
    note = found.committed.note if found.committed else None
    others = [count for count in found.counts if count != found.partitions]
    floor, since = found.floor, found.since
    if forget or (found.committed is None and found.output_end == 0):
        floor, since = found.output_end, to
    elif since is not None:
        since = min(since, to)
    return Note(
        cluster_id=found.cluster_id,
        input_id=found.input_id,
        output_id=found.output_id,
        label=found.output_end,
        watermark=None if forget or note is None else note.watermark,
        partitions=found.partitions if forget else min(others, default=found.partitions),
        born=found.partitions if forget else found.born,
        floor=floor,
        since=since,
        meaning=None if forget else found.meaning,
    )
