"""How much of a processor questions beside a worker may take: one second in ten, all together.

A thread takes a turn, and rests after each piece of its work: so long that the piece was a tenth of the time. Kernels
run without the interpreter, and of the rest of a piece another thread waits for at most `sys.getswitchinterval`, 5 ms.
The threads keep their niceness: a nice one would hold up the worker while it has the interpreter.
"""

import selectors
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from typing_extensions import override

SHARE = 0.1
OWED_S_MIN = 0.0005  # shorter pieces are added up: a sleep costs some 0.1 ms
# At once; what is left is rested for the next time, so timers are never later than that.
REST_S_MAX = 0.5


class Pace:
    """Divides `SHARE` among the threads that take turns. `worked_s` returns the CPU time of the calling thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        worked_s: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.clock, self.worked_s, self.sleep = clock, worked_s, sleep
        self._lock, self._turns = threading.Lock(), 0

    @property
    def share(self) -> float:
        """The share of a processor that each thread may take now."""
        return SHARE / max(1, self._turns)

    @contextmanager
    def turn(self) -> Iterator["Turn"]:
        """Within this context, the calling thread has a part of the share."""
        with self._lock:
            self._turns += 1
        try:
            yield Turn(self)
        finally:
            with self._lock:
                self._turns -= 1


class Turn:
    """The turn of one thread: it owes the CPU time that it took beyond its share. It saves up nothing."""

    def __init__(self, pace: Pace) -> None:
        self._pace, self._owed_s = pace, 0.0
        self._at_s, self._worked_s = pace.clock(), pace.worked_s()

    def rest(self) -> None:
        """Sleep until the share is kept, at most `REST_S_MAX`."""
        self._count()
        if self._owed_s >= OWED_S_MIN:
            self._pace.sleep(min(self._owed_s / self._pace.share, REST_S_MAX))
            self._count()

    def _count(self) -> None:
        at_s, worked_s = self._pace.clock(), self._pace.worked_s()
        more_s = worked_s - self._worked_s - (at_s - self._at_s) * self._pace.share
        self._at_s, self._worked_s = at_s, worked_s
        self._owed_s = max(0.0, self._owed_s + more_s)


class RestingSelector(selectors.DefaultSelector):
    """The selector of an event loop that rests before each turn of the loop."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turn.rest()
        return super().select(timeout)
