"""The reset with `source.repartition`: the group of the first stage moves, and that of the second may forget.

The first stage is fenced by the generation of its group, and not by a name for each partition: a group without members
takes no offsets of a transaction that a paused process still has open, except those that it has sent before. So the
reset waits until no offset is in a transaction any more, and then moves all of them, each input in one request.

To forget, the second stage's floor comes first. If the reset is killed between the two, nothing is read again yet, and
another run finishes it. In the other order, events would be read again and judged by the filters of before.
"""

import asyncio
from dataclasses import replace
from itertools import groupby
from typing import Protocol

from streamdedup.commands.reset_plan import STAY, ResetPlan, Step, Target
from streamdedup.errors import DeliveryError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.groups import SHARE_REMEDY
from streamdedup.kafka.offsets import Committed
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.topics import Topology
from streamdedup.repartition.middle import options_of
from streamdedup.repartition.offsets import (
    committed_on,
    decided,
    found_in,
    partitions_of,
    topology_of,
)
from streamdedup.repartition.selection import Selection
from streamdedup.repartition.transfer import note_of
from streamdedup.settings import Settings
from streamdedup.settings.meaning import Meaning
from streamdedup.settings.stages import copying
from streamdedup.units import counted


class Group(Protocol):
    """A group that can be reset."""

    async def plan(self, target: Target, forget: bool) -> ResetPlan:
        """Return what the reset would do now."""

    async def move(self, planned: ResetPlan) -> None:
        """Do it."""


class Stages:
    """Both groups. `settings` are those as written, `second` is the group of the second stage."""

    def __init__(self, settings: Settings, cluster: Cluster, second: Group) -> None:
        self._settings, self._cluster, self._second = copying(settings), cluster, second
        options = options_of(settings)
        self._middle, self._places = options.topic, options.partitions
        self._judging = settings.kafka.group_id
        self._written, self._name = settings, self._settings.kafka.group_id

    async def plan(self, target: Target, forget: bool) -> ResetPlan:
        """Return what the reset would do now.

        DeliveryError if a group has members, ConfigError if a topic is missing.
        """
        async with asyncio.timeout(ANSWER_S_MAX):
            await self._refuse_members()
            topology, partitions = await self._inputs()
            # A killed process may have left a transaction open. It ends by its time-out, for which the move waits.
            committed = await committed_on(self._cluster, self._name, partitions, stable=False)
            steps = [
                await self._step(topology, partition, target, committed.get(partition))
                for partition in partitions
            ]
            notes = await self._cluster.notes(self._judging, self._middle, self._places)
        floors = (await self._second.plan(STAY, True)).steps if forget else ()
        forgotten = tuple(sorted(partition for partition, note in notes.items() if note.floor))
        return ResetPlan(target, forget, tuple(steps), floors, forgotten)

    async def move(self, planned: ResetPlan) -> None:
        """Set the floors, then move the input's offsets. DeliveryError if a group has members now."""
        async with asyncio.timeout(ANSWER_S_MAX):
            await self._refuse_members()
            topology, partitions = await self._inputs()
        if planned.forget:
            await self._second.move(ResetPlan(STAY, True, planned.floors))
        committed = await decided(self._settings, self._cluster, partitions)
        for topic, steps in groupby(planned.steps, lambda step: step.topic or ""):
            offsets = {
                step.partition: (step.to, self._note(topology, topic, committed.get(place)))
                for step in steps
                for place in [InputPartition(topic, step.partition)]
            }
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._cluster.move(self._name, topic, offsets)

    async def _inputs(self) -> tuple[Topology, list[InputPartition]]:
        """Return the inputs and the middle, and all partitions of the inputs."""
        topics = await Selection(self._written, self._cluster).chosen()
        topology = await topology_of(self._settings, self._cluster, topics)
        return topology, partitions_of(topology, topics)

    async def _refuse_members(self) -> None:
        for name in (self._name, self._judging):
            await refuse_members(self._cluster, name)

    async def _step(
        self,
        topology: Topology,
        partition: InputPartition,
        target: Target,
        committed: Committed | None,
    ) -> Step:
        cluster, (topic, number) = self._cluster, partition
        found = await found_in(self._settings, cluster, topology, partition, committed)
        to = found.input_start if target.name == "earliest" else found.input_end
        if target.name == "time":
            young = await cluster.offset_of_time(topic, number, target.time_ms)
            to = found.input_end if young is None else young
        at = committed.offset if committed else None
        return Step(number, at, to, found, topic)

    def _note(self, topology: Topology, topic: str, committed: Committed | None) -> str:
        """Return the note of a moved offset. A meaning that would stop the stage still does so then."""
        note = note_of(topology, topic, self._settings, Meaning.of(self._settings).check)
        before = committed.note if committed else None
        if before is not None and before.meaning is not None:
            note = replace(note, meaning=before.meaning)
        return note.encode()


async def refuse_members(cluster: Cluster, group: str) -> None:
    """DeliveryError if `group` has members, whichever protocol they speak."""
    found = await cluster.in_force(group)
    if found.share:
        raise DeliveryError(
            f"the group {group} is a share group (KIP-932), which has no offsets of a worker:"
            f" {SHARE_REMEDY.format(group=group)}"
        )
    if members := found.members + found.newer:
        raise DeliveryError(
            f"the group {group} has {counted(len(members), 'member')}: stop all workers first; one that was"
            " killed leaves after its session_timeout_ms"
        )
