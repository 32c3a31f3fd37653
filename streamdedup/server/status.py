"""What the pages are made of. All of it is read by other threads while the loop changes it, and without a lock.

That is safe because only numbers and values that are replaced as a whole are looked at, and dictionaries are copied
before they are gone through, which no other thread can come into the middle of. Two numbers may be of two moments,
where one page shows both; what must fit together is one value (`meters.Ledger`).
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from streamdedup.delivery.cross_partition import Watch
from streamdedup.delivery.lifecycle import Delivery
from streamdedup.kafka.base import Cluster, Source
from streamdedup.metrics.counts import Meters
from streamdedup.rules.lists import ListsInForce


class Phase(StrEnum):
    """Where a worker stands in its life."""

    CONNECTING = "connecting"
    JOINING = "joining"
    SERVING = "serving"
    DRAINING = "draining"


@dataclass
class Status:
    """How a worker is. `deliveries`, its own dictionary, has every partition that is, or was last, its.

    `epoch` is the assignment that they serve; `port`, where this is told, None where it is not.
    """

    topic: str
    deliveries: Mapping[int, Delivery]
    meters: Meters
    phase: Phase = Phase.CONNECTING
    cluster: Cluster | None = None
    source: Source | None = None
    epoch: int = -1
    port: int | None = None
    watch: Watch = field(default_factory=Watch)
    lists: ListsInForce = field(default_factory=ListsInForce)
    shadow: bool = False  # whether every event passes
    began_at: float = field(default_factory=time.monotonic)

    @property
    def assigned(self) -> frozenset[int] | None:
        """The partitions that it serves; None while the group settles who gets which, and shards change hands."""
        source = self.source
        return source.assigned if source and source.epoch == self.epoch else None

    @property
    def broker_away_s(self) -> float:
        """For how many seconds something has waited for a broker, the first connection included."""
        if self.cluster is not None:
            since = self.cluster.patience.since
        else:
            since = self.began_at if self.phase is Phase.CONNECTING else None
        return 0.0 if since is None else max(0.0, time.monotonic() - since)
