"""What the first stage has not copied yet, for a process that runs the second stage alone.

If no process copies, the middle topic is read to its end and looks as if there were no events. So this asks the group
of the first stage, from outside, how far it is, and whether it has members.
"""

import asyncio
from contextlib import suppress
from typing import Any

import structlog

from streamdedup.delivery.resume import differs
from streamdedup.errors import ConfigError
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.offsets import Committed
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.topics import Topology
from streamdedup.metrics import findings
from streamdedup.metrics.findings import Finding
from streamdedup.repartition.inputs import topics_of
from streamdedup.repartition.offsets import committed_on, of_each, partitions_of
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying_group
from streamdedup.units import counted

log = structlog.get_logger(__name__)

ANSWER_S_MAX = 20.0
# For how long events wait without a member before that is a warning: a restart takes less.
MISSING_S = 60.0
REMEDY = "start the first stage: `streamdedup run --stage repartition` with this configuration"


class Uncopied:
    """Watches the inputs. `offsets` counts what the first stage has not committed, in all partitions, at the last look.

    `missing` says, as text, that nobody copies although something waits; None if that is not so.
    """

    TURN_S = 30.0

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        """`settings` are those as written."""
        self._settings, self._cluster = settings, cluster
        self._group = copying_group(settings)
        self._waiting: dict[InputPartition, int] = {}
        # When events first waited without a member, by the loop's clock.
        self._since: float | None = None
        self.missing: Finding | None = None

    @property
    def offsets(self) -> int:
        """How many offsets of the inputs the first stage has not committed."""
        return sum(self._waiting.values())

    @property
    def progress(self) -> dict[str, Any]:
        """What a line of progress says of it."""
        missing = {"repartition_missing": self.missing.text} if self.missing else {}
        return {"input_lag": self.offsets, **missing}

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with suppress(TimeoutError):  # the next round asks again
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self.look()
            await asyncio.sleep(self.TURN_S)

    async def look(self) -> None:
        """Look once. A partition whose leader does not answer keeps the count that was known."""
        try:
            topics = await topics_of(self._settings, self._cluster)
        except ConfigError:  # no topic matches source.pattern now
            topics = ()
        topology = await self._cluster.describe(topics) if topics else Topology(None, {})
        partitions = partitions_of(topology, topics)
        # The ends first: an offset that is committed meanwhile may only be beyond them.
        starts = await of_each(partitions, self._cluster.first_offsets)
        ends = await of_each(partitions, self._cluster.stable_offsets)
        committed = await committed_on(self._cluster, self._group, partitions, stable=False)
        if not committed and self._settings.source.start == "latest":
            ends = dict.fromkeys(ends, 0)  # the stage will begin at the ends
        known = self._waiting
        self._waiting = {
            p: max(0, ends[p] - _reached(committed.get(p), topology, p, starts[p]))
            if p in ends and p in starts
            else known.get(p, 0)
            for p in partitions
        }
        is_served = not self.offsets or await self._has_members()
        self._judge(is_served, asyncio.get_running_loop().time())

    async def _has_members(self) -> bool:
        found = await self._cluster.in_force(self._group)
        return bool(found.members or found.newer)

    def _judge(self, is_served: bool, now: float) -> None:
        """Note whether what waits is served, and log when that changes for longer than `MISSING_S`."""
        if is_served:
            if self.missing:
                log.info("repartition_found", group=self._group)
            self._since = self.missing = None
            return
        self._since = now if self._since is None else self._since
        if now - self._since < MISSING_S:
            return
        if self.missing is None:
            log.warning(
                "repartition_missing",
                group=self._group,
                inputs=self._settings.source.shown,
                input_lag=self.offsets,
                reason="events of the inputs wait to be copied, and the group of the first stage has no members",
                remedy=REMEDY,
            )
        self.missing = findings.STAGE_MISSING.at(
            None,
            f"{counted(self.offsets, 'offset')} of {self._settings.source.shown} wait to be copied, and the group"
            f" {self._group} has no members",
            REMEDY,
        )


def _reached(
    committed: Committed | None, topology: Topology, partition: InputPartition, start: int
) -> int:
    """Return the offset from which on the events of a partition, whose log begins at `start`, are not copied yet."""
    if committed is None:
        return start
    note, input_id = committed.note, topology[partition.topic].topic_id
    is_other = note is not None and differs(note.input_id, input_id)
    return start if is_other else max(start, committed.offset)
