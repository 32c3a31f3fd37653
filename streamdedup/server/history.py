"""What a worker did lately: its counts, which only grow, as they were at each look, once a second.

One thread observes, any thread reads. Times are of a clock that never goes back. A time of day is the one at which the
worker began plus what that clock counted since, so setting the machine's clock changes no span.
"""

import threading
import time
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from streamdedup.events import Verdict

MINUTE_S = 60.0
NOW_S = 5.0  # the span of the rate "now"
MINUTES = 60

Counts = tuple[int, ...]
"""How many events have each `Verdict`, in its order."""

NO_EVENTS: Counts = (0,) * len(Verdict)


class Seen(NamedTuple):
    """What one look sees of a partition. `read_ms` is the time of the event that was read last, ms since 1970."""

    counts: Counts
    state: Hashable
    lag: int | None = None
    read_ms: int | None = None


class _Look(NamedTuple):
    at: float
    counts: Counts


class _Partition:
    """What was seen of one partition."""

    def __init__(self, at: float, seen: Seen) -> None:
        self.looks = deque([_Look(at, seen.counts)])
        self.state, self.since = seen.state, at
        self.nothing_unread_at: float | None = None
        self.unread_from: float | None = None
        self.read_ms: int | None = None

    def look(self, at: float, seen: Seen) -> None:
        self.looks.append(_Look(at, seen.counts))
        while self.looks[1].at <= at - MINUTE_S:
            self.looks.popleft()
        if seen.state != self.state:
            self.state, self.since = seen.state, at

    def note_unread(self, at: float, seen: Seen) -> None:
        self.read_ms = seen.read_ms
        if seen.lag == 0:
            self.nothing_unread_at, self.unread_from = at, None
        elif seen.lag is not None and self.unread_from is None:
            self.unread_from = at


class History:
    """The verdicts of the last minute, by partition, and of the last hour as a whole; states, and what is unread."""

    def __init__(self, clock_s: float | None = None, wall_s: float | None = None) -> None:
        self._began_at = time.monotonic() if clock_s is None else clock_s
        self._began_wall = time.time() if wall_s is None else wall_s
        self._partitions: dict[int, _Partition] = {}
        self._ready: tuple[bool, float] = False, self._began_at
        self._minutes: dict[int, Counts] = {}
        self._whole = NO_EVENTS
        self._copied: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def wall(self, at: float) -> float:
        """Return the time of day, in s since 1970, of a moment of the clock."""
        return self._began_wall + at - self._began_at

    def observe(
        self, at: float, partitions: Mapping[int, Seen], *, ready: bool, copied: int = 0
    ) -> None:
        """Note what the worker's partitions show at `at`: all that it ever had, so that no count goes back."""
        with self._lock:
            for partition, seen in partitions.items():
                known = self._partitions.get(partition)
                if known is None:
                    known = self._partitions[partition] = _Partition(at, seen)
                else:
                    known.look(at, seen)
                known.note_unread(at, seen)
            if ready != self._ready[0]:
                self._ready = ready, at
            self._copied.append((at, copied))
            while len(self._copied) > 1 and self._copied[1][0] <= at - NOW_S:
                self._copied.popleft()
            whole = _sum([seen.counts for seen in partitions.values()])
            now = _minute(self.wall(at))
            self._minutes[now] = _sum(
                [self._minutes.get(now, NO_EVENTS), _difference(whole, self._whole)]
            )
            self._whole = whole
            for old in [minute for minute in self._minutes if minute <= now - MINUTES]:
                del self._minutes[old]

    @property
    def ready(self) -> tuple[bool, float]:
        """Return whether the worker was ready at the last look, and since when (s since 1970)."""
        is_ready, since = self._ready
        return is_ready, self.wall(since)

    @property
    def copied_per_s(self) -> float:
        """How many events a second the first stage of `source.repartition` copies now."""
        with self._lock:
            if len(self._copied) < 2:
                return 0.0
            (began, before), (ended, after) = self._copied[0], self._copied[-1]
        return max(0, after - before) / (ended - began) if ended > began else 0.0

    def since(self, partition: int) -> float | None:
        """Return since when the partition is in its state (s since 1970); None if it was never looked at."""
        known = self._partitions.get(partition)
        return None if known is None else self.wall(known.since)

    def per_second(self, partition: int) -> list[float]:
        """Return how many events a second got each verdict over the last `NOW_S`."""
        known = self._partitions.get(partition)
        if known is None:
            return [0.0] * len(NO_EVENTS)
        with self._lock:
            last = first = known.looks[-1]
            for look in reversed(known.looks):
                if look.at < last.at - NOW_S:
                    break
                first = look
        if (span := last.at - first.at) <= 0:
            return [0.0] * len(NO_EVENTS)
        return [count / span for count in _difference(last.counts, first.counts)]

    def last_minute(self, partition: int) -> Counts:
        """Return how many events got each verdict within the last minute."""
        with self._lock:
            known = self._partitions.get(partition)
            return (
                _difference(known.looks[-1].counts, known.looks[0].counts) if known else NO_EVENTS
            )

    def minutes(self, at: float) -> tuple[float, list[Counts | None]]:
        """Return when the first of the last 60 minutes began (s since 1970), and the verdicts of each.

        A minute is None if the worker had not begun; the last one still runs.
        """
        now, begun = _minute(self.wall(at)), _minute(self._began_wall)
        with self._lock:
            kept = dict(self._minutes)
        first = now - MINUTES + 1
        return first * MINUTE_S, [
            kept.get(minute, NO_EVENTS) if minute >= begun else None
            for minute in range(first, now + 1)
        ]

    def oldest_unread_s(self, partition: int, at: float) -> float | None:
        """Return how long the oldest unread event of a partition has waited by now; None if that is not known.

        It has waited since it was stamped, and not for longer than since the last moment at which nothing was unread.
        It was stamped at or after the event before it, the one that was read last. If neither is known, as of a
        partition that was behind when the worker began, it has waited at least since the worker saw that.
        """
        with self._lock:
            known = self._partitions.get(partition)
            if known is None:
                return None
            bounds = [
                *([] if known.nothing_unread_at is None else [known.nothing_unread_at]),
                *([] if known.read_ms is None else [self._moment(known.read_ms)]),
            ]
            unread_from = known.unread_from
        if unread_from is None:
            return None if known.nothing_unread_at is None else 0.0
        return max(0.0, at - max(bounds, default=unread_from))

    def _moment(self, ms: int) -> float:
        return ms / 1000 - self._began_wall + self._began_at


def _minute(wall_s: float) -> int:
    return int(wall_s // MINUTE_S)


def _sum(counts: Sequence[Counts]) -> Counts:
    return tuple(map(sum, zip(NO_EVENTS, *counts, strict=True)))


def _difference(after: Counts, before: Counts) -> Counts:
    return tuple(b - a for a, b in zip(before, after, strict=True))
