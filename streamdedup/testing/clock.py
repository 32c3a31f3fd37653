"""An event loop with a virtual clock: when no task is ready, time jumps to the next timer, without waiting.

Everything that runs in it depends only on its inputs: the loop determines time, threads and the order of tasks. Tasks
of a `Process` can be paused and killed, as an operating system would.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count
from typing import Any, TypeVar, cast

from typing_extensions import override

from streamdedup.testing.threads import KilledError, Thread

T = TypeVar("T")

TIMER_S_MIN = 1e-6

PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)


class StuckError(Exception):
    """Every task waits, and no timer is set: nothing will ever happen."""


class Process:
    """Tasks and threads that are paused and killed together.

    `paused` stops all of them. Once `dead` is set, nothing they do has an effect.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused = self.dead = False
        self.held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def check(self) -> None:
        """KilledError if the process was killed."""
        if self.dead:
            raise KilledError(self.name)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that runs without waiting; its time is in seconds, and begins at 0.

    A call that would run in a thread starts after `thread_s()` seconds, and then runs to its end, unless it lingers.
    """

    def __init__(self, thread_s: Callable[[], float] = lambda: 0.0) -> None:
        super().__init__()
        self._now, self._thread_s, self._numbers = 0.0, thread_s, count()
        self._lingering: dict[Thread, None] = {}
        self._clock_resolution = 1e-9
        self._selector = _Clock(self)
        self._ready: deque[asyncio.Handle] = _Ready()
        self.set_task_factory(cast(Any, self._numbered))  # typeshed knows no keywords of 3.12
        # Ignore errors of tasks that no other task awaits.
        self.set_exception_handler(lambda _loop, _context: None)

    @override
    def time(self) -> float:
        return self._now

    @override
    def call_later(  # type: ignore[override]  # the base binds the arguments by a tuple of variables
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Like the base, but each wait takes time: one below the resolution would end when it begins, for ever."""
        least = TIMER_S_MIN if delay > 0 else delay
        return super().call_later(max(delay, least), callback, *args, context=context)

    def advance(self, seconds: float) -> None:
        """Move the clock forward by `seconds`, in which no task runs."""
        self._now += seconds

    def spawn(self, process: Process, main: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run `main`, and everything that it starts, as `process`."""
        context = copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(main, context=context)

    def pause(self, process: Process) -> None:
        """Pause a process, as SIGSTOP does: none of its tasks run.

        Its requests still arrive, and its timers still become due.
        """
        process.paused = True

    def resume(self, process: Process) -> None:
        """Resume a process, as SIGCONT does."""
        process.paused = False
        held, process.held = process.held, []
        self._ready.extend(held)

    def kill(self, process: Process) -> None:
        """Kill a process, as SIGKILL does: from now on it has no effect; its tasks are cancelled."""
        process.dead = True
        self.resume(process)
        for task in process.tasks:
            task.cancel()

    @override
    def run_in_executor(  # type: ignore[override]  # the base returns an awaitable of any kind
        self,
        executor: object,
        func: Callable[..., T],
        *args: Any,
    ) -> "asyncio.Future[T]":
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
                answer.exception()  # the caller may be gone, and must not leave a warning

        thread = Thread.of(act)
        self.call_later(self._thread_s(), step)
        return answer

    @override
    def close(self) -> None:
        for thread in self._lingering:
            thread.cut()
        self._lingering = {}
        super().close()

    @override
    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor."""

    def _numbered(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], **more: object
    ) -> "asyncio.Task[T]":
        """Make a task whose place in a set depends on the order of creation, not on its address."""
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
        """Do nothing: this loop has no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps, so it need not be woken."""


class _Task(asyncio.Task[Any]):
    number = 0

    @override
    def __hash__(self) -> int:
        return self.number


class _Ready(deque[asyncio.Handle]):
    """The queue of handles that run next. Handles of a paused process are held back."""

    @override
    def append(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # typeshed leaves it out
        if process is not None and process.paused:
            process.held.append(handle)
        else:
            super().append(handle)


class _Clock:
    """Takes the place of the selector, in which a loop waits for sockets and timers."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        """Move the clock to the next timer. StuckError if there is none."""
        if timeout is None:
            raise StuckError("nobody is ready, and no timer is set")
        self._loop.advance(timeout)
        return []
