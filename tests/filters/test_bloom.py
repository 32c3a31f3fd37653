"""Claims about the theorems and the layout of Bloom's filter, beside Python's integers and the exact error."""

import math
from typing import Any

import pytest

from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.digest_filter import CAPACITY_MAX
from streamdedup.filters.sizing import bloom_error
from streamdedup.keys.hashing import digests
from tests.filters.cases import random_digests
from tests.rows import table

# --- Bloom: theorems ---


@table(
    [  # from the literature's table of m/n by k, three significant digits
        (2, 1, 0.393),
        (3, 3, 0.253),
        (8, 5, 0.0217),
        (10, 7, 0.00819),
        (16, 1, 0.0606),
        (16, 8, 0.000574),
        (20, 3, 0.0027),
        (20, 4, 0.00108),
        (24, 6, 0.000117),
        (32, 1, 0.0308),
        (32, 8, 5.73e-06),
    ]
)
def test_the_theorem_gives_the_published_table(row: tuple[int, int, float]) -> None:
    """(1 - e^(-kn/m))^k reproduces the published false-positive rates."""
    bits_a_key, hashes, error = row
    assert bloom_error(bits_a_key * 1000, hashes, 1000) == pytest.approx(error, rel=5e-3)


def test_half_of_the_bits_are_set_at_capacity() -> None:
    """At capacity the table is half full, and what it then says of itself is the theorem's rate."""
    seen = Bloom(200_000, 1e-4)
    seen.add_many(random_digests(2, 200_000))
    assert seen.fill_ratio == pytest.approx(0.5, abs=0.02)
    assert seen.error_rate_now == pytest.approx(seen.expected_error(200_000), rel=0.05)
    assert len(seen) == pytest.approx(200_000, rel=1e-3)


# --- Bloom: layout ---


@table(
    [
        ({"capacity": 101}, "do not follow"),
        ({"capacity": 99}, "do not follow"),
        ({"capacity": 0}, "is not an integer from 1 to"),
        ({"capacity": 100.0}, "is not an integer from 1 to"),
        ({"capacity": CAPACITY_MAX + 1}, "is not an integer from 1 to"),
        ({"error_rate": 1e-4}, "do not follow"),
        ({"error_rate": 0.0}, "is not between 0 and 1"),
        ({"error_rate": 1.0}, "is not between 0 and 1"),
        ({"error_rate": math.inf}, "is not between 0 and 1"),
        ({"bits": None}, "bits None is not an integer"),
        ({"hashes": 9}, "do not follow"),
        ({"hashes": 1 << 62}, "hashes .* is not an integer"),
        ({"keys": -1}, "keys .* is not an integer"),
    ]
)
def test_contradictory_headers_are_refused(row: tuple[Any, str]) -> None:
    """A header that does not fit itself or the table is refused before anything is allocated."""
    change, said = row
    seen = Bloom(100, 1e-3)
    seen.add_many(digests([b"a", b"b"]))
    with pytest.raises(ValueError, match=said):
        Bloom.from_parts({**seen.header(), **change}, seen.buffers())
