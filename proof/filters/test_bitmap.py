"""Bitmaps: sizes by their theorem, and tables beyond 2^32 bits."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.filters.bitmap.direct import DirectBitmap
from streamdedup.filters.sizing import beside, bitmap_size


@given(st.integers(1, 10**9), st.floats(1e-6, 0.9))
def test_sizes_keep_their_error_rate_at_the_least_cost(capacity: int, error_rate: float) -> None:
    """At capacity 1 - (1 - 1/m)^n is at most the rate, and with one bit less it is above."""
    bits = bitmap_size(capacity, error_rate)
    assert _exact_error(bits, capacity) <= error_rate * (1 + 1e-9)
    assert bits == 1 or _exact_error(bits - 1, capacity) > error_rate * (1 - 1e-9)


def _exact_error(bits: int, keys: int) -> float:
    return -math.expm1(keys * math.log1p(-1 / bits)) if bits > 1 else 1.0


@given(st.integers(1, 10**13), st.floats(1e-9, 0.5))
def test_sizes_of_other_platforms_are_known_by_rates_beside(
    capacity: int, error_rate: float
) -> None:
    """What rounding may change lies between the sizes of two rates: at 10^13 keys some bits, at a thousand none."""
    above, below = beside(error_rate)
    assert bitmap_size(capacity, above) <= bitmap_size(capacity, error_rate)
    assert bitmap_size(capacity, error_rate) <= bitmap_size(capacity, below)
    assert bitmap_size(10**13, above) + 1 < bitmap_size(10**13, error_rate)
    assert bitmap_size(10**13, error_rate) + 1 < bitmap_size(10**13, below)
    assert bitmap_size(1000, 0.01 ** (1 - 1e-12)) == bitmap_size(1000, 0.01 ** (1 + 1e-12)) == 99500


def test_bits_of_a_wide_range_stand_above_32_bit_indices() -> None:
    """Ranges wider than 2^32 have a bit for each end, in the right place."""
    first, last = -(2**33), 2**33
    seen = DirectBitmap(range=(first, last))
    values = np.array([first, -1, 0, 2**32, last])
    assert seen.add_many(values).all()
    assert seen.add(last - 1)
    (table,) = seen.buffers()
    for value in (*values.tolist(), last - 1):
        assert table[(value - first) // 8] >> (value - first) % 8 & 1
    assert not seen.contains_many(values - [-1, 1, -1, 1, 2]).any()
    assert (len(seen), last in seen, seen.discard(last), last in seen) == (6, True, True, False)
