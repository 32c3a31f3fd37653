"""The kinds of filter, by name. A kind's module is imported when it is first built: it brings numba."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from streamdedup.errors import ConfigError

if TYPE_CHECKING:  # they bring numpy, which reading the settings does without
    from streamdedup.filters.base import Filter
    from streamdedup.keys.hashing import Hash

KINDS: dict[str, str] = {
    "bitmap": "streamdedup.filters.bitmap.bitmap:Bitmap",
    "blocked": "streamdedup.filters.bloom.blocked:Blocked",
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
"""What `build` makes by an option, `on_full: grow`, and not by its own name."""

GROWABLE = ("blocked", "bloom", "counting", "cuckoo", "dlcbf", "dleft", "exact")
"""The kinds that take `on_full: grow`."""
GROWTH = 16  # how many times the size of its first stage such a filter may have, where `max_size` is not given

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
"""What a kind takes beside what all of them do."""

STATIC = frozenset({"fuse"})  # built once, from all of their keys: for lists, not for streams


def from_parts(
    header: Mapping[str, Any], buffers: Sequence[memoryview], hash_key: bytes = b""
) -> "Filter":
    """The filter that gave this `header()` and these `buffers()`, over them; ValueError where they do not fit."""
    hash_ = hash_of(header.get("hash"), hash_key)
    return cast("Filter", kind_of(header.get("kind")).from_parts(header, buffers, hash_))


def kind_of(name: object) -> Any:  # noqa: ANN401 - a class whose constructor's arguments are its own
    """The class of a kind, also of one that is only loaded; what it can do is told by the Protocols of `base`."""
    known = {**KINDS, **LOADED}
    if not isinstance(name, str) or name not in known:
        raise ConfigError(f"filter.kind {name!r} is unknown; choose one of: {', '.join(KINDS)}")
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)


def hash_of(name: object, key: bytes) -> "Hash":
    """The hash of that name."""
    from streamdedup.keys.hashing import Hash

    return Hash(str(name), key)
