"""Where an event of the output lay in the input, if the input still holds it."""

from dataclasses import dataclass
from typing import Any

from streamdedup.explain import texts
from streamdedup.explain.hits import Hit
from streamdedup.explain.known import Question, State
from streamdedup.explain.search import EQUALS_READ_MAX, Copy, Reader, first

NO_LONGER = "the input does not hold that event, or no longer"
NOT_OURS = "that event is not in the input: another program has written it to the output"


@dataclass(frozen=True, slots=True)
class PlaceInInput:
    """The first event of the input that is equal to one of the output; None if none is found.

    `is_first`: the input has lost no events, and was read from its start. So no other one can have passed; and if none
    is found, none was there.
    """

    copy: Copy | None
    is_first: bool

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        if self.copy is None:
            return {"found": False, "of_another_program": self.is_first}
        at = self.copy
        return {
            "found": True,
            "topic": at.topic,
            "partition": at.partition,
            "offset": at.offset,
            "or_an_equal_earlier_one": not self.is_first,
        }

    def __str__(self) -> str:
        """Return it for a person."""
        if self.copy is None:
            return NOT_OURS if self.is_first else NO_LONGER
        at = texts.place(self.copy.topic, self.copy.partition, self.copy.offset)
        return f"in the input: {at}" + ("" if self.is_first else ", or an equal earlier one")


async def place_of_hit(question: Question, state: State, hit: Hit) -> PlaceInInput:
    """Return the place of the event at `hit` of the output."""
    copy = await event_at(question.reader, question.output, hit.partition, hit.offset)
    return (
        PlaceInInput(None, is_first=False)
        if copy is None
        else await place_of(question, state, copy)
    )


async def place_of(question: Question, state: State, copy: Copy) -> PlaceInInput:
    """Return where `copy`, of the output, lay in the input: the first of equal events."""
    best, is_first = None, True
    for at in question.inputs_of(state.found.partition):
        start, end = await question.bounds(at)
        begin = await question.since(at.topic, at.number, start)
        is_first &= begin == 0
        if begin is None:
            continue
        found = await first(
            question.reader.equals(
                copy.event,
                at.topic,
                at.number,
                begin,
                end,
                in_output=False,
                timed=question.is_timed(copy.topic),
            )
        )
        if found is not None:
            best = found
            break
        is_first &= end - begin <= EQUALS_READ_MAX
    return PlaceInInput(best, is_first)


async def event_at(reader: Reader, topic: str, partition: int, offset: int) -> Copy | None:
    """Return the committed event at that place; None if there is none."""
    batch = await reader.at(topic, partition, offset)
    return None if batch is None else Copy.of(batch, 0)
