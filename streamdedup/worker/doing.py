"""What a worker does when it is asked over HTTP: `server/` has the requests, here is how they are done.

An action is safe to repeat, and says what came of it in a sentence.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from streamdedup.delivery.lifecycle import Delivery
from streamdedup.delivery.recipe import Recipe
from streamdedup.errors import StreamdedupError
from streamdedup.explain.beside import Explaining
from streamdedup.explain.run import ListsOf
from streamdedup.kafka.base import Cluster, Connect
from streamdedup.lists.check import Verdicts
from streamdedup.rules.lists import NO_LISTS, Lists, ListsInForce
from streamdedup.server.doing import Doing, Done
from streamdedup.settings import Settings
from streamdedup.threads import Threads
from streamdedup.units import counted
from streamdedup.worker.lists import ListLoader, load_once

DRAINS_AFTER_S = 0.2  # so that whoever asked has the answer before the server ends
SHOWN_MAX = 8


def doing_of(
    settings: Settings,
    connect: Connect,
    in_force: ListsInForce,
    *,
    snapshot: Callable[[], Done],
    stop: Callable[[], None],
    loader: Callable[[], ListLoader | None],
) -> Doing:
    """Return what the worker with these settings, as written, offers.

    `stop` and `snapshot` are called on its loop; `loader` returns what keeps `in_force` up to date, once there is one.
    """

    async def saved() -> Done:
        return snapshot()

    async def drained() -> Done:
        asyncio.get_running_loop().call_later(DRAINS_AFTER_S, stop)
        return Done(
            f"the worker drains, within {settings.delivery.drain_s:g} s, and ends, as at SIGTERM"
        )

    return Doing(
        answering=Explaining(settings, connect, partial(_lists_for, settings, in_force)),
        check=partial(_checked, settings, in_force),
        snapshot=saved,
        drain=drained,
        reload=partial(_reloaded, in_force, loader),
    )


def _lists_for(
    settings: Settings, in_force: ListsInForce, cluster: Cluster, threads: Threads
) -> ListsOf:
    """Return what gives a question the lists in force; a process that has none loads them as one that starts now."""

    async def lists_of(recipe: Recipe) -> Lists:
        if settings.blocklist.file is None:
            return NO_LISTS
        lists = in_force.now
        return lists if lists.block is not None else await load_once(recipe, cluster, threads)

    return lists_of


def _checked(settings: Settings, in_force: ListsInForce, keys: Sequence[bytes]) -> bytes:
    lists = in_force.now
    if settings.blocklist.file is not None and lists.block is None:
        raise StreamdedupError(
            "this process has no lists in force",
            remedy="ask a worker that judges, once it has joined its group",
        )
    verdicts = Verdicts.in_force(lists, Recipe(settings, 1).extractor().normalizer)
    return verdicts.of_keys(list(keys))


def nothing_to_save() -> Done:
    """Return what comes of a snapshot of a process without filters."""
    return _saving(0, [], "this process has no filter, so there is nothing to save")


def saving(deliveries: Mapping[int, Delivery]) -> Done:
    """Return what a save that begins now will do with these shards."""
    if not deliveries:
        return _saving(0, [], "no partition is assigned now, so there is nothing to save")
    new, waiting = 0, list[int]()
    for partition, delivery in sorted(deliveries.items()):
        shard, snapshots = delivery.shard, delivery.snapshots
        if shard is None or snapshots is None:
            waiting.append(partition)
        elif shard.label != snapshots.label:
            new += 1
    same = len(deliveries) - new - len(waiting)
    parts = [f"{counted(new, 'shard')} of {len(deliveries)} will be saved now, one after the other"]
    if same:
        parts.append(f"{counted(same, 'shard')} of which all is saved stay as they are")
    if waiting:
        shown = ", ".join(map(str, waiting[:SHOWN_MAX])) + ", ..." * (len(waiting) > SHOWN_MAX)
        parts.append(
            f"{counted(len(waiting), 'shard')} without a filter yet wait for the next save: {shown}"
        )
    return _saving(new, waiting, "; ".join(parts))


def _saving(new: int, waiting: Sequence[int], sentence: str) -> Done:
    return Done(sentence, {"saving": new, "waiting": len(waiting)})


async def _reloaded(in_force: ListsInForce, loader: Callable[[], ListLoader | None]) -> Done:
    """Have the files of the lists loaded again, and return what is in force then."""
    lists = loader()
    if lists is None:
        return Done("this process has no lists in force yet", {"lists": []})
    await lists.reloaded()
    refused = in_force.refused
    found = [
        {"list": which, "name": each.name, "version": each.version, "refused": refused.get(which)}
        for which, each in in_force.now.by_section.items()
    ]
    parts = [
        f"{each['list']} {each['name']}, version {each['version']}, "
        + ("is in force" if each["refused"] is None else f"stays in force: {each['refused']}")
        for each in found
    ]
    return Done("; ".join(parts) or "no list is configured", {"lists": found})
