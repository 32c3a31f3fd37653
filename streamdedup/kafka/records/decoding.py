"""Decode record batches within a turn of the loop, or in a thread if they are large.

A few kB may decompress to any amount. What takes more than LOOP_BYTES_MAX, or CHUNK_BYTES without compression, is left
to a thread; what takes more than the limit in `codecs` is refused.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from streamdedup.events import EventBatch, Integers, Origin
from streamdedup.kafka.records.codecs import NONE
from streamdedup.kafka.records.encoding import VERBATIM_BYTES_MIN
from streamdedup.kafka.records.wire import (
    DamagedBatchError,
    RecordBatch,
    Records,
    Unpacked,
    columns_of,
    decode,
    unpack,
)

CHUNK_BYTES = 4 << 20  # of events, handled in one turn of the loop: less than 10 ms
LOOP_BYTES_MAX = 2 << 20  # decompressed in one turn: 1 ms by lz4, 7 ms by gzip


def first_of(batches: Sequence[RecordBatch]) -> list[Unpacked]:
    """Unpack the first of `batches`: at most about LOOP_BYTES_MAX, or CHUNK_BYTES if they are not compressed.

    Compressed ones are expected to become as much larger as those before them. The list is empty if the first batch
    alone is above its limit, is damaged, or is framed in a way that takes long to read.
    """
    parts: list[Unpacked] = []
    size_bytes, growth = 0, 1.0
    for batch in batches:
        most = CHUNK_BYTES if batch.codec == NONE else LOOP_BYTES_MAX
        packed_bytes = len(batch.raw)
        if packed_bytes > most or (parts and size_bytes + growth * packed_bytes > most):
            break
        try:
            parts.append(unpack(batch, most, regular_only=True))
        except DamagedBatchError:
            break
        unpacked_bytes = parts[-1].end - parts[-1].start
        size_bytes += unpacked_bytes
        growth = max(growth, unpacked_bytes / packed_bytes)
    return parts


def sound_columns(parts: Sequence[Unpacked]) -> tuple[Sequence[Unpacked], Records]:
    """Return those of `parts` that come before the first damaged one, and their records.

    DamagedBatchError if the very first is damaged.
    """
    while True:
        try:
            return parts, columns_of(parts)
        except DamagedBatchError as error:
            sound = [
                one
                for one in parts
                if error.damage and one.batch.last_offset < error.damage.first_offset
            ]
            if not sound:
                raise
            parts = sound


def origins(batches: Sequence[RecordBatch], records: Records, size_bytes: Integers) -> list[Origin]:
    """Return those of `batches` that are large enough to be written as they are, with the rows of their events.

    `records` are theirs; `size_bytes` (n,) is the running total of the body sizes of all rows.
    """
    behind = np.concatenate(([0], np.cumsum(records.counts)))
    bodies = np.diff(np.concatenate(([0], size_bytes))[behind])
    return [
        Origin(int(behind[at]), int(behind[at + 1]), batches[at])
        for at in np.flatnonzero((bodies >= VERBATIM_BYTES_MIN) & records.regular).tolist()
    ]


class PendingDecode:
    """A large record batch in place of its events, until a thread has decoded it; `cut` makes events of its records.

    Whoever meets it calls `done`, and `drop` when all its events are done with. Nothing else holds what was decoded. If
    it is dropped before all of its events were taken, it takes their place again.
    """

    def __init__(self, batch: RecordBatch, cut: Callable[[Records], Iterator[EventBatch]]) -> None:
        self._batch, self._cut = batch, cut
        self._task: asyncio.Task[Records] | None = None
        self._pieces: Iterator[EventBatch] | None = None

    @property
    def last_offset(self) -> int:
        """The last offset of the record batch."""
        return self._batch.last_offset

    @property
    def next_offset(self) -> int:
        """The offset after the record batch."""
        return self.last_offset + 1

    @property
    def times(self) -> Integers:
        """The time of its first event, as its head says without decoding, (1,) in ms since 1970."""
        batch = self._batch
        return np.array([batch.last_ms if batch.is_appended else batch.first_ms], dtype=np.int64)

    def take(self) -> "EventBatch | PendingDecode | None":
        """Return the next events; None after the last ones, and itself as long as it is not decoded.

        DamagedBatchError under the conditions of `decode`.
        """
        if self._task is None or not self._task.done():
            return self
        if self._pieces is None:
            self._pieces = self._cut(self._task.result())
        return next(self._pieces, None)

    async def done(self) -> None:
        """Wait until decoding has ended. If the call is cancelled, decoding goes on, and another call waits for it."""
        if self._task is None:
            self._task = asyncio.create_task(self._decoded())
        await asyncio.wait([self._task])
        self._task.exception()  # mark an error as retrieved, in case nobody takes the events

    async def _decoded(self) -> Records:
        # Not by the call's result: a thread of the pool holds that until it gets time to go on.
        held = list[Records]()
        await asyncio.to_thread(lambda: held.append(decode([self._batch])))
        return held.pop()

    def drop(self, then: Callable[[], None]) -> None:
        """Release what was decoded, and call `then`: at once, or when the thread that still decodes has ended."""
        task, self._task, self._pieces = self._task, None, None

        def ended(task: asyncio.Task[Records]) -> None:
            if not task.cancelled():
                task.exception()
            then()

        if task is None or task.done():
            then()
        else:
            task.add_done_callback(ended)
