"""The first stage's offsets, as itself and commands read them: only when no transaction on them is open any more."""

import asyncio
from collections.abc import Awaitable, Callable

from streamdedup.delivery.resume import Found
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.offsets import Committed, UndecidedError
from streamdedup.kafka.topics import Topology, refuse_missing
from streamdedup.repartition.middle import options_of, other_partitions
from streamdedup.settings import Settings

POLL_S = 0.2
TRANSACTION_S = 10.0  # a dead member holds back all readers of the middle for as long
LOST_S = 15.0  # for which an offset is undecided before its markers count as lost


async def topology_of(settings: Settings, cluster: Cluster) -> Topology:
    """Return the input and the middle topic. `settings` are those of the stage. ConfigError if one is missing."""
    input_, middle = settings.source.topic, settings.sink.topic
    topology = await cluster.describe([input_, middle])
    refuse_missing(topology, input_, [input_])
    if middle not in topology.topics:
        raise ConfigError(
            f"the middle topic {middle} does not exist or may not be seen; check source.repartition.topic, or start a"
            " worker, which makes it"
        )
    if problems := other_partitions(topology[middle], options_of(settings).partitions):
        raise ConfigError(*problems)
    return topology


async def decided(
    settings: Settings,
    cluster: Cluster,
    partitions: int,
    on_lost: Callable[[], Awaitable[None]] | None = None,
) -> dict[int, Committed]:
    """Return the stage's offsets by partition, once none is in a transaction that is open; DeliveryError if one stays.

    `settings` are those of the stage. `on_lost` is called once if one stays open for longer than the stage's may last.
    """
    group, loop = settings.kafka.group_id, asyncio.get_running_loop()
    within_s = settings.delivery.open_transaction_s + TRANSACTION_S
    ends_at, lost_at = loop.time() + within_s, loop.time() + LOST_S
    while True:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await cluster.committed_all(group, settings.source.topic, range(partitions))
        except UndecidedError:
            if loop.time() >= ends_at:
                break
        if on_lost is not None and loop.time() >= lost_at:
            await on_lost()
            on_lost = None
        await asyncio.sleep(POLL_S)
    raise DeliveryError(
        f"a transaction that would change the offsets of the group {group} has not ended for {within_s:g} s, so where"
        " to go on is undecided; end it (kafka-transactions.sh --bootstrap-server SERVER find-hanging --broker-id ID"
        " names it, on __consumer_offsets; then abort), and try again"
    )


async def found_in(
    settings: Settings,
    cluster: Cluster,
    topology: Topology,
    partition: int,
    committed: Committed | None,
) -> Found:
    """Return what the broker says of `partition` of the input, whose output is the middle topic.

    Its copies are in all partitions there, so of the output only the id is returned.
    """
    input_ = settings.source.topic
    return Found(
        committed=committed,
        cluster_id=topology.cluster_id,
        input_id=topology[input_].topic_id,
        output_id=topology[settings.sink.topic].topic_id,
        input_start=await cluster.first_offset(input_, partition),
        input_end=await cluster.end_offset(input_, partition),
        output_start=0,
        output_end=0,
        has_memory=False,
        partition=partition,
        partitions=topology[input_].partitions,
        others={},
    )
