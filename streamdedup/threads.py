"""Runs blocking calls in threads, in lanes, so that a call that hangs in one lane delays nothing in another.

Each lane has a bound, which also bounds the threads that a dead disk may block. A call that waits for long
is logged once a minute.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import structlog

log = structlog.get_logger(__name__)

T = TypeVar("T")

SAVES_MAX = 2
COPIES_MAX = 2  # of filters, that are in memory at the same time
LOADS_MAX = 4
MEMORY_MAX = 4
LOOKUPS_MAX = 4
TELL_EVERY_S = 60.0
THE_WORKER = "the worker"  # in place of a shard's name


class Lane:
    """At most `width` calls at a time, and one for each name; a name is a shard's, as `TOPIC/PARTITION`.

    `disk` is the option that names the place of the files for which the calls may wait. The warnings name
    it.
    """

    def __init__(self, width: int, disk: str = "snapshot.directory") -> None:
        self._width, self._disk = width, disk
        self._executor = ThreadPoolExecutor(width, "streamdedup")
        self._under_way: dict[str, asyncio.Future[Any]] = {}
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

    async def turn(self, name: str, what: str) -> None:
        """Wait for a free place. `run` then starts at once, if nothing is awaited before it."""
        while name in self._under_way or len(self._under_way) >= self._width:
            await self._wait(name, what, self._under_way.values())

    async def run(
        self,
        name: str,
        what: str,
        call: Callable[..., T],
        *args: Any,  # noqa: ANN401 - whatever `call` takes
        remedy: str | None = None,
    ) -> T:
        """Make the call in a thread, and return its result. `remedy` is for the warnings; None names the disk.

        If the caller is cancelled, the thread keeps running; the next call under the same name waits for
        it.
        """
        await self.turn(name, what)
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._executor, copy_context().run, call, *args)
        self._under_way[name] = future

        def ended(future: asyncio.Future[T]) -> None:
            del self._under_way[name]
            future.exception()  # retrieved here, since the caller may have been cancelled

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
                    remedy=remedy
                    or f"check whether the disk under {self._disk} responds; the waiting call goes on once it does",
                )
        finally:
            self._waits.pop(name, None)


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
    copied: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(COPIES_MAX))
    """Held by each shard that has a copy of its filter in memory, which is longer than a thread works on it."""

    @property
    def busy(self) -> bool:
        """Whether any lane is running a call."""
        return any(lane.busy for lane in self._lanes)

    @property
    def _lanes(self) -> Iterator[Lane]:
        found = (getattr(self, each.name) for each in fields(self))
        return (lane for lane in found if isinstance(lane, Lane))
