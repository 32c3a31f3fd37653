"""How far an audit reads, fixed before it reads: first the committed offset, then the ends of the written topics.

A worker writes an event before it commits its offset. So an event below the committed offset is below an end that is
looked up later, once no transaction below that end is undecided. In the other order, events that a running worker
commits in between would look lost.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from streamdedup.delivery.fence import look, wait_decided
from streamdedup.delivery.resume import PartitionState, differs
from streamdedup.errors import ConfigError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.offsets import Committed
from streamdedup.kafka.sink import transaction_timeout_s
from streamdedup.kafka.topics import Topology
from streamdedup.settings import Settings

WHOSE = "of another producer, or of a worker that was killed,"


@dataclass(frozen=True, slots=True)
class Extent:
    """For one partition: what was `found` at the broker, and where the audit stops in each written topic, by name.

    `is_copied` says that the partition's events are copied to a middle topic, and `is_read_on` that a worker of this
    configuration reads it.
    """

    found: PartitionState
    ends: dict[str, int] = field(default_factory=dict)
    is_copied: bool = False
    is_read_on: bool = True

    @property
    def partition(self) -> int:
        """Its number."""
        return self.found.partition

    @property
    def committed(self) -> int | None:
        """The committed offset, moved into the input's bounds; None if there is none, or if it is of another log."""
        found = self.found
        if found.committed is None or not self.same_logs:
            return None
        return min(max(found.committed.offset, found.input_start), found.input_end)

    @property
    def until(self) -> int:
        """The offset below which the input's events are due."""
        return self.found.input_start if self.committed is None else self.committed

    @property
    def same_logs(self) -> bool:
        """Whether the offset was committed on this cluster, for this very input, and for this middle topic, if any."""
        found = self.found
        note = found.committed.note if found.committed else None
        return note is None or not (
            differs(note.cluster_id, found.cluster_id)
            or differs(note.input_id, found.input_id)
            or (self.is_copied and differs(note.output_id, found.output_id))
        )


def nothing_committed(settings: Settings) -> ConfigError:
    """Return the error of a group that has committed nothing on the input of these settings."""
    return ConfigError(
        f"the group {settings.kafka.group_id} has committed nothing on {settings.source.shown}, so there is nothing to"
        f" audit; check kafka.group_id and {settings.source.option}, or run the worker first"
    )


def patience_s(settings: Settings) -> float:
    """Return for how long to wait for a transaction. A transaction that a killed worker left open ends by its time-out.

    An audit fences nobody.
    """
    return settings.delivery.open_transaction_s + transaction_timeout_s(settings.kafka)


async def decided_end(settings: Settings, cluster: Cluster, topic: str, partition: int) -> int:
    """Return the end, once nothing below it is undecided. DeliveryError if a transaction stays open there."""
    async with asyncio.timeout(ANSWER_S_MAX):
        end = await cluster.end_offset(topic, partition)
    await wait_decided(cluster, topic, partition, end, patience_s(settings), whose=WHOSE)
    return end


async def fixed(
    settings: Settings,
    cluster: Cluster,
    topology: Topology,
    partition: int,
    committed: Committed | None,
    *,
    topics: Iterable[str],
) -> Extent:
    """Return how far to read `partition` of the written `topics`, after the `committed` offset was asked for."""
    ends = {topic: await decided_end(settings, cluster, topic, partition) for topic in topics}
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
    return Extent(found, ends)
