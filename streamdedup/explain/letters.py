"""Letters: which side topic names an event of the input, and why it is there."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from streamdedup.events import EventBatch, Headers
from streamdedup.explain import texts
from streamdedup.explain.known import Question
from streamdedup.explain.listed import blocked_by
from streamdedup.kafka.options import BLOCKED_BY
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.marks import headers_of
from streamdedup.units import escaped

PLACE = ("streamdedup.topic", "streamdedup.partition", "streamdedup.offset")
REASON = "streamdedup.reason"


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter about an event: where it is, and its reason, or the list that blocked the event."""

    kind: Literal["blocked", "rejected"]
    topic: str
    partition: int
    offset: int
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        """Return it for a person."""
        return f"{self.reason}; {texts.place(self.topic, self.partition, self.offset)} is the letter about it"


async def letter_about(
    question: Question, at: InputPartition, offset: int, partition: int
) -> Letter | None:
    """Return the first letter about the event at `offset`, on the side topics of that output partition."""
    sink = question.settings.sink
    for topic in (sink.dead_letter_topic, sink.blocked_topic):
        if topic is not None and not sink.shadow:
            letter = await letter_in(question, topic, at, offset, partition)
            if letter is not None:
                return letter
    return None


async def letter_in(
    question: Question, topic: str, at: InputPartition, offset: int, partition: int
) -> Letter | None:
    """Return the first letter about that event in a partition of `topic`."""
    start, end = await question.bounds(InputPartition(topic, partition))
    begin = await question.since(topic, partition, start)
    if begin is None:
        return None
    is_blocked = topic == question.settings.sink.blocked_topic
    named = (at.topic.encode(), b"%d" % at.number, b"%d" % offset)
    async with aclosing(question.reader.batches(topic, partition, begin, end)) as batches:
        async for batch in batches:
            if (row := _row_about(batch, named)) is not None:
                return _letter(batch, row, is_blocked=is_blocked)
    return None


def _row_about(batch: EventBatch, named: Sequence[bytes]) -> int | None:
    offsets = headers_of(batch.headers, PLACE[2])
    for row in (offsets.sizes == len(named[2])).nonzero()[0].tolist():
        if offsets[row] == named[2]:
            found = [_last(batch.headers[row], name) for name in PLACE]
            if found == list(named):
                return int(row)
    return None


def _letter(batch: EventBatch, row: int, *, is_blocked: bool) -> Letter:
    headers, offset = batch.headers[row], int(batch.offsets[row])
    place = batch.topic, batch.partition, offset
    if is_blocked:
        named = [escaped(_last(headers, each) or b"") for each in BLOCKED_BY]
        return Letter("blocked", *place, blocked_by("held", named))
    reason = escaped(_last(headers, REASON) or b"")
    return Letter("rejected", *place, reason)


def _last(headers: Headers, name: str) -> bytes | None:
    return next((value for found, value in reversed(headers) if found == name), None)
