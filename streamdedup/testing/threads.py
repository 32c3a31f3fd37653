"""The threads of a `VirtualLoop`: real threads, but only one runs at a time, and never while the loop runs.

So a blocking call may `linger`: the loop continues for that time, and runs whatever falls into it.
"""

import threading
from collections.abc import Callable


class KilledError(BaseException):
    """Raised in code of a killed process that still runs: none of its calls has an effect."""


class Thread:
    """A thread that is reused: to start one takes longer than most calls do."""

    _idle: "list[Thread]" = []  # noqa: RUF012 - shared by all loops, of which one runs at a time
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
        """Return a thread that will run `act` at its first `step`. `act` must not raise."""
        thread = cls._idle.pop() if cls._idle else cls()
        thread._act, thread._cut = act, False
        return thread

    def step(self) -> float | None:
        """Run the thread until it lingers, and return for how many seconds; None once it has ended."""
        self._go.release()
        self._back.acquire()
        return self._lingers_s

    def cut(self) -> None:
        """End a lingering thread by a KilledError."""
        self._cut = True
        self.step()

    @classmethod
    def linger(cls, seconds: float) -> None:
        """Let the loop continue for `seconds`. Outside of a thread of a `VirtualLoop`, this does nothing."""
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
