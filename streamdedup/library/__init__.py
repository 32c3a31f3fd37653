"""Filters as programs get them: sets that threads may share, and that are never full without a word.

The worker's filters need neither, and pay for neither. So `shared` makes each a filter of a class of its own.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamdedup import filters
from streamdedup.filters.base import Addable, Filter
from streamdedup.filters.kinds import STATIC
from streamdedup.keys.hashing import Hash
from streamdedup.library import files
from streamdedup.library.classic import ClassicBloom
from streamdedup.library.content import add_all
from streamdedup.library.files import of_class, save
from streamdedup.library.full import STOP, WARN, WARNED
from streamdedup.library.locked import naming_options
from streamdedup.library.options import differing, options_of, stated
from streamdedup.library.subclass import restored, shared, warm_up

if TYPE_CHECKING:
    from streamdedup.classes import Source

__all__ = [
    "WARN",
    "WARNED",
    "ClassicBloom",
    "add_all",
    "build",
    "differing",
    "from_bytes",
    "load",
    "of_class",
    "options_of",
    "save",
    "shared",
    "stated",
    "warm_up",
]


@naming_options
def build(config: Mapping[str, Any], hash_: Hash | None = None) -> Addable:
    """Do what `streamdedup.build` documents; `hash_` takes the place of the options `hash` and `hash_key`."""
    on_full = WARN
    if isinstance(config, Mapping) and config.get("kind") not in tuple(STATIC):
        given = dict(config)
        if given.get("on_full") in (WARN, STOP):
            on_full, config = given.pop("on_full"), given
    return shared(filters.build(config, hash_), on_full)


def load(source: "Source", *, mmap: bool, hash_key: bytes, verify: bool) -> Filter:
    """Do what `streamdedup.load` documents."""
    return files.load(source, mmap=mmap, hash_key=hash_key, verify=verify, make=restored)


def from_bytes(data: bytes | bytearray | memoryview, hash_key: bytes) -> Filter:
    """Return the filter that these bytes are."""
    from streamdedup.snapshot import streams

    return streams.read_bytes(data, hash_key, restored)
