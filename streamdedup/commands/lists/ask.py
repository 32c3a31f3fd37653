"""`streamdedup lists check --live` and `lists key`: by the lists that a configuration names, as a worker has them.

With `live` these are the lists in force: their files as they are now, and the changes of the control topic. Without it
they are the files alone.
"""

import asyncio
from collections.abc import Iterator, Sequence

from streamdedup.delivery.lists import ALLOW, BLOCK, Loaded, open_list
from streamdedup.delivery.recipe import Recipe
from streamdedup.errors import MalformedError
from streamdedup.kafka.base import Connect
from streamdedup.kafka.cluster import UNANSWERED, kafka_cluster, soon
from streamdedup.lists.check import Verdicts, asked
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.matching import asked_for
from streamdedup.lists.normalization import Normalizing
from streamdedup.lists.verified_list import VerifiedList
from streamdedup.rules.lists import Lists
from streamdedup.settings import Settings
from streamdedup.units import escaped
from streamdedup.worker.lists import load_once


def live_verdicts(settings: Settings, connect: Connect = kafka_cluster) -> Verdicts:
    """Return what decides about keys by the lists in force now.

    ConfigError if there is no block list, or a worker would refuse one; SnapshotError if one is damaged. DeliveryError
    if the broker that has the control topic refuses us or does not answer.
    """
    lists = _lists(settings, live=True, connect=connect)
    return Verdicts.in_force(lists, Recipe(settings, 1).extractor().normalizer)


def key_lines(
    settings: Settings, texts: Sequence[bytes], *, live: bool, connect: Connect = kafka_cluster
) -> Iterator[str]:
    """Yield, for each key or entry of `texts`, its normal form, and then each entry of a list that matches it.

    A line has its fields by tabs: `address` or `domain`, the entry, and a `Source`: what has it. Raises as
    `live_verdicts` does.
    """
    block = asked(_lists(settings, live=live, connect=connect))
    normalizing = Normalizing(settings.key.normalize, settings.key.rules)
    for text in texts:
        try:
            entries = asked_for(text, normalizing)
        except MalformedError as reason:
            yield f"malformed\t{escaped(str(reason))}\t-"
            continue
        yield f"normal form\t{escaped(entries[0].text)}\t-"
        for entry in entries:
            yield f"{entry.kind}\t{escaped(entry.text)}\t{block.source_of(entry)}"


def _lists(settings: Settings, *, live: bool, connect: Connect) -> Lists:
    recipe = Recipe(settings, 1)
    if live and settings.blocklist.control_topic is not None:
        return asyncio.run(_in_force(recipe, connect))
    paths = {ALLOW: settings.allowlist.file, BLOCK: settings.blocklist.file}
    loaded = {which: open_list(recipe, which, path) for which, path in paths.items() if path}
    block = loaded.get(BLOCK)
    allow = loaded[ALLOW].listed if ALLOW in loaded else None
    return Lists(allow, block and _asked(block), recipe.common_hash)


def _asked(block: Loaded) -> KeyList | VerifiedList:
    return block.listed if block.store is None else VerifiedList(block.listed, block.store)


async def _in_force(recipe: Recipe, connect: Connect) -> Lists:
    """Read the files and the control topic, as a worker does at its start."""
    async with soon(connect, recipe.settings.kafka, UNANSWERED) as cluster:
        return await load_once(recipe, cluster)
