"""The lag of the partitions that other workers of the group have. Kafka is asked for it only while somebody looks."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from streamdedup.kafka.base import Cluster

LOOKED_S = 30.0  # after the last reader, Kafka is asked no more
EVERY_S = 10.0
TURN_S = 1.0
ANSWER_S_MAX = 5.0


class _Shared(Protocol):
    """A topic whose partitions several workers share."""

    topic: str

    @property
    def theirs(self) -> list[int]:
        """The partitions of `topic` that this worker does not have."""


@dataclass
class Others:
    """The lag of each of those partitions, in offsets. The loop writes, any thread reads."""

    lags: Mapping[int, int] = field(default_factory=dict)
    _looked_at: float | None = None
    _asked_at: float | None = None

    def look(self) -> None:
        """Note that somebody looks now."""
        self._looked_at = time.monotonic()

    async def run(self, cluster: Cluster, group: str, shared: _Shared) -> None:
        """Ask Kafka now and then, while somebody looks, until cancelled."""
        while True:
            await asyncio.sleep(TURN_S)
            await self.turn(time.monotonic(), cluster, group, shared)

    async def turn(self, now: float, cluster: Cluster, group: str, shared: _Shared) -> None:
        """Ask if it is time to. If Kafka does not answer, no lag is known until the next turn that asks."""
        looked_at, asked_at = self._looked_at, self._asked_at
        if looked_at is None or now - looked_at > LOOKED_S:
            self.lags = {}
        elif asked_at is None or now - asked_at >= EVERY_S:
            self._asked_at, lags = now, dict[int, int]()
            with suppress(Exception):
                async with asyncio.timeout(ANSWER_S_MAX):
                    lags = await _lags(cluster, group, shared.topic, shared.theirs)
            self.lags = lags


async def _lags(cluster: Cluster, group: str, topic: str, partitions: list[int]) -> dict[int, int]:
    """Return how many offsets the group has not committed, of each partition with a commit."""
    if not partitions:
        return {}
    committed = await cluster.committed_all(group, topic, partitions, stable=False)
    ends = await cluster.end_offsets(topic, partitions)
    return {p: max(0, ends[p] - at.offset) for p, at in committed.items() if p in ends}
