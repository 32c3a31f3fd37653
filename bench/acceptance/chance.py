"""Seeded keys, in portions that any machine holds, and how many of them a filter reports present."""

import math
from collections.abc import Iterator

import numpy as np

from streamdedup.filters.base import Filter
from streamdedup.keys.hashing import Digests

PORTION = 1 << 20


def random_keys(seed: int, count: int) -> Iterator[Digests]:
    """`count` digests, in portions of shape (PORTION, 2), the last one shorter."""
    chance = np.random.default_rng(seed)
    for start in range(0, count, PORTION):
        rows = min(PORTION, count - start)
        yield chance.integers(0, 1 << 64, (rows, 2), dtype=np.uint64)


def found_in(seen: Filter, seed: int, probes: int) -> int:
    """How many of so many keys that were never added are reported present."""
    return sum(
        int(np.count_nonzero(seen.contains_many(keys))) for keys in random_keys(seed, probes)
    )


def occupancy_spread(bins: int, balls: float) -> float:
    """The relative standard deviation of the share of bins that are taken after so many independent balls."""
    empty = math.exp(-balls / bins)
    variance = max(0.0, empty - (1 + balls / bins) * empty * empty) / bins
    return math.sqrt(variance) / (1 - empty)
