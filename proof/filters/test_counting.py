"""Counters: how many saturate, and tables of more than 2^32."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.filters.bloom.counting import COUNT_MAX, Counting
from streamdedup.filters.sizing import bloom_size, counter_reaches
from tests.filters.cases import band, random_digests
from tests.filters.test_counting import _counters


@pytest.mark.parametrize("times", [8, 16])
def test_as_many_counters_saturate_as_theory_says(times: int) -> None:
    """Filled to many times its capacity, the live figure is the tail of the Poisson distribution at 15."""
    seen = Counting(20_000, 1e-2, multiset=True)
    keys = random_digests(20, 20_000 * times)
    seen.add_many(keys)
    share = counter_reaches(COUNT_MAX, seen.counters, seen.hashes, len(keys))
    low, high = band(share * seen.counters)
    assert 10 < low < seen.saturated < high
    assert (
        seen.header()["saturated"]
        == seen.saturated
        == np.count_nonzero(_counters(seen) == COUNT_MAX)
    )


def test_the_number_of_keys_does_not_drift_under_churn() -> None:
    """Where one key in ten looks present when it is added, `len` stays near what is in, and is 0 when all left."""
    seen = Counting(10_000, 0.1, multiset=True)
    keys = random_digests(25, 210_000)
    seen.add_many(keys[:10_000])
    started = len(seen)
    for start in range(0, 200_000, 1000):
        seen.remove_many(keys[start : start + 1000])
        seen.add_many(keys[start + 10_000 : start + 11_000])
    assert len(seen) == pytest.approx(started, rel=0.1)
    seen.remove_many(keys[200_000:])
    assert (len(seen), seen.fill_ratio) == (0, 0)


def test_overflow_is_as_rare_as_published() -> None:
    """At the best k a counter goes above 15 with a probability below (e ln 2 / 16)^16, which is 1.4e-15."""
    bound = (math.e * math.log(2) / 16) ** 16
    assert bound == pytest.approx(1.37e-15, rel=5e-3)
    assert counter_reaches(16, 1_000_000, 1, 1_000_000 * math.log(2)) < bound
    for error_rate in np.geomspace(0.1, 1e-15, 60):
        counters, hashes = bloom_size(10**6, float(error_rate))
        assert 0 < counter_reaches(16, counters, hashes, 10**6) < bound


@given(st.integers(1, 40), st.floats(0.01, 60))
def test_the_tail_is_one_less_the_head(count: int, mean: float) -> None:
    """Summed from either end, the Poisson distribution is whole."""
    head = sum(math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(count))
    assert counter_reaches(count, 1000, 10, mean * 100) == pytest.approx(1 - head, abs=1e-12)
    assert counter_reaches(count, 1000, 10, 0) == 0
