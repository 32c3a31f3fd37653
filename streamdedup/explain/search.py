"""The search: reads logs by columns, and finds the events of wanted keys, or the equals of one event.

An event has no place in the output: it is known again by its key, its value, its headers and its timestamp, unless the
broker stamps the output itself. The headers that a worker appends are left out.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import numpy as np

from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import refuse_unknown, resolved
from streamdedup.events import NO_TIMESTAMP, EventBatch, Headers, Integers, Verdict
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.log import naming_trims
from streamdedup.kafka.options import BLOCKED_BY, MARK
from streamdedup.kafka.records.marks import marks_of
from streamdedup.keys.extract import Keys

STALL_S_MAX = 60.0
EQUALS_READ_MAX = 5_000_000  # events, to find the equal of one from its time on
_OURS = frozenset((MARK, *BLOCKED_BY))
_UNKNOWN = (
    "its key is not known; set kafka.schema_registry to the registry that has it, and ask again"
)

OnRead = Callable[
    [str, int, int], None
]  # gets topic, partition, and how many more events were read

Keyed = AsyncGenerator[tuple[EventBatch, Keys, Integers]]


@dataclass(frozen=True)
class Reader:
    """What reads the topics of one question."""

    cluster: Cluster
    on_read: OnRead

    async def batches(
        self, topic: str, partition: int, start: int, end: int
    ) -> AsyncGenerator[EventBatch]:
        """Yield the committed events from `start` to `end` (exclusive). TrimmedError if they are trimmed meanwhile."""
        events = self.cluster.committed_events(topic, partition, start, end, stall_s=STALL_S_MAX)
        async with aclosing(naming_trims(events, "it was trimmed meanwhile; ask again")) as batches:
            async for batch in batches:
                self.on_read(topic, partition, len(batch))
                yield batch

    async def at(self, topic: str, partition: int, offset: int) -> EventBatch | None:
        """Return a batch of the committed event at `offset` alone; None if there is none."""
        async with aclosing(self.batches(topic, partition, offset, offset + 1)) as batches:
            async for batch in batches:
                rows = np.flatnonzero(batch.offsets == offset)
                if len(rows):
                    return batch.take(rows)
        return None

    async def keyed(
        self, recipe: Recipe, topic: str, partition: int, start: int, end: int
    ) -> Keyed:
        """Yield the events of an output with their keys, and the rows, ascending, of those that passed by a key.

        DeliveryError if the schema of one is not known.
        """
        extractor = recipe.extractor()
        async with aclosing(self.batches(topic, partition, start, end)) as batches:
            async for batch in batches:
                async for part in resolved(batch, extractor):
                    keys = extractor.extract(part)
                    refuse_unknown(part, keys, _UNKNOWN)
                    passed = (keys.keys.sizes >= 0) & (marks_of(part.headers) == Verdict.PASS)
                    yield part, keys, passed.nonzero()[0]

    async def from_time(self, topic: str, partition: int, time_ms: int, start: int) -> int | None:
        """Return the first offset, from `start` on, from which on events of that time can be; None if there is none.

        An event without a timestamp can be anywhere. TimeoutError if there is no answer within ANSWER_S_MAX.
        """
        if time_ms == NO_TIMESTAMP or time_ms < 0:
            return start
        async with asyncio.timeout(ANSWER_S_MAX):
            found = await self.cluster.offset_of_time(topic, partition, time_ms)
        return None if found is None else max(start, found)

    async def equals(
        self,
        event: "Event",
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        in_output: bool,
        timed: bool,
    ) -> AsyncGenerator["Copy"]:
        """Yield the events that are equal to `event`, as the output has it or as the input has it.

        At most `EQUALS_READ_MAX` events are read, from the first on that may have its time. Without `timed`, the time
        does not count.
        """
        time_ms = event.time_ms if timed else NO_TIMESTAMP
        first = await self.from_time(topic, partition, time_ms, start)
        if first is None or first >= end:
            return
        read = 0
        async with aclosing(self.batches(topic, partition, first, end)) as batches:
            async for batch in batches:
                for row in event.rows_in(batch, in_output=in_output, timed=timed):
                    yield Copy.of(batch, row)
                read += len(batch)
                if read >= EQUALS_READ_MAX:
                    return


@dataclass(frozen=True, slots=True)
class Event:
    """The parts of an event that a worker copies. Its text has none of them."""

    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(repr=False)
    time_ms: int

    @classmethod
    def of(cls, batch: EventBatch, row: int) -> "Event":
        """Return the event of a row."""
        return cls(
            batch.keys[row],
            batch.values[row],
            tuple(batch.headers[row]),
            int(batch.timestamps[row]),
        )

    def is_in(self, emitted: "Event") -> bool:
        """Return whether `emitted`, of an output, is a copy of this one, of an input."""
        same = (self.key, self.value, self.time_ms) == (emitted.key, emitted.value, emitted.time_ms)
        return same and is_copied(self.headers, emitted.headers)

    def rows_in(self, batch: EventBatch, *, in_output: bool, timed: bool) -> list[int]:
        """Return the rows, ascending, that are equal to this one; with `in_output`, this one is an input's.

        Without it, this one may be an output's, and `batch` is an input's. Without `timed`, times may differ.
        """
        sizes = [-1 if cell is None else len(cell) for cell in (self.key, self.value)]
        alike = (
            ((batch.timestamps == self.time_ms) | (not timed))
            & (batch.keys.sizes == sizes[0])
            & (batch.values.sizes == sizes[1])
        )
        return [
            row
            for row in np.flatnonzero(alike).tolist()
            if batch.keys[row] == self.key
            and batch.values[row] == self.value
            and (
                is_copied(self.headers, batch.headers[row])
                if in_output
                else is_copied(batch.headers[row], self.headers)
            )
        ]


def is_copied(given: Headers, emitted: Headers) -> bool:
    """Return whether headers of the output are those of the input, perhaps with those that a worker appends."""
    if len(given) > len(emitted) or list(given) != list(emitted[: len(given)]):
        return False
    return all(name in _OURS for name, _ in emitted[len(given) :])


@dataclass(frozen=True, slots=True)
class Copy:
    """An event of a log: its place, its time in ms since 1970 (-1: none), and the verdict that it is marked with."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    mark: Verdict
    event: Event

    @classmethod
    def of(cls, batch: EventBatch, row: int) -> "Copy":
        """Return the event of a row."""
        mark = Verdict(int(marks_of(batch.headers.take(np.array([row])))[0]))
        return cls(
            batch.topic,
            batch.partition,
            int(batch.offsets[row]),
            int(batch.timestamps[row]),
            mark,
            Event.of(batch, row),
        )


async def first(copies: AsyncGenerator[Copy]) -> Copy | None:
    """Return the first of them; None if there is none."""
    async with aclosing(copies):
        async for copy in copies:
            return copy
    return None
