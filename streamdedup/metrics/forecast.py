"""Foresees when a filter will be full: its keys go on growing as they did over the last hour.

Pure: the caller brings keys and time, of a filter that takes new events. A fold is none: it fills a filter in seconds.
"""

import math
from collections import deque

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

    def look(self, now_s: float, keys: int, capacity: int) -> None:
        """Take the `keys` that the filter holds now, of at most `capacity`."""
        looks = self._looks
        looks.append((now_s, keys))
        while len(looks) > 1 and looks[1][0] <= now_s - WINDOW_S:
            looks.popleft()
        since_s, before = looks[0]
        if now_s - since_s < SPAN_S_MIN:
            self.left_s = None
        elif keys > before:
            self.left_s = max(0, capacity - keys) * (now_s - since_s) / (keys - before)
        else:
            self.left_s = math.inf if keys < capacity else 0.0

    def begin_again(self) -> None:
        """Forget all looks: the filter is another one, or took keys that are not new."""
        self._looks.clear()
        self.left_s = None
