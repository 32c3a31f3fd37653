"""Watches the topics while a worker runs: whether they were deleted or made again, and whether they have leaders."""

import asyncio
from collections.abc import Collection, Mapping

from streamdedup.errors import DeliveryError
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.client.patience import is_away
from streamdedup.kafka.topics import Topology
from streamdedup.server import Status
from streamdedup.worker.leader_watch import LeaderWatch

EVERY_S = 10.0
AWAY_EVERY_S = 1.0  # while a broker is away, or a topic is missing
MISSING_S = 10.0

_CLUSTER = "the cluster"


class TopicWatch:
    """Watches the topics of `topology`; partitions without a leader are in `status`.

    Topics in `may_go` may be deleted or made again; `follow` changes the topics.
    """

    def __init__(
        self,
        cluster: Cluster,
        topology: Topology,
        status: Status,
        may_go: Collection[str] = (),
    ) -> None:
        self._cluster = cluster
        self.follow(topology, may_go)
        self._leaders = LeaderWatch(status)
        self._missing_since: Mapping[str, float] = {}  # by topic, by the loop's clock

    def follow(self, topology: Topology, may_go: Collection[str]) -> None:
        """Watch these topics from now on."""
        self._topology, self._may_go = topology, may_go

    async def run(self) -> None:
        """Watch until cancelled. DeliveryError if a topic was deleted, or deleted and created again."""
        while True:
            in_doubt = self._cluster.patience.away_s > 0 or self._missing_since
            await asyncio.sleep(AWAY_EVERY_S if in_doubt else EVERY_S)
            await self._look()

    async def _look(self) -> None:
        """Compare the topics with those that are known.

        A topic that was created again has the same name, and may have the same offsets: only its id differs. One that
        is missing is deleted if it stays so: a broker with ZooKeeper that starts does not know its topics at first.
        """
        patience = self._cluster.patience
        try:
            changes = await self._cluster.changed(self._topology)
        except Exception as error:
            if not is_away(error):
                raise
            patience.away(_CLUSTER, error)
            return
        patience.back(_CLUSTER)
        now = asyncio.get_running_loop().time()
        self._leaders.look(changes.leaderless, now)
        missing = [name for name in changes.missing if name not in self._may_go]
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        gone = [name for name, since in self._missing_since.items() if now - since >= MISSING_S]
        remade = [name for name in changes.remade if name not in self._may_go]
        if wrong := [*gone, *remade]:
            raise DeliveryError(
                f"deleted, or deleted and created again, while the worker ran: {', '.join(wrong)}; find out why, then"
                " restart the worker"
            )
