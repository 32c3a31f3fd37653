"""Places and times as text."""

from streamdedup.events import NO_TIMESTAMP
from streamdedup.filters.window.clock import UNDATED, Clock
from streamdedup.units import escaped, moment

SHOWN_MAX = 200  # the characters of a key


def place(topic: str, partition: int, offset: int) -> str:
    """Return the place of an event."""
    return f"{topic}/{partition} offset {offset}"


def time(time_ms: int) -> str:
    """Return a time, in ms since 1970, as `moment` does; `without a time` for an event that has none."""
    return "without a time" if time_ms == NO_TIMESTAMP else moment(time_ms)


def shown(key: bytes) -> str:
    """Return a key for the person who asked for it: at most SHOWN_MAX characters, escaped."""
    text = escaped(key[: 4 * SHOWN_MAX])
    if len(text) <= SHOWN_MAX and len(key) <= 4 * SHOWN_MAX:
        return text
    return f"{text[:SHOWN_MAX]}... ({len(key):,} bytes)"


def forgotten(clock: Clock, generation: int, now: int | None) -> str:
    """Return when a window forgets a key of that generation; `now` is the window's current generation."""
    if generation == UNDATED:
        return "forgotten a window after the first event with a time"
    ends = (generation + clock.generations) * clock.slot
    if not clock.by_count:
        return f"forgotten once an event of {time(ends)} or later has passed"
    left = ends - (now or 0) * clock.slot
    return f"forgotten after about {max(0, left):,} more new keys"
