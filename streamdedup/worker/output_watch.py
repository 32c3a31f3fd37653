"""Reports another deployment that writes to our output: each fences the other, again and again.

With `exactly_once` both stay exact, and are slow. The other one is found by the notes of its group.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import structlog

from streamdedup.delivery.lifecycle import FENCINGS, FENCINGS_S, Delivery
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.topics import Topic
from streamdedup.logs import RateLimit
from streamdedup.metrics import findings
from streamdedup.server import Status
from streamdedup.units import counted

log = structlog.get_logger(__name__)

TURN_S = 1.0
ANSWER_S_MAX = 10.0
SHOWN_MAX = 5  # groups that are named


class OutputWatch:
    """Watches whether the partitions of `output` are fenced by others, although `group` confirms that they are ours."""

    def __init__(
        self,
        cluster: Cluster,
        output: Topic,
        group: str,
        deliveries: Mapping[int, Delivery],
        status: Status,
        *,
        exactly_once: bool,
    ) -> None:
        self._cluster, self._output, self._group = cluster, output, group
        self._deliveries, self._status = deliveries, status
        self._harm = (
            "nothing is lost or doubled, but each deployment holds up the other"
            if exactly_once
            else "with at_least_once, keys pass twice"
        )
        self._lines = RateLimit()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(TURN_S)
            await self._look()

    async def _look(self) -> None:
        """Note which partitions are fenced by others; log that, and name those, once a minute."""
        now_s, status = asyncio.get_running_loop().time(), self._status
        fenced = frozenset(p for p, d in self._deliveries.items() if d.is_fenced_by_others(now_s))
        status.fenced_by_others = fenced
        if not fenced:
            status.output_shared = None
        elif self._lines.due(now_s):
            groups, partition = await self._groups(), min(fenced)
            find = (
                "find it: kafka-consumer-groups.sh --bootstrap-server SERVER --list names all groups, and"
                " kafka-transactions.sh --bootstrap-server SERVER describe --transactional-id"
                f" {self._output.name}/{partition} its producer; then "
            )
            remedy = f"{'' if groups else find}stop one of the two, or give it an output of its own"
            reason = (
                f"others came between our events in {counted(len(fenced), 'partition')} of {self._output.name} (one is"
                f" {partition}) {FENCINGS} times or more within {FENCINGS_S / 60:g} minutes, although the group"
                f" {self._group} confirms that it is ours: {self._harm}"
            )
            log.warning(
                "output_shared",
                output=self._output.name,
                partitions=sorted(fenced),
                groups=groups,
                reason=reason,
                remedy=remedy,
            )
            whose = f" (the group {'; the group '.join(groups)})" if groups else ""
            status.output_shared = findings.OUTPUT_SHARED.at(
                None, f"another deployment{whose} writes to this output: {reason}", remedy
            )

    async def _groups(self) -> list[str]:
        """Return the other groups that have written to the output and have members, each with these."""
        found = list[str]()
        with suppress(Exception):  # then the operator looks for them
            async with asyncio.timeout(ANSWER_S_MAX):
                if self._output.topic_id is None:
                    return found
                for group in sorted(
                    await self._cluster.writers(self._output.topic_id, {self._group})
                ):
                    in_force = await self._cluster.in_force(group)
                    if members := (*in_force.members, *in_force.newer)[:SHOWN_MAX]:
                        found.append(f"{group}, with {', '.join(members)}")
        return found[:SHOWN_MAX]
