"""What the stage copies: a piece is some consecutive events of one partition of the input, with the place of each.

Each partition has a reader that makes pieces; the transfers take them, one after the other. The queue is bounded.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from streamdedup.delivery.turns import beside, is_large, keys_of
from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.origin_header import marked
from streamdedup.keys.extract import Extractor
from streamdedup.keys.placement import partitions_by_records, partitions_of
from streamdedup.threads import Lane

QUEUED_MAX = 16  # pieces, of all partitions together


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Events of `partition` of the input, up to `next_offset`.

    `batch` is as it was read; None if the position alone moved. `copies` are the same events with their origins, one
    row an event, and `places` (n,) the partitions of the middle topic where they belong. `tombstones` counts the events
    with a null value that travel by their record keys. `unknown` (row -> reason) are the events whose schemas no
    registry has: they are rejected. `head` is how far the partition stands in event time with this piece (`skew`); None
    if that does not matter.
    """

    partition: InputPartition
    next_offset: int
    batch: EventBatch | None = None
    copies: EventBatch | None = None
    places: Integers | None = None
    tombstones: int = 0
    unknown: Mapping[int, str] = field(default_factory=dict)
    head: int | None = None

    @property
    def events(self) -> int:
        """The number of events."""
        return 0 if self.batch is None else len(self.batch)

    @property
    def size_bytes(self) -> int:
        """The bytes of the events."""
        return 0 if self.batch is None else self.batch.size_bytes

    def by_place(self, taken: Integers) -> Iterator[tuple[int, Integers]]:
        """Yield each partition of the middle topic, with those rows of `taken`, ascending, that go there."""
        if self.places is None or not len(taken):
            return
        # Of 16 bits, numpy sorts by radix, in a tenth of the time; there are at most 10,000 places.
        places = self.places[taken].astype(np.uint16)
        order = np.argsort(places, kind="stable")
        sorted_places = places[order]
        borders = [0, *(np.flatnonzero(np.diff(sorted_places)) + 1).tolist(), len(order)]
        for start, end in pairwise(borders):
            yield int(sorted_places[start]), taken[order[start:end]]


class Pieces:
    """The queue of pieces. `settled` waits until everything in it is committed."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Piece | None] = asyncio.Queue(QUEUED_MAX)

    async def put(self, piece: Piece) -> None:
        """Wait for room, then add `piece`."""
        await self._queue.put(piece)

    async def close(self) -> None:
        """Note that nothing more comes."""
        await self._queue.put(None)

    async def next(self) -> Piece | None:
        """Wait for the next piece; None if nothing more comes."""
        return await self._queue.get()

    async def next_until(self, ends_at: float) -> tuple[Piece | None, bool]:
        """Return the next piece, if it comes before the loop's time `ends_at`; and whether nothing more comes."""
        if self._queue.empty():
            try:
                async with asyncio.timeout_at(ends_at):
                    piece = await self._queue.get()
            except TimeoutError:
                return None, False
        else:
            piece = self._queue.get_nowait()
        return piece, piece is None

    def committed(self, pieces: int) -> None:
        """Note that so many of the oldest pieces are committed."""
        for _ in range(pieces):
            self._queue.task_done()

    async def settled(self) -> None:
        """Wait until everything that was added is committed."""
        await self._queue.join()


async def piece_of(
    batch: EventBatch,
    extractor: Extractor,
    lane: Lane,
    *,
    partitions: int,
    group: str,
    head: int | None = None,
) -> Piece:
    """Return the piece of `batch`: each event with the place that its key gives it among `partitions`.

    Keys that take long are extracted in `lane`.

    An event without a judged key is placed by its record key; if it has none, by its partition.
    """
    partition = InputPartition(batch.topic, batch.partition)
    if batch.damage is not None:
        return Piece(partition=partition, next_offset=batch.next_offset, batch=batch, head=head)
    keys = await keys_of(batch, extractor, lane)
    takes_long = is_large(batch)
    places = await beside(takes_long, partitions_of, keys.keys, partitions)
    if len(apart := np.flatnonzero(places < 0)):
        by_records = partitions_by_records(batch.keys.take(apart), batch.partition, partitions)
        places[apart] = by_records
    copies = await beside(takes_long, marked, batch, np.arange(len(batch)), group)
    return Piece(
        partition=partition,
        next_offset=batch.next_offset,
        batch=batch,
        copies=copies,
        places=places,
        tombstones=len(keys.unjudged),
        unknown=keys.unknown,
        head=head,
    )
