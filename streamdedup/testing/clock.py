"""A loop whose time jumps: when nobody is ready, it goes on at the next timer, and never waits.

Everything that runs in it is a function of what was put into it: time, threads and the order of tasks are the loop's.
What runs under a `Process` can be paused and killed, as an operating system would.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count
from typing import Any, TypeVar, cast

from streamdedup.testing.threads import KilledError, Thread

T = TypeVar("T")

PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)


class StuckError(Exception):
    """Everybody waits, and nothing will ever happen."""


class Process:
    """Tasks and threads that share a fate. `paused` holds all of them up; after `dead`, nothing they do counts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused = self.dead = False
        self.held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def check(self) -> None:
        """KilledError where it was killed."""
        if self.dead:
            raise KilledError(self.name)


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs in no time. What would run in a thread waits for `thread_s()` seconds, then runs, whole but for `linger`."""

    def __init__(self, thread_s: Callable[[], float] = lambda: 0.0) -> None:
        super().__init__()
        self._now, self._thread_s, self._numbers = 0.0, thread_s, count()
        self._lingering: dict[Thread, None] = {}
        self._clock_resolution = 1e-9
        self._selector = _Clock(self)
        self._ready: deque[asyncio.Handle] = _Ready()
        self.set_task_factory(cast(Any, self._numbered))  # typeshed knows no keywords of 3.12
        self.set_exception_handler(lambda _loop, _context: None)  # of tasks that nobody waits for

    def time(self) -> float:
        """The time in seconds; it begins at 0."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass in which nobody did anything."""
        self._now += seconds

    def spawn(self, process: Process, main: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run `main`, and all that it begins, as `process`."""
        context = copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(main, context=context)

    def pause(self, process: Process) -> None:
        """As SIGSTOP: nothing of it runs, while what it has sent arrives and what it has set up becomes due."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """As SIGCONT."""
        process.paused = False
        held, process.held = process.held, []
        self._ready.extend(held)

    def kill(self, process: Process) -> None:
        """As SIGKILL: from here on it has no effect; its tasks are cancelled."""
        process.dead = True
        self.resume(process)
        for task in process.tasks:
            task.cancel()

    def run_in_executor(  # type: ignore[override]  # the base gives back an awaitable of any kind
        self,
        executor: object,  # noqa: ARG002 - there are no threads to choose from
        func: Callable[..., T],
        *args: Any,  # noqa: ANN401 - whatever `func` takes
    ) -> "asyncio.Future[T]":
        """Make the call at its time, while the loop waits, unless it lingers."""
        answer: asyncio.Future[T] = self.create_future()
        outcome: list[Callable[[], None]] = []

        def act() -> None:
            try:
                outcome.append(partial(answer.set_result, func(*args)))
            except BaseException as error:
                outcome.append(partial(answer.set_exception, error))

        def step() -> None:
            lingers_s = thread.step()
            if lingers_s is not None:
                self._lingering[thread] = None
                self.call_later(lingers_s, step)
                return
            self._lingering.pop(thread, None)
            if not answer.done():
                outcome[0]()
                answer.exception()  # whoever asked may be gone

        thread = Thread.of(act)
        self.call_later(self._thread_s(), step)
        return answer

    def close(self) -> None:
        """End what lingers, too."""
        for thread in self._lingering:
            thread.cut()
        self._lingering = {}
        super().close()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the base's
        """There is none."""

    def _numbered(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], **more: object
    ) -> "asyncio.Task[T]":
        """A task that goes through sets in the order of its making, not of its address."""
        given: Any = more
        context: Context | None = given.get("context")
        task = _Task(coro, loop=loop, **given)
        task.number = next(self._numbers)
        if process := context[PROCESS] if context and PROCESS in context else PROCESS.get():
            process.tasks.append(task)
            if process.dead:
                task.cancel()
        return task

    def _process_events(self, event_list: object) -> None:
        """There are none: nobody outside is listened to."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who could be woken."""


class _Task(asyncio.Task[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class _Ready(deque[asyncio.Handle]):
    """What runs next, but for what is of a process that is paused."""

    def append(self, handle: asyncio.Handle) -> None:
        """As `deque.append`."""
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # typeshed leaves it out
        if process is not None and process.paused:
            process.held.append(handle)
        else:
            super().append(handle)


class _Clock:
    """In place of the selector, in which a loop waits for sockets and timers."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        """Let the time pass."""
        if timeout is None:
            raise StuckError("nobody is ready, and no timer is set")
        self._loop.advance(timeout)
        return []
