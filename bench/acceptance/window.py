"""The window: however keys come, no member of it is ever absent, and the errors are as stated."""

import math
from typing import cast

import numpy as np

from bench.acceptance.chance import found_in, random_keys
from bench.acceptance.report import Figure, Section, share
from streamdedup import filters
from streamdedup.filters.base import Times
from streamdedup.filters.window.protocol import Windowed
from streamdedup.keys.hashing import Digests
from tests.filters.cases import probes_for

DAY_MS = 86_400_000
SPAN_MS = 7 * DAY_MS  # between two turns of CAPACITY keys: more than `retention` and a generation
RATES = (1e-2, 1e-4, 1e-6)
SIZES = (200_000, 10_000_000)
PROBES_MAX = 50_000_000
ASKED = (
    "Keys that were never added are looked up, too. There are as many as it takes to notice an error rate that is 1.25"
    f" times as high, but at most {PROBES_MAX:,}. The theory is that of the keys that are live at this moment."
)
TURNS = 4  # of CAPACITY keys each; the last one is looked up
PARTS = 40  # calls of a turn


def section() -> Section:
    """Each arrival at each size and error rate."""
    figures = [
        figure
        for size in SIZES
        for rate in RATES
        for arrival in ARRIVALS
        for figure in _arrived(arrival, size, rate)
    ]
    return Section(
        "window: capacity keys, however they come",
        f"""`retention` and one generation are seven days, in each of which `capacity` distinct keys come:
        all within a minute, on five days of the seven, evenly, or within a minute after sixty days of silence.
        {TURNS - 1} such weeks come first, so that cells are used again. After the last key all keys of its week
        are looked up that were new when they came. {ASKED}""",
        [*figures, *_refreshed()],
    )


def _at_once(count: int) -> Times:
    return np.arange(count, dtype=np.int64) * 60_000 // count


def _five_days(count: int) -> Times:
    """Ten hours of each of the first five days."""
    of_a_day = -(-count // 5)
    at = np.arange(count, dtype=np.int64)
    return at // of_a_day * DAY_MS + at % of_a_day * 36_000_000 // of_a_day


def _evenly(count: int) -> Times:
    return np.arange(count, dtype=np.int64) * SPAN_MS // count


ARRIVALS = {
    "in a minute": (_at_once, 0),
    "on five days of seven": (_five_days, 0),
    "evenly": (_evenly, 0),
    "after silence": (_at_once, 60 * DAY_MS),
}


def _arrived(arrival: str, size: int, rate: float) -> list[Figure]:
    times_of, silence = ARRIVALS[arrival]
    window, times = _window(size, rate), times_of(size)
    lost = wrong = beyond = 0
    for turn in range(TURNS):
        at = turn * (SPAN_MS + silence)
        lost = 0
        for part in np.array_split(np.arange(size), PARTS):
            keys = _keys(turn, int(part[0]), len(part))
            fresh = window.add_many(keys, times[part] + at)
            wrong += int(np.count_nonzero(~fresh))
            lost += int(np.count_nonzero(~window.contains_many(keys[fresh])))
            beyond = max(beyond, len(window) - size)
        lost += _missing(window, turn, size, rate)
    probes = min(PROBES_MAX, 2 * probes_for(rate))
    title = f"{size:,} keys {arrival}, {rate:g}"
    added = TURNS * size
    return [
        Figure(f"{title}: keys lost", lost, 0, 0, 0),
        Figure(f"{title}: keys beyond the capacity", max(0, beyond), 0, 0, 0),
        share(f"{title}: error", found_in(window, 131, probes), probes, window.error_rate_now),
        Figure(
            f"{title}: new keys taken for known, a million",
            1e6 * wrong / added,
            0,
            1e6 * (rate + 5 * math.sqrt(rate / added)),
        ),
    ]


def _missing(window: Windowed, turn: int, size: int, rate: float) -> int:
    """The keys of a turn that are absent, less those that were taken for known when they came, at most."""
    absent = sum(
        int(np.count_nonzero(~window.contains_many(_keys(turn, int(part[0]), len(part)))))
        for part in np.array_split(np.arange(size), PARTS)
    )
    return max(0, absent - math.ceil(size * rate + 5 * math.sqrt(size * rate) + 1))


def _refreshed() -> list[Figure]:
    """With `refresh` every key of the window is found, also one that a false positive took for known."""
    window, size = _window(SIZES[0], 1e-2, refresh=True), SIZES[0]
    times = _evenly(size)
    for turn in range(TURNS):
        window.add_many(_keys(turn, 0, size), times + turn * SPAN_MS)
    missed = int(np.count_nonzero(~window.contains_many(_keys(TURNS - 1, 0, size))))
    return [Figure("1 %, `refresh`: keys lost, of all", missed, 0, 0, 0)]


def _keys(turn: int, first: int, count: int) -> Digests:
    return np.concatenate(list(random_keys(1000 * (turn + 1) + first, count)))


def _window(size: int, rate: float, *, refresh: bool = False) -> Windowed:
    """A window whose generations are a 31st of SPAN_MS, so that `retention` and one of them are the whole."""
    config = {"kind": "window", "capacity": size, "error_rate": rate, "refresh": refresh}
    return cast("Windowed", filters.build({**config, "retention": SPAN_MS // 31 * 30}))
