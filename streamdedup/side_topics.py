"""Letters: events on a side topic, each with where it came from and why it is there, stamped with the present time.

They go as columns where they were read as such. One that its topic does not take whole is cut: nothing that says which
event it is of is ever left out.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import structlog

from streamdedup.events import EventBatch, HeaderColumn, Headers, Integers
from streamdedup.flight import Part
from streamdedup.kafka.base import Writer
from streamdedup.kafka.limits import ENVELOPE_BYTES_MAX, Limits
from streamdedup.kafka.marks import appended
from streamdedup.kafka.records import Record

LETTERS_A_TURN = 4_000  # of the loop
OBJECTS_A_TURN = 500  # where they are made one by one

log = structlog.get_logger(__name__)


class Letters(NamedTuple):
    """Of the events in `rows` (k,), ascending; `whys[which[i]]` are the headers that say why `rows[i]` is there.

    `what` they are, for the log.
    """

    what: str
    rows: Integers
    whys: Sequence[Headers]
    which: Integers

    def turns(self, count: int) -> Iterator["Letters"]:
        """All of them, so many at a time."""
        for start in range(0, len(self.rows), count):
            turn = slice(start, start + count)
            yield self._replace(rows=self.rows[turn], which=self.which[turn])


async def send(writer: Writer, limits: Limits, part: Part, letters: Letters) -> None:
    """Send letters of events of `part`, in their order, to the topic of these `limits`."""
    for turn in letters.turns(LETTERS_A_TURN):
        whole = _whole(part, turn, limits.bytes_max)
        if whole is not None:
            await writer.copy(limits.topic, whole, np.arange(len(whole)), limits.bytes_max)
            await asyncio.sleep(0)
            continue
        for few in turn.turns(OBJECTS_A_TURN):
            await writer.send(limits.topic, _cut(part, few, limits), limits.bytes_max)
            await asyncio.sleep(0)


def _whole(part: Part, letters: Letters, bytes_max: int) -> EventBatch | None:
    """A batch of the letters; None where the events are objects, or one is perhaps too large."""
    batch, rows = part.batch, letters.rows
    if batch.bodies is None or not isinstance(batch.headers, HeaderColumn):
        return None
    few = replace(
        batch,
        offsets=batch.offsets[rows],
        timestamps=np.full(len(rows), part.now_ms, dtype=np.int64),
        keys=batch.keys.take(rows),
        values=batch.values.take(rows),
        headers=batch.headers.take(rows),
        bodies=batch.bodies.take(rows),
        origins=(),
    )
    place = _place(batch)
    whole = appended(
        few,
        np.arange(len(rows)),
        [(*place, *why) for why in letters.whys],
        letters.which,
        {_OFFSET: few.offsets, _TIMESTAMP: batch.timestamps[rows]},
    )
    large = whole.bodies is None or whole.bodies.sizes.max() + ENVELOPE_BYTES_MAX > bytes_max
    return None if large else whole


def _cut(part: Part, letters: Letters, limits: Limits) -> list[Record]:
    """Each as much as the topic takes."""
    batch, made, cut = part.batch, [], []
    for row, which in zip(letters.rows.tolist(), letters.which.tolist(), strict=True):
        *longer, shortest = _forms(batch, row, letters.whys[which], part.now_ms)
        letter = next(filter(limits.takes, longer), shortest)
        made.append(letter)
        if _CUT in dict(letter[3]):
            cut.append(int(batch.offsets[row]))
    if cut:
        log.warning(
            f"{letters.what}_cut",
            topic=batch.topic,
            partition=batch.partition,
            first_offset=cut[0],
            events=len(cut),
            remedy=f"raise max.message.bytes of {limits.topic}",
        )
    return made


def _forms(batch: EventBatch, row: int, why: Headers, now_ms: int) -> Iterator[Record]:
    """The letter of an event: whole, without its value, and as a last resort with nothing of its own."""
    key, headers = batch.keys[row], batch.headers[row]
    numbers = (
        (_OFFSET, b"%d" % batch.offsets[row]),
        (_TIMESTAMP, b"%d" % batch.timestamps[row]),
    )
    origin = (*_place(batch), *why, *numbers)
    yield now_ms, key, batch.values[row], (*headers, *origin)
    yield now_ms, key, None, (*headers, *origin, (_CUT, b"value"))
    yield now_ms, None, None, (*origin, (_CUT, b"key, value, headers"))


_CUT = "streamdedup.cut"
_OFFSET, _TIMESTAMP = "streamdedup.offset", "streamdedup.timestamp"


def _place(batch: EventBatch) -> Headers:
    """The headers that say which partition events are of."""
    return (
        ("streamdedup.topic", batch.topic.encode()),
        ("streamdedup.partition", b"%d" % batch.partition),
    )
