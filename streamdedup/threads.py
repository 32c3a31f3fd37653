"""Runs blocking calls in threads, in lanes, so that a call that hangs in one lane delays nothing in another.

Each lane has a bound, which also bounds the threads that a dead disk may block. A call that waits for long
is logged once a minute.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, fields, replace
from typing import Any, ParamSpec, TypeVar

import structlog
from typing_extensions import override

log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SAVES_MAX = 2
COPIES_MAX = 2  # of filters, that are in memory at the same time
LOADS_MAX = 4
MEMORY_MAX = 4
LOOKUPS_MAX = 4
KEYS_MAX = 4
TELL_EVERY_S = 60.0
THE_WORKER = "the worker"  # in place of a shard's name
_KEYS_REMEDY = (
    "look at the keys of the events: many addresses that Python code must read make all partitions wait in turn; more"
    " workers share them"
)


class Lane:
    """At most `width` calls at a time, and one for each name; a name is a shard's, as `TOPIC/PARTITION`.

    Those who wait go in the order in which they came. `disk` is the option that names the place of the files for which
    the calls may wait. The warnings name it, unless there is another `remedy`.
    """

    def __init__(
        self,
        width: int,
        disk: str = "snapshot.directory",
        *,
        remedy: str | None = None,
        executor: ThreadPoolExecutor | None = None,
    ) -> None:
        self._width = width
        self._remedy = remedy or (
            f"check whether the disk under {disk} responds; the waiting call goes on once it does"
        )
        self._executor = executor or ThreadPoolExecutor(width, "streamdedup")
        self._under_way: dict[str, asyncio.Future[Any]] = {}
        self._queue: dict[asyncio.Future[None], str] = {}  # those who wait, in their order
        # Names that have a slot: called, but their task has not run yet; and those that may start at once.
        self._called, self._granted = set[str](), set[str]()
        self._waits: dict[str, tuple[str, float]] = {}

    @property
    def busy(self) -> bool:
        """Whether a thread is running a call."""
        return bool(self._under_way)

    def works_for(self, name: str) -> bool:
        """Return whether a thread is running a call for `name`, even if nobody waits for it any more."""
        return name in self._under_way

    def waits(self, name: str, above_s: float = 0.0) -> str | None:
        """Return, as text, what `name` waits for and for how long now.

        None if it does not wait, or has waited for less than `above_s` seconds. Any thread may call this.
        """
        if (waiting := self._waits.get(name)) is None:
            return None
        what, since = waiting
        waited_s = time.monotonic() - since
        return f"waits for {what}, for {waited_s:.0f} s now" if waited_s >= above_s else None

    async def slot(self, name: str, what: str) -> None:
        """Wait for a free slot. `run` then starts at once, if nothing is awaited before it."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        self._queue[mine] = name
        self._call()
        try:
            if not mine.done():
                await self._wait(name, what, [mine])
        except BaseException:
            del self._queue[mine]
            self._leave(self._called if mine.done() else set(), name)
            raise
        del self._queue[mine]
        self._called.discard(name)
        self._granted.add(name)
        loop.call_soon(self._leave, self._granted, name)

    def _call(self) -> None:
        """Give each free slot to the first of those who wait, whose name has none."""
        for waiting, name in self._queue.items():
            held = self._called | self._granted | self._under_way.keys()
            if len(held) >= self._width:
                return
            if not waiting.done() and name not in held:
                self._called.add(name)
                waiting.set_result(None)

    def _leave(self, slots: set[str], name: str) -> None:
        """Give up a slot that was not used, which goes to who waited for it."""
        slots.discard(name)
        self._call()

    async def run(
        self,
        name: str,
        what: str,
        call: Callable[..., T],
        *args: Any,  # noqa: ANN401 - whatever `call` takes
        remedy: str | None = None,
    ) -> T:
        """Make the call in a thread, and return its result. `remedy` is for the warnings; None takes the lane's.

        If the caller is cancelled, the thread keeps running; the next call under the same name waits for
        it.
        """
        if name not in self._granted:
            await self.slot(name, what)
        self._granted.discard(name)
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._executor, copy_context().run, call, *args)
        self._under_way[name] = future

        def ended(future: asyncio.Future[T]) -> None:
            del self._under_way[name]
            future.exception()  # retrieved here, since the caller may have been cancelled
            self._call()

        future.add_done_callback(ended)
        await self._wait(name, what, [future], remedy)
        return future.result()

    async def _wait(
        self,
        name: str,
        what: str,
        futures: Iterable[asyncio.Future[Any]],
        remedy: str | None = None,
    ) -> None:
        """Wait until one of the futures is done, and log a warning once a minute until then."""
        self._waits[name] = what, time.monotonic()
        first, waiting = asyncio.FIRST_COMPLETED, list(futures)
        try:
            while not (await asyncio.wait(waiting, timeout=TELL_EVERY_S, return_when=first))[0]:
                log.warning(
                    "still_waiting",
                    shard=name,
                    detail=self.waits(name),
                    remedy=remedy or self._remedy,
                )
        finally:
            self._waits.pop(name, None)


class OtherThreads(ThreadPoolExecutor):
    """The threads of a loop for all that has no lane: `asyncio.to_thread`, and names that are looked up."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="asyncio")
        self._under_way = set[Future[Any]]()

    @property
    def busy(self) -> bool:
        """Whether a thread is running a call."""
        return bool(self._under_way)

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future


class InCaller(ThreadPoolExecutor):
    """Makes each call at once, in the thread that asks for it: for a loop that has a thread for itself.

    So what its calls cost is what that thread costs.
    """

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = Future[T]()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


@dataclass(frozen=True)
class Threads:
    """The lanes of one worker. A thread cannot be cancelled: it ends by itself, or with the process."""

    saves: Lane = field(default_factory=lambda: Lane(SAVES_MAX))
    copies: Lane = field(default_factory=lambda: Lane(COPIES_MAX))
    loads: Lane = field(default_factory=lambda: Lane(LOADS_MAX))
    memory: Lane = field(default_factory=lambda: Lane(MEMORY_MAX))
    lookups: Lane = field(default_factory=lambda: Lane(LOOKUPS_MAX, "blocklist.exact"))
    lists: Lane = field(
        default_factory=lambda: Lane(LOOKUPS_MAX, "blocklist.file or allowlist.file")
    )
    allowlist: Lane = field(default_factory=lambda: Lane(1, "allowlist.file"))
    blocklist: Lane = field(
        default_factory=lambda: Lane(1, "blocklist.file, or under blocklist.exact,")
    )
    keys: Lane = field(default_factory=lambda: Lane(KEYS_MAX, remedy=_KEYS_REMEDY))
    copied: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(COPIES_MAX))
    """Held by each shard that has a copy of its filter in memory, which is longer than a thread works on it."""

    @classmethod
    def in_caller(cls) -> "Threads":
        """Return lanes without threads: each call is made at once by the caller."""
        names = [each.name for each in fields(cls) if each.name != "copied"]
        lanes: dict[str, Any] = {name: Lane(1, executor=InCaller()) for name in names}
        return replace(cls(), **lanes)

    @property
    def busy(self) -> bool:
        """Whether any lane is running a call."""
        return any(lane.busy for lane in self._lanes)

    @property
    def _lanes(self) -> Iterator[Lane]:
        found = (getattr(self, each.name) for each in fields(self))
        return (lane for lane in found if isinstance(lane, Lane))
