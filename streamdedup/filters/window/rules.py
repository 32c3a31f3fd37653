"""The rules of a window: how long it remembers, in how many generations, and what happens to late and to known keys.

They are checked when an operator states them, and when a saved header does. The clock follows from them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from streamdedup.errors import ConfigError
from streamdedup.filters.digest_filter import number
from streamdedup.filters.sizing import window_share
from streamdedup.filters.window.clock import GENERATIONS_MAX, SPAN_MAX, UNLIMITED, Clock
from streamdedup.units import parse_milliseconds

LATE_CHOICES = ("pass", "drop")


class Rules(NamedTuple):
    """`retention` in ms, None by count; `late` is one of LATE_CHOICES; `refresh`: whether known keys are renewed."""

    retention: int | None
    clock: Clock
    late: str
    refresh: bool

    def with_policy(self, late: object, refresh: object) -> "Rules":
        """The same rules with another `late` and `refresh`. Raises ConfigError if a value is unknown."""
        if late not in LATE_CHOICES:
            raise ConfigError(
                f"filter.late {late!r} is unknown; choose one of: {', '.join(LATE_CHOICES)}"
            )
        if type(refresh) is not bool:
            raise ConfigError(f"filter.refresh is {refresh!r}; it must be true or false")
        return self._replace(late=str(late), refresh=refresh)

    def held(self, capacity: int) -> int:
        """How many keys are live at once, at most: by count, all generations are full."""
        return self.clock.slot * self.clock.generations if self.clock.by_count else capacity

    def header(self) -> dict[str, Any]:
        """The rules as plain JSON values, from which `stated_rules` makes the same rules again."""
        slot, generations, jump, by_count = self.clock
        max_jump = None if jump == UNLIMITED else jump
        by_time = {} if by_count else {"retention": self.retention, "max_jump": max_jump}
        return {
            "by": "count" if by_count else "time",
            **by_time,
            "slot": slot,
            "generations": generations,
            "late": self.late,
            "refresh": self.refresh,
        }


def rules_for(
    capacity: int,
    retention: int | str | None,
    generations: int,
    late: str,
    refresh: bool,
    max_jump: int | str | None,
) -> Rules:
    """The rules that an operator states.

    Raises ConfigError, with the option and the remedy, if a value is wrong or does not fit the others.
    """
    if type(generations) is not int or not 2 <= generations <= GENERATIONS_MAX:
        raise ConfigError(
            f"filter.generations is {generations!r}; it must be an integer from 2 to {GENERATIONS_MAX}"
        )
    if retention is None and max_jump is not None:
        raise ConfigError(
            f"filter.max_jump is {max_jump!r}, but a window by count has no times; leave it out, or set"
            " filter.retention"
        )
    span = None if retention is None else _span("retention", retention)
    jump = None if max_jump is None else _span("max_jump", max_jump)
    return _rules(capacity, span, generations, jump).with_policy(late, refresh)


def stated_rules(header: Mapping[str, Any], capacity: int) -> Rules:
    """The rules that a header states. Raises ValueError if they contradict one another."""
    if (by := header.get("by")) not in ("count", "time"):
        raise ValueError(f"by {by!r} is neither 'count' nor 'time'")
    timed, limited = by == "time", header.get("max_jump", 0) is not None
    rules = _rules(
        capacity,
        number(header, "retention", 1, SPAN_MAX) if timed else None,
        number(header, "generations", 2, GENERATIONS_MAX),
        number(header, "max_jump", 1, SPAN_MAX) if timed and limited else None,
    )
    if header.get("slot") != (slot := rules.clock.slot):
        raise ValueError(
            f"slot {header.get('slot')!r} is not {slot}, which follows from the others"
        )
    try:
        return rules.with_policy(header.get("late"), header.get("refresh"))
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _rules(capacity: int, retention: int | None, generations: int, max_jump: int | None) -> Rules:
    if retention is None:  # no generation has less than one key
        generations = min(generations, capacity + 1)
    slot = window_share(retention or capacity, generations)
    jump = 1 if retention is None else max_jump or UNLIMITED
    return Rules(retention, Clock(slot, generations, jump, retention is None), "pass", False)


def _span(name: str, given: object) -> int:
    """The ms of an option: an integer, or a text with a unit. Raises ConfigError if it is neither, or out of range."""
    try:
        if isinstance(given, float):
            raise ValueError("is not a whole number of ms")
        span = parse_milliseconds(given, bare=isinstance(given, int))
        if not 1 <= span <= SPAN_MAX:
            raise ValueError(f"is out of range, must be 1 to {SPAN_MAX} ms")
    except ValueError as error:
        raise ConfigError(f"filter.{name} {given!r} {error}") from None
    return span
