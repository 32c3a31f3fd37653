"""Claims about verdicts that become the rule: they are noticed by share and number, within a minute, and forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.events import Verdict
from streamdedup.metrics.prevalence import (
    EVENTS_MIN,
    REASONS_MAX,
    SHARE_MIN,
    WATCHED,
    WINDOW_S,
    Prevailing,
    Prevalence,
    Reasons,
    of_topic,
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


def reasons(**events: int) -> Reasons:
    """Reasons with their numbers of events."""
    made = Reasons()
    made.add(events)
    return made


def malformed(events: int, passed: int = 0, why: Reasons | None = None) -> Prevalence:
    """What has seen so many events in its first minute."""
    watch = Prevalence()
    watch.look(0, counts())
    watch.note(why or Reasons())
    watch.look(5, counts(malformed=events, **{"pass": passed}))
    return watch


def test_the_most_frequent_reason_is_said() -> None:
    """With its number, unless all events have it; and not that of events of more than a minute ago."""
    watch = malformed(300, why=reasons(old=300))
    assert [str(one) for one in watch.now] == [
        "300 of the last 300 events (100%) are malformed: old"
    ]
    watch.note(reasons(new=150, rare=50))
    watch.look(66, counts(malformed=500))
    assert [str(one) for one in watch.now] == [
        "200 of the last 200 events (100%) are malformed: for 150 of them, new"
    ]


def test_reasons_wait_for_their_look() -> None:
    """A look that comes too soon after another one takes none."""
    watch = malformed(100, why=reasons(one=100))
    watch.note(reasons(two=150))
    watch.look(5.5, counts(malformed=250))
    assert [one.reason for one in watch.now] == ["one"]
    watch.look(6.5, counts(malformed=250))
    assert [one.reason for one in watch.now] == ["two"]


def test_reasons_are_bounded() -> None:
    """The place that an event names is left out, and of other reasons the most frequent ones are kept."""
    found = Reasons()
    found.add({f"the value is not valid JSON, at byte {n}": 1 for n in range(1000)})
    found.add({f"schema {n}": 1 for n in range(1000)})
    assert found.most_frequent == ("the value is not valid JSON", 1000)
    found.add({"often": 5000})
    found = sum([found, reasons(again=6000)], Reasons())
    assert found.most_frequent == ("again", 6000)
    assert len(found._events) == REASONS_MAX


def test_a_topic_says_an_outcome_once() -> None:
    """If it is the rule in every partition with events, without their names; else with these."""
    bad, good, idle = malformed(200, why=reasons(why=200)), malformed(0, 100), Prevalence()
    whole = malformed(400, why=reasons(why=400))
    (everywhere,) = of_topic(whole, {0: bad, 1: bad, 2: idle})
    assert str(everywhere) == "400 of the last 400 events (100%) are malformed: why"
    (in_some,) = of_topic(malformed(400, 100, reasons(why=400)), {0: bad, 1: good, 2: bad})
    assert str(in_some) == (
        "400 of the last 500 events (80%) are malformed, 400 of them in partitions 0, 2: why"
    )
    (in_few,) = of_topic(malformed(200, 1000), {0: bad, 1: good})
    assert str(in_few) == "200 of the last 200 events of partition 0 (100%) are malformed: why"
    many = malformed(200, 9000), {**dict.fromkeys(range(12), bad), 12: good}
    assert "of partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more" in str(of_topic(*many)[0])
    assert of_topic(good, {0: good}) == ()


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
