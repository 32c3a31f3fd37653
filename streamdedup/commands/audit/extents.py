"""How far an audit reads, fixed before it reads: first what is committed, then where the written topics end.

An event below the committed offset was written before that was committed, so it stands below an end that is asked for
afterwards, once nothing below that end is undecided. The other way round, what a running worker commits in between
would look lost.
"""

import asyncio
from dataclasses import dataclass

from streamdedup.delivery.fence import committed_offset, look, wait_decided
from streamdedup.delivery.resume import Found
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.sink import transaction_timeout_s
from streamdedup.kafka.topics import Topology, refuse_missing, sink_topics
from streamdedup.settings import Settings

_WHOSE = "of another producer, or of a worker that was killed,"


@dataclass(frozen=True, slots=True)
class Extent:
    """Of one partition: `found` at the broker, and where each written topic, by name, ends for the audit."""

    partition: int
    found: Found
    ends: dict[str, int]

    @property
    def committed(self) -> int | None:
        """The committed offset, within the input; None where there is none, or it is of another log."""
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
        if found.note is None:  # it is of another cluster
            return False
        ids = (found.note.input_id, found.input_id)
        return None in ids or ids[0] == ids[1]


async def topology_of(settings: Settings, cluster: Cluster) -> Topology:
    """The topics; ConfigError where one is missing."""
    source = settings.source.topic
    names = [source, *sink_topics(settings.sink)]
    topology = await cluster.describe(names)
    refuse_missing(topology, source, names)
    return topology


async def fixed(settings: Settings, cluster: Cluster, topology: Topology, partition: int) -> Extent:
    """How far to read of `partition`. DeliveryError where a transaction stays open there.

    Nobody is fenced for an audit: what a worker left open when it was killed ends by its time-out.
    """
    within_s = settings.delivery.open_transaction_s + transaction_timeout_s(settings.kafka)
    async with asyncio.timeout(ANSWER_S_MAX + within_s):  # it may wait for offsets of a transaction
        committed = await committed_offset(settings, cluster, partition)
        ends = {
            name: await cluster.end_offset(name, partition) for name in sink_topics(settings.sink)
        }
    for name, end in ends.items():
        await wait_decided(cluster, name, partition, end, within_s, whose=_WHOSE)
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
