"""Notices an outcome that has become the rule: then something is wrong, and a counter alone shows it to nobody.

Pure: the caller brings counts and time. Only outcomes that an operator does not expect of many events are watched.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamdedup.events import Verdict
from streamdedup.keys.formats.json_kinds import without_place

MALFORMED, REJECTED = (verdict.name.lower() for verdict in (Verdict.MALFORMED, Verdict.REJECTED))
WATCHED = (Verdict.MALFORMED, Verdict.REJECTED)
LATE = "late"  # events older than their window, whatever their verdict
SHARE_MIN = 0.2
EVENTS_MIN = 100  # below that, a share says little
WINDOW_S = 60.0
EVERY_S = 1.0  # between two looks
REASONS_MAX = 32
SHOWN_MAX = 10  # partitions in one sentence

REMEDIES = {
    MALFORMED: "compare the options of `key` with the events: `streamdedup try` judges the newest, and counts every"
    " reason",
    REJECTED: "look at their reasons, in the dead letters",
    LATE: "they are older than the window, so nothing is known of their keys; set a longer filter.retention if they"
    " must be judged, or filter.late: drop if they must not pass (docs/windows.md)",
}


def fates(on_malformed: str, late: str, letters: str | None) -> dict[str, str]:
    """Return what becomes of the events of each outcome, by `key.on_malformed` and `filter.late` in force.

    `letters` is the dead-letter topic.
    """
    lettered = f"they are whole in {letters}" if letters else "the worker stops at them"
    malformed = {
        "pass": "they passed unjudged, so their duplicates pass, too",
        "drop": "they were dropped, and no topic has them",
    }
    return {
        MALFORMED: malformed.get(on_malformed, lettered),
        REJECTED: lettered,
        LATE: "they were dropped" if late == "drop" else "they passed, known or not",
    }


class Reasons:
    """How many events had each reason; the REASONS_MAX most frequent ones are kept.

    A reason holds no key. The place in the value that one names is left out.
    """

    def __init__(self) -> None:
        self._events = Counter[str]()

    def add(self, events: Mapping[str, int]) -> None:
        """Add the numbers of events, by reason."""
        for reason, number in events.items():
            self._events[without_place(reason)] += number
        self._trim()

    def __add__(self, other: "Reasons") -> "Reasons":
        both = Reasons()
        both._events = self._events + other._events
        both._trim()
        return both

    @property
    def most_frequent(self) -> tuple[str, int] | None:
        """The most frequent reason, and how many events had it; None without any."""
        return next(iter(self._events.most_common(1)), None)

    def _trim(self) -> None:
        if len(self._events) > REASONS_MAX:
            self._events = Counter(dict(self._events.most_common(REASONS_MAX)))


@dataclass(frozen=True, slots=True)
class Prevailing:
    """An outcome that is the rule, for `events` of the last `of` events: the name of a verdict, or LATE.

    `reasons` are those of malformed events. If it is not the rule in all partitions, `partitions` are those in which it
    is, with `there` of the events. `everywhere` says that the numbers are of all partitions, and not only of these.
    """

    outcome: str
    events: int
    of: int
    reasons: Reasons = field(default_factory=Reasons, compare=False)
    partitions: tuple[int, ...] = ()
    there: int = 0
    everywhere: bool = True

    @property
    def reason(self) -> str | None:
        """The most frequent reason; None if it is not known."""
        most = self.reasons.most_frequent
        return most[0] if most else None

    def __str__(self) -> str:
        named = _named(self.partitions)
        of = "" if self.everywhere else f" of {named}"
        share = f"{self.events / self.of:.0%}"
        text = f"{self.events:,} of the last {self.of:,} events{of} ({share}) are {self.outcome}"
        if self.partitions and self.everywhere:
            text += f", {self.there:,} of them in {named}"
        if (most := self.reasons.most_frequent) is None:
            return text
        reason, events = most
        return f"{text}: {'' if events == self.events else f'for {events:,} of them, '}{reason}"


def _named(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:SHOWN_MAX]))
    more = len(partitions) - SHOWN_MAX
    what = "partition" if len(partitions) == 1 else "partitions"
    return f"{what} {shown}" + (f" and {more} more" if more > 0 else "")


class Prevalence:
    """Watches the counts of one partition, or of all, over the last `WINDOW_S` seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, tuple[int, ...], Reasons]] = deque()
        self._reasons = Reasons()  # since the last look
        self.now: tuple[Prevailing, ...] = ()
        """What was the rule at the last look; any thread may read it."""
        self.events = 0
        """How many events the last look has judged."""

    def note(self, reasons: Reasons) -> None:
        """Take the reasons of malformed events which the next look will find in its counts."""
        self._reasons += reasons

    def look(self, now_s: float, by_verdict: Sequence[int], late: int = 0) -> None:
        """Take the counts of all events so far, by verdict, and how many were late.

        `now_s` is of a clock that never goes back.

        The counts began at 0 with this object. More looks than one in `EVERY_S` seconds change nothing.
        """
        looks = self._looks
        if not looks:  # the counts began at 0
            looks.append((now_s, (0,) * (len(by_verdict) + 1), Reasons()))
        elif now_s - looks[-1][0] < EVERY_S:
            return
        looks.append((now_s, (*by_verdict, late), self._reasons))
        self._reasons = Reasons()
        while len(looks) > 1 and looks[1][0] <= now_s - WINDOW_S:
            looks.popleft()
        first = looks[0][1]
        *events, lately = (n - before for n, before in zip(looks[-1][1], first, strict=True))
        of, watched = sum(events), {verdict.name.lower(): events[verdict] for verdict in WATCHED}
        self.events = of
        self.now = tuple(
            Prevailing(
                outcome, count, of, self._reasons_seen if outcome == MALFORMED else Reasons()
            )
            for outcome, count in {**watched, LATE: lately}.items()
            if count >= max(EVENTS_MIN, SHARE_MIN * of)
        )

    @property
    def _reasons_seen(self) -> Reasons:
        """The reasons of the events that the looks have judged; those of the first one came before these."""
        return sum((reasons for _, _, reasons in list(self._looks)[1:]), Reasons())


def of_topic(whole: Prevalence, partitions: Mapping[int, Prevalence]) -> tuple[Prevailing, ...]:
    """Return what is the rule in a topic, each outcome once: in all partitions together, or in some of them."""
    active = {partition for partition, watch in partitions.items() if watch.events}
    found = []
    for outcome in REMEDIES:
        of_all = _of(outcome, whole)
        there = {p: one for p, watch in partitions.items() if (one := _of(outcome, watch))}
        where = () if there.keys() == active else tuple(sorted(there))
        events = sum(one.events for one in there.values())
        if of_all:
            found.append(replace(of_all, partitions=where, there=events if where else 0))
        elif there:
            of = sum(one.of for one in there.values())
            reasons = sum((one.reasons for one in there.values()), Reasons())
            found.append(Prevailing(outcome, events, of, reasons, where, events, everywhere=False))
    return tuple(found)


def _of(outcome: str, watch: Prevalence) -> Prevailing | None:
    return next((one for one in watch.now if one.outcome == outcome), None)
