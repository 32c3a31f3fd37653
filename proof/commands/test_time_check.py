"""Claims about dead letters that reject an event for its time, by chance."""

from hypothesis import given
from hypothesis import strategies as st

from streamdedup.commands.audit.time_check import TOLERANCE_MS, Claim
from tests.commands.test_time_check import (
    AHEAD_MS,
    HOUR_MS,
    KEPT_MS,
    NOW_MS,
    check_on,
    wrong_in,
)

letters = st.lists(
    st.tuples(
        st.integers(0, 3),  # how many transactions on
        st.integers(0, 30 * 60_000),  # how much later each
        st.integers(-3 * HOUR_MS, 3 * HOUR_MS),  # the event's distance from the limit
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@given(letters)
def test_many_letters_are_judged_as_one_by_one(
    made: list[tuple[int, int, int, bool]],
) -> None:
    """Whatever stamps the search leaves out: each letter's verdict is that of the marker right after it."""
    markers, claims, at, stamp_ms, fresh = list[tuple[int, int]](), list[Claim](), 0, NOW_MS, 0
    for fresh, later_ms, distance_ms, ahead in made:
        if fresh and claims:
            markers.append((at, stamp_ms))
            at, stamp_ms = at + 1, stamp_ms + fresh * later_ms
        limit_ms = AHEAD_MS if ahead else -KEPT_MS
        claims.append(Claim(at, len(claims), stamp_ms + limit_ms + distance_ms, ahead, stamp_ms))
        at += 1
    markers.append((at, stamp_ms))
    alone = check_on(markers)
    one_by_one = [wrong for claim in claims for wrong in wrong_in(alone, [claim])]
    assert wrong_in(check_on(markers), claims) == sorted(set(one_by_one))


@given(st.integers(0, 2 * TOLERANCE_MS))
def test_brokers_whose_clocks_differ_a_little_accuse_nobody(off_ms: int) -> None:
    """Within the tolerance the worker went by the output's leader, and the marker is of another."""
    claim = Claim(0, 0, NOW_MS - KEPT_MS + 60_000 - 1, False, NOW_MS)
    wrong = wrong_in(check_on([(1, NOW_MS - off_ms)]), [claim])
    assert (wrong == []) == (off_ms < TOLERANCE_MS + 1)
