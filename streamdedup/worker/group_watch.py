"""Reports a group that refuses this worker, because its members join it under another name.

The name stands for the meaning of a configuration (`settings.meaning`), so workers that would take another key from an
event, or send it elsewhere, share no group. The worker waits; only an operator can settle which meaning is right.

A member of the new group protocol (KIP-848) names no assignor, so the broker lets it in, and gives it a share of our
partitions. That is reported, too. A share group (KIP-932) refuses us even without members.

Partitions that no member has are reported, and workers with a `kafka.group_instance_id` have them assigned anew. When a
static member comes back, the broker gives it the partitions that it had, without a rebalance (KIP-345). If all members
were away while the topic got partitions, or was made again, no leader sees that.
"""

import asyncio
from contextlib import suppress

import structlog

from streamdedup.kafka.base import Cluster, Member
from streamdedup.kafka.groups import NEWER_REMEDY, SHARE_REMEDY, InForce
from streamdedup.logs import RateLimit
from streamdedup.metrics import findings
from streamdedup.server import Status
from streamdedup.settings.meaning import NEW_PROTOCOL, SHARE, whose
from streamdedup.units import counted

log = structlog.get_logger(__name__)

TURN_S = 1.0
ANSWER_S_MAX = 10.0
# How long the first line waits for a group that rebalances to name what is in force.
NAMED_S_MAX = 10.0
SHOWN_MAX = 10  # members in one line
LOOK_EVERY_S = 10.0  # for members of the new protocol, and for partitions that no member has
UNSERVED_S_MAX = 10.0  # how long a partition may have no member before that is reported
ASSIGN_ANEW_S = 30.0  # between two requests to assign the partitions anew
REMEDY = (
    "if its configuration is wrong, stop this worker now: it takes the group once the last of the others leaves, even"
    " for a restart; if it is right, stop all others (docs/operate.md)"
)


class GroupWatch:
    """Watches whether `group` refuses us, because we join as `ours`: logs it each minute, and notes it in `status`."""

    def __init__(
        self, cluster: Cluster, source: Member, group: str, ours: str, status: Status
    ) -> None:
        self._cluster, self._source, self._status = cluster, source, status
        self._group, self._ours = group, ours
        self._seen = InForce(None, ())  # when the group last named its assignor
        self._newer: tuple[str, ...] = ()
        self._looks_at = 0.0
        self._unserved_since: float | None = None
        self._lines, self._newer_lines, self._unserved_lines = RateLimit(), RateLimit(), RateLimit()
        self._requests, self._assigns = RateLimit(ASSIGN_ANEW_S), False

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            since = self._source.refused_since
            if since is None:
                self._status.group_says, self._seen = None, InForce(None, ())
                await self._look_at_members(asyncio.get_running_loop().time())
            else:
                await self._look()
                self._report(asyncio.get_running_loop().time(), since)
            await asyncio.sleep(TURN_S)

    async def _look_at_members(self, now: float) -> None:
        """Every LOOK_EVERY_S, ask for the members and what they have; report what is not as it should be."""
        if now < self._looks_at:
            return
        self._looks_at = now + LOOK_EVERY_S
        found: InForce | None = None
        with suppress(Exception):  # the next look asks again
            async with asyncio.timeout(ANSWER_S_MAX):
                found = await self._cluster.in_force(self._group)
        if found is not None:
            self._newer, self._status.owners = found.newer, found.owners
            self._report_unserved(now, found)
        self._report_newer(now)

    def _report_unserved(self, now: float, found: InForce) -> None:
        """Log partitions that have had no member for a while, once a minute, and have them assigned anew."""
        unserved = frozenset[tuple[str, int]]()
        if found.assigned is not None:
            unserved = frozenset(
                (topic, partition)
                for topic, partitions in self._source.topics().items()
                for partition in range(partitions)
            ).difference(found.assigned)
        if not unserved:
            self._unserved_since, self._status.unserved = None, unserved
            return
        self._looks_at = now + TURN_S
        if self._unserved_since is None:
            self._unserved_since = now
        if now - self._unserved_since < UNSERVED_S_MAX:
            return
        self._status.unserved = unserved
        if self._requests.due(now):
            self._assigns = self._source.assign_anew()
        if self._unserved_lines.due(now):
            log.warning(
                "partitions_unserved",
                group=self._group,
                partitions=len(unserved),
                among_them=[f"{topic}/{number}" for topic, number in sorted(unserved)[:SHOWN_MAX]],
                members=len(found.members),
                seconds=round(now - self._unserved_since, 1),
                reason="no member of the group has them, so nobody reads them",
                remedy="the group is asked to assign its partitions anew"
                if self._assigns
                else "restart a worker of the group: its leader assigns the partitions then",
            )

    def _report_newer(self, now: float) -> None:
        """Log members of the new protocol, once a minute while there are any."""
        self._status.group_shared_with = len(self._newer)
        if self._newer and self._newer_lines.due(now):
            log.warning(
                "group_of_another_protocol",
                group=self._group,
                members=len(self._newer),
                among_them=list(self._newer[:SHOWN_MAX]),
                reason="they joined the group by the new protocol (KIP-848) and have a share of its partitions: no"
                " worker reads what they take",
                remedy=NEWER_REMEDY,
            )

    async def _look(self) -> None:
        """Ask what is in force. While the group rebalances, the broker names nothing: then the last answer stands."""
        with suppress(Exception):  # the next round asks again
            async with asyncio.timeout(ANSWER_S_MAX):
                found = await self._cluster.in_force(self._group)
            if found.newer or found.share or found.assignor not in (None, self._ours):
                self._seen = found

    def _report(self, now: float, since: float) -> None:
        assignor, members = self._seen.assignor, (*self._seen.members, *self._seen.newer)
        by, remedy = "others", REMEDY
        if self._seen.newer:
            assignor = NEW_PROTOCOL
        if self._seen.share:
            assignor, remedy = SHARE, SHARE_REMEDY.format(group=self._group)
        if assignor:
            by = f"{counted(len(members), 'member')} as {assignor}"
        self._status.group_says = findings.GROUP_REFUSES.at(
            None,
            f"the group {self._group} is of another configuration: joined by {by} ({whose(assignor)}), not as"
            f" {self._ours}",
            remedy,
        )
        if assignor is None and now - since < NAMED_S_MAX:
            return
        if self._lines.due(now):
            log.warning(
                "group_of_another_configuration",
                group=self._group,
                in_force=assignor,
                whose=whose(assignor),
                members=len(members),
                among_them=list(members[:SHOWN_MAX]),
                ours=self._ours,
                seconds=round(now - since, 1),
                remedy=remedy,
            )
