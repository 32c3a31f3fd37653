"""The first stage's offsets. The stage and the commands read them once no transaction on them is open."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from streamdedup.delivery.resume import PartitionState
from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.offsets import Committed, UndecidedError
from streamdedup.kafka.partitions import InputPartition, by_topic
from streamdedup.kafka.topics import Topology
from streamdedup.repartition.middle import options_of, other_partitions
from streamdedup.settings import Settings

T = TypeVar("T")

POLL_S = 0.2
# The time-out of the stage's transactions: if a member dies, all readers of the middle wait for it.
TRANSACTION_S = 10.0
LOST_S = 15.0  # for which an offset is undecided before its markers count as lost


async def topology_of(settings: Settings, cluster: Cluster, inputs: Sequence[str]) -> Topology:
    """Return the `inputs` and the middle topic. `settings` are those of the stage. ConfigError if one is missing."""
    middle = settings.sink.topic
    topology = await cluster.describe([*inputs, middle])
    if missing := [name for name in inputs if name not in topology.topics]:
        raise ConfigError(
            "\n".join(
                f"the topic {name} does not exist or may not be seen; check {settings.source.option}"
                for name in missing
            )
        )
    if middle not in topology.topics:
        raise ConfigError(
            f"the middle topic {middle} does not exist or may not be seen",
            remedy="check source.repartition.topic, or start a worker, which makes it",
        )
    if problems := other_partitions(topology[middle], options_of(settings).partitions):
        raise ConfigError("\n".join(problems))
    return topology


def partitions_of(topology: Topology, inputs: Sequence[str]) -> list[InputPartition]:
    """Return every partition of those of the `inputs` that are there, in order."""
    return [
        InputPartition(name, number)
        for name in inputs
        if name in topology.topics
        for number in range(topology[name].partitions)
    ]


async def committed_on(
    cluster: Cluster, group: str, partitions: Iterable[InputPartition], *, stable: bool
) -> dict[InputPartition, Committed]:
    """Return the offsets of `group` on those of `partitions` that have one.

    Raise UndecidedError if `stable` is asked while a transaction on one of them has not ended.
    """

    async def of_topic(topic: str, numbers: Collection[int]) -> Mapping[int, Committed]:
        return await cluster.committed_all(group, topic, numbers, stable=stable)

    return await of_each(partitions, of_topic)


async def of_each(
    partitions: Iterable[InputPartition],
    ask: Callable[[str, Collection[int]], Awaitable[Mapping[int, T]]],
) -> dict[InputPartition, T]:
    """Return what `ask` answers of each partition, with one call for each topic; none of those that it leaves out."""
    numbers = by_topic(partitions)
    answers = await asyncio.gather(*(ask(topic, its) for topic, its in numbers.items()))
    return {
        InputPartition(topic, number): answer
        for topic, its in zip(numbers, answers, strict=True)
        for number, answer in its.items()
    }


async def decided(
    settings: Settings,
    cluster: Cluster,
    partitions: Collection[InputPartition],
    on_lost: Callable[[], Awaitable[None]] | None = None,
) -> dict[InputPartition, Committed]:
    """Return the stage's offsets by partition, once no open transaction has one; DeliveryError if one stays open.

    `settings` are those of the stage. `on_lost` is called once if a transaction stays open for longer than one of the
    stage may last.
    """
    group, loop = settings.kafka.group_id, asyncio.get_running_loop()
    within_s = settings.delivery.open_transaction_s + TRANSACTION_S
    ends_at, lost_at = loop.time() + within_s, loop.time() + LOST_S
    while True:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await committed_on(cluster, group, partitions, stable=True)
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
    partition: InputPartition,
    committed: Committed | None,
) -> PartitionState:
    """Return what the broker reports about `partition`, whose output is the middle topic.

    Its copies are in all partitions of the middle topic, so of the output only the id is filled in.
    """
    topic, number = partition
    return PartitionState(
        committed=committed,
        cluster_id=topology.cluster_id,
        input_id=topology[topic].topic_id,
        output_id=topology[settings.sink.topic].topic_id,
        input_start=await cluster.first_offset(topic, number),
        input_end=await cluster.end_offset(topic, number),
        output_start=0,
        output_end=0,
        has_memory=False,
        partition=number,
        partitions=topology[topic].partitions,
        others={},
    )
