"""Claims about how a full filter is foreseen."""

import math

import pytest

from streamdedup import filters
from streamdedup.filters.window.protocol import Windowed
from streamdedup.metrics.forecast import (
    EVERY_S,
    SPAN_S_MIN,
    WINDOW_S,
    Forecast,
    grows_s,
    is_ever_full,
)

HOUR_S = 3600


def looked(*looks: tuple[float, int], capacity: int = 1000) -> float | None:
    """What is foreseen after these looks, each at a time and with so many keys."""
    forecast = Forecast()
    for now_s, keys in looks:
        forecast.look(now_s, keys, capacity)
    return forecast.left_s


def test_keys_grow_on_as_before() -> None:
    """100 keys an hour, and 700 places left."""
    assert looked((0, 200), (HOUR_S, 300)) == 7 * HOUR_S


def test_only_the_last_hour_counts() -> None:
    """A burst of yesterday is no reason for an alert, and a burst of now is one, at once."""
    calm = [(n * EVERY_S, 500) for n in range(1, 61)]
    assert looked((0, 0), *calm, (WINDOW_S + EVERY_S, 500)) == math.inf
    assert looked((0, 0), (10 * HOUR_S, 100), (11 * HOUR_S, 900)) == HOUR_S / 8


@pytest.mark.parametrize(("keys", "left_s"), [(999, math.inf), (1000, 0.0), (1001, 0.0)])
def test_a_filter_that_does_not_grow(keys: int, left_s: float) -> None:
    """It is never full, unless it is already."""
    assert looked((0, keys), (HOUR_S, keys)) == left_s


def test_a_young_window_grows_until_it_forgets() -> None:
    """100 keys an hour, and 700 places left: they are not needed if the first keys leave before."""
    forecast = Forecast()
    forecast.look(0, 200, 1000)
    for most_s, left_s in (7 * HOUR_S - 1, math.inf), (7 * HOUR_S, 7 * HOUR_S):
        forecast.look(HOUR_S, 300, 1000, most_s)
        assert forecast.left_s == left_s


def test_how_long_a_filter_only_grows() -> None:
    """A window while its oldest generations are empty: 8 of 10 s, of which the keys take the newest."""
    window = filters.build(
        {"kind": "window", "capacity": 1000, "retention": 70_000, "generations": 8}
    )
    assert isinstance(window, Windowed)
    assert (is_ever_full(window), grows_s(window)) == (True, math.inf)
    for second, left_s in (1, 70), (39, 40), (75, math.inf):
        window.add(b"%d" % second, second * 1000)
        assert grows_s(window) == left_s
    by_count = filters.build({"kind": "window", "capacity": 1000})
    assert not is_ever_full(by_count)
    bloom = filters.build({"kind": "bloom", "capacity": 1000})
    assert (is_ever_full(bloom), grows_s(bloom)) == (True, math.inf)


def test_a_short_time_says_nothing() -> None:
    """Nor does a filter that was folded meanwhile."""
    assert looked((0, 0), (SPAN_S_MIN - 1, 999)) is None
    forecast = Forecast()
    forecast.look(0, 10, 1000)
    assert not forecast.due(EVERY_S - 1)
    assert forecast.due(EVERY_S)
    forecast.begin_again()
    assert forecast.due(EVERY_S - 1)
    forecast.look(HOUR_S, 900, 1000)
    assert forecast.left_s is None
