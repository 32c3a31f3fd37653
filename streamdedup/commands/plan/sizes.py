"""What `plan` knows of each kind of filter: its abilities, how it is fed, and what it takes. One entry a kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamdedup.filters.exact.exact import FINGERPRINTS
from streamdedup.filters.footprint import footprint
from streamdedup.filters.sizing import exact_error
from streamdedup.keys.hashing import Digests


@dataclass(frozen=True)
class Size:
    """A filter for so many keys. `hashes` are the places a key is looked up in: bits, counters, slots or buckets.

    `error` is what theory expects at capacity; `options` are those to build it with, besides capacity and error rate.
    """

    size_bytes: int
    hashes: int
    error: float
    options: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SizeEntry:
    """What `plan` knows of a kind. `options` takes capacity and error rate, and gives what else to build it with.

    `only_sets_bits` is the kind's; `feed` adds digests to a filter, which is how its speed is measured.
    """

    abilities: tuple[str, ...]  # of add, remove, union, window, static
    only_sets_bits: bool = False
    options: Callable[[int, float], Mapping[str, int]] = lambda _capacity, _error_rate: {}
    feed: Callable[[Any, Digests], object] = lambda filter_, digests: filter_.add_many(digests)


def size_of(kind: str, capacity: int, error_rate: float) -> Size:
    """What a filter of `kind` takes; ConfigError, with the reason only, where none is made for that."""
    options = ENTRIES[kind].options(capacity, error_rate)
    made = footprint(kind, capacity, error_rate, **options)
    return Size(made.size_bytes, made.hashes, made.error(capacity), options)


def _fingerprint(capacity: int, error_rate: float) -> Mapping[str, int]:
    """The shorter one, if that keeps the error rate."""
    keeps = exact_error(min(FINGERPRINTS), capacity) <= error_rate
    return {"fingerprint_bytes": min(FINGERPRINTS) if keeps else max(FINGERPRINTS)}


_UNITES = ("add", "union")
_REMOVES = ("add", "remove")

ENTRIES: Mapping[str, SizeEntry] = {
    "bitmap": SizeEntry(_UNITES, only_sets_bits=True),
    "blocked": SizeEntry(_UNITES, only_sets_bits=True),
    "bloom": SizeEntry(_UNITES, only_sets_bits=True),
    "counting": SizeEntry(("add", "remove", "union")),
    "cuckoo": SizeEntry(_REMOVES),
    "dlcbf": SizeEntry(_REMOVES),
    "dleft": SizeEntry(_REMOVES),
    "exact": SizeEntry(_REMOVES, options=_fingerprint),
    "fuse": SizeEntry(("static",)),
    "window": SizeEntry(("add", "window"), only_sets_bits=True),
}
