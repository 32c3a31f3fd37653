"""How a shard begins, and begins again: shut out other writers, wait for the whole log, look at all that follows."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from streamdedup.delivery.resume import Found
from streamdedup.errors import DeliveryError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster, Writer
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.topics import Topology, check, sink_topics
from streamdedup.settings import Settings

FENCE_S_MAX = 60.0
WRITER_ANSWER_S_MAX = 5.0
POLL_S = 0.2


async def fence(
    settings: Settings, cluster: Cluster, writer: Writer, partition: int, *, has_memory: bool
) -> tuple[Topology, Found]:
    """What the broker tells of `partition` once no other writer can change it.

    ConfigError where the topics do not fit, DeliveryError where the output stays undecided; anything else is doubt.
    """
    source, output = settings.source.topic, settings.sink.topic
    async with asyncio.timeout(FENCE_S_MAX):
        await writer.fence()
    async with asyncio.timeout(ANSWER_S_MAX):
        topology = await cluster.describe([source, *sink_topics(settings.sink)])
        remembers, by_event_time = settings.filter.remembers, settings.filter.by_event_time
        check(topology, source, settings.sink, remembers=remembers, by_event_time=by_event_time)
        # Before the end: at least once, others may write and commit meanwhile, and an offset that was committed with
        # more than we see of the output would look like a log that lost its end.
        own = await committed_offset(settings, cluster, partition)
        output_end = await cluster.end_offset(output, partition)
    within_s = settings.delivery.open_transaction_s
    await wait_decided(cluster, output, partition, output_end, within_s)
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
        )
    return topology, found


async def committed_offset(
    settings: Settings, cluster: Cluster, partition: int
) -> Committed | None:
    """The group's; exactly once, when no transaction on it is undecided."""
    group, stable = settings.kafka.group_id, settings.delivery.exactly_once
    return await cluster.committed(group, settings.source.topic, partition, stable=stable)


async def others(
    settings: Settings, cluster: Cluster, topology: Topology, own: Committed | None
) -> dict[int, Note]:
    """What the group's other partitions tell of its past, where the `own` offset has no note that does."""
    if own is not None and own.note is not None:
        return {}
    source = settings.source.topic
    return await cluster.notes(settings.kafka.group_id, source, topology[source].partitions)


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
) -> Found:
    """What is found of `partition`, its `own` committed offset and the output's end known before."""
    source, output = settings.source.topic, settings.sink.topic
    return Found(
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
    )


async def wait_decided(
    cluster: Cluster,
    output: str,
    partition: int,
    end: int,
    within_s: float,
    *,
    whose: str = "that is not ours",
) -> None:
    """Until the output's last stable offset has reached `end`: what is undecided may still be committed.

    DeliveryError after `within_s`; `whose` the transaction must be, for the message: behind a fence, no worker's.
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
        " output holds is undecided; end it (kafka-transactions.sh --bootstrap-server SERVER abort --topic"
        f" {output} --partition {partition} --start-offset {stable}) and keep other writers off"
    )


async def _writer_of(cluster: Cluster, output: str, partition: int, stable: int) -> str:
    """Who wrote the first record batch that is undecided, for a message; nothing where that cannot be told."""
    with suppress(Exception):
        async with asyncio.timeout(WRITER_ANSWER_S_MAX):
            if first := await cluster.batch_at(output, partition, stable):
                began = datetime.fromtimestamp(first.stamped_ms / 1000, UTC)
                return (
                    f" (producer id {first.producer_id}, epoch {first.epoch}, its first event of"
                    f" {began.isoformat(timespec='seconds')})"
                )
    return ""
