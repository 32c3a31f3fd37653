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
    bloom_size,
)
from streamdedup.keys.hashing import Digests
from tests.filters.cases import random_digests
from tests.rows import table

MULTIPLIER = 0xD1342543DE82EF95


# --- theorems ---


@table([(1e-2, 6, 9.92), (1e-3, 9, 15.55), (1e-4, 12, 22.03), (1e-6, 16, 38.8), (1e-9, 16, 85.3)])
def test_what_a_key_costs(row: tuple[float, int, float]) -> None:
    """Bits a key and hashes at capacity, of the mixture: 3 % more than Bloom's at 1 %, twice as many at the least."""
    error_rate, hashes, bits_a_key = row
    blocks, best = blocked_size(10**8, error_rate)
    assert best == hashes
    assert blocks * BLOCK_BITS / 10**8 == pytest.approx(bits_a_key, rel=1e-3)
    assert 1.03 < blocks * BLOCK_BITS / bloom_size(10**8, error_rate)[0] < 2


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

words = st.integers(0, 2**64 - 1)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(words, words), max_size=30),
    st.integers(1, 3000),
    st.sampled_from([0.5, 0.1, 1e-3, 1e-9]),
)
def test_bits_land_where_the_formula_says(
    rows: list[tuple[int, int]], capacity: int, error_rate: float
) -> None:
    """The table is what big integers give; a digest is present where all its bits are."""
    seen = BlockedBloom(capacity, error_rate)
    model = 0
    fresh = []
    for a, b in rows:
        mask = sum({1 << at for at in _places(a, b, seen)})
        fresh.append(mask & ~model != 0)
        model |= mask
    assert seen.add_many(_as_digests(rows)).tolist() == fresh
    assert bytes(seen.buffers()[0]) == model.to_bytes(seen.size_bytes, "little")
    others = [(b, a) for a, b in rows]
    assert seen.contains_many(_as_digests(others)).tolist() == [
        all(model >> at & 1 for at in _places(a, b, seen)) for a, b in others
    ]


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


def test_keys_whose_bits_were_not_saved_do_not_count() -> None:
    """A snapshot's header may be newer than its bits: there are never more keys than bits that are set."""
    seen = BlockedBloom(100, 1e-3)
    seen.add_many(random_digests(41, 2))
    restored = BlockedBloom.from_parts({**seen.header(), "keys": 90}, seen.buffers())
    bits = seen.blocks * BLOCK_BITS
    assert len(restored) == round(restored.fill_ratio * bits) < 90


def test_rates_that_are_another_kinds_are_refused_with_its_name() -> None:
    """Below 1e-9, where a key costs more than twice the bits of `bloom`; and tables that no machine holds."""
    with pytest.raises(ConfigError, match=r"its lowest error rate is 1e-09; .* choose another"):
        BlockedBloom(1000, BLOCKED_ERROR_MIN * 0.99)
    with pytest.raises(ConfigError, match=r"filter\.capacity 10000000000000 .* lower the capacity"):
        BlockedBloom(10**13, 1e-6)


def _places(a: int, b: int, seen: BlockedBloom) -> list[int]:
    """Follow the documented sequence, in integers that do not overflow."""
    block = a * seen.blocks >> 64
    places = []
    for _ in range(seen.hashes):
        places.append(block * BLOCK_BITS + (b >> 55))
        b = (b * MULTIPLIER + a) % 2**64
    return places


def _as_digests(rows: list[tuple[int, int]]) -> Digests:
    return np.array(rows, dtype=np.uint64).reshape(-1, 2)


def _check_counts(seen: BlockedBloom) -> None:
    bits = np.unpackbits(np.frombuffer(seen.buffers()[0], np.uint8)).reshape(-1, BLOCK_BITS)
    shares = bits.mean(axis=1)
    assert seen.fill_ratio == pytest.approx(shares.mean(), rel=1e-12)
    assert seen.error_rate_now == pytest.approx((shares**seen.hashes).mean(), rel=1e-12)
