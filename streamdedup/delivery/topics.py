"""The topics of a worker: those that are there, and those that will be made; and whether all of them suit.

Topics are made last, once the group has admitted the worker. So a start that is refused leaves none behind.
"""

from dataclasses import replace

import structlog

from streamdedup.delivery.fence import refuse_unsuited
from streamdedup.errors import ConfigError
from streamdedup.kafka import old_format
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.retention import duplicates_settings, output_settings, settings_like
from streamdedup.kafka.sink import transaction_timeout_s
from streamdedup.kafka.topics import Topic, Topology, await_listed, sink_topics
from streamdedup.settings import Settings

log = structlog.get_logger(__name__)


async def made_topics(
    settings: Settings, cluster: Cluster, made: list[str], *, like: Topic | None = None
) -> Topology:
    """Return the topics; missing ones are created if `sink.create_topics` is set. ConfigError if one does not fit.

    The names of those that it created are added to `made`. They keep events as long as the topic `like`, if it is
    given; else as long as the topic that is read. The output keeps them at least as long as its filter remembers their
    keys. The control topic of the block list is not among them: `list_changes` watches it, and it holds up nothing.

    All else is checked before this is called, so that a start that is refused leaves no topic behind.
    """
    names = [settings.source.topic, *sink_topics(settings.sink)]
    topology = await cluster.describe(names)
    if source := topology.topics.get(settings.source.topic):
        missing = _to_make(settings, topology, source, like or source)
        if missing:
            created = await cluster.create(list(missing.values()))
            made += created
            for name in created:
                kept = missing[name].settings.get("retention.ms", "the broker's default")
                log.info(
                    "topic_created", topic=name, partitions=source.partitions, retention_ms=kept
                )
            topology = await await_listed(cluster.describe, names, missing)
    await _check(settings, cluster, topology)
    return topology


async def check_topics(
    settings: Settings, cluster: Cluster, source: Topic, like: Topic
) -> Topology:
    """Return the topics, those that will be made among them. ConfigError if one does not suit. Nothing is made.

    `source` is the topic that is read, which may not be there yet. Missing topics will be like the topic `like`.
    """
    found = await cluster.describe(sink_topics(settings.sink))
    with_source = replace(found, topics={**found.topics, source.name: source})
    return await planned(settings, cluster, with_source, like)


async def planned(
    settings: Settings, cluster: Cluster, found: Topology, like: Topic | None = None
) -> Topology:
    """Return the topics that are `found`, and those that will be made. ConfigError if one does not suit.

    `found` has those of the topics that are there. Missing ones will be like the topic `like`; without it, like the one
    that is read.
    """
    source = found.topics.get(settings.source.topic)
    made = _to_make(settings, found, source, like or source) if source else {}
    planned = {
        name: replace(topic, settings={}, rights=found.rights_on(name))
        for name, topic in made.items()
    }
    whole = replace(found, topics={**planned, **found.topics})
    await _check(settings, cluster, whole)
    return whole


def _to_make(settings: Settings, found: Topology, source: Topic, like: Topic) -> dict[str, Topic]:
    """Return the topics of the sink that will be made, by name: those that are not `found`, as the settings allow.

    They get as many partitions as `source`, and as many replicas as `like`.
    """
    made = dict[str, Topic]()
    for name in sink_topics(settings.sink) if settings.sink.create_topics else ():
        if name in found.topics or name in found.hidden:
            continue
        output = found.topics.get(settings.sink.topic)
        if name == settings.sink.topic:
            configs = output_settings(like, settings.filter.remembered_ms)
        elif name == settings.sink.duplicates_topic and output is not None:
            are_letters = settings.sink.duplicates_headers
            configs = duplicates_settings(like, output, are_letters=are_letters)
        else:
            configs = settings_like(like)
        made[name] = Topic(name, None, source.partitions, like.replicas, settings=configs)
    return made


async def _check(settings: Settings, cluster: Cluster, topology: Topology) -> None:
    """ConfigError if the topics do not suit, or the brokers could not keep what the settings promise."""
    refuse_unsuited(settings, topology)
    if settings.source.repartition is None:  # else what is read is the middle topic, which is ours
        await old_format.check(
            cluster,
            settings.kafka.group_id,
            topology[settings.source.topic],
            from_start=settings.source.start == "earliest",
        )
    await _check_guarantee(settings, cluster)
    await _check_transaction_timeout(settings, cluster)


async def _check_transaction_timeout(settings: Settings, cluster: Cluster) -> None:
    """ConfigError if the brokers would refuse every transaction, as far as they report their limit."""
    ours, most = (
        round(transaction_timeout_s(settings.kafka) * 1000),
        await cluster.transaction_ms_max(),
    )
    if most is not None and ours > most:
        raise ConfigError(
            f"the brokers' transaction.max.timeout.ms is {most}, and kafka.producer.transaction_timeout_ms is {ours},"
            " so they would refuse every transaction",
            remedy="lower the latter, or raise the former",
        )


async def _check_guarantee(settings: Settings, cluster: Cluster) -> None:
    if not settings.delivery.exactly_once:
        return
    group, topic = settings.kafka.group_id, settings.source.topic
    if not await cluster.supports_stable_offsets(group, topic):
        raise ConfigError(
            "delivery.guarantee: exactly_once needs a broker of Kafka 2.5 or later (stable OffsetFetch), and this one"
            " is older",
            remedy="set delivery.guarantee: at_least_once",
        )
