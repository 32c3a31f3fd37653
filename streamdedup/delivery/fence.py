"""How a shard begins, and begins again: fence other writers, wait for the whole log, then ask the broker for the rest.

The order matters: with `exactly_once`, no earlier writer can change what is read after the fence.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress

from streamdedup.delivery.lost_markers import finish_lost
from streamdedup.delivery.resume import PartitionState
from streamdedup.errors import DeliveryError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster, Writer
from streamdedup.kafka.offsets import Committed, Note, UndecidedError
from streamdedup.kafka.partitions import abort_command
from streamdedup.kafka.topics import Topology, check, sink_topics
from streamdedup.settings import Settings
from streamdedup.snapshot.header import Log
from streamdedup.units import moment

FENCE_S_MAX = 60.0  # for the start of the producer that fences the others
WRITER_ANSWER_S_MAX = 5.0  # for the name of an open transaction's producer, in a message
POLL_S = 0.2  # between two questions whether a transaction has ended
NOT_OURS = "that is not ours"


async def fence(
    settings: Settings,
    cluster: Cluster,
    writer: Writer,
    partition: int,
    *,
    has_memory: bool,
    past: Callable[[], Awaitable[Sequence[Log]]],
) -> tuple[Topology, PartitionState]:
    """Fence all other writers of `partition`; return the topics, and what the broker then reports about the partition.

    `past` returns the logs that the newest snapshots name; it is called if the committed offset has no note.
    ConfigError if the topics do not fit, DeliveryError if a transaction in the output stays open; any other error is a
    doubt.
    """
    source, output = settings.source.topic, settings.sink.topic
    async with asyncio.timeout(FENCE_S_MAX):
        await writer.fence()
    async with asyncio.timeout(ANSWER_S_MAX):
        topology = await cluster.describe([source, *sink_topics(settings.sink)])
        refuse_unsuited(settings, topology)
    await finish_lost(settings, cluster, writer, topology, partition)
    # The committed offset is read before the output's end. With `at_least_once` another worker may still write and
    # commit between the two questions. In the other order its newer offset could name a label beyond the end that we
    # read before, and the output would look like a log that lost its end.
    within_s = settings.delivery.open_transaction_s
    own = await committed_offset(settings, cluster, partition, within_s)
    async with asyncio.timeout(ANSWER_S_MAX):
        output_end = await cluster.end_offset(output, partition)
    await wait_decided(cluster, output, partition, output_end, within_s)
    noted = own is not None and own.note is not None
    snapshots = () if noted else await past()  # without a time-out: it waits for the disk
    async with asyncio.timeout(ANSWER_S_MAX):
        found = await look(
            settings,
            cluster,
            topology,
            partition,
            own,
            output_end=output_end,
            input_end_of=cluster.end_offset,
            others=await others(settings, cluster, topology, own),
            has_memory=has_memory,
            snapshots=snapshots,
            beyond=await beyond(settings, cluster, topology, own),
        )
    return topology, found


def refuse_unsuited(settings: Settings, topology: Topology) -> None:
    """ConfigError, with every problem, if the topics do not suit."""
    check(
        topology,
        settings.source.topic,
        settings.sink,
        remembers=settings.filter.remembers,
        by_event_time=settings.filter.by_event_time,
        is_middle=settings.source.repartition is not None,
    )


async def committed_offset(
    settings: Settings, cluster: Cluster, partition: int, within_s: float, *, whose: str = NOT_OURS
) -> Committed | None:
    """Return the group's committed offset. With `exactly_once`, wait until no transaction on it is undecided.

    DeliveryError after `within_s` seconds. `whose` describes the undecided transaction in the message: after a fence
    it cannot be ours.
    """
    group, source = settings.kafka.group_id, settings.source.topic
    stable = settings.delivery.exactly_once
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + within_s
    while True:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                found = await cluster.committed_all(group, source, [partition], stable=stable)
                return found.get(partition)
        except UndecidedError:
            if loop.time() >= ends_at:
                break
        await asyncio.sleep(POLL_S)
    raise DeliveryError(
        f"{source}/{partition}: a transaction {whose} has not ended, and would change the offset of the group {group},"
        " so where to go on is undecided",
        remedy="keep other writers off, and end it (kafka-transactions.sh --bootstrap-server SERVER find-hanging"
        " --broker-id ID names it, on __consumer_offsets; then abort)",
        finding="foreign-offsets",
    )


async def others(
    settings: Settings, cluster: Cluster, topology: Topology, own: Committed | None
) -> dict[int, Note]:
    """Return the notes of the group's other partitions; empty if the `own` offset has a note, which is enough."""
    if own is not None and own.note is not None:
        return {}
    source = settings.source.topic
    return await cluster.notes(settings.kafka.group_id, source, topology[source].partitions)


async def beyond(
    settings: Settings, cluster: Cluster, topology: Topology, own: Committed | None
) -> list[int]:
    """Return the output partitions that the input does not have, and to which something was written.

    Empty if the `own` offset has a note, which is enough, or if there is no filter.
    """
    if (own is not None and own.note is not None) or not settings.filter.remembers:
        return []
    output = settings.sink.topic
    left = range(topology[settings.source.topic].partitions, topology[output].partitions)
    ends = await asyncio.gather(*(cluster.end_offset(output, partition) for partition in left))
    return [partition for partition, end in zip(left, ends, strict=True) if end > 0]


async def look(
    settings: Settings,
    cluster: Cluster,
    topology: Topology,
    partition: int,
    own: Committed | None,
    *,
    output_end: int,
    input_end_of: Callable[[str, int], Awaitable[int]],
    others: Mapping[int, Note],
    has_memory: bool = False,
    snapshots: Sequence[Log] = (),
    beyond: Collection[int] = (),
) -> PartitionState:
    """Ask the broker for the rest of the state; its `own` committed offset and `output_end` were read before."""
    source, output = settings.source.topic, settings.sink.topic
    return PartitionState(
        committed=own,
        cluster_id=topology.cluster_id,
        input_id=topology[source].topic_id,
        output_id=topology[output].topic_id,
        input_start=await cluster.first_offset(source, partition),
        input_end=await input_end_of(source, partition),
        output_start=await cluster.first_offset(output, partition),
        output_end=output_end,
        has_memory=has_memory,
        partition=partition,
        partitions=topology[source].partitions,
        others=others,
        snapshots=snapshots,
        beyond=beyond,
    )


async def wait_decided(
    cluster: Cluster,
    output: str,
    partition: int,
    end: int,
    within_s: float,
    *,
    whose: str = NOT_OURS,
) -> None:
    """Wait until the output's last stable offset has reached `end`: an open transaction may still be committed.

    DeliveryError after `within_s` seconds. `whose` describes the open transaction in the message: after a fence it
    cannot be ours.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + within_s
    while True:
        async with asyncio.timeout(ANSWER_S_MAX):
            stable = await cluster.stable_offset(output, partition)
        if stable >= end:
            return
        if loop.time() >= ends_at:
            break
        await asyncio.sleep(POLL_S)
    writer = await _writer_of(cluster, output, partition, stable)
    raise DeliveryError(
        f"{output}/{partition}: a transaction {whose} is open from offset {stable} on{writer}, so what the"
        " output holds is undecided",
        remedy=f"end it ({abort_command(output, partition, stable)}) and keep other writers off",
        finding="foreign-transaction",
    )


async def _writer_of(cluster: Cluster, output: str, partition: int, stable: int) -> str:
    """Return, for a message, who wrote the first undecided record batch; an empty text if the broker does not say."""
    with suppress(Exception):
        async with asyncio.timeout(WRITER_ANSWER_S_MAX):
            if first := await cluster.batch_at(output, partition, stable):
                return (
                    f" (producer id {first.producer_id}, epoch {first.epoch}, its first event of"
                    f" {moment(first.stamped_ms)})"
                )
    return ""
