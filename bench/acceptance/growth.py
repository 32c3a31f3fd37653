"""Windows that grow, over many years: no key is lost, errors stay within the promise, and memory is given back."""

import numpy as np

from bench.acceptance.chance import found_in, random_keys
from bench.acceptance.report import Figure, Section, share
from bench.acceptance.window import (
    ASKED,
    DAY_MS,
    PARTS,
    PROBES_MAX,
    SPAN_MS,
    absent,
    evenly,
    taken_for_known,
    window_of,
)
from streamdedup.filters.base import Mask, Times
from streamdedup.filters.growing.windows import GrowingWindow
from streamdedup.keys.hashing import Digests
from tests.filters.cases import probes_for

YEAR_MS = 365 * DAY_MS
BURST = 5  # times the capacity, within a day
STAGES = 3  # for 1, 2 and 4 times the capacity
CASES = (  # capacity, error rate, years
    (200_000, 1e-2, 30),
    (200_000, 1e-4, 30),
    (200_000, 1e-6, 30),
    (2_000_000, 1e-6, 6),
)


def section() -> Section:
    """Each size and error rate."""
    return Section(
        f"window, `on_full: grow`: {BURST} times the capacity, every year",
        f"""Each year `capacity` keys come evenly within seven days, which are `retention` and one generation; a
        month later {BURST} times as many within a day, then none until the next year. At the end of each burst, all of
        its keys are looked up that were new when they came. {ASKED} They are asked in the last year only. The first
        stage has half of the error rate, each further one half of the one before. A stage that is made again has the
        lowest index that is free, so the sum stays below the whole for ever.""",
        [figure for case in CASES for figure in _over_years(*case)],
    )


def _over_years(size: int, rate: float, years: int) -> list[Figure]:
    window: GrowingWindow = window_of(size, rate, on_full="grow")
    small, calm, largest = window.size_bytes, [], 0
    lost = wrong = 0
    promised, indexes = 0.0, set[int]()
    for year in range(years):
        at = year * YEAR_MS
        fresh = _add(window, year, 0, evenly(size, at, SPAN_MS))
        wrong += int(np.count_nonzero(~fresh))
        calm.append(window.size_bytes)
        fresh = _add(window, year, size, evenly(BURST * size, at + 30 * DAY_MS, DAY_MS))
        wrong += int(np.count_nonzero(~fresh))
        lost += absent(window, lambda first, count: _keys(year, size + first, count), fresh)  # noqa: B023 - called at once
        largest = max(largest, window.size_bytes)
        promised = max(promised, window.error_rate_now)
        indexes |= {stage["index"] for stage in window.header()["stages"]}
    probes = min(PROBES_MAX, 2 * probes_for(rate))
    title = f"{size:,} keys, {rate:g}, {years} years"
    return [
        Figure(f"{title}: keys lost", lost, 0, 0, 0),
        Figure(f"{title}: stages ever made", len(indexes), STAGES, STAGES, STAGES),
        Figure(f"{title}: greatest expected error, of the rate", promised / rate, 0, 1),
        share(f"{title}: error", found_in(window, 132, probes), probes, window.error_rate_now),
        taken_for_known(title, wrong, years * (1 + BURST) * size, rate),
        Figure(f"{title}: memory in a burst, of that at first", largest / small, BURST, 16),
        Figure(f"{title}: memory a year after, of that at first", max(calm) / small, 1, 1, 1),
    ]


def _add(window: GrowingWindow, year: int, first: int, times: Times) -> Mask:
    """Add keys of a year, from the number `first` on, at these times. Returns which were new."""
    fresh = []
    for part in np.array_split(np.arange(len(times)), PARTS):
        keys = _keys(year, first + int(part[0]), len(part))
        fresh.append(window.add_many(keys, times[part]))
    return np.concatenate(fresh)


def _keys(year: int, first: int, count: int) -> Digests:
    return np.concatenate(list(random_keys(10**9 * (year + 1) + first, count)))
