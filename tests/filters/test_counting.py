"""Claims about the counting filter beyond the contract of every kind: its counters, to the bit, and where they end."""

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.filters.bloom.counting import COUNT_MAX, Counting
from tests.filters.cases import as_digests, copies, random_digests, state
from tests.filters.test_bits import probed
from tests.rows import table

words = st.integers(0, 50) | st.integers(0, 2**64 - 1)
probes = st.sampled_from(["standard", "double"])


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
        places = probed(*row, seen.counters, seen.hashes, probe)
        present = all(model[place] for place in places)
        if adding:
            assert seen.add_many(as_digests([row])).tolist() == [not present]
            for place in places:
                model[place] = min(COUNT_MAX, model[place] + 1)
        else:
            assert seen.remove_many(as_digests([row])).tolist() == [present]
            for place in places if present else []:
                model[place] -= 0 < model[place] < COUNT_MAX
        assert seen.contains_many(as_digests([row]))[0] == all(model[place] for place in places)
    assert _counters(seen).tolist() == model
    assert seen.fill_ratio == sum(map(bool, model)) / seen.counters
    assert seen.saturated == model.count(COUNT_MAX)
    assert 0 <= len(seen) <= sum(map(bool, model))
    assert state(Counting.from_parts(seen.header(), copies(seen))) == state(seen)


# --- removal ---


def test_a_look_alike_whose_probes_meet_takes_no_more_than_there_is() -> None:
    """Where a key that was never added counts one place down five times over, the place stops at 0 and others stay."""
    seen = Counting(3, 1.5e-3, probe="double", multiset=True)
    assert (seen.counters, seen.hashes) == (44, 9)
    seen.add_many(as_digests([(7, 1), (29, 1)]))  # 7 to 15 and 29 to 37
    before = _counters(seen).tolist()
    assert seen.remove_many(as_digests([(7, 22)])).all()  # 7, 29, 7, 29 and so on
    expected = [0 if at in (7, 29) else count for at, count in enumerate(before)]
    assert _counters(seen).tolist() == expected


# --- union ---


@table([1, 40, 60_000])
def test_a_union_adds_counters_up_to_fifteen(capacity: int) -> None:
    """Each counter is the sum of both, at most 15, in tables of one word and of many pieces."""
    one, other = Counting(capacity, 1e-9, multiset=True), Counting(capacity, 1e-9, multiset=True)
    keys = random_digests(26, 4 * capacity)
    for times in range(12):
        one.add_many(keys[: capacity // (times + 1) + 1])
        other.add_many(keys[capacity // 2 : capacity // 2 + capacity // (times + 1) + 1])
    sums = np.minimum(COUNT_MAX, _counters(one) + _counters(other))
    one |= other
    assert (_counters(one) == sums).all()
    assert one.saturated == np.count_nonzero(sums == COUNT_MAX) > 0
    assert one.fill_ratio == np.count_nonzero(sums) / one.counters
    assert state(Counting.from_parts(one.header(), copies(one))) == state(one)


def _counters(seen: Counting) -> "npt.NDArray[np.uint8]":
    """All counters, by the documented layout; what is beyond the last must be 0."""
    table = np.frombuffer(seen.buffers()[0], np.uint8)
    counters: npt.NDArray[np.uint8] = np.stack([table & 15, table >> 4], axis=1).ravel()
    assert not counters[seen.counters :].any()
    return counters[: seen.counters]
