"""Letters: events on a side topic, with headers that say where each came from and why, stamped with the broker's time.

A letter that is too large for its topic is cut, but it always
names the event that it is about.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import structlog

from streamdedup.delivery.transactions import DecidedBatch
from streamdedup.delivery.turns import beside, is_large
from streamdedup.events import Damage, EventBatch, Headers, Integers
from streamdedup.kafka.base import Sender
from streamdedup.kafka.limits import ENVELOPE_BYTES_MAX, Limits
from streamdedup.kafka.records.cuts import emptied, without_values
from streamdedup.kafka.records.marks import appended
from streamdedup.kafka.records.records import Record, batch_of

LETTERS_A_TURN = 4_000  # in one turn of the event loop
REASONS_A_TURN = 500  # encoded one by one
SKIPPED_BYTES_MAX = 900_000  # of a record batch that was skipped; as much as a record batch of ours
SKIPPED_HEADERS_BYTES_MAX = 2_048  # a topic's name has at most 249 bytes, a reason less than 300

log = structlog.get_logger(__name__)


class Letters(NamedTuple):
    """The letters about the events in `rows` (k,), ascending.

    `whys[which[i]]` are the headers with the reason of `rows[i]`. `what` names this kind of letter in the log. The
    events of the reasons `headerless` had headers that were cut before.
    """

    what: str
    rows: Integers
    whys: Sequence[Headers]
    which: Integers
    headerless: frozenset[int] = frozenset()

    def chunks(self, count: int) -> Iterator["Letters"]:
        """Yield all of them, at most `count` at a time."""
        for start in range(0, len(self.rows), count):
            yield self.some(slice(start, start + count))

    def some(self, places: Integers | slice) -> "Letters":
        """Return those at `places`, with their own reasons alone."""
        used, which = np.unique(self.which[places], return_inverse=True)
        numbers = used.tolist()
        return self._replace(
            rows=self.rows[places],
            whys=[self.whys[number] for number in numbers],
            which=which,
            headerless=frozenset(
                at for at, number in enumerate(numbers) if number in self.headerless
            ),
        )


class _Form(NamedTuple):
    """The letters that are sent in one form: the events `lettered` at `positions`, by their `places` in a chunk."""

    lettered: EventBatch
    positions: Integers
    places: Integers


async def send(writer: Sender, limits: Limits, part: DecidedBatch, letters: Letters) -> None:
    """Send letters about events of `part`, in their order, to the topic that `limits` belong to."""
    takes_long = is_large(part.batch) or limits.takes_long_for(part.batch)
    has_many = len(letters.whys) > REASONS_A_TURN
    for chunk in letters.chunks(REASONS_A_TURN if has_many else LETTERS_A_TURN):
        forms = await beside(takes_long, _forms, part, chunk, limits)
        _log_cut(part, chunk, limits, forms)
        for lettered, positions in _in_order(forms, len(chunk.rows)):
            await writer.copy(limits.topic, lettered, positions, limits.bytes_max)
            await asyncio.sleep(0)


async def send_skipped(writer: Sender, limits: Limits, part: DecidedBatch, damage: Damage) -> None:
    """Send a letter about a record batch that was skipped: as much of its bytes as the topic takes, up to a limit."""
    batch, numbers = part.batch, {"offset": damage.first_offset, "last-offset": damage.last_offset}
    headers = (
        *_place(batch),
        *((f"streamdedup.{name}", b"%d" % number) for name, number in numbers.items()),
        ("streamdedup.size", b"%d" % len(damage.raw)),
        ("streamdedup.reason", damage.reason.encode()),
    )
    besides = ENVELOPE_BYTES_MAX + SKIPPED_HEADERS_BYTES_MAX
    kept = bytes(damage.raw[: max(0, min(SKIPPED_BYTES_MAX, limits.bytes_max - besides))])
    if len(kept) < len(damage.raw):
        headers = (*headers, (_CUT, b"value"))
    record = Record.of(part.letter_ms, None, kept, headers)
    letter = batch_of(
        batch.topic, batch.partition, [damage.first_offset], [record], batch.next_offset
    )
    await writer.copy(limits.topic, letter, np.zeros(1, dtype=np.int64), limits.bytes_max)


def _forms(part: DecidedBatch, letters: Letters, limits: Limits) -> list[_Form]:
    """Return each letter in the first form that the topic takes: whole, without its value, or without all of it."""
    forms, left = list[_Form](), np.arange(len(letters.rows))
    for cut, shortened in _FORMS:
        few = letters.some(left)
        lettered = _lettered(shortened(part.batch.take(few.rows)), part.letter_ms, few, cut)
        fits = limits.fitting(lettered) if "key" not in cut else np.ones(len(left), dtype=np.bool_)
        forms.append(_Form(lettered, np.flatnonzero(fits), left[fits]))
        left = left[~fits]
        if not len(left):
            break
    return forms


def _lettered(few: EventBatch, time_ms: int, letters: Letters, cut: Sequence[str]) -> EventBatch:
    """Return the events as letters: stamped with `time_ms`, with headers for origin, reason and what was cut."""
    every = np.arange(len(few))
    tails, which, numbers = _placed(few, letters)
    lettered = appended(
        replace(few, timestamps=np.full(len(few), time_ms, dtype=np.int64)),
        every,
        tails,
        which,
        {**numbers, "streamdedup.timestamp": few.timestamps},
    )
    cuts = [_cut(cut, headerless=at in letters.headerless) for at in range(len(letters.whys))]
    return appended(lettered, every, cuts, letters.which) if any(cuts) else lettered


def _placed(
    few: EventBatch, letters: Letters
) -> tuple[Sequence[Headers], Integers, Mapping[str, Integers]]:
    """Return the headers with the place of each event and the reason of its letter, as arguments of `appended`.

    An event of a middle topic is named by its place in the input.
    """
    if few.places is None:
        tails = [(*_place(few), *why) for why in letters.whys]
        return tails, letters.which, {"streamdedup.offset": few.offsets}
    topics, index = list(few.places.topics), dict[bytes | None, int]()
    of_row = [index.setdefault(topic, len(index)) for topic in topics]
    tails = [((_TOPIC, topic), *why) for topic in index for why in letters.whys]
    which = np.array(of_row, dtype=np.int64) * len(letters.whys) + letters.which
    numbers = {_PARTITION: few.places.partitions, "streamdedup.offset": few.places.offsets}
    return tails, which, numbers


def _place(batch: EventBatch) -> Headers:
    return (
        (_TOPIC, batch.topic.encode()),
        (_PARTITION, b"%d" % batch.partition),
    )


def _cut(cut: Sequence[str], *, headerless: bool) -> Headers:
    lacks = (*cut, "headers") if headerless and "headers" not in cut else cut
    return ((_CUT, ", ".join(lacks).encode()),) if lacks else ()


def _in_order(forms: Sequence[_Form], count: int) -> Iterator[tuple[EventBatch, Integers]]:
    """Yield the letters in the order of their `count` places, as many of one form at a time as follow each other."""
    form_of, position_of = np.empty((2, count), dtype=np.int64)
    for number, (_, positions, places) in enumerate(forms):
        form_of[places], position_of[places] = number, positions
    for run in np.split(np.arange(count), np.flatnonzero(np.diff(form_of)) + 1):
        yield forms[form_of[run[0]]].lettered, position_of[run]


def _log_cut(part: DecidedBatch, letters: Letters, limits: Limits, forms: Sequence[_Form]) -> None:
    places = np.concatenate([letters.rows[:0], *(form.places for form in forms[1:])])
    if len(places):
        topic, partition, offset = part.batch.place(int(letters.rows[places.min()]))
        log.warning(
            f"{letters.what}_cut",
            topic=topic,
            partition=partition,
            first_offset=offset,
            events=len(places),
            remedy=f"raise max.message.bytes of {limits.topic}",
        )


def _whole(few: EventBatch) -> EventBatch:
    return few


_TOPIC, _PARTITION, _CUT = "streamdedup.topic", "streamdedup.partition", "streamdedup.cut"
_FORMS: Sequence[tuple[Sequence[str], Callable[[EventBatch], EventBatch]]] = (
    ((), _whole),
    (("value",), without_values),
    (("key", "value", "headers"), emptied),
)
