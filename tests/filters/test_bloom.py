"""Claims about the theorems and the layout of Bloom's filter, beside Python's integers and the exact error."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import ConfigError
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.digest_filter import CAPACITY_MAX
from streamdedup.filters.sizing import bloom_error, bloom_size
from streamdedup.keys.hashing import Digests, digests
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


def test_a_table_that_is_too_large_is_not_made() -> None:
    """The message names the capacity, and both options to change."""
    with pytest.raises(
        ConfigError,
        match=r"^filter.capacity 900000000000 at error_rate 1e-06 .+ it takes 2\.94 TiB.+ raise",
    ):
        Bloom(900_000_000_000, 1e-6)


@table([1e-37, 0.5, 0.9999999])
def test_extreme_error_rates_have_a_size(error_rate: float) -> None:
    """Every rate that digests of 128 bits can give makes a filter, and one that can be restored."""
    bits, hashes = bloom_size(10, error_rate)
    assert bits >= 1
    assert hashes >= 1
    seen = Bloom(10, error_rate)
    assert seen.add_many(digests([b"a"])).all()
    assert Bloom.from_parts(seen.header(), seen.buffers()).contains_many(digests([b"a"])).all()


def test_half_of_the_bits_are_set_at_capacity() -> None:
    """At capacity the table is half full, and what it then says of itself is the theorem's rate."""
    seen = Bloom(200_000, 1e-4)
    seen.add_many(_random_digests(np.random.default_rng(2), 200_000))
    assert seen.fill_ratio == pytest.approx(0.5, abs=0.02)
    assert seen.error_rate_now == pytest.approx(seen.expected_error(200_000), rel=0.05)
    assert len(seen) == pytest.approx(200_000, rel=1e-3)


# --- Bloom: layout ---

words = st.integers(0, 2**64 - 1)


@settings(deadline=None)
@given(
    st.lists(st.tuples(words, words), max_size=30),
    st.integers(1, 5000),
    st.sampled_from([0.5, 0.1, 1e-3, 1e-6, 1e-9]),
)
def test_bits_land_where_the_formula_says(
    rows: list[tuple[int, int]], capacity: int, error_rate: float
) -> None:
    """The table is what big integers give; a digest is present where all its bits are."""
    seen = Bloom(capacity, error_rate)
    bits, hashes = seen.header()["bits"], seen.header()["hashes"]
    model = 0
    fresh = []
    for a, b in rows:
        mask = sum({1 << at for at in _places(a, b, bits, hashes)})
        fresh.append(mask & ~model != 0)
        model |= mask
    assert seen.add_many(_as_digests(rows)).tolist() == fresh
    assert bytes(seen.buffers()[0]) == model.to_bytes(seen.size_bytes, "little")
    others = [(b, a) for a, b in rows]
    assert seen.contains_many(_as_digests(others)).tolist() == [
        all(model >> at & 1 for at in _places(a, b, bits, hashes)) for a, b in others
    ]


@table(
    [
        ({"capacity": 101}, "do not follow"),
        ({"capacity": 99}, "do not follow"),
        ({"capacity": 0}, "is not an integer from 1 to"),
        ({"capacity": -100}, "is not an integer from 1 to"),
        ({"capacity": 100.0}, "is not an integer from 1 to"),
        ({"capacity": "100"}, "is not an integer from 1 to"),
        ({"capacity": None}, "is not an integer from 1 to"),
        ({"capacity": CAPACITY_MAX + 1}, "is not an integer from 1 to"),
        ({"capacity": 10**400}, "is not an integer from 1 to"),
        ({"error_rate": 1e-4}, "do not follow"),
        ({"error_rate": 0.0}, "is not between 0 and 1"),
        ({"error_rate": 1.0}, "is not between 0 and 1"),
        ({"error_rate": math.nan}, "is not between 0 and 1"),
        ({"error_rate": math.inf}, "is not between 0 and 1"),
        ({"error_rate": "1e-3"}, "is not between 0 and 1"),
        ({"error_rate": None}, "is not between 0 and 1"),
        ({"bits": 1}, "do not follow"),
        ({"bits": None}, "bits None is not an integer"),
        ({"hashes": 9}, "do not follow"),
        ({"hashes": 11}, "do not follow"),
        ({"hashes": 1 << 62}, "hashes .* is not an integer"),
        ({"keys": -1}, "keys .* is not an integer"),
        ({"keys": 1.5}, "keys .* is not an integer"),
        ({"keys": "7"}, "keys .* is not an integer"),
        ({"keys": None}, "keys .* is not an integer"),
    ]
)
def test_contradictory_headers_are_refused(row: tuple[Any, str]) -> None:
    """A header that does not fit itself or the table is refused before anything is allocated."""
    change, said = row
    seen = Bloom(100, 1e-3)
    seen.add_many(digests([b"a", b"b"]))
    with pytest.raises(ValueError, match=said):
        Bloom.from_parts({**seen.header(), **change}, seen.buffers())


def test_keys_whose_bits_were_not_saved_do_not_count() -> None:
    """A snapshot's header may be newer than its bits: there are never more keys than bits that are set."""
    seen = Bloom(100, 1e-3)
    seen.add_many(digests([b"a", b"b"]))
    restored = Bloom.from_parts({**seen.header(), "keys": 90}, seen.buffers())
    assert len(restored) == round(restored.fill_ratio * seen.header()["bits"]) < 90


def test_bits_beyond_the_table_are_refused() -> None:
    """A set bit in the last word after the last bit of the table is damage, and refused."""
    seen = Bloom(100, 1e-3)
    bits = seen.header()["bits"]
    assert bits % 64
    for at, fits in ((bits - 1, True), (bits, False), (seen.size_bytes * 8 - 1, False)):
        table = bytearray(seen.size_bytes)
        table[at // 8] |= 1 << at % 8
        if fits:
            assert Bloom.from_parts(seen.header(), [memoryview(table)]).fill_ratio == 1 / bits
        else:
            with pytest.raises(ValueError, match="beyond"):
                Bloom.from_parts(seen.header(), [memoryview(table)])


def _as_digests(rows: list[tuple[int, int]]) -> Digests:
    return np.array(rows, dtype=np.uint64).reshape(-1, 2)


def _places(a: int, b: int, bits: int, hashes: int) -> list[int]:
    """Follow the documented probe sequence, in integers that do not overflow."""
    places = []
    for _ in range(hashes):
        places.append(a * bits >> 64)
        a = (a * 0xD1342543DE82EF95 + b) % 2**64
    return places


def _random_digests(random: np.random.Generator, count: int) -> Digests:
    return np.frombuffer(random.bytes(16 * count), np.uint64).reshape(-1, 2)
