"""Bits and counters in tables beyond 2^32 of them. Pages that are never written take no memory."""

from collections import Counter

import numpy as np
import pytest

from streamdedup.filters.bloom.counting import Counting
from tests.filters.cases import Case, as_digests, random_digests
from tests.filters.test_bits import bits_of, places_in, probed
from tests.rows import table


@table(
    [
        (Case("bitmap"), 50_000_000, 0.01),
        (Case("bitmap", {"probe": "double"}), 50_000_000, 0.01),
        (Case("bloom"), 200_000_000, 1e-6),
        (Case("blocked"), 450_000_000, 0.01),
    ]
)
def test_bits_land_above_32_bit_indices(case: Case, capacity: int, error_rate: float) -> None:
    """Those beyond the 2^32nd are set and read back, by one key and by many, and no others are."""
    seen = case.build(capacity, error_rate)
    keys = [b"%d" % number for number in range(100)]
    digests = np.concatenate([random_digests(32, 100), seen.digests(keys)])
    assert seen.add_many(digests[:100]).all()
    assert all(seen.add(key) for key in keys)
    assert seen.contains_many(digests).all()
    places = {at for row in digests.tolist() for at in places_in(seen, *row)}
    (table,) = seen.buffers()
    assert all(table[at // 8] >> at % 8 & 1 for at in places)
    assert sum(at > 1 << 32 for at in places) > 5
    assert seen.fill_ratio == pytest.approx(len(places) / bits_of(seen), rel=1e-12)


def test_counters_stand_above_32_bit_indices() -> None:
    """Those beyond the 2^32nd are used, found again, and counted down."""
    seen = Counting(200_000_000, 1e-6, multiset=True)
    assert seen.counters > 1 << 32
    rows = [(2**64 - 1, 3), (0xC0FFEE0123456789, 0x9E3779B97F4A7C15), (2**64 - 9, 2**64 - 2**58)]
    places = Counter(at for row in rows for at in probed(*row, seen.counters, seen.hashes))
    assert sum(at > 1 << 32 for at in places) > 5
    digests = as_digests(rows)
    (table,) = seen.buffers()
    for copies_in in (1, 2):
        seen.add_many(digests)
        for at, times in places.items():
            assert table[at // 2] >> at % 2 * 4 & 15 == times * copies_in
    assert seen.contains_many(digests).all()
    assert seen.remove_many(digests).all()
    assert seen.remove_many(digests).all()
    assert not any(table[at // 2] for at in places)
    assert (seen.fill_ratio, len(seen)) == (0, 0)
