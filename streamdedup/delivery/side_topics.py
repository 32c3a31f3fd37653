"""Letters: events on a side topic, with headers that say where each came from and why, stamped with the present time.

Events that were read as columns are sent as columns. A letter that is too large for its topic is cut, but it always
names the event that it is about.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import structlog

from streamdedup.delivery.transactions import DecidedBatch
from streamdedup.events import EventBatch, Headers, Integers
from streamdedup.kafka.base import Writer
from streamdedup.kafka.limits import ENVELOPE_BYTES_MAX, Limits
from streamdedup.kafka.records.marks import appended
from streamdedup.kafka.records.records import Record

LETTERS_A_TURN = 4_000  # as columns, in one turn of the event loop
OBJECTS_A_TURN = 500  # as objects, made one by one

log = structlog.get_logger(__name__)


class Letters(NamedTuple):
    """The letters about the events in `rows` (k,), ascending.

    `whys[which[i]]` are the headers with the reason of `rows[i]`. `what` names this kind of letter in the log.
    """

    what: str
    rows: Integers
    whys: Sequence[Headers]
    which: Integers

    def turns(self, count: int) -> Iterator["Letters"]:
        """Yield all of them, at most `count` at a time."""
        for start in range(0, len(self.rows), count):
            turn = slice(start, start + count)
            yield self._replace(rows=self.rows[turn], which=self.which[turn])


async def send(writer: Writer, limits: Limits, part: DecidedBatch, letters: Letters) -> None:
    """Send letters about events of `part`, in their order, to the topic that `limits` belong to."""
    if part.batch.bodies is None:
        await _send_each(writer, limits, part, letters)
        return
    for turn in letters.turns(LETTERS_A_TURN):
        lettered = _lettered(part, turn)
        if _is_small(lettered, limits.bytes_max):
            await writer.copy(limits.topic, lettered, np.arange(len(lettered)), limits.bytes_max)
            await asyncio.sleep(0)
        else:
            await _send_each(writer, limits, part, turn)


async def _send_each(writer: Writer, limits: Limits, part: DecidedBatch, letters: Letters) -> None:
    """Send them as objects, and cut each that is too large for the topic."""
    for turn in letters.turns(OBJECTS_A_TURN):
        await writer.send(limits.topic, _cut(part, turn, limits), limits.bytes_max)
        await asyncio.sleep(0)


def _lettered(part: DecidedBatch, letters: Letters) -> EventBatch:
    """Return the events as letters: stamped with the present time, with headers for origin and reason."""
    batch = part.batch
    few = batch.take(letters.rows)
    place = (
        ("streamdedup.topic", batch.topic.encode()),
        ("streamdedup.partition", b"%d" % batch.partition),
    )
    return appended(
        replace(few, timestamps=np.full(len(few), part.now_ms, dtype=np.int64)),
        np.arange(len(few)),
        [(*place, *why) for why in letters.whys],
        letters.which,
        {"streamdedup.offset": few.offsets, "streamdedup.timestamp": few.timestamps},
    )


def _is_small(lettered: EventBatch, bytes_max: int) -> bool:
    """Return whether the topic certainly takes each letter whole."""
    bodies = lettered.bodies
    return bodies is not None and bool(bodies.sizes.max() + ENVELOPE_BYTES_MAX <= bytes_max)


def _cut(part: DecidedBatch, letters: Letters, limits: Limits) -> list[Record]:
    """Make the letters one by one; cut each that is too large, and log how many were cut."""
    batch, made, cut = part.batch, [], []
    lettered = _lettered(part, letters)
    for at, row in enumerate(letters.rows.tolist()):
        *longer, shortest = _forms(lettered, at, len(batch.headers[row]))
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


def _forms(lettered: EventBatch, at: int, own: int) -> Iterator[Record]:
    """Yield three forms of a letter: whole; without the event's value; without anything of the event itself.

    `own` is the number of headers, the first ones, that the event had in the input.
    """
    now_ms, key, headers = int(lettered.timestamps[at]), lettered.keys[at], lettered.headers[at]
    yield now_ms, key, lettered.values[at], headers
    yield now_ms, key, None, (*headers, (_CUT, b"value"))
    yield now_ms, None, None, (*headers[own:], (_CUT, b"key, value, headers"))


_CUT = "streamdedup.cut"
