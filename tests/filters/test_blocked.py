"""Claims about the blocked Bloom filter: its theorems, its one cache line a key, what it says of itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import ConfigError
from streamdedup.filters.bloom.blocked import BlockedBloom
from streamdedup.filters.sizing import (
    BLOCK_BITS,
    BLOCKED_ERROR_MIN,
    BLOCKED_HASHES_MAX,
    blocked_error,
    blocked_size,
)
from tests.filters.cases import random_digests

MULTIPLIER = 0xD1342543DE82EF95


# --- theorems ---


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 10**12), st.floats(BLOCKED_ERROR_MIN, 0.5))
def test_sizes_keep_their_error_rate_at_the_least_cost(capacity: int, error_rate: float) -> None:
    """At capacity the error is at most the rate, and with one block less it is above, for every number of hashes."""
    blocks, hashes = blocked_size(capacity, error_rate)
    assert blocked_error(blocks, hashes, capacity) <= error_rate
    for other in range(1, BLOCKED_HASHES_MAX + 1):
        assert blocks == 1 or blocked_error(blocks - 1, other, capacity) > error_rate
        assert other >= hashes or blocked_error(blocks, other, capacity) > error_rate


# --- layout ---


def test_a_key_touches_one_cache_line() -> None:
    """All bits of a key are in one 64-byte line, and the table begins on one."""
    for digest in np.split(random_digests(38, 50), 50):
        seen = BlockedBloom(1000, 1e-6)
        seen.add_many(digest)
        table = np.frombuffer(seen.buffers()[0], np.uint8)
        assert table.ctypes.data % 64 == 0
        assert len(set(np.flatnonzero(table) // 64)) == 1


# --- what it says of itself ---


def test_its_error_and_fill_are_those_of_its_bits() -> None:
    """After additions in batches and alone, a union and a restore: as counted anew from the table."""
    seen, other = BlockedBloom(5000, 1e-3), BlockedBloom(5000, 1e-3)
    for part in np.array_split(random_digests(39, 4000), 7):
        seen.add_many(part)
    for number in range(500):
        seen.add(b"%d" % number)
    _check_counts(seen)
    other.add_many(random_digests(40, 3000))
    seen |= other
    _check_counts(seen)
    _check_counts(BlockedBloom.from_parts(seen.header(), seen.buffers()))


def test_rates_that_are_another_kinds_are_refused_with_its_name() -> None:
    """Below 1e-9, where a key costs more than twice the bits of `bloom`."""
    with pytest.raises(ConfigError, match=r"its lowest error rate is 1e-09; .* choose another"):
        BlockedBloom(1000, BLOCKED_ERROR_MIN * 0.99)


def _check_counts(seen: BlockedBloom) -> None:
    bits = np.unpackbits(np.frombuffer(seen.buffers()[0], np.uint8)).reshape(-1, BLOCK_BITS)
    shares = bits.mean(axis=1)
    assert seen.fill_ratio == pytest.approx(shares.mean(), rel=1e-12)
    assert seen.error_rate_now == pytest.approx((shares**seen.hashes).mean(), rel=1e-12)
