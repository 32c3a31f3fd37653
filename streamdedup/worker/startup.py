"""What a worker does before its shards begin: it checks all that it needs, logs what its settings mean, makes topics.

Topics are made last, once the group has admitted the worker. So a start that is refused leaves none behind.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from streamdedup.delivery.fence import refuse_unsuited
from streamdedup.delivery.recipe import Recipe
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Filter, Growing
from streamdedup.kafka import old_format
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.options import MARK
from streamdedup.kafka.records import encoding, origin_header
from streamdedup.kafka.retention import duplicates_settings, output_settings, settings_like
from streamdedup.kafka.sink import transaction_timeout_s
from streamdedup.kafka.topics import (
    FOREVER,
    Topic,
    Topology,
    await_listed,
    sink_topics,
)
from streamdedup.kernel import compiling, give_back_compiler, loaded
from streamdedup.keys import placement
from streamdedup.keys.hashing import MURMUR3
from streamdedup.registry.registry import Registry
from streamdedup.repartition.foreign import may_be_middle, refuse_foreign
from streamdedup.rules import warm_up
from streamdedup.server import Status
from streamdedup.settings import Settings
from streamdedup.threads import COPIES_MAX

log = structlog.get_logger(__name__)

_UNKNOWN_SETTINGS = (
    "unknown: compaction, retention and limits are not checked; grant DescribeConfigs"
)


COMPILING_REMEDY = (
    "none while it is compiling: on a busy machine that takes minutes, and `streamdedup compile` does it in advance; if"
    " it goes on, the machine is short of memory"
)
_COMPILING = (
    "inner loops that never ran here before are compiled; this takes some seconds, half a minute on a busy machine; the"
    " compiled code is kept for the next start, and `streamdedup compile` makes it in advance"
)


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
    return await _planned(settings, cluster, with_source, like)


async def check_unstaged(settings: Settings, cluster: Cluster) -> Topology:
    """Return the topics of a worker without `source.repartition`, as `check_topics` does."""
    found = await cluster.describe([settings.source.topic, *sink_topics(settings.sink)])
    await _refuse_middle(settings, cluster, found)
    return await _planned(settings, cluster, found)


async def _planned(
    settings: Settings, cluster: Cluster, found: Topology, like: Topic | None = None
) -> Topology:
    """Return the topics that are `found`, and those that will be made. ConfigError if one does not suit."""
    source = found.topics.get(settings.source.topic)
    made = _to_make(settings, found, source, like or source) if source else {}
    planned = {
        name: replace(topic, settings={}, rights=found.rights_on(name))
        for name, topic in made.items()
    }
    whole = replace(found, topics={**planned, **found.topics})
    await _check(settings, cluster, whole)
    return whole


async def _refuse_middle(settings: Settings, cluster: Cluster, topology: Topology) -> None:
    """ConfigError if the input is the middle topic of another deployment."""
    input_ = topology.topics.get(settings.source.topic)
    if settings.source.repartition is None and input_ is not None and may_be_middle(input_):
        await refuse_foreign(settings, cluster, topology, [input_.name])


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
            configs = duplicates_settings(like, output)
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


async def check_registry(registry: Registry | None, status: Status) -> None:
    """Wait until the registry answers, if there is one.

    ConfigError if it refuses us, or is none; DeliveryError if it is away for too long.
    """
    if registry is not None:
        status.registry = registry.patience
        await registry.check()


def try_filter(recipe: Recipe, topology: Topology, inputs: str | None = None) -> None:
    """Make one filter, log what the settings mean, and compile all kernels. This blocks, for seconds at first.

    `inputs` are those of the first stage of `source.repartition`, as text; None without it.
    """
    with _kernels():
        empty = recipe.empty_filter()
        _announce(recipe, topology, empty, inputs)
        warm_up(empty)
        recipe.common_hash.warm_up()
        recipe.extractor().warm_up()
        encoding.warm_up()
        if recipe.settings.source.repartition is not None:
            placement.warm_up()
            origin_header.warm_up()


def compile_copying(recipe: Recipe) -> None:
    """Compile the kernels of the first stage of `source.repartition`. This blocks, for seconds at first."""
    with _kernels():
        encoding.warm_up()
        recipe.extractor().warm_up()
        placement.warm_up()
        origin_header.warm_up()


@contextmanager
def _kernels() -> Iterator[None]:
    """Load kernels within this context. It logs if one must be compiled, and gives back the compiler if one was new."""
    before = loaded()
    with compiling(lambda: log.info("compiling", note=_COMPILING)):
        yield
    if loaded() > before:
        give_back_compiler()


def _announce(recipe: Recipe, topology: Topology, empty: Filter, inputs: str | None) -> None:
    """Log once what the settings mean. `empty` is a filter as every shard starts with."""
    settings, output = recipe.settings, topology[recipe.settings.sink.topic]
    if settings.sink.shadow:
        log.warning(
            "shadow_mode",
            reason=f"nothing is dropped: every event goes to {output.name}, with its verdict in the header {MARK}",
            remedy="unset sink.shadow once you agree with the verdicts",
        )
    promise = _promise(settings)
    by = {
        "hash": settings.filter.hash if settings.filter.remembers else recipe.common_hash.name,
        "secret": recipe.secret,
        "meaning": recipe.meaning.name,
        "meaning_parts": recipe.meaning.parts,
        **({} if inputs is None else {"inputs": inputs}),
        **in_clear(settings),
    }
    if not settings.filter.remembers:
        log.info(
            "worker_starts",
            source=settings.source.topic,
            sink=settings.sink.topic,
            guarantee=settings.delivery.guarantee,
            partitions=recipe.partitions,
            promise=promise,
            **by,
        )
        return
    made_later = settings.sink.create_topics and output.topic_id is None
    grown = empty.size_bytes_max if isinstance(empty, Growing) else empty.size_bytes
    grown += recipe.stash_bytes
    log.info(
        "worker_starts",
        source=settings.source.topic,
        sink=settings.sink.topic,
        guarantee=settings.delivery.guarantee,
        partitions=recipe.partitions,
        keys_a_partition=recipe.shard_capacity,
        filter_bytes_in_all=recipe.partitions * empty.size_bytes,
        filter_bytes_max=recipe.partitions * grown,
        snapshot_copies_bytes_max=0
        if empty.only_sets_bits
        else min(COPIES_MAX, recipe.partitions) * grown,
        topic_settings="known" if output.settings or made_later else _UNKNOWN_SETTINGS,
        promise=promise,
        **by,
    )


def warn_unprotected(settings: Settings, output: Topic) -> None:
    """Warn if one event with a timestamp far in the future would empty the windows of the filter."""
    unlimited = settings.filter.max_jump is None and output.ahead_ms_max >= FOREVER
    if settings.filter.by_event_time and unlimited:
        log.warning(
            "window_unprotected",
            reason=f"{output.name} takes any timestamp, and one far in the future would empty the windows",
            remedy=f"set message.timestamp.after.max.ms of {output.name}, or filter.max_jump",
        )


def in_clear(settings: Settings) -> dict[str, str]:
    """Return, for the log of a start, which credentials are sent in clear because the configuration allows it."""
    registry = settings.kafka.schema_registry
    to = {
        "the brokers (kafka.allow_plaintext)": settings.kafka.sends_in_clear,
        "the schema registry (kafka.schema_registry.allow_plaintext)": registry is not None
        and registry.sends_in_clear,
    }
    found = " and ".join(whom for whom, is_so in to.items() if is_so)
    return {"in_clear": f"credentials are sent in clear to {found}"} if found else {}


def _promise(settings: Settings) -> str:
    if settings.sink.shadow:
        return "every event passes, however often it comes: sink.shadow is set"
    if not settings.filter.remembers:
        return "every event that is not blocked passes, however often it comes: there is no filter"
    rate = settings.filter.error_rate
    promise = f"of a million new events, at most about {rate * 1e6:,.3g} will be dropped as false duplicates"
    chosen = settings.filter.hash == MURMUR3.name
    return f"{promise}, unless somebody chooses keys: filter.hash is murmur3" if chosen else promise


async def _check_transaction_timeout(settings: Settings, cluster: Cluster) -> None:
    """ConfigError if the brokers would refuse every transaction, as far as they report their limit."""
    ours, most = (
        round(transaction_timeout_s(settings.kafka) * 1000),
        await cluster.transaction_ms_max(),
    )
    if most is not None and ours > most:
        raise ConfigError(
            f"the brokers' transaction.max.timeout.ms is {most}, and kafka.producer.transaction_timeout_ms is {ours},"
            " so they would refuse every transaction; lower the latter, or raise the former"
        )


async def _check_guarantee(settings: Settings, cluster: Cluster) -> None:
    if not settings.delivery.exactly_once:
        return
    group, topic = settings.kafka.group_id, settings.source.topic
    if not await cluster.supports_stable_offsets(group, topic):
        raise ConfigError(
            "delivery.guarantee: exactly_once needs a broker of Kafka 2.5 or later (stable OffsetFetch); this one"
            " has none: set at_least_once"
        )
