"""Finish a transaction of ours that has ended, and whose end the brokers have not written everywhere.

Kafka from 4.1 on skips the markers of a transaction for partitions that have no leader, as if they had been deleted. A
broker that is killed and restarted has no leaders for a moment. The coordinator then reports that the transaction has
ended, but the output or the group's offset stays undecided for ever. Neither a new producer nor a restart ends that.
The next transaction of the same producer id does, with its own outcome. So we find out how the lost one ended, and end
an empty one in the same way.

The note of each commit shows how: with `exactly_once`, no event of ours lies at or above the label of the last commit.
If only the output is undecided, the lost transaction was committed if the label lies above its events. If the offset is
undecided, it was committed if the output shows events of ours at or above the label before it. If both are undecided,
it is committed: an offset is sent when all events are in the output, so the transaction is whole, and we may have taken
it for committed. Otherwise it was aborted, or it wrote nothing to the output: then its input is read again, with the
same result.

If the next transaction has already ended the lost one, with another outcome, none of this applies. If the lost one was
committed and is aborted now, `Committer.confirmed_end` lies above the label, and the memory holds what the output does
not: `lifecycle` drops that memory.
"""

import asyncio
from contextlib import aclosing

import structlog

from streamdedup.kafka.base import ANSWER_S_MAX, Cluster, Writer
from streamdedup.kafka.offsets import Committed, UndecidedError
from streamdedup.kafka.topics import Topology
from streamdedup.settings import Settings

log = structlog.get_logger(__name__)


async def finish_lost(
    settings: Settings, cluster: Cluster, writer: Writer, topology: Topology, partition: int
) -> None:
    """End the last transaction of `writer` if its markers were lost. `writer` has fenced all others.

    This does nothing if nothing of it is undecided: what others have left open is not ours to end.
    """
    if not settings.delivery.exactly_once:
        return
    group, source, output = settings.kafka.group_id, settings.source.topic, settings.sink.topic

    async def is_ours(offset: int) -> bool:
        return await cluster.producer_at(output, partition, offset) == writer.producer_id

    async def shows_ours(start: int, end: int) -> bool:
        events = cluster.committed_events(output, partition, start, end, stall_s=ANSWER_S_MAX)
        async with aclosing(events) as batches:
            async for batch in batches:
                for offset in batch.offsets:
                    if await is_ours(int(offset)):
                        return True
        return False

    async with asyncio.timeout(ANSWER_S_MAX):
        offset_is_lost = False
        try:
            own = await cluster.committed_all(group, source, [partition], stable=True)
        except UndecidedError:
            offset_is_lost = True
            own = await cluster.committed_all(group, source, [partition], stable=False)
        end = await cluster.end_offset(output, partition)
        stable = await cluster.stable_offset(output, partition)
        output_is_lost = stable < end and await is_ours(stable)
        if not offset_is_lost and not output_is_lost:
            return
        label = _label(own.get(partition), topology[output].topic_id)
        if label is None:
            was_committed = False
        elif offset_is_lost:
            was_committed = output_is_lost or await shows_ours(label, stable)
        else:
            was_committed = label > stable
        await writer.mark_again(group, commit=was_committed)
    lost = "the group's offset" if offset_is_lost else "the output"
    log.warning(
        "transaction_finished",
        partition=partition,
        reason=f"the brokers had ended our last transaction, but left it undecided in {lost}",
        outcome="committed" if was_committed else "aborted",
    )


def _label(own: Committed | None, output_id: str | None) -> int | None:
    """Return the output offset after our last event of the committed transactions; None if no note has it."""
    note = own.note if own else None
    if note is None or not note.atomic or note.output_id != output_id:
        return None
    return note.label
