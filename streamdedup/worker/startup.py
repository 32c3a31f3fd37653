"""What a worker does before its shards begin: it logs what its settings mean, and compiles its inner loops."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from streamdedup.delivery.recipe import Recipe
from streamdedup.filters.base import Filter
from streamdedup.kafka.options import MARK
from streamdedup.kafka.records import encoding, origin_header
from streamdedup.kafka.topics import (
    FOREVER,
    Topic,
    Topology,
)
from streamdedup.kernel import compiling, give_back_compiler, loaded
from streamdedup.keys import placement
from streamdedup.keys.hashing import MURMUR3
from streamdedup.registry.registry import Registry
from streamdedup.rules import warm_up
from streamdedup.server import Status
from streamdedup.server.status import Deployed
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


def deployed(settings: Settings) -> Deployed:
    """Return what people know a worker with these settings by."""
    filter_, port = settings.filter, settings.server.port
    host = settings.kafka.group_instance_id or socket.gethostname()
    return Deployed(
        name=f"{host}:{port}" if port and not settings.kafka.group_instance_id else host,
        group=settings.kafka.group_id,
        output=settings.sink.topic,
        exactly_once=settings.delivery.exactly_once,
        filter=filter_.kind,
        window_s=filter_.window_ms / 1000 if filter_.by_event_time else None,
    )


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
    new, most = recipe.filter_bytes
    log.info(
        "worker_starts",
        source=settings.source.topic,
        sink=settings.sink.topic,
        guarantee=settings.delivery.guarantee,
        partitions=recipe.partitions,
        keys_a_partition=recipe.shard_capacity,
        filter_bytes_in_all=recipe.partitions * new,
        filter_bytes_max=recipe.partitions * most,
        snapshot_copies_bytes_max=0
        if empty.only_sets_bits
        else min(COPIES_MAX, recipe.partitions) * most,
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
