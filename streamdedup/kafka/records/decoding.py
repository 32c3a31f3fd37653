"""Decode record batches within a turn of the loop, or in a thread if they are large.

A few kB may decompress to any amount. What takes more than LOOP_BYTES_MAX is left to a thread; what takes more than
the limit in `codecs` is refused.
"""

import asyncio
from collections.abc import Sequence

import numpy as np

from streamdedup.events import Integers, Origin
from streamdedup.kafka.records.encoding import VERBATIM_BYTES_MIN
from streamdedup.kafka.records.wire import (
    DamagedBatchError,
    RecordBatch,
    Records,
    Unpacked,
    decode,
    unpack,
)

LOOP_BYTES_MAX = 2 << 20  # decompressed in one turn: 1 ms by lz4, 7 ms by gzip


def first_of(batches: Sequence[RecordBatch]) -> list[Unpacked]:
    """Unpack the first of `batches`, until LOOP_BYTES_MAX are reached.

    The list is empty if the first batch alone is above that limit, or is damaged.
    """
    parts: list[Unpacked] = []
    size_bytes = 0
    for batch in batches:
        if size_bytes > LOOP_BYTES_MAX:
            break
        try:
            parts.append(unpack(batch, LOOP_BYTES_MAX))
        except DamagedBatchError:
            break
        size_bytes += parts[-1].end - parts[-1].start
    return parts


def origins(batches: Sequence[RecordBatch], size_bytes: Integers) -> list[Origin]:
    """Return those of `batches` that are large enough to be written as they are, with the rows of their events.

    `size_bytes` (n,) is the running total of the body sizes of all rows.
    """
    behind = np.cumsum([0, *(batch.count for batch in batches)])
    bodies = np.diff(np.concatenate(([0], size_bytes))[behind])
    return [
        Origin(int(behind[at]), int(behind[at + 1]), batches[at])
        for at in np.flatnonzero(bodies >= VERBATIM_BYTES_MIN).tolist()
    ]


class PendingDecode:
    """A large record batch in place of an EventBatch, until a thread has decoded it."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._task: asyncio.Task[Records] | None = None

    @property
    def is_done(self) -> bool:
        """Whether decoding has ended, with `records` or with an error."""
        return self._task is not None and self._task.done()

    @property
    def records(self) -> Records:
        """The records of the batch, once decoding has ended. DamagedBatchError under the conditions of `decode`."""
        if self._task is None:
            raise RuntimeError("decoding was not begun; await done() first")
        return self._task.result()

    async def done(self) -> None:
        """Wait until decoding has ended. If the caller is cancelled meanwhile, it may wait again."""
        if self._task is None:
            self._task = asyncio.create_task(asyncio.to_thread(decode, [self._batch]))
        await asyncio.wait([self._task])
        self._task.exception()  # mark an error as retrieved, in case nobody reads `records`
