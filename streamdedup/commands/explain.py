"""`streamdedup explain`: whether a key is known and why, or what became of one event; the room `explain` answers."""

from collections.abc import Awaitable, Callable, Iterable

from streamdedup.delivery.recipe import Recipe
from streamdedup.explain.event_report import EventReport
from streamdedup.explain.of_keys import UNANSWERED, KeysReport
from streamdedup.explain.run import Scope, ask_event, ask_keys
from streamdedup.kafka.base import Cluster, Connect
from streamdedup.kafka.cluster import kafka_cluster, soon
from streamdedup.kafka.partitions import InputPartition
from streamdedup.rules.lists import NO_LISTS, Lists
from streamdedup.settings import Settings
from streamdedup.worker.lists import load_once

EVERYWHERE = Scope()


async def explain(
    settings: Settings,
    keys: Iterable[bytes],
    connect: Connect = kafka_cluster,
    *,
    scope: Scope = EVERYWHERE,
    on_progress: Callable[[str], None] = lambda _: None,
) -> KeysReport:
    """Return what is known of `keys`, each as an event has it. Close the report after use.

    ConfigError if a topic or a list is wrong, or if there are too many keys. DeliveryError if the broker refuses us or
    does not answer; if it goes away later, the report says so, and has what was found.
    """
    async with soon(connect, settings.kafka, UNANSWERED) as cluster:
        return await ask_keys(
            settings, cluster, _lists(settings, cluster), keys, scope=scope, on_progress=on_progress
        )


async def explain_at(
    settings: Settings,
    at: InputPartition,
    offset: int,
    connect: Connect = kafka_cluster,
    *,
    scope: Scope = EVERYWHERE,
    show_key: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> EventReport:
    """Return what became of the event at `offset` of a partition of the input. The errors are those of `explain`.

    ConfigError, too, if there is no such event.
    """
    async with soon(connect, settings.kafka, UNANSWERED) as cluster:
        return await ask_event(
            settings,
            cluster,
            _lists(settings, cluster),
            at,
            offset,
            scope=scope,
            on_progress=on_progress,
            show_key=show_key,
        )


def _lists(settings: Settings, cluster: Cluster) -> Callable[[Recipe], Awaitable[Lists]]:
    """Return what loads the lists as a worker does: the files, and the changes of the control topic."""

    async def loaded(recipe: Recipe) -> Lists:
        if settings.blocklist.file is None:
            return NO_LISTS
        return await load_once(recipe, cluster)

    return loaded
