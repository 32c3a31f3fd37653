"""Notices an outcome that has become the rule: then something is wrong, and a counter alone shows it to nobody.

Pure: the caller brings counts and time. Only outcomes that an operator does not expect of many events are watched.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from streamdedup.events import Verdict

WATCHED = (Verdict.MALFORMED, Verdict.REJECTED)
LATE = "late"  # events older than their window, whatever their verdict
SHARE_MIN = 0.2
EVENTS_MIN = 100  # below that, a share says little
WINDOW_S = 60.0
EVERY_S = 1.0  # between two looks


@dataclass(frozen=True, slots=True)
class Prevailing:
    """An outcome that is the rule, for `events` of the last `of` events: the name of a verdict, or LATE."""

    outcome: str
    events: int
    of: int

    def __str__(self) -> str:
        return f"{self.events:,} of the last {self.of:,} events ({self.events / self.of:.0%}) are {self.outcome}"


class Prevalence:
    """Watches the counts of one partition, or of all, over the last `WINDOW_S` seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, tuple[int, ...]]] = deque()
        self.now: tuple[Prevailing, ...] = ()
        """What was the rule at the last look; any thread may read it."""

    def look(self, now_s: float, by_verdict: Sequence[int], late: int = 0) -> None:
        """Take the counts of all events so far, by verdict, and how many were late.

        `now_s` is of a clock that never goes back.

        The counts began at 0 with this object. More looks than one in `EVERY_S` seconds change nothing.
        """
        looks = self._looks
        if not looks:  # the counts began at 0
            looks.append((now_s, (0,) * (len(by_verdict) + 1)))
        elif now_s - looks[-1][0] < EVERY_S:
            return
        looks.append((now_s, (*by_verdict, late)))
        while len(looks) > 1 and looks[1][0] <= now_s - WINDOW_S:
            looks.popleft()
        first = looks[0][1]
        *events, lately = (n - before for n, before in zip(looks[-1][1], first, strict=True))
        of, watched = sum(events), {verdict.name.lower(): events[verdict] for verdict in WATCHED}
        self.now = tuple(
            Prevailing(outcome, count, of)
            for outcome, count in {**watched, LATE: lately}.items()
            if count >= max(EVENTS_MIN, SHARE_MIN * of)
        )
