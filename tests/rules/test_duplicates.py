"""Claims about how many rows a filter has room for. Those about the duplicates rule are with what waits."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.filters.bloom.bloom import Bloom
from streamdedup.rules.duplicates import rows_that_fit
from tests.filters.cases import as_digests

Pair = tuple[int, int]

# Few values, some of which differ in one word only, so that rows repeat and collide in the table.
words = st.sampled_from([0x9F3C5A7E1B2D4860, 0x2468ACE013579BDF, 0xFEDC0123BA984567])
pairs = st.lists(st.tuples(words, words), max_size=40)


@settings(deadline=None)
@given(known=pairs, rows=pairs, room=st.integers(-2, 12))
@example([], [], -1)
@example([], [(1, 1), (1, 1)], 1)
def test_rows_that_fit_are_as_many_as_possible(
    known: list[Pair], rows: list[Pair], room: int
) -> None:
    """What fits holds at most `room` rows that neither the filter nor an earlier row has; one more would hold more."""
    new = [row not in [*known, *rows[:at]] for at, row in enumerate(rows)]
    seen = Bloom(1000, 1e-9)
    seen.add_many(as_digests(known))
    before = bytes(seen.buffers()[0])
    count = rows_that_fit(seen, as_digests(rows), room)
    assert bytes(seen.buffers()[0]) == before
    assert sum(new[:count]) <= max(room, 0)
    assert count == len(rows) or sum(new[: count + 1]) > max(room, 0)
