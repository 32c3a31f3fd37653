"""Claims about the counting filter beyond the contract of every kind: its counters, to the bit, and where they end."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import ConfigError
from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.filters.bloom.counting import COUNT_MAX, Counting
from streamdedup.keys.hashing import Digests
from tests.filters.cases import copies, random_digests, state
from tests.rows import table

words = st.integers(0, 50) | st.integers(0, 2**64 - 1)
probes = st.sampled_from(["standard", "double"])


# --- sizes and theory ---


@table([(1e-2, 38.3), (1e-3, 57.5), (1e-4, 76.7)])
def test_it_takes_four_times_the_memory_of_bloom(row: tuple[float, float]) -> None:
    """4 bits for each bit of a Bloom filter, with as many hashes."""
    error_rate, bits = row
    seen, bloom = Counting(100_000, error_rate, multiset=True), Bloom(100_000, error_rate)
    assert (seen.counters, seen.hashes) == (bloom.bits, bloom.hashes)
    assert seen.size_bytes * 8 / 100_000 == pytest.approx(bits, rel=2e-3)


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


@table([1, 14, 15, 16, 40])
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


@table([1, 40, 60_000])
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


@table([1e-37, 0.5, 0.9999999, 1 - 2**-53])
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
