"""How much of the middle topic waits for the second stage: above `unread_max`, the first one pauses.

The second stage may be another process, so each look asks the brokers; between two looks, the copies of this process
are added. So the middle grows beyond the limit by one transaction at most, and by what other processes copy between two
looks.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import structlog

from streamdedup.kafka.base import Cluster
from streamdedup.logs import RateLimit
from streamdedup.units import counted

log = structlog.get_logger(__name__)

ANSWER_S_MAX = 10.0
SHOWN_MAX = 10  # partitions in one line


class Unread:
    """Watches the middle topic on behalf of `group`, the second stage's. `by_partition` counts what it has not read."""

    TURN_S = 0.5

    def __init__(
        self, cluster: Cluster, group: str, middle: str, partitions: int, most: int
    ) -> None:
        self._cluster, self._group, self._middle = cluster, group, middle
        self._partitions, self.most = range(partitions), most
        self.by_partition: dict[int, int] = {}
        self._lines, self._reported = RateLimit(), False
        self.reason: str | None = None
        """Why nothing may be copied now, as text; None if something may."""

    @property
    def events(self) -> int:
        """How many offsets of the middle topic are not read yet, as of the last look."""
        return sum(self.by_partition.values())

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with suppress(TimeoutError):  # the next round asks again
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self.look()
            await asyncio.sleep(self.TURN_S)

    async def look(self) -> None:
        """Look once."""
        committed = await self._cluster.committed_all(
            self._group, self._middle, self._partitions, stable=False
        )
        starts = await self._cluster.first_offsets(self._middle, self._partitions)
        ends = await self._cluster.end_offsets(self._middle, self._partitions)
        self.by_partition = {
            p: max(0, end - (committed[p].offset if p in committed else starts.get(p, 0)))
            for p, end in ends.items()
        }
        self._judge()

    def add(self, copied: Mapping[int, int]) -> None:
        """Add the numbers of events that were copied since the last look, by partition."""
        for partition, events in copied.items():
            self.by_partition[partition] = self.by_partition.get(partition, 0) + events
        self._judge()

    def _judge(self) -> None:
        above = [p for p, events in self.by_partition.items() if events > self.most]
        self.reason = self._text(above)
        if self.reason is None:
            if self._reported:
                log.info("repartition_goes_on", middle=self._middle)
            self._reported = False
        elif not self._reported and self._lines.due(asyncio.get_running_loop().time()):
            self._reported = True
            log.warning(
                "repartition_paused",
                middle=self._middle,
                partitions=above[:SHOWN_MAX],
                unread=max(self.by_partition.values()),
                unread_max=self.most,
                reason="the second stage has not read so many events of these partitions yet",
                remedy="none if it only is slower for a while; if it has stopped there, the whole input stops with it:"
                " its /readyz and log name the reason",
            )

    def _text(self, above: list[int]) -> str | None:
        if not above:
            return None
        first = ", ".join(f"{self._middle}/{partition}" for partition in above[:SHOWN_MAX])
        return (
            f"paused: {counted(len(above), 'partition')} of the middle topic ({first}) have more than {self.most:,}"
            " events that the second stage has not read (source.repartition.unread_max)"
        )
