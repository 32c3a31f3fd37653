"""What `plan` knows about each kind of filter: its abilities, how keys are added, and its size. One entry a kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamdedup.filters.exact.exact import FINGERPRINTS
from streamdedup.filters.footprint import footprint
from streamdedup.filters.sizing import exact_error
from streamdedup.keys.hashing import Digests


@dataclass(frozen=True)
class Size:
    """The size of a filter for a capacity. `hashes` are the places a look-up reads: bits, counters, slots or buckets.

    `error` is the error rate that theory expects at capacity. `options` are those to build it with, besides capacity
    and error rate.
    """

    size_bytes: int
    hashes: int
    error: float
    options: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SizeEntry:
    """What `plan` knows about a kind. `options` returns the options to build it with, besides capacity and error rate.

    `only_sets_bits` is that of the kind. `feed` adds digests to a filter; its speed is measured with it.
    """

    abilities: tuple[str, ...]  # some of: add, remove, union, window, static
    only_sets_bits: bool = False
    options: Callable[[int, float], Mapping[str, int]] = lambda _capacity, _error_rate: {}
    feed: Callable[[Any, Digests], object] = lambda filter_, digests: filter_.add_many(digests)


def size_of(kind: str, capacity: int, error_rate: float) -> Size:
    """Return the size of a filter of `kind`. ConfigError, with the reason only, if there is no such filter."""
    options = ENTRIES[kind].options(capacity, error_rate)
    made = footprint(kind, capacity, error_rate, **options)
    return Size(made.size_bytes, made.hashes, made.error(capacity), options)


def _fingerprint(capacity: int, error_rate: float) -> Mapping[str, int]:
    """Choose the shorter fingerprint if it keeps the error rate."""
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
    "window": SizeEntry(("add", "window")),
}
