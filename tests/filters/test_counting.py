"""Claims about the counting filter beyond the contract of every kind: its counters, to the bit, and where they end."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import ConfigError
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.bloom.counting import COUNT_MAX, Counting
from streamdedup.filters.sizing import bloom_size, counter_reaches
from streamdedup.keys.hashing import Digests
from tests.filters.cases import band, copies, random_digests, state

words = st.integers(0, 50) | st.integers(0, 2**64 - 1)
probes = st.sampled_from(["standard", "double"])


# --- sizes and theory ---


@pytest.mark.parametrize(("error_rate", "bits"), [(1e-2, 38.3), (1e-3, 57.5), (1e-4, 76.7)])
def test_it_takes_four_times_the_memory_of_bloom(error_rate: float, bits: float) -> None:
    """4 bits for each bit of a Bloom filter, with as many hashes."""
    seen, bloom = Counting(100_000, error_rate, multiset=True), Bloom(100_000, error_rate)
    assert (seen.counters, seen.hashes) == (bloom.bits, bloom.hashes)
    assert seen.size_bytes * 8 / 100_000 == pytest.approx(bits, rel=2e-3)


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


@pytest.mark.parametrize("times", [8, 16])
def test_as_many_counters_saturate_as_theory_says(times: int) -> None:
    """Filled to many times its capacity, the live figure is the tail of the Poisson distribution at 15."""
    seen = Counting(20_000, 1e-2, multiset=True)
    keys = random_digests(20, 20_000 * times)
    seen.add_many(keys)
    share = counter_reaches(COUNT_MAX, seen.counters, seen.hashes, len(keys))
    low, high = band(share * seen.counters)
    assert 10 < low < seen.saturated < high
    assert seen.header()["saturated"] == seen.saturated == _counters(seen).count(COUNT_MAX)


def test_none_saturates_at_capacity() -> None:
    """A filter that is as full as it may be is far from the end of its counters."""
    seen = Counting(200_000, 1e-3, multiset=True)
    seen.add_many(random_digests(21, 200_000))
    assert seen.saturated == 0
    assert max(_counters(seen)) in range(5, 13)


# --- counters ---


@settings(deadline=None)
@given(
    st.lists(st.tuples(words, words), min_size=1, max_size=12),
    st.lists(st.tuples(st.booleans(), st.integers(0, 11)), max_size=80),
    st.integers(1, 60),
    st.sampled_from([0.5, 0.1, 1e-3, 1e-6]),
    probes,
)
def test_counters_are_what_a_model_counts(
    rows: list[tuple[int, int]],
    steps: list[tuple[bool, int]],
    capacity: int,
    error_rate: float,
    probe: str,
) -> None:
    """Any additions and removals, also of look-alikes and of keys whose probes meet: the same table, to the bit."""
    seen = Counting(capacity, error_rate, probe=probe, multiset=True)
    model = [0] * seen.counters
    for adding, which in steps:
        row = rows[which % len(rows)]
        places = _places(*row, seen.counters, seen.hashes, probe)
        present = all(model[place] for place in places)
        if adding:
            assert seen.add_many(_as_digests([row])).tolist() == [not present]
            for place in places:
                model[place] = min(COUNT_MAX, model[place] + 1)
        else:
            assert seen.remove_many(_as_digests([row])).tolist() == [present]
            for place in places if present else []:
                model[place] -= 0 < model[place] < COUNT_MAX
        assert seen.contains_many(_as_digests([row]))[0] == all(model[place] for place in places)
    assert _counters(seen) == model
    assert seen.fill_ratio == sum(map(bool, model)) / seen.counters
    assert seen.saturated == model.count(COUNT_MAX)
    assert 0 <= len(seen) <= sum(map(bool, model))
    assert state(Counting.from_parts(seen.header(), copies(seen))) == state(seen)


@pytest.mark.parametrize("probe", ["standard", "double"])
def test_probes_of_a_key_that_meet_are_taken_back_as_they_were_counted(probe: str) -> None:
    """A key that counts one place twice and more leaves nothing behind, and takes nothing from others."""
    seen, other = Counting(3, 1.5e-3, probe=probe, multiset=True), (5, 5)
    seen.add_many(_as_digests([other]))
    before = state(seen)
    doubled = 0
    for a in range(1, 2**64, 2**56):
        places = Counter(_places(a, a * 7 % 2**64, seen.counters, seen.hashes, probe))
        if max(places.values()) < 2:
            continue
        doubled += 1
        row = _as_digests([(a, a * 7 % 2**64)])
        seen.add_many(row)
        counted = _counters(seen)
        assert all(counted[place] >= times for place, times in places.items())
        assert seen.remove_many(row).all()
        assert state(seen) == before
    assert doubled > 5


def test_counters_stand_above_32_bit_indices() -> None:
    """In a table of more than 2^32 counters those beyond the 2^32nd are used, found again, and counted down."""
    seen = Counting(
        200_000_000, 1e-6, multiset=True
    )  # 2.9 GB, of which the pages that are never written take no memory
    assert seen.counters > 1 << 32
    rows = [(2**64 - 1, 3), (0xC0FFEE0123456789, 0x9E3779B97F4A7C15), (2**64 - 9, 2**64 - 2**58)]
    places = Counter(
        at for row in rows for at in _places(*row, seen.counters, seen.hashes, "standard")
    )
    assert sum(at > 1 << 32 for at in places) > 5
    digests = _as_digests(rows)
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


# --- removal ---


def test_what_is_absent_is_not_removed() -> None:
    """The removal of absent keys says so and changes nothing, one by one and many."""
    seen = Counting(1000, 1e-6, multiset=True)
    seen.add_many(random_digests(22, 1000))
    before = state(seen)
    assert not seen.remove_many(random_digests(23, 1000)).any()
    assert not seen.discard("never added")
    assert state(seen) == before


def test_a_look_alike_whose_probes_meet_takes_no_more_than_there_is() -> None:
    """Where a key that was never added counts one place down five times over, the place stops at 0 and others stay."""
    seen = Counting(3, 1.5e-3, probe="double", multiset=True)
    assert (seen.counters, seen.hashes) == (44, 9)
    seen.add_many(_as_digests([(7, 1), (29, 1)]))  # 7 to 15 and 29 to 37
    before = _counters(seen)
    assert seen.remove_many(_as_digests([(7, 22)])).all()  # 7, 29, 7, 29 and so on
    assert _counters(seen) == [0 if at in (7, 29) else count for at, count in enumerate(before)]


def test_equal_digests_of_a_batch_are_counted_and_taken_back_in_order() -> None:
    """A key that is twice in a batch is there twice: of three removals the last finds nothing."""
    seen = Counting(100, 1e-9, multiset=True)
    assert seen.add_many(seen.digests([b"a", b"b", b"a"])).tolist() == [True, True, False]
    gone = seen.remove_many(seen.digests([b"a", b"a", b"a", b"b"]))
    assert gone.tolist() == [True, True, False, True]
    assert state(seen) == state(Counting(100, 1e-9, multiset=True))


@pytest.mark.parametrize("additions", [1, 14, 15, 16, 40])
def test_from_fifteen_additions_on_a_key_stays(additions: int) -> None:
    """Up to 14 additions are taken back by as many removals; a key that was added more often never leaves."""
    seen = Counting(100, 1e-9, multiset=True)
    for _ in range(additions):
        seen.add("a")
    assert all(seen.discard("a") for _ in range(additions))
    stays = additions >= COUNT_MAX == seen.copies_max
    assert ("a" in seen) == seen.discard("a") == stays
    assert (seen.saturated > 0, len(seen)) == (stays, int(stays))
    assert seen.sticky


def test_saturated_counters_never_count_down() -> None:
    """After all is taken back from a filter far too full, what was saturated still is, and no member was lost."""
    seen = Counting(2000, 1e-2, multiset=True)
    members, others = random_digests(24, 30_000)[:5000], random_digests(24, 30_000)[5000:]
    seen.add_many(members)
    seen.add_many(others)
    saturated = seen.saturated
    assert saturated > 50
    assert seen.remove_many(others).all()
    assert seen.contains_many(members).all()
    assert seen.remove_many(members).all()
    assert seen.saturated == saturated == np.count_nonzero(_counters(seen))


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


def test_a_read_only_filter_gives_nothing_back() -> None:
    """Over a mapped file neither removals nor a union change anything."""
    seen = Counting(100, 1e-3, multiset=True)
    seen.add("there")
    frozen = Counting.from_parts(seen.header(), [memoryview(bytes(seen.buffers()[0]))])
    changes: list[Callable[[], object]] = [
        lambda: frozen.discard("there"),
        lambda: frozen.remove_many(frozen.digests(["there"])),
        lambda: frozen.__ior__(seen),
    ]
    for change in changes:
        with pytest.raises(ConfigError, match="load it without mmap"):
            change()
    assert state(frozen) == state(seen)


# --- union ---


@pytest.mark.parametrize("capacity", [1, 40, 60_000])
def test_a_union_adds_counters_up_to_fifteen(capacity: int) -> None:
    """Each counter is the sum of both, at most 15, in tables of one word and of many pieces."""
    one, other = Counting(capacity, 1e-9, multiset=True), Counting(capacity, 1e-9, multiset=True)
    keys = random_digests(26, 4 * capacity)
    for times in range(12):
        one.add_many(keys[: capacity // (times + 1) + 1])
        other.add_many(keys[capacity // 2 : capacity // 2 + capacity // (times + 1) + 1])
    sums = [min(COUNT_MAX, a + b) for a, b in zip(_counters(one), _counters(other), strict=True)]
    one |= other
    assert _counters(one) == sums
    assert one.saturated == sums.count(COUNT_MAX) > 0
    assert one.fill_ratio == np.count_nonzero(sums) / one.counters
    assert state(Counting.from_parts(one.header(), copies(one))) == state(one)


def test_a_union_holds_a_key_as_often_as_both_together() -> None:
    """Two here and one there are three to take back."""
    one, other = Counting(100, 1e-9, multiset=True), Counting(100, 1e-9, multiset=True)
    one.add_many(one.digests([b"a", b"a", b"b"]))
    other.add_many(other.digests([b"a", b"c"]))
    one |= other
    assert len(one) == 3
    gone = one.remove_many(one.digests([b"a", b"a", b"a", b"a", b"b", b"c", b"c"]))
    assert gone.tolist() == [True, True, True, False, True, True, False]
    assert (len(one), one.fill_ratio) == (0, 0)
    assert b"a" in other


# --- parts ---


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"counters": 1440}, "do not follow"),
        ({"counters": 1442}, "do not follow"),
        ({"hashes": 9}, "do not follow"),
        ({"hashes": 11}, "do not follow"),
        ({"capacity": 101}, "do not follow"),
        ({"error_rate": 1.01e-3}, "do not follow"),
        ({"saturated": 0}, "20 counters are saturated, not 0"),
        ({"saturated": 1442}, "saturated 1442 is not an integer from 0 to 1441"),
        ({"keys": -1}, "keys -1 is not"),
        ({"probe": "triple"}, "probe 'triple' is unknown"),
    ],
    ids=str,
)
def test_contradictory_headers_are_refused(change: dict[str, Any], said: str) -> None:
    """A header that does not fit itself or its table says what is wrong."""
    seen = Counting(100, 1e-3, multiset=True)
    for _ in range(COUNT_MAX):
        seen.add_many(random_digests(27, 2))
    assert (seen.counters, seen.hashes) == (1441, 10)
    with pytest.raises(ValueError, match=said):
        Counting.from_parts({**seen.header(), **change}, seen.buffers())


def test_counts_beyond_the_last_counter_are_refused() -> None:
    """A count in the last word after the last counter is damage, and refused."""
    seen = Counting(100, 1e-3, multiset=True)
    assert seen.counters % 16
    for at, fits in ((seen.counters - 1, True), (seen.counters, False)):
        table = bytearray(seen.size_bytes)
        table[at // 2] = 1 << at % 2 * 4
        if fits:
            restored = Counting.from_parts(seen.header(), [memoryview(table)])
            assert restored.fill_ratio == 1 / seen.counters
        else:
            with pytest.raises(ValueError, match="beyond the last of 1441"):
                Counting.from_parts(seen.header(), [memoryview(table)])


def test_a_large_header_over_a_small_table_allocates_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A header that fits itself but promises another table is refused before there is memory."""
    counters, hashes = bloom_size(10**10, 1e-6)
    large = {"capacity": 10**10, "error_rate": 1e-6, "counters": counters, "hashes": hashes}
    seen = Counting(100, 1e-3, multiset=True)
    monkeypatch.setattr("streamdedup.filters.bloom.counting.aligned_words", pytest.fail)
    monkeypatch.setattr("streamdedup.filters.memory.aligned_words", pytest.fail)
    with pytest.raises(ValueError, match="bytes of table"):
        Counting.from_parts({**seen.header(), **large}, seen.buffers())


@pytest.mark.parametrize("error_rate", [1e-37, 0.5, 0.9999999, 1 - 2**-53])
def test_extreme_error_rates_make_filters_that_come_back(error_rate: float) -> None:
    """Every rate that digests of 128 bits can give has a size, and a header that is accepted again."""
    seen = Counting(10, error_rate, multiset=True)
    assert seen.add("a")
    assert state(Counting.from_parts(seen.header(), copies(seen))) == state(seen)


def test_what_no_machine_holds_is_refused() -> None:
    """More counters than a tebibyte holds are the operator's mistake, named before memory is taken."""
    with pytest.raises(ConfigError, match=r"filter\.capacity 10000000000000 at error_rate 0\.001"):
        Counting(10**13, 1e-3, multiset=True)


def _as_digests(rows: list[tuple[int, int]]) -> Digests:
    return np.array(rows, dtype=np.uint64).reshape(-1, 2)


def _counters(seen: Counting) -> list[int]:
    """All counters, by the documented layout; what is beyond the last must be 0."""
    table = np.frombuffer(seen.buffers()[0], np.uint8)
    counters = np.stack([table & 15, table >> 4], axis=1).ravel()
    assert not counters[seen.counters :].any()
    return list(map(int, counters[: seen.counters]))


def _places(a: int, b: int, counters: int, hashes: int, probe: str) -> list[int]:
    """Follow the documented probe sequences, in integers that do not overflow."""
    if probe == "double":
        step = b % counters or 1
        return [(a + i * step) % counters for i in range(hashes)]
    places = []
    for _ in range(hashes):
        places.append(a * counters >> 64)
        a = (a * 0xD1342543DE82EF95 + b) % 2**64
    return places
