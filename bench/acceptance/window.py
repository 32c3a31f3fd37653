"""The window: however keys come, no member of it is ever absent, and the errors are as stated."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench.acceptance.chance import found_in, random_keys
from bench.acceptance.report import Figure, Section, share
from streamdedup import filters
from streamdedup.filters.base import Mask, Times
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
    return evenly(count, span=60_000)


def _five_days(count: int) -> Times:
    """Ten hours of each of the first five days."""
    of_a_day = -(-count // 5)
    at = np.arange(count, dtype=np.int64)
    return at // of_a_day * DAY_MS + at % of_a_day * 36_000_000 // of_a_day


def evenly(count: int, at: int = 0, span: int = SPAN_MS) -> Times:
    """So many moments within a span that begins at `at`."""
    return at + np.arange(count, dtype=np.int64) * span // count


ARRIVALS = {
    "in a minute": (_at_once, 0),
    "on five days of seven": (_five_days, 0),
    "evenly": (evenly, 0),
    "after silence": (_at_once, 60 * DAY_MS),
}


def _arrived(arrival: str, size: int, rate: float) -> list[Figure]:
    times_of, silence = ARRIVALS[arrival]
    window: Windowed = window_of(size, rate)
    times = times_of(size)
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
    return [
        Figure(f"{title}: keys lost", lost, 0, 0, 0),
        Figure(f"{title}: keys beyond the capacity", max(0, beyond), 0, 0, 0),
        share(f"{title}: error", found_in(window, 131, probes), probes, window.error_rate_now),
        taken_for_known(title, wrong, TURNS * size, rate),
    ]


def taken_for_known(title: str, wrong: int, added: int, rate: float) -> Figure:
    """How many new keys were taken for known when they came, of so many."""
    most = 1e6 * (rate + 5 * math.sqrt(rate / added))
    return Figure(f"{title}: new keys taken for known, a million", 1e6 * wrong / added, 0, most)


def absent(window: Windowed, keys: Callable[[int, int], Digests], fresh: Mask) -> int:
    """How many of the keys that were `fresh` are absent; `keys` gives those from a number on."""
    lost = 0
    for part in np.array_split(np.arange(len(fresh)), PARTS):
        there = window.contains_many(keys(int(part[0]), len(part)))
        lost += int(np.count_nonzero(fresh[part] & ~there))
    return lost


def _missing(window: Windowed, turn: int, size: int, rate: float) -> int:
    """The keys of a turn that are absent, less those that were taken for known when they came, at most."""
    lost = absent(window, partial(_keys, turn), np.ones(size, dtype=np.bool_))
    return max(0, lost - math.ceil(size * rate + 5 * math.sqrt(size * rate) + 1))


def _refreshed() -> list[Figure]:
    """With `refresh` every key of the window is found, also one that a false positive took for known."""
    window, size = window_of(SIZES[0], 1e-2, refresh=True), SIZES[0]
    times = evenly(size)
    for turn in range(TURNS):
        window.add_many(_keys(turn, 0, size), times + turn * SPAN_MS)
    missed = int(np.count_nonzero(~window.contains_many(_keys(TURNS - 1, 0, size))))
    return [Figure("1 %, `refresh`: keys lost, of all", missed, 0, 0, 0)]


def _keys(turn: int, first: int, count: int) -> Digests:
    return np.concatenate(list(random_keys(1000 * (turn + 1) + first, count)))


def window_of(size: int, rate: float, **options: object) -> Any:  # noqa: ANN401 - with `on_full: grow`, of another class
    """A window whose generations are a 31st of SPAN_MS, so that `retention` and one of them are the whole."""
    config = {"kind": "window", "capacity": size, "error_rate": rate, **options}
    return filters.build({**config, "retention": SPAN_MS // 31 * 30})
