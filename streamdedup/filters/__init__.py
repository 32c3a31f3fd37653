"""The filters: sets of digests in a few bits a key, each kind chosen by its name. `kinds` lists them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamdedup.filters.kinds import (
    GROWABLE,
    GROWTH,
    KINDS,
    LOADED,
    STATIC,
    from_parts,
    hash_of,
    kind_of,
)

if TYPE_CHECKING:  # it brings numpy, which reading the settings does without
    from streamdedup.filters.base import Addable
    from streamdedup.keys.hashing import Hash

__all__ = [
    "GROWABLE",
    "GROWTH",
    "KINDS",
    "LOADED",
    "STATIC",
    "build",
    "from_parts",
    "hash_of",
    "kind_of",
]


def build(config: Mapping[str, Any], hash_: "Hash | None" = None) -> "Addable":
    """Make an empty filter from its configuration. `streamdedup.build` documents the options and the errors.

    `hash_` takes the place of the options `hash` and `hash_key`: a worker gives one whose secret was drawn.
    """
    from streamdedup.filters import factory

    return factory.build(config, hash_)
