"""What time it is on the brokers, as far as it is proven. Pure: the clocks are passed in.

A leader stamps some record batches by its own clock: commit markers, and all batches of a topic with LogAppendTime. It
stamps one of ours after we asked for it and before we saw it. So two moments of our monotonic clock enclose the moment
of the stamp, and give an interval for the difference of the two clocks. Our wall clock decides nothing. It is compared
with the leader's, so that an operator learns that it is wrong; and if it steps against the monotonic clock, one of them
did not count some time (a machine that slept), so all that was known is forgotten.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

DIFFERENCE_S_MAX = 5.0  # between our clock and a leader's; what is certainly above it is reported
STEP_MS_MAX = 1_000  # of our wall clock against the monotonic one, between two looks
# NTP slews a clock by at most 500 ppm: two that are slewed against each other part by twice that.
DRIFT = 0.001
LOOK_EVERY_MS = 10_000  # an estimate this old is renewed with the next stamp
AGE_MS_MAX = 3_600_000  # an estimate this old counts no more: a broker's clock may be set, too


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of times or differences in ms, with both ends: the true one is in it."""

    earliest: int
    latest: int

    @classmethod
    def at(cls, moment: int) -> "Span":
        """Return the interval that holds only `moment`."""
        return cls(moment, moment)

    @property
    def middle(self) -> int:
        """The moment halfway between both ends."""
        return (self.earliest + self.latest) // 2


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the node `leader` wrote at `offset` (its last), and when by its own clock, ms since 1970."""

    leader: int
    offset: int
    stamped_ms: int


class _Estimate(NamedTuple):
    """At `at_ms` of our monotonic clock, the leader's clock was ahead of it by `least` to `most` ms."""

    least: float
    most: float
    at_ms: float

    def by(self, at_ms: float) -> "_Estimate":
        """Return what it is worth at a later moment: each clock may have drifted."""
        drift = DRIFT * max(0.0, at_ms - self.at_ms)
        return _Estimate(self.least - drift, self.most + drift, at_ms)


class BrokerClock:
    """The leaders' clocks, by the leader's node id.

    `now_ms` is our wall clock, ms since 1970; `monotonic_s` never goes back. The event loop calls what changes it; any
    thread may read.
    """

    def __init__(self, now_ms: Callable[[], int], monotonic_s: Callable[[], float]) -> None:
        self._now_ms, self._monotonic_s = now_ms, monotonic_s
        self._estimates: dict[int, _Estimate] = {}
        self._offset_ms = now_ms() - self._monotonic_ms()  # our wall clock minus the monotonic one
        self._stepped_at_ms = -math.inf
        self._steps_ms: list[int] = []

    def look(self) -> None:
        """Forget all estimates if our wall clock has stepped since the last look."""
        offset_ms = self._now_ms() - self._monotonic_ms()
        step_ms = offset_ms - self._offset_ms
        if abs(step_ms) > STEP_MS_MAX:
            self._estimates = {}
            self._stepped_at_ms = self._monotonic_ms()
            self._steps_ms.append(round(step_ms))
        self._offset_ms = offset_ms

    def steps_ms(self) -> list[int]:
        """Return by how much our wall clock has stepped, each time since the last call."""
        steps, self._steps_ms = self._steps_ms, []
        return steps

    def saw(self, leader: int, stamped_ms: int, asked_s: float, seen_s: float) -> None:
        """Note that `leader` stamped a batch with `stamped_ms`, after `asked_s` and before `seen_s`, both monotonic.

        What contradicts an earlier estimate takes its place: a clock was set.
        """
        self.look()
        asked_ms, seen_ms = asked_s * 1000, seen_s * 1000
        if asked_ms <= self._stepped_at_ms:
            return
        found = _Estimate(stamped_ms - seen_ms, stamped_ms + 1 - asked_ms, seen_ms)
        if known := self._estimates.get(leader):
            known = known.by(seen_ms)
            both = _Estimate(max(known.least, found.least), min(known.most, found.most), seen_ms)
            found = both if both.least <= both.most else found
        self._estimates[leader] = found

    def present(self, leader: int) -> Span | None:
        """Return the time that the leader's clock shows now, ms since 1970; None if nothing is known of it."""
        now_ms = self._monotonic_ms()
        known = self._estimates.get(leader)
        if known is None or now_ms - known.at_ms > AGE_MS_MAX:
            return None
        least, most, _ = known.by(now_ms)
        return Span(math.floor(now_ms + least), math.ceil(now_ms + most))

    def difference(self, leader: int) -> Span | None:
        """Return by how many ms our wall clock is ahead of the leader's, below 0 if it is behind; None if unknown."""
        if (there := self.present(leader)) is None:
            return None
        here_ms = self._now_ms()
        return Span(here_ms - there.latest, here_ms - there.earliest)

    def is_due(self, leader: int) -> bool:
        """Whether the leader's next stamp should be looked at."""
        known = self._estimates.get(leader)
        return known is None or self._monotonic_ms() - known.at_ms >= LOOK_EVERY_MS

    def _monotonic_ms(self) -> float:
        return self._monotonic_s() * 1000


def certain_s(difference: Span | None) -> float:
    """Return the least difference that is certain, in seconds, with its sign; 0 if the clocks may agree."""
    if difference is None or difference.earliest <= 0 <= difference.latest:
        return 0.0
    return min(difference.earliest, difference.latest, key=abs) / 1000
