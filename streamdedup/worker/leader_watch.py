"""Reports partitions without a leader: nothing is read from them or written to them, and no client raises an error."""

from collections.abc import Collection, Mapping

import structlog

from streamdedup.kafka.partitions import LEADER_REMEDY
from streamdedup.server import Status

log = structlog.get_logger(__name__)

AFTER_S = 30.0  # an election takes less

TopicPartition = tuple[str, int]
"""Topic and partition."""


class LeaderWatch:
    """Notes which partitions have no leader; those without one for `AFTER_S` seconds are in `status`."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._since: Mapping[TopicPartition, float] = {}

    def look(self, leaderless: Collection[TopicPartition], now_s: float) -> None:
        """Note what has no leader at the loop's time `now_s`."""
        self._since = {place: self._since.get(place, now_s) for place in leaderless}
        known = self._status.leaderless
        lasting = frozenset(p for p, since in self._since.items() if now_s - since >= AFTER_S)
        for topic, partitions in _by_topic(lasting - known).items():
            log.warning(
                "partition_without_leader",
                topic=topic,
                partitions=partitions,
                reason="nothing is read from it or written to it before a broker that has its data is back",
                remedy=LEADER_REMEDY,
            )
        for topic, partitions in _by_topic(known - lasting).items():
            log.info("partition_has_leader", topic=topic, partitions=partitions)
        self._status.leaderless = lasting


def _by_topic(places: Collection[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return found
