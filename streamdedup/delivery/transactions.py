"""Transactions in flight: decided, or being decided, and not committed yet.

While one commits, the next is filled; they commit strictly in their order. Whoever decides and whoever commits run side
by side, and where one fails both end: what was decided and not committed is taken back as a whole.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from streamdedup.events import EventBatch, Verdicts
from streamdedup.kafka.sink import DoubtError
from streamdedup.rules.lists import NOTHING_BLOCKED, BlockedRows

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedBatch:
    """Events that were decided together: row -> reason for the malformed and rejected ones, and when that was.

    `blocked` are those that the lists blocked.
    """

    batch: EventBatch
    verdicts: Verdicts
    malformed: dict[int, str]
    rejected: dict[int, str]
    now_ms: int
    blocked: BlockedRows = NOTHING_BLOCKED


class Transaction:
    """What one commit takes: events of the input, and the offset behind them.

    `watermark` is the filter's time behind them; it and `next_offset` are right once the transaction is closed.
    """

    def __init__(self) -> None:
        self.last_offset = -1  # of its last event
        self.next_offset = 0
        self.watermark: int | None = None
        self.events = self.size_bytes = 0
        self._parts: asyncio.Queue[DecidedBatch | None] = asyncio.Queue()
        self._begun = asyncio.Event()

    async def begun(self) -> None:
        """Wait until something was decided, or it is closed: to decide may wait for a disk."""
        await self._begun.wait()

    def add(self, part: DecidedBatch) -> None:
        """Take `part` along."""
        self.events += len(part.batch)
        self.size_bytes += part.batch.size_bytes
        self.last_offset = int(part.batch.offsets[-1]) if len(part.batch) else self.last_offset
        self._parts.put_nowait(part)
        self._begun.set()

    def close(self, next_offset: int, watermark: int | None) -> None:
        """Nothing more comes."""
        self.next_offset, self.watermark = next_offset, watermark
        self._parts.put_nowait(None)
        self._begun.set()

    async def parts(self) -> AsyncIterator[DecidedBatch]:
        """Its parts, as they come, until it is closed."""
        while (part := await self._parts.get()) is not None:
            yield part


class InFlight:
    """The transactions in flight of one shard, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._room = asyncio.Semaphore(most)
        self._waiting: asyncio.Queue[Transaction | None] = asyncio.Queue()
        self._count = 0
        self._none, self._one = asyncio.Event(), asyncio.Event()
        self._none.set()
        self._one.set()

    @property
    def none(self) -> bool:
        """Whether everything that was decided is committed."""
        return self._none.is_set()

    async def room(self) -> None:
        """Wait until one more may depart."""
        await self._room.acquire()

    def depart(self, transaction: Transaction) -> None:
        """Queue `transaction` for its commit, where there is `room`; it may be filled from then on."""
        self._count += 1
        self._none.clear()
        if self._count > 1:
            self._one.clear()
        self._waiting.put_nowait(transaction)

    async def arrivals(self) -> AsyncIterator[Transaction]:
        """The transactions in their order, each counted as committed when the next is asked for; until `close`."""
        while (transaction := await self._waiting.get()) is not None:
            yield transaction
            self._count -= 1
            self._room.release()
            if self._count <= 1:
                self._one.set()
            if not self._count:
                self._none.set()

    async def meanwhile(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What `work` gives; None, and `work` cancelled, once no more than one is in flight."""
        if self._one.is_set():
            work.close()  # not even begun: it would take what is there already
            return None
        tasks = asyncio.create_task(work), asyncio.create_task(self._one.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return None if tasks[0].cancelled() else tasks[0].result()

    async def all_committed(self) -> None:
        """Wait until none is in flight."""
        await self._none.wait()

    def close(self) -> None:
        """No other departs."""
        self._waiting.put_nowait(None)


async def run_together(*parts: Coroutine[Any, Any, None]) -> None:
    """Run `parts` side by side to their ends; the first that fails ends the others, and its error is raised."""
    tasks = [asyncio.create_task(part) for part in parts]
    waiting = set(tasks)
    try:
        while waiting and not any(map(_failed, tasks)):
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        failed = next(filter(_failed, tasks), None)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if failed is None:
        return
    if failed.cancelled():  # nobody asked: a client library may cancel its caller
        raise DoubtError("a transaction was cancelled from within")
    failed.result()


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
