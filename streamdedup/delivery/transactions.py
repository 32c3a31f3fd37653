"""Transactions in flight: transactions that are being filled, or are decided and not yet committed.

While one commits, the next is filled. They commit strictly in order. The task that decides and the task that commits
run side by side; if one fails, both end, and everything that is decided and not committed is taken back.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from streamdedup.events import EventBatch, Verdicts
from streamdedup.kafka.sink import DoubtError
from streamdedup.rules.lists import NOTHING_BLOCKED, BlockedRows

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedBatch:
    """Events that were decided together. A letter about one of them is stamped with `letter_ms`.

    `verdicts` (n,) has one verdict an event. `malformed` and `rejected` map a row of `batch` to the reason. `blocked`
    are the events that the lists blocked.
    """

    batch: EventBatch
    verdicts: Verdicts
    malformed: dict[int, str]
    rejected: dict[int, str]
    letter_ms: int
    blocked: BlockedRows = NOTHING_BLOCKED

    @classmethod
    def skipped(cls, batch: EventBatch, letter_ms: int) -> "DecidedBatch":
        """Return `batch`, which stands for a record batch that was skipped and has no events."""
        none = np.zeros(0, dtype=np.uint8)
        return cls(batch=batch, verdicts=none, malformed={}, rejected={}, letter_ms=letter_ms)


class Transaction:
    """What one commit covers: consecutive events of the input, and the input offset after them.

    `watermark` is the filter's time after these events; None if the filter has no time. `watermark` and `next_offset`
    are set when the transaction is closed.
    """

    def __init__(self) -> None:
        self.last_offset = -1  # of its last event
        self.skipped_offset: int | None = None  # of its last record batch that was skipped
        self.next_offset = 0
        self.watermark: int | None = None
        self.events = self.size_bytes = 0
        self._parts: asyncio.Queue[DecidedBatch | None] = asyncio.Queue()
        self._begun = asyncio.Event()

    async def begun(self) -> None:
        """Wait until the first events are decided, or it is closed.

        The deadline of the commit begins after this: a decision may wait for a disk, and a disk is no doubt.
        """
        await self._begun.wait()

    @property
    def is_begun(self) -> bool:
        """Whether its first events are decided, or it is closed."""
        return self._begun.is_set()

    def add(self, part: DecidedBatch) -> None:
        """Add decided events."""
        self.events += len(part.batch)
        self.size_bytes += part.batch.size_bytes
        self.last_offset = int(part.batch.offsets[-1]) if len(part.batch) else self.last_offset
        if part.batch.damage is not None:
            self.skipped_offset = part.batch.damage.first_offset
        self._parts.put_nowait(part)
        self._begun.set()

    def close(self, next_offset: int, watermark: int | None) -> None:
        """Note that nothing more is added."""
        self.next_offset, self.watermark = next_offset, watermark
        self._parts.put_nowait(None)
        self._begun.set()

    async def parts(self) -> AsyncIterator[DecidedBatch]:
        """Yield its parts as they are added, until it is closed. What was yielded is not kept."""
        while (part := await self._parts.get()) is not None:
            yield part
            del part


class InFlight:
    """The transactions in flight of one shard; at most `most` at a time."""

    def __init__(self, most: int) -> None:
        self._room = asyncio.Semaphore(most)
        self._waiting: asyncio.Queue[Transaction | None] = asyncio.Queue()
        self._count = 0
        self._none, self._one = asyncio.Event(), asyncio.Event()
        self._none.set()
        self._one.set()

    @property
    def none(self) -> bool:
        """Whether no transaction is in flight."""
        return self._none.is_set()

    async def room(self) -> None:
        """Wait until one more may depart, and reserve its place."""
        await self._room.acquire()

    def depart(self, transaction: Transaction) -> None:
        """Queue `transaction` for its commit; call `room` before. It may still be filled while it is in the queue."""
        self._count += 1
        self._none.clear()
        if self._count > 1:
            self._one.clear()
        self._waiting.put_nowait(transaction)

    async def arrivals(self) -> AsyncIterator[Transaction]:
        """Yield the transactions in order, until `close`. Asking for the next one marks the last one as committed."""
        while (transaction := await self._waiting.get()) is not None:
            yield transaction
            self._count -= 1
            self._room.release()
            if self._count <= 1:
                self._one.set()
            if not self._count:
                self._none.set()

    async def meanwhile(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`. Cancel it, and return None, once at most one transaction is in flight."""
        if self._one.is_set():
            work.close()  # it is not even started: it would take an event that is there already
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
        """Note that no further transaction departs."""
        self._waiting.put_nowait(None)


async def run_together(*parts: Coroutine[Any, Any, None]) -> None:
    """Run `parts` side by side to their ends. If one fails, cancel the others and raise its error.

    DoubtError if one is cancelled although the caller is not.
    """
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
    if failed.cancelled():  # nobody asked for it: a client library may cancel its caller
        raise DoubtError("a transaction was cancelled from within")
    failed.result()


def _failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
