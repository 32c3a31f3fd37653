"""Records of formats 0 and 1, from before Kafka 0.11: no worker reads them, and none passes over them.

Brokers up to 3.x serve the segments that hold them as they are.
"""

import asyncio

from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.topics import Topic

ASKED_AT_ONCE = 16  # partitions


class OldRecordsError(DeliveryError):
    """The next events are in such a format; what was read before them is sound."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(_found(topic, partition, offset), remedy=_REMEDY, finding="old-format")


_REMEDY = "copy the topic with a producer of today and read the copy, or let retention remove them, and read on"


def _found(topic: str, partition: int, offset: int) -> str:
    return (
        f"{topic}/{partition} has records of a format from before Kafka 0.11 at offset {offset}, which"
        " cannot be read"
    )


async def check(cluster: Cluster, group: str, topic: Topic, *, from_start: bool) -> None:
    """ConfigError if the next event of `group` in a partition of `topic` is in such a format.

    `from_start`: a group without an offset begins at the first event; else at the end, where none is old.
    """
    partitions = range(topic.partitions)
    firsts = await cluster.first_offsets(topic.name, partitions)
    committed = await cluster.committed_all(group, topic.name, partitions, stable=False)
    asking = asyncio.Semaphore(ASKED_AT_ONCE)

    async def old_at(partition: int, first: int) -> int | None:
        begun = committed.get(partition)
        if begun is None and not from_start:
            return None
        offset = first if begun is None else max(first, begun.offset)
        async with asking:
            return offset if await cluster.is_old(topic.name, partition, offset) else None

    found = await asyncio.gather(*(old_at(*each) for each in firsts.items()))
    for partition, offset in zip(firsts, found, strict=True):
        if offset is not None:
            raise ConfigError(_found(topic.name, partition, offset), remedy=_REMEDY)
