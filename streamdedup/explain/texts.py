"""Places and times as text."""

from datetime import UTC, datetime

from streamdedup.events import NO_TIMESTAMP
from streamdedup.filters.window.clock import EARLIEST, LATEST, UNDATED, Clock
from streamdedup.units import escaped

SHOWN_MAX = 200  # the characters of a key


def place(topic: str, partition: int, offset: int) -> str:
    """Return the place of an event."""
    return f"{topic}/{partition} offset {offset}"


def time(time_ms: int) -> str:
    """Return a time in UTC; `without a time` for an event that has none."""
    if time_ms == NO_TIMESTAMP:
        return "without a time"
    if not EARLIEST <= time_ms < LATEST:
        return f"{time_ms} ms since 1970"
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def shown(key: bytes) -> str:
    """Return a key for the screen of who asked: cut, and without what moves a cursor."""
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
