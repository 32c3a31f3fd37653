"""How late the event loop runs its timers, measured by a task that sleeps and reads the clock when it wakes up."""

import asyncio
import time
from collections import deque

from streamdedup.metrics.catalogue import LOOP_STALL
from streamdedup.metrics.counts import Histogram

PERIOD_S = 0.02
SLOT_S, SLOTS = 10, 6  # together the last 60 s, of which the longest stall is kept


class Pulse:
    """Measures the loop from its creation on, while `beat` runs. The loop writes, any thread reads."""

    def __init__(self) -> None:
        self.stalls = Histogram(LOOP_STALL.bounds)
        self._due_at = time.monotonic() + PERIOD_S
        self._longest: deque[tuple[int, float]] = deque(maxlen=SLOTS + 1)

    async def beat(self) -> None:
        """Measure the loop's delay every `PERIOD_S`, until cancelled."""
        while True:
            self._note(self.stalled_s)
            self._due_at = time.monotonic() + PERIOD_S
            await asyncio.sleep(PERIOD_S)

    @property
    def stalled_s(self) -> float:
        """For how long the loop has not run a timer that is due."""
        return max(0.0, time.monotonic() - self._due_at)

    @property
    def longest_s(self) -> float:
        """The longest stall in the last 60 s, including one that still lasts."""
        oldest = _slot() - SLOTS
        longest = (seconds for slot, seconds in list(self._longest) if slot > oldest)
        return max(self.stalled_s, *longest, 0.0)

    def _note(self, seconds: float) -> None:
        self.stalls.observe(seconds)
        slot = _slot()
        if not self._longest or self._longest[-1][0] != slot:
            self._longest.append((slot, seconds))
        elif self._longest[-1][1] < seconds:
            self._longest[-1] = slot, seconds


def _slot() -> int:
    return int(time.monotonic() // SLOT_S)
