"""How a shard begins, and begins again: shut out other writers, wait for the whole log, look at all that follows."""

import asyncio

from streamdedup.context import Context
from streamdedup.errors import DeliveryError
from streamdedup.kafka.base import Writer
from streamdedup.kafka.topics import Topology, check, sink_topics
from streamdedup.resume import Found

FENCE_S_MAX = 60.0
OPEN_TRANSACTION_S_MAX = 60.0
BROKER_ANSWER_S_MAX = 60.0
POLL_S = 0.2


async def fence(
    context: Context, writer: Writer, partition: int, *, has_memory: bool
) -> tuple[Topology, Found]:
    """What the broker tells of `partition` once no other writer can change it.

    ConfigError where the topics do not fit, DeliveryError where the output stays undecided; anything else is doubt.
    """
    settings, cluster = context.settings, context.cluster
    source, output, group = settings.source.topic, settings.sink.topic, settings.kafka.group_id
    async with asyncio.timeout(FENCE_S_MAX):
        await writer.fence()
    async with asyncio.timeout(BROKER_ANSWER_S_MAX):
        topology = await cluster.describe([source, *sink_topics(settings.sink)])
        check(topology, source, settings.sink, by_event_time=settings.filter.by_event_time)
        # Before the end: at least once, others may write and commit meanwhile, and an offset that was committed with
        # more than we see of the output would look like a log that lost its end.
        own = await cluster.committed(group, source, partition, stable=context.exactly_once)
        output_end = await cluster.end_offset(output, partition)
    await _wait_decided(context, partition, output_end)
    async with asyncio.timeout(BROKER_ANSWER_S_MAX):
        partitions = topology[source].partitions
        told = own is not None and own.note is not None
        notes = {} if told else await cluster.notes(group, source, partitions)
        found = Found(
            own,
            topology.cluster_id,
            topology[source].topic_id,
            topology[output].topic_id,
            await cluster.first_offset(source, partition),
            await cluster.end_offset(source, partition),
            await cluster.first_offset(output, partition),
            output_end,
            has_memory,
            partition,
            partitions,
            notes,
        )
    return topology, found


async def _wait_decided(context: Context, partition: int, end: int) -> None:
    """Until the output's last stable offset has reached `end`: what is undecided may still be committed."""
    output, stable = context.settings.sink.topic, -1
    try:
        async with asyncio.timeout(OPEN_TRANSACTION_S_MAX):
            while stable < end:
                stable = await context.cluster.stable_offset(output, partition)
                if stable < end:
                    await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise DeliveryError(
            f"{output}/{partition}: a transaction that is not ours is open from offset {stable} on, so what"
            " the output holds is undecided; end it (kafka-transactions.sh find-hanging) and keep other writers off"
        ) from None
