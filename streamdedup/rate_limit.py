"""A line of the log that could come too often: written at once, then once in a while, with how many it stands for."""

import math

EVERY_S = 60.0


class RateLimit:
    """Of one kind of line, which is written once in `every_s` at most."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._untold, self._due_at = 0, -math.inf

    def due(self, now_s: float, count: int = 1) -> int:
        """`count` things more happened: of how many the line tells that is due now, or 0 where none is.

        `now_s` is the time by a clock that never goes back, the same at each call.
        """
        self._untold += count
        if now_s < self._due_at:
            return 0
        untold, self._untold = self._untold, 0
        self._due_at = now_s + self._every_s
        return untold
