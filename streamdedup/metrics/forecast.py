"""Foresees when a filter will be full: its keys go on growing as they did over the last hour.

A young window grows only until it forgets its first keys, and a window by count is never full.

Pure: the caller brings keys and time, of a filter that takes new events. A fold is none: it fills a filter in seconds.
"""

import math
from collections import deque

from streamdedup.filters.base import Filter
from streamdedup.filters.window.protocol import Windowed

EVERY_S = 60.0  # between two looks
WINDOW_S = 3600.0
SPAN_S_MIN = 600.0  # below that, a rate says little


class Forecast:
    """Watches the keys of one filter."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()  # time and keys
        self.left_s: float | None = None
        """Seconds until the filter is full, infinite if it does not grow; None if that is not known yet."""

    def due(self, now_s: float) -> bool:
        """Return whether a look would change anything. `now_s` is of a clock that never goes back."""
        return not self._looks or now_s - self._looks[-1][0] >= EVERY_S

    def look(self, now_s: float, keys: int, capacity: int, grows_s: float = math.inf) -> None:
        """Take the `keys` that the filter holds now, of at most `capacity`. They grow on for `grows_s` at most."""
        looks = self._looks
        looks.append((now_s, keys))
        while len(looks) > 1 and looks[1][0] <= now_s - WINDOW_S:
            looks.popleft()
        since_s, before = looks[0]
        if now_s - since_s < SPAN_S_MIN:
            self.left_s = None
        elif keys > before:
            left_s = max(0, capacity - keys) * (now_s - since_s) / (keys - before)
            self.left_s = left_s if left_s <= grows_s else math.inf
        else:
            self.left_s = math.inf if keys < capacity else 0.0

    def begin_again(self) -> None:
        """Forget all looks: the filter is another one, or took keys that are not new."""
        self._looks.clear()
        self.left_s = None


def is_ever_full(filter_: Filter) -> bool:
    """Return whether keys can come for which a filter has no room: not for a window by count."""
    return not (isinstance(filter_, Windowed) and filter_.clock.by_count)


def grows_s(filter_: Filter) -> float:
    """Return for how many seconds of event time a filter only takes keys; infinite unless it is a window that is young.

    Such a window has forgotten nothing yet: its oldest generations are empty.
    """
    if not isinstance(filter_, Windowed):
        return math.inf
    _, loads, _ = filter_.loads()
    empty = int((loads > 0).argmax())
    return empty * filter_.clock.slot / 1000 if empty else math.inf
