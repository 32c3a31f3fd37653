"""Threads of a `VirtualLoop`: real ones, of which one at a time runs, and never beside the loop.

So a blocking call may `linger` on its way: the loop goes on for that time, and what happens in between is its.
"""

import threading
from collections.abc import Callable


class KilledError(BaseException):
    """Raised in what still runs of a process that was killed: none of its calls has an effect any more."""


class Thread:
    """Used again and again: making one takes longer than most calls do."""

    _idle: "list[Thread]" = []  # noqa: RUF012 - of all loops, one of which runs at a time
    _here = threading.local()

    def __init__(self) -> None:
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._act: Callable[[], None] | None = None
        self._lingers_s: float | None = None
        self._cut = False
        threading.Thread(target=self._run, daemon=True).start()

    @classmethod
    def of(cls, act: Callable[[], None]) -> "Thread":
        """One that will do `act`, which raises nothing, with its first `step`."""
        thread = cls._idle.pop() if cls._idle else cls()
        thread._act, thread._cut = act, False
        return thread

    def step(self) -> float | None:
        """Wait until it lingers, for so many seconds, or has ended: None."""
        self._go.release()
        self._back.acquire()
        return self._lingers_s

    def cut(self) -> None:
        """Have what lingers end by a KilledError."""
        self._cut = True
        self.step()

    @classmethod
    def linger(cls, seconds: float) -> None:
        """Let the loop go on for so long, where a thread of it asks; elsewhere nothing happens."""
        thread: Thread | None = getattr(cls._here, "thread", None)
        if thread is None:
            return
        if not thread._cut:
            thread._lingers_s = seconds
            thread._back.release()
            thread._go.acquire()
        if thread._cut:
            raise KilledError("its loop was closed")

    def _run(self) -> None:
        self._here.thread = self
        while True:
            self._go.acquire()
            if self._act:
                self._act()
            self._act = self._lingers_s = None
            self._idle.append(self)
            self._back.release()
