"""The size of a filter of each kind, for a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamdedup.filters.kinds import KINDS


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


def size_of(kind: str, capacity: int, error_rate: float) -> Size:
    """Return the size of a filter of `kind`. ConfigError, with the reason only, if there is no such filter."""
    options = KINDS[kind].planned(capacity, error_rate)
    made = KINDS[kind].footprint(capacity, error_rate, **options)
    return Size(made.size_bytes, made.hashes, made.error(capacity), options)
