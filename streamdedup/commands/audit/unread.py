"""What the audit does not read: the events of the input from the committed offset on, which wait for the worker."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from streamdedup.commands.audit.extents import Extent
from streamdedup.events import NO_TIMESTAMP, EventBatch, Integers
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.partitions import InputPartition

# So many offsets are read, to count their events. Of more, some of the first and of the last events are read.
COUNTED_MAX = 10_000
LAST_OFFSETS = 100  # in which the last events are looked for; if there are none, in twice as many

# Yields the committed events of a topic's partition from one offset up to, but not including, another one.
Batches = Callable[[str, int, int, int], AsyncGenerator[EventBatch]]


@dataclass(frozen=True, slots=True)
class Unread:
    """How many events wait, and the least and the greatest of their timestamps, in ms since 1970.

    Of more than `COUNTED_MAX` in a partition, markers and aborted events count, too. The timestamps are None if no
    event has one.
    """

    events: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None

    @classmethod
    def among(cls, timestamps: Integers) -> "Unread":
        """Return events with these timestamps."""
        known = timestamps[timestamps != NO_TIMESTAMP]
        if not len(known):
            return cls(len(timestamps))
        return cls(len(timestamps), int(known.min()), int(known.max()))

    def __add__(self, other: "Unread") -> "Unread":
        oldest = [ms for ms in (self.oldest_ms, other.oldest_ms) if ms is not None]
        newest = [ms for ms in (self.newest_ms, other.newest_ms) if ms is not None]
        events = self.events + other.events
        return Unread(events, min(oldest, default=None), max(newest, default=None))

    def waits_s(self, now_ms: int) -> tuple[float | None, float | None]:
        """Return for how long the oldest and the newest have waited, in s; None without a timestamp."""
        return _since(self.oldest_ms, now_ms), _since(self.newest_ms, now_ms)


def _since(time_ms: int | None, now_ms: int) -> float | None:
    return None if time_ms is None else max(0, now_ms - time_ms) / 1000


async def unread_of(
    cluster: Cluster, batches: Batches, at: InputPartition, extent: Extent
) -> Unread:
    """Return what waits in a partition of the input; nothing if no worker reads it on."""
    if not extent.is_read_on:
        return Unread()
    async with asyncio.timeout(ANSWER_S_MAX):
        # What is not decided yet, nobody can read.
        end = min(extent.found.input_end, await cluster.stable_offset(*at))
        start = max(extent.until, await cluster.first_offset(*at))
    if end - start <= COUNTED_MAX:
        return await _among(batches(*at, start, end)) if start < end else Unread()
    first = await _among(batches(*at, start, end), only_first=True)
    if not first.events:
        return Unread()
    last, size = Unread(), LAST_OFFSETS
    while not last.events:
        last = await _among(batches(*at, max(start, end - size), end))
        size *= 2
    both = first + last
    return Unread(end - start, both.oldest_ms, both.newest_ms)


async def _among(reading: AsyncGenerator[EventBatch], *, only_first: bool = False) -> Unread:
    """Return the events that are read, or the first ones of them."""
    found = Unread()
    async with aclosing(reading) as batches:
        async for batch in batches:
            found += Unread.among(batch.timestamps)
            if only_first and found.events:
                break
    return found
