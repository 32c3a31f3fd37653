"""The kinds of filter, by name. A kind's module is imported when the kind is first built, because it imports numba."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from streamdedup.errors import ConfigError

if TYPE_CHECKING:  # these import numpy, which reading the settings does not need
    from streamdedup.filters.base import Filter
    from streamdedup.keys.hashing import Hash

KINDS: dict[str, str] = {
    "bitmap": "streamdedup.filters.bitmap.bitmap:Bitmap",
    "blocked": "streamdedup.filters.bloom.blocked:BlockedBloom",
    "bloom": "streamdedup.filters.bloom.bloom:Bloom",
    "counting": "streamdedup.filters.bloom.counting:Counting",
    "cuckoo": "streamdedup.filters.cuckoo.cuckoo:Cuckoo",
    "dlcbf": "streamdedup.filters.dleft.dlcbf:DLCBF",
    "dleft": "streamdedup.filters.dleft.dleft:DLeft",
    "exact": "streamdedup.filters.exact.exact:Exact",
    "fuse": "streamdedup.filters.fuse.fuse:Fuse",
    "window": "streamdedup.filters.window.window:Window",
}
LOADED: dict[str, str] = {"chain": "streamdedup.filters.growing.chain:Chain"}
"""Kinds that `build` makes only for the option `on_full: grow`, and that a saved header names."""

GROWABLE = ("blocked", "bloom", "counting", "cuckoo", "dlcbf", "dleft", "exact")
"""The kinds that accept `on_full: grow`."""
GROWTH = 16  # without `max_size`, such a filter grows to at most 16 times its first stage

OPTIONS: dict[str, tuple[str, ...]] = {
    "bitmap": ("probe", "range"),
    "blocked": (),
    "bloom": ("probe",),
    "counting": ("probe",),
    "cuckoo": (),
    "dlcbf": ("permutations",),
    "dleft": (),
    "exact": ("fingerprint_bytes", "load"),
    "fuse": ("keys",),
    "window": ("retention", "generations", "late", "refresh", "max_jump", "probe"),
}
"""The options of each kind, besides the options that all kinds share."""

STATIC = frozenset({"fuse"})  # built once, from all of their keys: for lists, not for streams


def from_parts(
    header: Mapping[str, Any], buffers: Sequence[memoryview], hash_key: bytes = b""
) -> "Filter":
    """The filter that was saved as this `header()` and these `buffers()`, over these very buffers.

    Raises ValueError if they do not fit together, and ConfigError if the kind is unknown.
    """
    hash_ = hash_of(header.get("hash"), hash_key)
    return cast("Filter", kind_of(header.get("kind")).from_parts(header, buffers, hash_))


def kind_of(name: object) -> Any:  # noqa: ANN401 - each class has constructor arguments of its own
    """The class of the kind `name`, including the kinds of `LOADED`. The Protocols of `base` state what it can do.

    Raises ConfigError if no kind has this name.
    """
    known = {**KINDS, **LOADED}
    if not isinstance(name, str) or name not in known:
        raise ConfigError(f"filter.kind {name!r} is unknown; choose one of: {', '.join(KINDS)}")
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)


def hash_of(name: object, key: bytes) -> "Hash":
    """The hash called `name`, under `key` if it has one."""
    from streamdedup.keys.hashing import Hash

    return Hash(str(name), key)
