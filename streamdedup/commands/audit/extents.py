"""How far an audit reads, fixed before it reads: first the committed offset, then the ends of the written topics.

A worker writes an event before it commits its offset. So an event below the committed offset is below an end that is
looked up later, once no transaction below that end is undecided. In the other order, events that a running worker
commits in between would look lost.
"""

import asyncio
from dataclasses import dataclass

from streamdedup.delivery.fence import committed_offset, look, wait_decided
from streamdedup.delivery.resume import Found
from streamdedup.errors import ConfigError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.sink import transaction_timeout_s
from streamdedup.kafka.topics import Topology, refuse_missing, sink_topics
from streamdedup.settings import Settings

WHOSE = "of another producer, or of a worker that was killed,"


@dataclass(frozen=True, slots=True)
class Extent:
    """For one partition: what was `found` at the broker, and where the audit stops in each written topic, by name."""

    partition: int
    found: Found
    ends: dict[str, int]

    @property
    def committed(self) -> int | None:
        """The committed offset, moved into the input's bounds; None if there is none, or if it is of another log."""
        found = self.found
        if found.committed is None or not self.same_logs:
            return None
        return min(max(found.committed.offset, found.input_start), found.input_end)

    @property
    def same_logs(self) -> bool:
        """Whether the offset was committed on this cluster, for this very input."""
        found = self.found
        if found.committed is None or found.committed.note is None:
            return True
        if found.note is None:  # the note was written on another cluster
            return False
        ids = (found.note.input_id, found.input_id)
        return None in ids or ids[0] == ids[1]


def nothing_committed(settings: Settings) -> ConfigError:
    """Return the error of a group that has committed nothing on the input of these settings."""
    return ConfigError(
        f"the group {settings.kafka.group_id} has committed nothing on {settings.source.shown}, so there is nothing to"
        f" audit; check kafka.group_id and {settings.source.option}, or run the worker first"
    )


async def topology_of(settings: Settings, cluster: Cluster) -> Topology:
    """Return the topics. ConfigError if one is missing."""
    source = settings.source.topic
    names = [source, *sink_topics(settings.sink)]
    topology = await cluster.describe(names)
    refuse_missing(topology, source, names)
    return topology


async def fixed(settings: Settings, cluster: Cluster, topology: Topology, partition: int) -> Extent:
    """Return how far to read `partition`. DeliveryError if a transaction stays open there.

    An audit fences nobody. A transaction that a killed worker left open ends by its time-out.
    """
    within_s = settings.delivery.open_transaction_s + transaction_timeout_s(settings.kafka)
    committed = await committed_offset(settings, cluster, partition, within_s, whose=WHOSE)
    async with asyncio.timeout(ANSWER_S_MAX):
        ends = {
            name: await cluster.end_offset(name, partition) for name in sink_topics(settings.sink)
        }
    for name, end in ends.items():
        await wait_decided(cluster, name, partition, end, within_s, whose=WHOSE)
    async with asyncio.timeout(ANSWER_S_MAX):
        found = await look(
            settings,
            cluster,
            topology,
            partition,
            committed,
            output_end=ends[settings.sink.topic],
            input_end_of=cluster.stable_offset,
            others={},
        )
    return Extent(partition, found, ends)
