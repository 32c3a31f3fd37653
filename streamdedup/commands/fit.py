"""How the keys of events that were read lie in time and how they spread, compared with what the filter is made for.

Exact for the events that were read. No key is kept, only digests of a hash that the caller draws.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdedup.delivery.decide import ANCIENT, TIMELESS, TIMES_REMEDY
from streamdedup.events import NO_TIMESTAMP, EventBatch, Integers
from streamdedup.filters.options import FilterOptions
from streamdedup.filters.window.clock import ANCIENT_MS, untimed_and_ancient
from streamdedup.keys.hashing import Digests
from streamdedup.metrics.prevalence import EVENTS_MIN, SHARE_MIN
from streamdedup.units import counted, lasting, moment

LATEST_MS = (1 << 63) - 1  # a timestamp may be any int64
SHARE_OF_WINDOW_MIN = 0.1  # a sample of a shorter span says nothing about a whole window


@dataclass(frozen=True, slots=True)
class Fit:
    """The result; events that a list blocks do not count.

    `distinct` counts the keys of all `keyed` events, `busiest` those within `window_ms`, wherever they are most;
    `window_ms` is None if the filter does not forget by time, and then both are the same. `first_ms` and `last_ms` are
    the event times, None if no event has one; times before the year 2000 only if there are no others. Of a window by
    time, `untimed` counts the events that have none, and `ancient` those with a time before 2000. `frequent` counts the
    events of the most frequent key, the first of which is at `frequent_at` (topic, partition, offset); `empty` those
    whose key is empty.
    """

    capacity: int
    window_ms: int | None
    keyed: int
    distinct: int
    busiest: int
    first_ms: int | None
    last_ms: int | None
    frequent: int
    frequent_at: tuple[str, int, int]
    empty: int
    untimed: int
    ancient: int

    @property
    def is_too_small(self) -> bool:
        """Whether the filter would be beyond `filter.capacity` by these events alone."""
        return self.busiest > self.capacity

    @property
    def has_odd_keys(self) -> bool:
        """Whether so many events have one key, or an empty one, that the key is probably wrong."""
        most = max(self.frequent, self.empty)
        return most >= max(EVENTS_MIN, SHARE_MIN * self.keyed)

    @property
    def span_ms(self) -> int:
        """From the first event time to the last; 0 if they are not known."""
        return 0 if self.first_ms is None or self.last_ms is None else self.last_ms - self.first_ms

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        topic, partition, offset = self.frequent_at
        return {
            "capacity": self.capacity,
            "remembered_ms": self.window_ms,
            "distinct_keys_at_once": self.busiest,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "events_of_most_frequent_key": self.frequent,
            "most_frequent_key_first_at": {
                "topic": topic,
                "partition": partition,
                "offset": offset,
            },
            "events_with_empty_key": self.empty,
            "events_without_timestamp": self.untimed,
            "events_before_2000": self.ancient,
        }

    def lines(self) -> Iterator[str]:
        """Yield it for a person."""
        if self.first_ms is not None and self.last_ms is not None:
            yield f"event times: {moment(self.first_ms)} to {moment(self.last_ms)}, {lasting(self.span_ms)}"
        yield from self._odd_times()
        topic, partition, offset = self.frequent_at
        warning = "warning: " if self.has_odd_keys else ""
        doubt = ": is `key` the right field?" if self.has_odd_keys else ""
        yield (
            f"{warning}the most frequent key has {self.frequent / self.keyed:.1%} of the events with a key (first at"
            f" {topic}/{partition}, offset {offset}), {self.empty / self.keyed:.1%} have an empty one{doubt}"
        )
        yield self._capacity()

    def _odd_times(self) -> Iterator[str]:
        if self.untimed == self.keyed:
            yield f"warning: {TIMELESS}; {TIMES_REMEDY}"
        elif self.untimed:
            yield (
                f"{counted(self.untimed, 'event')} without a timestamp: each has the greatest time of the events that"
                " were emitted before it"
            )
        if self.ancient:
            yield f"warning: {counted(self.ancient, 'event')}: {ANCIENT}; {TIMES_REMEDY}"

    def _capacity(self) -> str:
        window = "" if self.window_ms is None else f" within any {lasting(self.window_ms)}"
        held = f"distinct keys{window}: {self.busiest:,}, and filter.capacity is {self.capacity:,}"
        if self.is_too_small:
            return f"warning: {held}; raise it to as many keys as are remembered at once"
        if not self.span_ms:
            return held
        if self.window_ms is None:
            left_ms = self.span_ms * self.capacity / self.busiest
            return f"{held}: used up in about {lasting(left_ms)} if new keys come at this rate"
        if self.span_ms < SHARE_OF_WINDOW_MIN * self.window_ms:
            return f"{held}; these events span {lasting(self.span_ms)}, less than a tenth of that"
        expected = self.distinct * max(1.0, self.window_ms / self.span_ms)
        suits = "which is enough" if expected <= self.capacity else "which may be too few"
        return (
            f"{held}, {suits}: at this rate of new keys they become at most"
            f" {counted(round(expected), 'key')}"
        )


class Seen:
    """Collects the keys of events; `fit` compares them with the filter at the end."""

    def __init__(self) -> None:
        self._digests: list[Digests] = []
        self._times: list[Integers] = []
        self._places: list[tuple[str, int, Integers]] = []  # topic, partition, offsets
        self._empty = 0
        # The greatest time so far of each partition, and the first one, which events before it have.
        self._marks: dict[tuple[str, int], int] = {}
        self._first: dict[tuple[str, int], int] = {}
        self._untimed = self._ancient = 0

    def add(self, batch: EventBatch, rows: Integers, digests: Digests, empty: int) -> None:
        """Add the events `rows` (n,) of `batch`, with their keys' `digests` (n, 2); `empty` of the keys are empty."""
        self._digests.append(digests)
        self._times.append(self._followed(batch.timestamps[rows], (batch.topic, batch.partition)))
        self._places.append((batch.topic, batch.partition, batch.offsets[rows]))
        self._empty += empty

    def _followed(self, times: Integers, partition: tuple[str, int]) -> Integers:
        """Return `times`, with the greatest before it in place of each that is missing; NO_TIMESTAMP without one."""
        untimed, ancient = untimed_and_ancient(times)
        self._untimed, self._ancient = self._untimed + untimed, self._ancient + ancient
        if untimed < len(times):
            self._first.setdefault(partition, int(times[times != NO_TIMESTAMP][0]))
        missing, least = times == NO_TIMESTAMP, -LATEST_MS
        before = np.where(missing, least, times)
        marks = np.maximum.accumulate([self._marks.get(partition, least), *before])[1:]
        if len(marks):
            self._marks[partition] = int(marks[-1])
        return np.where(missing, np.where(marks == least, NO_TIMESTAMP, marks), times)

    def _all_times(self) -> Integers:
        """Return all times. Events before the first time of their partition have that; if it has none, any one time."""
        for times, (topic, partition, _) in zip(self._times, self._places, strict=True):
            times[times == NO_TIMESTAMP] = self._first.get((topic, partition), 0)
        return np.concatenate(self._times)

    def fit(self, options: FilterOptions) -> Fit | None:
        """Return how they fit; None without a filter, for a window by count, or if there are none."""
        remembered_ms = options.remembered_ms
        by_count = options.kind == "window" and remembered_ms is None
        if remembered_ms == 0 or by_count or not sum(map(len, self._digests)):
            return None
        words = np.ascontiguousarray(np.concatenate(self._digests)[:, 0])
        times = np.concatenate(self._times) if remembered_ms is None else self._all_times()
        _, firsts, keys, counts = np.unique(
            words, return_index=True, return_inverse=True, return_counts=True
        )
        most = int(np.argmax(counts))
        distinct, by_time = len(counts), remembered_ms is not None
        timed = times[times != NO_TIMESTAMP] if self._first else times[:0]
        meant = timed[timed >= ANCIENT_MS]
        timed = meant if len(meant) else timed
        return Fit(
            capacity=options.capacity,
            window_ms=remembered_ms,
            keyed=len(words),
            distinct=distinct,
            busiest=distinct if remembered_ms is None else most_at_once(keys, times, remembered_ms),
            first_ms=int(timed.min()) if len(timed) else None,
            last_ms=int(timed.max()) if len(timed) else None,
            frequent=int(counts[most]),
            frequent_at=self._place(int(firsts[most])),
            empty=self._empty,
            untimed=self._untimed if by_time else 0,
            ancient=self._ancient if by_time else 0,
        )

    def _place(self, row: int) -> tuple[str, int, int]:
        for topic, partition, offsets in self._places:
            if row < len(offsets):
                return topic, partition, int(offsets[row])
            row -= len(offsets)
        raise IndexError(row)


def most_at_once(keys: Integers, times: Integers, window_ms: int) -> int:
    """Return the most distinct `keys` (n,), numbers, whose `times` (n,), in ms, are within any span of `window_ms`.

    In the span that ends at t, an event counts if no later one of its key is in it: from its time until its key comes
    again or the window has passed.
    """
    if not len(keys):
        return 0
    order = np.lexsort((times, keys))
    keys, begins = keys[order], np.minimum(times[order], LATEST_MS - window_ms)
    ends = begins + window_ms
    again = keys[1:] == keys[:-1]
    ends[:-1][again] = np.minimum(ends[:-1][again], begins[1:][again])
    moments = np.concatenate((ends, begins))
    steps = np.repeat(np.array([-1, 1]), len(begins))
    # At one moment, what ends goes before what begins.
    return int(np.cumsum(steps[np.lexsort((steps, moments))]).max())
