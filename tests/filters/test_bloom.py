"""Claims about filters: the contract of every kind, then the theorems and the layout of Bloom's.

A model stands beside each claim: sets for membership, Python's integers for the bits, the theorem
for the errors.
"""

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.filters.base import Filter
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.digest_filter import CAPACITY_MAX
from streamdedup.filters.sizing import TABLE_BITS_MAX, bloom_error, bloom_size, table_excess
from streamdedup.keys.hashing import Digests, digests

KINDS = sorted(filters.KINDS)

# What five standard deviations exclude, chance does in one run of a million; the seeds are fixed.
SIGMAS = 5


# --- Bloom: theorems ---


@pytest.mark.parametrize(
    ("bits_a_key", "hashes", "error"),
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
    ],
)
def test_the_theorem_gives_the_published_table(bits_a_key: int, hashes: int, error: float) -> None:
    """(1 - e^(-kn/m))^k reproduces the published false-positive rates."""
    assert bloom_error(bits_a_key * 1000, hashes, 1000) == pytest.approx(error, rel=5e-3)


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


@pytest.mark.parametrize("error_rate", [0.5, 0.3, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 10, 30, 100])
def test_few_keys_keep_the_error_rate_too(capacity: int, error_rate: float) -> None:
    """Where the formula for many keys is up to 8 times too low: E[(x/m)^k], x the bits that nk hashes set."""
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


@given(st.integers(1, 10**13), st.floats(1e-15, 0.5))
def test_what_is_too_large_is_told_with_what_is_not(capacity: int, error_rate: float) -> None:
    """A capacity is refused where its bits are too many; the one advised fits, and 1G more does not."""
    excess = _excess(capacity, error_rate)
    assert (excess is None) == (bloom_size(capacity, error_rate)[0] <= TABLE_BITS_MAX)
    if excess is not None:
        advised = re.search(r"set filter.capacity to (\d+)G at most", excess)
        assert advised is not None
        fitting = int(advised[1]) * 10**9
        assert _excess(fitting, error_rate) is None
        assert _excess(fitting + 1_001_000_000, error_rate) is not None


def _excess(capacity: int, error_rate: float) -> str | None:
    return table_excess(bloom_size(capacity, error_rate)[0], capacity, error_rate)


def test_a_table_that_is_too_large_is_not_made() -> None:
    """The message names the capacity, and both options to change."""
    with pytest.raises(
        ConfigError, match=r"^filter.capacity 900000000000: takes 2\.94 TiB .+ raise"
    ):
        Bloom(900_000_000_000, 1e-6)


@pytest.mark.parametrize("error_rate", [1e-37, 0.5, 0.9999999])
def test_extreme_error_rates_have_a_size(error_rate: float) -> None:
    """Every rate that digests of 128 bits can give makes a filter, and one that can be restored."""
    bits, hashes = bloom_size(10, error_rate)
    assert bits >= 1
    assert hashes >= 1
    seen = Bloom(10, error_rate)
    assert seen.add_many(digests([b"a"])).all()
    assert Bloom.from_parts(seen.header(), seen.buffers()).contains_many(digests([b"a"])).all()


@pytest.mark.parametrize(
    ("error_rate", "probes"), [(1e-2, 110_000), (1e-3, 1_100_000), (1e-4, 11_000_000)]
)
def test_measured_error_at_capacity(error_rate: float, probes: int) -> None:
    """The share of absent keys found agrees with theory: an error of 1.25 times it, or 0.75, shows.

    The number of probes is the least that tells 1.25 times the rate with alpha 1e-6, beta 1e-3.
    """
    capacity = 200_000
    random = np.random.default_rng(1)
    seen = Bloom(capacity, error_rate)
    seen.add_many(_random_digests(random, capacity))
    expected = seen.expected_error(capacity)
    assert expected == pytest.approx(error_rate, rel=1e-3)
    low, high = _band(expected * probes)
    worse, better = 1.25 * expected * probes, 0.75 * expected * probes
    assert high < worse - 2.9 * math.sqrt(worse)
    assert low > better + 2.9 * math.sqrt(better)
    assert low < _false_positives(seen, random, probes) < high


def test_half_of_the_bits_are_set_at_capacity() -> None:
    """At capacity the table is half full, and what it then says of itself is the theorem's rate."""
    seen = Bloom(200_000, 1e-4)
    seen.add_many(_random_digests(np.random.default_rng(2), 200_000))
    assert seen.fill_ratio == pytest.approx(0.5, abs=0.02)
    assert seen.error_rate_now == pytest.approx(seen.expected_error(200_000), rel=0.05)
    assert len(seen) == pytest.approx(200_000, rel=1e-3)


@pytest.mark.parametrize("load", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    "template", [b"%d", b"user%d@example.com", b"https://shop.example/p?id=%d"]
)
def test_structured_keys_err_no_more_than_random_ones(template: bytes, load: float) -> None:
    """Sequential ids and addresses of one domain meet the theorem below, at and above capacity."""
    added, probes = int(50_000 * load), 200_000
    seen = Bloom(50_000, 0.01)
    seen.add_many(digests([template % i for i in range(added)]))
    found = seen.contains_many(digests([template % i for i in range(added, added + probes)]))
    low, high = _band(seen.expected_error(added) * probes)
    assert low < np.count_nonzero(found) < high


def test_small_tables_err_no_more_than_independent_hashes() -> None:
    """With 2^16 bits and 20 hashes, where double hashing errs 18 times as often, ours agrees.

    The fill to the power of k is what a lookup at independent random places would find.
    """
    random = np.random.default_rng(3)
    expected = 0.0
    found = 0
    for _ in range(20):
        seen = Bloom(2279, 1e-6)
        seen.add_many(_random_digests(random, 2279))
        expected += seen.error_rate_now * 1_000_000
        found += _false_positives(seen, random, 1_000_000)
    assert (seen.header()["hashes"], seen.header()["bits"]) == (20, pytest.approx(65536, rel=1e-3))
    low, high = _band(expected)
    assert 15 < expected < 25
    assert max(low, 3) < found < high < 3 * expected


def test_tiny_tables_on_average() -> None:
    """Over many fills of a table of a thousand bits the error is the theorem's, within 8 %."""
    random = np.random.default_rng(4)
    fills, probes = 400, 25_000
    found = 0
    for _ in range(fills):
        seen = Bloom(71, 1e-3)
        seen.add_many(_random_digests(random, 71))
        found += _false_positives(seen, random, probes)
    # 1.35 %: by so much the exact probability is above the formula at this size.
    expected = seen.expected_error(71) * 1.0135
    assert found / (fills * probes) == pytest.approx(expected, rel=0.08)


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


def test_bits_land_above_32_bit_indices() -> None:
    """In a table of more than 2^32 bits, places beyond the 2^32nd are used, and read back.

    The pages of the 719 MB are the kernel's zero page until written; three keys write few.
    """
    seen = Bloom(200_000_000, 1e-6)
    bits, hashes = seen.header()["bits"], seen.header()["hashes"]
    assert bits > 1 << 32
    rows = [((1 << 64) - 1, 3), (0xC0FFEE0123456789, 0x9E3779B97F4A7C15), (1, (1 << 64) - 5)]
    places = {at for a, b in rows for at in _places(a, b, bits, hashes)}
    assert sum(at > 1 << 32 for at in places) > 5
    assert seen.add_many(_as_digests(rows)).all()
    (table,) = seen.buffers()
    assert all(table[at // 8] >> at % 8 & 1 for at in places)
    assert seen.fill_ratio == len(places) / bits
    assert seen.contains_many(_as_digests(rows)).all()
    folded = {at & 0xFFFFFFFF for at in places} - places
    assert not any(table[at // 8] >> at % 8 & 1 for at in folded)


@pytest.mark.parametrize(
    ("change", "said"),
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
    ],
    ids=lambda value: repr(value)[:50],
)
def test_contradictory_headers_are_refused(change: dict[str, Any], said: str) -> None:
    """A header that does not fit itself or the table is refused before anything is allocated."""
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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("capacity", "capacity None is not"),
        ("error_rate", "error_rate None is not"),
        ("bits", "bits None is not"),
        ("hashes", "hashes None is not"),
        ("keys", "keys None is not"),
    ],
)
def test_incomplete_headers_are_refused(name: str, said: str) -> None:
    """A header that lacks a field is refused."""
    seen = Bloom(100, 1e-3)
    header = {field: value for field, value in seen.header().items() if field != name}
    with pytest.raises(ValueError, match=said):
        Bloom.from_parts(header, seen.buffers())


def test_tables_of_another_size_are_refused() -> None:
    """A table that is cut, too long, missing or in two parts is refused."""
    seen = Bloom(100, 1e-3)
    table = bytes(seen.buffers()[0])
    whole = memoryview(table)
    longer = memoryview(table + b"\0")
    for buffers in ([], [whole, whole]):
        with pytest.raises(ValueError, match="values to unpack"):
            Bloom.from_parts(seen.header(), buffers)
    for cut in (whole[:-8], whole[:-1], whole[:1], longer):
        with pytest.raises(
            ValueError,
            match=f"^{cut.nbytes} bytes of table, but the header describes {whole.nbytes}",
        ):
            Bloom.from_parts(seen.header(), [cut])


def test_a_large_header_over_a_small_table_allocates_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A header that fits itself but promises another table is refused before there is memory."""
    bits, hashes = bloom_size(10**11, 1e-6)
    large = {"capacity": 10**11, "error_rate": 1e-6, "bits": bits, "hashes": hashes}
    seen = Bloom(100, 1e-3)
    monkeypatch.setattr(np, "zeros", lambda *_, **__: pytest.fail("it allocated"))
    with pytest.raises(ValueError, match="bytes of table"):
        Bloom.from_parts({**seen.header(), **large}, seen.buffers())


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


def _false_positives(seen: Filter, random: np.random.Generator, probes: int) -> int:
    """How many of `probes` random digests, none of which was added, are found."""
    found = 0
    for start in range(0, probes, 1_000_000):
        count = min(1_000_000, probes - start)
        found += int(np.count_nonzero(seen.contains_many(_random_digests(random, count))))
    return found


def _band(expected: float) -> tuple[float, float]:
    """Give the counts that do not contradict an expectation of `expected`."""
    return expected - SIGMAS * math.sqrt(expected), expected + SIGMAS * math.sqrt(expected)
