"""Claims about what the duplicates rule is made of, each against a model made of Python sets."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.filters.bloom import Bloom
from streamdedup.keys.hashing import Digests
from streamdedup.rules.duplicates import rows_that_fit, unseen

Pair = tuple[int, int]

# Few values, some of which differ in one word only, so that rows repeat and collide in the table.
words = st.sampled_from([0x9F3C5A7E1B2D4860, 0x2468ACE013579BDF, 0xFEDC0123BA984567])
pairs = st.lists(st.tuples(words, words), max_size=40)


@settings(deadline=None)
@given(known=pairs, rows=pairs)
def test_only_first_occurrences_are_unseen(known: list[Pair], rows: list[Pair]) -> None:
    """A row is unseen where neither the filter nor an earlier row has its digest."""
    met = set(known)
    expected = []
    for row in rows:
        expected.append(row not in met)
        met.add(row)
    assert unseen(_filter_with(known), _digests(rows)).tolist() == expected


def test_looking_changes_nothing() -> None:
    """Asked twice, the same rows get the same answer: nothing enters the filter here."""
    seen, rows = _filter_with([(1, 1)]), _digests([(1, 1), (2, 2)])
    before = bytes(seen.buffers()[0])
    assert unseen(seen, rows).tolist() == [False, True]
    assert unseen(seen, rows).tolist() == [False, True]
    assert (bytes(seen.buffers()[0]), len(seen)) == (before, 1)
    assert rows.tolist() == [[1, 1], [2, 2]]


@given(st.lists(st.booleans(), max_size=30), st.integers(-2, 32))
@example([], -1)
@example([False, True, True], -1)
def test_rows_that_fit_are_as_many_as_possible(fresh: list[bool], room: int) -> None:
    """What fits holds at most `room` fresh rows, and one more row would hold more."""
    count = rows_that_fit(np.array(fresh, dtype=np.bool_), room)
    assert sum(fresh[:count]) <= max(room, 0)
    assert count == len(fresh) or sum(fresh[: count + 1]) > room


def _filter_with(known: list[Pair]) -> Bloom:
    seen = Bloom(1000, 1e-9)
    seen.add_many(_digests(known))
    return seen


def _digests(rows: list[Pair]) -> Digests:
    return np.array(rows, dtype=np.uint64).reshape(-1, 2)
