"""Claims about how often every kind errs: as theory says, on keys of every family, in large tables and small ones.

Each claim is two-sided: a count of false positives lies in its `band`, and so many keys are asked for that a rate which
is a quarter off would not (`probes_for`).
"""

import math
from collections.abc import Callable

import numpy as np
import pytest

from proof.filters.key_families import FAMILIES
from streamdedup.filters.base import Addable, Filter
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.keys.hashing import Digests, Hash
from tests.filters.cases import CASES, Case, band, probes_for

FamilyDigests = Callable[[str, Hash], Digests]

every = pytest.mark.parametrize("case", CASES, ids=str)
families = pytest.mark.parametrize("family", FAMILIES)

CAPACITY = 100_000
SMALL_CAPACITY, FILLINGS, SMALL_PROBES = 100, 256, 2000


# --- the statistics ---


@pytest.mark.parametrize("rate", [1e-2, 1e-3, 1e-4])
def test_the_number_of_probes_tells_a_quarter(rate: float) -> None:
    """Of rates 1.25 and 0.75 times the expected one, 999 of 1000 counts are beyond the band."""
    expected = rate * probes_for(rate)
    low, high = band(expected)
    assert 1.25 * expected - 3.09 * math.sqrt(1.25 * expected) > high
    assert 0.75 * expected + 3.09 * math.sqrt(0.75 * expected) < low
    assert probes_for(rate) == pytest.approx(1155 / rate, rel=0.01)


# --- large tables ---


@every
@families
def test_the_measured_error_is_the_expected_one(
    case: Case, family: str, family_digests: FamilyDigests
) -> None:
    """At half of the capacity and at capacity: as theory says, on both sides, and at most the stated rate."""
    for rate in case.error_rates:
        seen = case.build(CAPACITY, rate)
        digests = family_digests(family, seen.hash)
        absent = digests[CAPACITY : CAPACITY + probes_for(rate)]
        for members in np.array_split(digests[:CAPACITY], 2):
            seen.add_many(members)
            expected = seen.expected_error(len(seen)) * len(absent)
            low, high = band(expected)
            found = int(np.count_nonzero(seen.contains_many(absent)))
            assert low < found < high, (rate, len(seen))
            assert seen.error_rate_now == pytest.approx(expected / len(absent), rel=0.1)
        assert found < band(rate * len(absent))[1]
        assert seen.error_rate == rate
        assert len(seen) == pytest.approx(CAPACITY, rel=2 * rate + 1e-9)


# --- small tables ---


@every
@families
def test_small_tables_err_as_expected_on_average(
    case: Case, family: str, family_digests: FamilyDigests
) -> None:
    """A hundred keys a table, over 256 tables: within 10 % of theory, on both sides.

    One table's own spread is 13 % for a Bloom filter of a thousand bits, so that of the mean is 0.8 %; with 5000 false
    positives to count, 1.6 % in all. The sequence `double` errs up to twice as often where m is small.
    """
    digests = family_digests(family, case.build(1).hash)
    absent = digests[FILLINGS * SMALL_CAPACITY :]
    found = expected = 0.0
    for filling in range(FILLINGS):
        seen = _filled(case, 1e-2, digests, filling)
        some = absent[filling * SMALL_PROBES : (filling + 1) * SMALL_PROBES]
        found += int(np.count_nonzero(seen.contains_many(some)))
        expected += seen.expected_error(len(seen)) * SMALL_PROBES
    most = 2.0 if case.options.get("probe") == "double" else 1.1
    assert 0.9 * expected - 1 < found < most * expected + 1


def _filled(case: Case, rate: float, digests: Digests, filling: int) -> Addable:
    seen = case.build(SMALL_CAPACITY, rate)
    seen.add_many(digests[filling * SMALL_CAPACITY : (filling + 1) * SMALL_CAPACITY])
    return seen


# --- fake lookups ---


@families
@pytest.mark.parametrize("rate", [1e-2, 1e-3])
def test_lookups_meet_what_random_places_meet(
    rate: float, family: str, family_digests: FamilyDigests
) -> None:
    """Over the bits of the same tables, keys that are absent are found as often as k independent places are all set.

    Whatever the fill: so the hash of a lookup is as good as independent ones, on every family, in small tables.
    """
    real, fake = _lookups("standard", rate, family, family_digests)
    assert fake > 1000
    assert abs(real - fake) < 5 * math.sqrt(real + fake)


def test_fake_lookups_tell_a_sequence_that_errs(family_digests: FamilyDigests) -> None:
    """Double hashing errs half as often again as random places over the same bits of a small table."""
    real, fake = _lookups("double", 1e-3, "random", family_digests)
    assert real > 1.3 * fake


def _lookups(
    probe: str, rate: float, family: str, family_digests: FamilyDigests
) -> tuple[int, int]:
    """Of so many absent keys, and of as many draws of k random places, over many tables: how many are found."""
    case, chance = Case("bloom", {"probe": probe}), np.random.default_rng(7)
    digests = family_digests(family, case.build(1).hash)
    probes = round(12 / rate)
    absent = digests[FILLINGS * SMALL_CAPACITY :]
    real = fake = 0
    for filling in range(FILLINGS):
        seen = _filled(case, rate, digests, filling)
        start = int(chance.integers(len(absent) - probes))
        real += int(np.count_nonzero(seen.contains_many(absent[start : start + probes])))
        fake += _fake_lookups(seen, probes, chance)
    return real, fake


def _fake_lookups(seen: Filter, probes: int, chance: np.random.Generator) -> int:
    assert isinstance(seen, Bloom)
    bits = np.unpackbits(np.frombuffer(seen.buffers()[0], np.uint8), bitorder="little")
    places = chance.integers(0, seen.bits, (seen.hashes, probes), dtype=np.uint32)
    return int(np.count_nonzero(bits[places].all(axis=0)))
