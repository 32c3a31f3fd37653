"""Record batches, decoded within a turn of the loop, or beside it where they are large.

A few kB may decompress to any amount: what is above LOOP_BYTES_MAX is left to a thread, what is above the limit of
`codecs` is refused.
"""

import asyncio
from collections.abc import Sequence

import numpy as np

from streamdedup.events import Integers, Origin
from streamdedup.kafka.records.encoding import VERBATIM_BYTES_MIN
from streamdedup.kafka.records.wire import (
    DamagedError,
    RecordBatch,
    Records,
    Unpacked,
    decode,
    unpack,
)

LOOP_BYTES_MAX = 2 << 20  # decompressed in one turn: 1 ms by lz4, 7 ms by gzip


def first_of(batches: Sequence[RecordBatch]) -> list[Unpacked]:
    """The first of `batches`, until LOOP_BYTES_MAX are reached; none where that one alone is above, or is damaged."""
    parts: list[Unpacked] = []
    size_bytes = 0
    for batch in batches:
        if size_bytes > LOOP_BYTES_MAX:
            break
        try:
            parts.append(unpack(batch, LOOP_BYTES_MAX))
        except DamagedError:
            break
        size_bytes += parts[-1].end - parts[-1].start
    return parts


def origins(batches: Sequence[RecordBatch], size_bytes: Integers) -> list[Origin]:
    """Those of `batches` that are large enough to be written as they are, by the rows of all.

    `size_bytes` is what the bodies of all rows up to each have together.
    """
    behind = np.cumsum([0, *(batch.count for batch in batches)])
    bodies = np.diff(np.concatenate(([0], size_bytes))[behind])
    return [
        Origin(int(behind[at]), int(behind[at + 1]), batches[at])
        for at in np.flatnonzero(bodies >= VERBATIM_BYTES_MIN).tolist()
    ]


class Decoding:
    """A record batch too large for a turn of the loop, in the place of an EventBatch until a thread has decoded it."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._task: asyncio.Task[Records] | None = None

    @property
    def is_done(self) -> bool:
        """Whether there are `records`, or why there are none."""
        return self._task is not None and self._task.done()

    @property
    def records(self) -> Records:
        """Of the batch, once it is done. DamagedError as `decode`."""
        if self._task is None:
            raise RuntimeError("it is not begun")
        return self._task.result()

    async def done(self) -> None:
        """Wait for it. Whoever is cancelled meanwhile may wait again."""
        if self._task is None:
            self._task = asyncio.create_task(asyncio.to_thread(decode, [self._batch]))
        await asyncio.wait([self._task])
        self._task.exception()  # so that it counts as seen, should nobody ask
