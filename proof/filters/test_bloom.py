"""Bloom filters: few keys by exact probabilities, small tables, and the largest."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.filters.sizing import bloom_error, bloom_size
from tests.rows import table


@table(itertools.product([0.5, 0.3, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-9], [1, 2, 3, 5, 10, 30, 100]))
def test_few_keys_keep_the_error_rate_too(row: tuple[float, int]) -> None:
    """Where the formula for many keys is up to 8 times too low: E[(x/m)^k], x the bits that nk hashes set."""
    error_rate, capacity = row
    bits, hashes = bloom_size(capacity, error_rate)
    assert _exact_error(bits, hashes, capacity) <= error_rate


def _exact_error(bits: int, hashes: int, keys: int) -> float:
    x = np.arange(bits + 1)
    chance = np.zeros(bits + 1)
    chance[0] = 1
    for _ in range(keys * hashes):
        met, missed = chance * (x / bits), chance * (1 - x / bits)
        chance = met
        chance[1:] += missed[:-1]
    return float(chance @ (x / bits) ** hashes)


@given(st.integers(1, 10**12), st.floats(1e-15, 0.5))
def test_sizes_keep_their_error_rate_at_the_least_cost(capacity: int, error_rate: float) -> None:
    """At capacity the error is at most the rate, and no other number of hashes needs fewer bits, but k/4 + 1."""
    bits, hashes = bloom_size(capacity, error_rate)
    fewer = bits - hashes // 4 - 2
    assert bloom_error(bits, hashes, capacity) <= error_rate * (1 + 1e-9)
    assert fewer <= 0 or bloom_error(fewer, hashes, capacity) > error_rate * (1 - 1e-9)
    bound = 1.4427 * capacity * math.log2(1 / error_rate)
    assert bound * 0.999 <= bits <= bound * 1.11 + hashes / 4 + 2
    for other in {max(1, hashes - 1), hashes + 1}:
        assert bloom_error(max(1, fewer), other, capacity) > error_rate * (1 - 1e-9)
