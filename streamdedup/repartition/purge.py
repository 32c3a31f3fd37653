"""The purge: what the second stage has committed is deleted from the middle topic, which keeps everything else.

The owner of each shard deletes, and only up to a commit of that shard that it made itself. So no event is deleted
unread, even if somebody else moves offsets. Each purge compares the topic's id first, because a topic that was made
again has other offsets.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from streamdedup.kafka.base import ANSWER_S_MAX, Cluster

log = structlog.get_logger(__name__)

EVERY_S = 30.0


class Purge:
    """Deletes from `middle`, whose id was `topic_id`, below the offsets that `committed` returns by partition."""

    def __init__(
        self,
        cluster: Cluster,
        middle: str,
        topic_id: str | None,
        committed: Callable[[], Mapping[int, int]],
    ) -> None:
        self._cluster, self._middle, self._topic_id = cluster, middle, topic_id
        self._committed = committed
        self._done: dict[int, int] = {}  # up to where we have deleted, by partition
        self.failed: Mapping[int, str] = {}
        """The partitions that could not be purged the last time, and the errors."""

    async def run(self) -> None:
        """Purge every EVERY_S seconds, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.once()

    async def once(self) -> None:
        """Delete what may be deleted now."""
        before = {p: at for p, at in self._committed().items() if at > self._done.get(p, 0)}
        if not before:
            return
        async with asyncio.timeout(ANSWER_S_MAX):
            topology = await self._cluster.describe([self._middle])
            known = topology.topics.get(self._middle)
            if known is None or known.topic_id != self._topic_id:
                return  # the watch over topics ends the worker
            failed = await self._cluster.delete_records(self._middle, before)
        for partition, offset in before.items():
            if partition not in failed:
                self._done[partition] = offset
        if failed and failed != self.failed:
            log.warning(
                "middle_not_purged",
                middle=self._middle,
                partitions=sorted(failed)[:10],
                errors=sorted(set(failed.values())),
                remedy="none if it passes; if it does not, grant Delete on that topic, or its disk fills up",
            )
        self.failed = failed
