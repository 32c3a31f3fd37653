"""Ends those of the stage's transactions that the brokers left undecided because they lost the markers.

Kafka 4.1 and later lose markers if a broker ends a transaction while one of its partitions has no leader, for example
while a killed broker starts again (`delivery.lost_markers`). Neither a new producer nor a restart of the broker ends
such a transaction; an empty one of the same producer id does. So this helps only if the process is still the same one,
or has a name of its own (`kafka.group_instance_id`).

If its copies are undecided, the lost transaction is committed: at worst its events are in the middle twice, and the
second stage drops the second copies. If only its offsets are undecided, it is aborted: at worst their events are copied
again.
"""

import asyncio
from collections.abc import Collection

import structlog

from streamdedup.kafka.base import ANSWER_S_MAX, Cluster, GroupWriter

log = structlog.get_logger(__name__)

ENDED_S_MAX = 5.0  # in which a broker writes the markers of a transaction that `start` has ended
POLL_S = 0.1


async def finish_copies(
    cluster: Cluster, writer: GroupWriter, middle: str, partitions: Collection[int], group: str
) -> None:
    """Commit the copies in `partitions` of `middle` that `writer`, which has just started, had left undecided."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + ENDED_S_MAX
    async with asyncio.timeout(ANSWER_S_MAX):
        while lost := await _undecided(cluster, writer, middle, partitions):
            if loop.time() >= ends_at:
                break
            await asyncio.sleep(POLL_S)
        else:
            return
        await writer.mark_again({middle: lost}, group, commit=True)
    log.warning(
        "transaction_finished",
        topic=middle,
        partitions=lost,
        reason="the brokers had ended our last transaction, but left its copies undecided",
        outcome="committed",
    )


async def finish_offsets(writer: GroupWriter, group: str) -> None:
    """Abort what `writer` has left undecided of the offsets of `group`. Those of other producers stay as they are."""
    async with asyncio.timeout(ANSWER_S_MAX):
        await writer.mark_again({}, group, commit=False)
    log.warning(
        "transaction_finished",
        group=group,
        reason="the offsets of a transaction were undecided for longer than it may last; if it was ours, it is ended",
        outcome="aborted",
    )


async def _undecided(
    cluster: Cluster, writer: GroupWriter, middle: str, partitions: Collection[int]
) -> list[int]:
    """Return the partitions whose first undecided event is of `writer`."""
    ends = await asyncio.gather(*(cluster.end_offset(middle, p) for p in partitions))
    stable = await asyncio.gather(*(cluster.stable_offset(middle, p) for p in partitions))
    found = []
    for partition, end, decided in zip(partitions, ends, stable, strict=True):
        if decided < end:
            whose = await cluster.producer_at(middle, partition, decided)
            found += [partition] if whose == writer.producer_id else []
    return found
