"""Claims about verdicts that become the rule: they are noticed by share and number, within a minute, and forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.events import Verdict
from streamdedup.metrics.prevalence import (
    EVENTS_MIN,
    SHARE_MIN,
    WATCHED,
    WINDOW_S,
    Prevailing,
    Prevalence,
)


def counts(**of: int) -> list[int]:
    """Counts by verdict; 0 where none is given."""
    return [of.get(verdict.name.lower(), 0) for verdict in Verdict]


@pytest.mark.parametrize("name", ["malformed", "rejected"])
def test_a_fifth_of_the_events_is_the_rule(name: str) -> None:
    """At 20 % and 100 events, and not with one event fewer of either."""
    for diverted, passed, is_rule in ((100, 400, True), (100, 401, False), (99, 0, False)):
        watch = Prevalence()
        watch.look(0, counts())
        watch.look(5, counts(**{name: diverted, "pass": passed}))
        said = (Prevailing(name, diverted, diverted + passed),)
        assert watch.now == (said if is_rule else ())


def test_duplicates_and_blocked_events_may_be_the_rule() -> None:
    """That is what the worker is for."""
    watch = Prevalence()
    watch.look(0, counts())
    watch.look(5, counts(duplicate=10_000, blocked=10_000))
    assert watch.now == ()


def test_late_events_may_not_be_the_rule() -> None:
    """Whatever their verdicts are: they passed, or were dropped, without being judged."""
    watch = Prevalence()
    watch.look(0, counts())
    watch.look(5, counts(blocked=60, **{"pass": 60}), late=99)
    assert not watch.now
    watch.look(10, counts(blocked=61, **{"pass": 60}), late=100)
    assert watch.now == (Prevailing("late", 100, 121),)


def test_what_was_more_than_a_minute_ago_is_forgotten() -> None:
    """The window moves on, also while nothing comes."""
    watch = Prevalence()
    watch.look(0, counts())
    watch.look(1, counts(rejected=200))
    for second in range(2, 61):
        watch.look(second, counts(rejected=200))
        assert watch.now
    watch.look(61, counts(rejected=200))
    assert watch.now == ()


def test_slow_looks_still_cover_the_minute() -> None:
    """If the last look was long ago, what came since is judged."""
    watch = Prevalence()
    watch.look(0, counts())
    watch.look(3600, counts(rejected=200))
    assert watch.now


def test_what_came_before_the_first_look_counts() -> None:
    """A worker may have decided much before it looks for the first time."""
    watch = Prevalence()
    watch.look(7, counts(rejected=200))
    assert watch.now


def test_it_says_what_it_saw() -> None:
    """The text has numbers and the share."""
    text = str(Prevailing("rejected", 4_321, 5_000))
    assert text == "4,321 of the last 5,000 events (86%) are rejected"


steps = st.tuples(st.floats(1, 30), st.lists(st.integers(0, 400), min_size=5, max_size=5))


@given(st.lists(steps, min_size=1, max_size=12))
def test_it_judges_what_came_within_the_window(made: list[tuple[float, list[int]]]) -> None:
    """Against all looks remembered: from the newest one that is at least a window old, or the first."""
    watch, now_s, total = Prevalence(), 0.0, [0] * len(Verdict)
    watch.look(now_s, total)
    looks = [(now_s, total)]
    for pause_s, more in made:
        now_s, total = now_s + pause_s, [a + b for a, b in zip(total, more, strict=True)]
        watch.look(now_s, total)
        looks.append((now_s, total))
    before = [at for at, (s, _) in enumerate(looks) if s <= now_s - WINDOW_S] or [0]
    delta = [a - b for a, b in zip(total, looks[before[-1]][1], strict=True)]
    expected = [
        verdict.name.lower()
        for verdict in WATCHED
        if delta[verdict] >= EVENTS_MIN and delta[verdict] >= SHARE_MIN * sum(delta)
    ]
    assert [one.outcome for one in watch.now] == expected
