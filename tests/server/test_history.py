"""What is remembered of a worker's counts: rates, the last minute, the last hour, and how long something waits."""

import pytest

from streamdedup.server.history import MINUTES, Counts, History, Seen

BEGAN_S, WALL_S = 1000.0, 1_764_489_630.0  # half a minute after a full one


@pytest.fixture
def history() -> History:
    """One that began at `BEGAN_S`."""
    return History(BEGAN_S, WALL_S)


def counts(passed: int, duplicates: int = 0) -> Counts:
    """So many events that passed, and duplicates."""
    return passed, duplicates, 0, 0, 0


def look(history: History, after_s: float, seen: Seen, *, ready: bool = True) -> None:
    """Observe partition 0 so many seconds after the beginning."""
    history.observe(BEGAN_S + after_s, {0: seen}, ready=ready)


def test_a_rate_is_of_the_last_seconds(history: History) -> None:
    """Not of the minute before them."""
    for second in range(60):
        look(history, second, Seen(counts(second * 10), "live"))
    for second in range(60, 66):
        look(history, second, Seen(counts(600 + (second - 59) * 1000), "live"))
    assert history.per_second(0)[0] == pytest.approx(1000)
    assert history.last_minute(0)[0] == 6600 - 50


def test_nothing_is_known_of_a_partition_that_was_never_seen(history: History) -> None:
    """No rate, no state, no age."""
    assert history.per_second(7) == [0.0] * 5
    assert history.last_minute(7) == counts(0)
    assert history.since(7) is None
    assert history.oldest_unread_s(7, BEGAN_S) is None


def test_the_hour_has_a_value_for_each_minute_since_the_beginning(history: History) -> None:
    """The first minute is that in which the worker began, and what happened in a minute stands there alone."""
    look(history, 0, Seen(counts(0), "live"))
    look(history, 29, Seen(counts(5), "live"))
    look(history, 31, Seen(counts(7, 2), "live"))
    first, minutes = history.minutes(BEGAN_S + 31)
    assert first == WALL_S + 30 - (MINUTES - 1) * 60
    assert minutes == [None] * (MINUTES - 2) + [counts(5), counts(2, 2)]


def test_the_hour_forgets_what_is_older(history: History) -> None:
    """Sixty minutes are kept, of any number."""
    for minute in range(200):
        look(history, minute * 60, Seen(counts(minute + 1), "live"))
    assert len(history._minutes) == MINUTES
    _, minutes = history.minutes(BEGAN_S + 199 * 60)
    assert minutes == [counts(1)] * MINUTES


def test_a_partition_that_returns_is_not_counted_twice(history: History) -> None:
    """Its counts go on where they were."""
    look(history, 0, Seen(counts(100), "live"))
    history.observe(
        BEGAN_S + 1, {0: Seen(counts(100), None), 1: Seen(counts(0), "live")}, ready=True
    )
    look(history, 2, Seen(counts(101), "live"))
    _, minutes = history.minutes(BEGAN_S + 2)
    assert minutes[-1] == counts(101)


def test_a_state_lasts_since_it_was_first_seen(history: History) -> None:
    """And readiness, too."""
    look(history, 0, Seen(counts(0), "folding"), ready=False)
    look(history, 5, Seen(counts(0), "live"))
    look(history, 9, Seen(counts(0), "live"))
    assert history.since(0) == WALL_S + 5
    assert history.ready == (True, WALL_S + 5)


def test_nothing_unread_waits_for_no_time(history: History) -> None:
    """However old the last event is."""
    look(history, 0, Seen(counts(0), "live", lag=0, read_ms=0))
    assert history.oldest_unread_s(0, BEGAN_S + 100) == 0


def test_an_event_waits_since_it_was_stamped(history: History) -> None:
    """It was stamped at or after the one that was read last."""
    look(history, 0, Seen(counts(0), "live", lag=5, read_ms=int((WALL_S - 40) * 1000)))
    assert history.oldest_unread_s(0, BEGAN_S + 2) == pytest.approx(42)


def test_an_old_event_that_has_just_come_does_not_wait_longer_than_here(history: History) -> None:
    """A backfill of events of last year is not a year late."""
    year_ago_ms = int((WALL_S - 365 * 86400) * 1000)
    look(history, 0, Seen(counts(0), "live", lag=0, read_ms=year_ago_ms))
    look(history, 1, Seen(counts(0), "live", lag=9, read_ms=year_ago_ms))
    assert history.oldest_unread_s(0, BEGAN_S + 3) == 3


def test_a_partition_that_was_behind_waits_at_least_since_that_was_seen(history: History) -> None:
    """While nothing of it was read."""
    look(history, 0, Seen(counts(0), "folding", lag=5))
    look(history, 8, Seen(counts(0), "folding", lag=7))
    assert history.oldest_unread_s(0, BEGAN_S + 10) == 10


def test_an_event_from_the_future_does_not_wait(history: History) -> None:
    """Its producer's clock is ahead: no age is negative."""
    look(history, 0, Seen(counts(0), "live", lag=5, read_ms=int((WALL_S + 900) * 1000)))
    assert history.oldest_unread_s(0, BEGAN_S + 1) == 0
