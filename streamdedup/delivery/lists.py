"""Loads the lists that a configuration names, and checks that they fit; a worker does this before it joins its group.

A list is queried by the digests of keys as this worker normalizes them. A list that was built with another hash or
another normalization would miss every key, so it is refused. So is a list whose exact store is missing but needed.
"""

from pathlib import Path
from typing import NamedTuple

import structlog

from streamdedup.delivery.recipe import Recipe
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.lists import KeyList
from streamdedup.lists.exact_store import ExactStore, place_of
from streamdedup.lists.key_list import load_for_worker

ALLOW, BLOCK = "allowlist", "blocklist"

log = structlog.get_logger(__name__)


class Loaded(NamedTuple):
    """A list, and its exact store; None if the configuration needs no store."""

    listed: KeyList
    store: ExactStore | None


def load_list(recipe: Recipe, which: str, path: Path) -> Loaded:
    """Open the list at `path`, as `open_list` does, for look-ups; log that it is in force. This reads, and blocks."""
    listed, store = loaded = open_list(recipe, which, path)
    listed.warm_up()
    log.info(
        "list_in_force",
        list=which,
        file=str(path),
        name=listed.name,
        version=listed.version,
        addresses=listed.facts.counts.addresses,
        domains=listed.facts.counts.domains,
        error_rate=listed.error_rate,
        exact_keys=None if store is None else store.entries,
    )
    return loaded


def open_list(recipe: Recipe, which: str, path: Path) -> Loaded:
    """Map the list at `path` and open its exact store; `which` is `allowlist` or `blocklist`. This reads, and blocks.

    ConfigError if the file is no list, does not fit the hash or the normalization, or lacks a store that fits it;
    SnapshotError if it is damaged.
    """
    try:
        listed = load_for_worker(path, recipe.common_hash.key)
    except ConfigError as error:
        raise ConfigError(f"{which}.file: {error.sentence}", remedy=error.remedy) from None
    except SnapshotError as error:
        raise SnapshotError(f"{which}.file: {error.sentence}", remedy=error.remedy) from None
    listed.refuse_unless(recipe.extractor().normalizer)
    return Loaded(listed, _store_of(recipe, listed, path) if which == BLOCK else None)


def _store_of(recipe: Recipe, listed: KeyList, path: Path) -> ExactStore | None:
    options = recipe.settings.blocklist
    if options.on_positive == "drop":
        return None
    try:
        return ExactStore.open(options.exact or place_of(path), listed)
    except ConfigError as error:
        raise ConfigError(
            f"blocklist.on_positive = verify: {error.sentence}",
            remedy=f"{error.remedy or 'correct that'}; or set blocklist.on_positive: drop",
        ) from None
    except SnapshotError as error:
        raise SnapshotError(f"blocklist.exact: {error.sentence}", remedy=error.remedy) from None
