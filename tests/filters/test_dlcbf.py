"""Claims about `dlcbf`: the churn table of the paper, its sizes, counters that stick, and what permutations are for."""

import itertools

import numpy as np
import pytest

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters.dleft.dlcbf import DLCBF
from streamdedup.filters.sizing import bloom_size, dleft_remainder_bits
from streamdedup.keys.hashing import MURMUR3
from tests.filters.cases import copies, random_digests
from tests.filters.dleft_tools import RESIDENT, cells
from tests.rows import table

FULL_ERROR = 24 * 2**-14


def test_it_is_two_and_a_half_times_smaller_than_counting() -> None:
    """2.55 times at equal error, with remainders of 14 bits, against counters of 4 bits."""
    seen = DLCBF(RESIDENT, FULL_ERROR, multiset=True)
    assert (seen.buckets, seen.remainder_bits) == (2048, 14)
    counters, _ = bloom_size(RESIDENT, FULL_ERROR)
    assert 4 * counters / (8 * seen.size_bytes) == pytest.approx(2.55, abs=0.01)


@table(itertools.product([1, 24, 25, 49_152, 1_000_003, 10**12], [0.3, 1e-2, 1e-3, 1e-6]))
def test_the_remainder_is_the_shortest_that_keeps_the_rate(row: tuple[int, float]) -> None:
    """One bit less would err more often than asked for."""
    capacity, error_rate = row
    buckets = -(-capacity // 24)
    bits = dleft_remainder_bits(capacity, buckets, error_rate)
    assert capacity / (buckets * 2**bits) <= error_rate < 2 * capacity / (buckets * 2**bits)


def test_published_permutations_take_a_power_of_two() -> None:
    """The buckets are rounded up to one, and the remainder is shorter where that allows it."""
    seen = DLCBF(24 * 1500, FULL_ERROR, permutations="published", multiset=True)
    assert (seen.buckets, seen.remainder_bits) == (2048, 14)
    seen = DLCBF(24 * 1025, FULL_ERROR, permutations="published", multiset=True)
    assert (seen.buckets, seen.remainder_bits) == (2048, 14)
    assert DLCBF(24 * 1024, FULL_ERROR, permutations="published").remainder_bits == 14


@table(["none", "Any", "", None])
def test_no_configuration_switches_the_permutations_off(permutations: object) -> None:
    """What would lose keys can be had in a test only."""
    config = {"kind": "dlcbf", "capacity": 100, "permutations": permutations}
    with pytest.raises(ConfigError, match=r"filter\.permutations .* choose one of: any, published"):
        filters.build(config)
    header = DLCBF(100, multiset=True).header()
    with pytest.raises(ValueError, match="permutations"):
        DLCBF.from_parts({**header, "permutations": permutations}, copies(DLCBF(100)), MURMUR3)


def test_a_fingerprint_that_the_published_permutations_cannot_hold_is_refused() -> None:
    """They multiply in 64 bits: 2^22 buckets and 48 bits of remainder do not fit, `any` takes them."""
    with pytest.raises(ConfigError, match="fingerprints of 70 bits, and the most is 64"):
        DLCBF(24 << 22, 24 * 2**-48, permutations="published")


def test_copies_take_no_further_cell() -> None:
    """A thousand additions of one key are one cell, and one key."""
    seen = DLCBF(1000, 1e-3, multiset=True)
    assert seen.add_many(seen.digests(["again"] * 1000)).sum() == 1
    assert (len(seen), seen.overflowed, int(seen.loads() @ np.arange(9))) == (1, 0, 1)
    held = [cells(seen._table, i, j) for i in range(4) for j in range(seen.buckets)]
    assert [count for bucket in held for _, count in bucket] == [3]


def test_the_number_of_keys_is_that_of_the_cells() -> None:
    """Since each fingerprint has one cell, a header that says otherwise is refused."""
    seen = DLCBF(1000, 1e-3, multiset=True)
    seen.add_many(random_digests(63, 500))
    header, parts = seen.header(), copies(seen)
    for keys in (header["keys"] - 1, header["keys"] + 1):
        with pytest.raises(ValueError, match="keys"):
            DLCBF.from_parts({**header, "keys": keys}, parts, MURMUR3)


def test_a_free_cell_that_is_not_0_is_refused() -> None:
    """A remainder whose counter is 0 is none that a filter wrote."""
    seen = DLCBF(24, 1e-3, multiset=True)
    header, parts = seen.header(), copies(seen)
    np.frombuffer(parts[0], dtype=np.uint8)[2] = 1  # behind the counters of the first bucket
    with pytest.raises(ValueError, match="or bits in a free cell"):
        DLCBF.from_parts(header, parts, MURMUR3)
