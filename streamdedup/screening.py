"""The lists that a configuration names, loaded and seen to fit: what a worker does before it joins its group.

A list is asked for the digests of the filters, of keys as they are normalized here: what was built otherwise would miss
every key that is on it, so it is refused.
"""

from pathlib import Path

import structlog

from streamdedup.context import Context
from streamdedup.errors import ConfigError
from streamdedup.lists import KeyList, load

log = structlog.get_logger(__name__)


def load_list(context: Context, which: str, path: Path) -> KeyList:
    """Map the list at `path`, which is `allowlist` or `blocklist`. Blocking, for a tenth of a second a 100 MB.

    ConfigError where it is none, or does not fit hash or normalization; SnapshotError where it is damaged.
    """
    try:
        listed = load(path, hash_key=context.hash.key)
    except ConfigError as error:
        raise ConfigError(
            f"{which}.file: {error}; filter.hash is {context.hash.name}: a list is built with the same hash, and the"
            " same key where that is siphash"
        ) from None
    listed.refuse_unless(context.extractor().normalizer)
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
    )
    return listed
