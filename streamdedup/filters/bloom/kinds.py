"""The kinds `blocked`, `bloom` and `counting`, described."""

from functools import partial

from streamdedup.filters.kind import Footprint, Kind, table_bytes, too_low
from streamdedup.filters.sizing import (
    BLOCK_BITS,
    BLOCKED_ERROR_MIN,
    blocked_error,
    blocked_size,
    bloom_error,
    bloom_size,
    exact_error,
)


def _blocked(capacity: int, error_rate: float) -> Footprint:
    if error_rate < BLOCKED_ERROR_MIN:
        raise too_low(BLOCKED_ERROR_MIN)
    blocks, hashes = blocked_size(capacity, error_rate)
    return Footprint(
        table_bytes(blocks * BLOCK_BITS), hashes, partial(blocked_error, blocks, hashes)
    )


def _bloom(position_bits: int, capacity: int, error_rate: float, **_probe: object) -> Footprint:
    least = exact_error(16, capacity)  # as for all digests of 128 bits
    if error_rate < least:
        raise too_low(least)
    positions, hashes = bloom_size(capacity, error_rate)
    size_bytes = table_bytes(position_bits * positions)
    return Footprint(size_bytes, hashes, partial(bloom_error, positions, hashes))


BLOCKED = Kind(
    "blocked",
    "bloom.blocked:BlockedBloom",
    _blocked,
    ("add", "union"),
    only_sets_bits=True,
    error_rate_min=BLOCKED_ERROR_MIN,
)
BLOOM = Kind(
    "bloom",
    "bloom.bloom:Bloom",
    partial(_bloom, 1),
    ("add", "union"),
    options=("probe",),
    only_sets_bits=True,
)
COUNTING = Kind(
    "counting",
    "bloom.counting:Counting",
    partial(_bloom, 4),
    ("add", "remove", "union"),
    options=("probe", "multiset"),
)
