"""`streamdedup config check --connect`: whether a worker with these settings would start on this cluster.

It joins no group, and makes no topic. Files of lists are not opened.
"""

import asyncio

from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import registry_answering
from streamdedup.delivery.topics import check_topics
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster, Connect
from streamdedup.kafka.cluster import UNANSWERED, kafka_cluster, soon
from streamdedup.kafka.retention import shortfall
from streamdedup.kafka.topics import Topology
from streamdedup.lists.control import control_topic
from streamdedup.repartition.selection import Selection
from streamdedup.repartition.startup import (
    check_groups,
    check_may_join,
    check_not_staged,
    check_purge,
    check_unstaged,
)
from streamdedup.settings import Settings
from streamdedup.settings.stages import copying_group, deduplicating


async def connected_check(settings: Settings, connect: Connect = kafka_cluster) -> list[str]:
    """Check the topics, groups and rights that a worker needs; return warnings.

    ConfigError if it would not start. DeliveryError if the broker refuses us, or if it or the schema registry does not
    answer.
    """
    async with soon(connect, settings.kafka, UNANSWERED) as cluster:
        async with asyncio.timeout(ANSWER_S_MAX):
            staged = settings.source.repartition is not None
            topology = await (_staged if staged else _plain)(settings, cluster)
            if control := settings.blocklist.control_topic:
                await control_topic(cluster, control)
        await registry_answering(Recipe(settings, 1))
    short = shortfall(topology[settings.sink.topic], settings.filter.remembered_ms)
    return [f"{short.reason}; {short.remedy}"] if short else []


async def _plain(settings: Settings, cluster: Cluster) -> Topology:
    await check_not_staged(settings, cluster)
    return await check_unstaged(settings, cluster)


async def _staged(settings: Settings, cluster: Cluster) -> Topology:
    await check_groups(settings, cluster)
    await check_may_join(cluster, settings.kafka.group_id, copying_group(settings))
    plan = await Selection(settings, cluster).plan()
    second = deduplicating(settings)
    middle = plan.topology[second.source.topic]
    topology = await check_topics(second, cluster, middle, plan.like)
    check_purge(middle)
    return topology
