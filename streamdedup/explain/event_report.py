"""The answer about one event of the input: what became of it, as lines for a person and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from streamdedup.explain import texts
from streamdedup.explain.known import Known, Question
from streamdedup.explain.letters import Letter
from streamdedup.explain.of_keys import BROKEN, FALSE_POSITIVE, KNOWN, NOT_KNOWN
from streamdedup.explain.places import PlaceInInput
from streamdedup.explain.search import Copy
from streamdedup.kafka.partitions import InputPartition

Kind = Literal[
    "unread", "passed", "duplicate", "blocked", "malformed", "rejected", "late", "dropped",
    "false_positive", "unaccounted",
]  # fmt: skip
_STATUS = {"passed": KNOWN, "duplicate": KNOWN, "false_positive": FALSE_POSITIVE}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the event: a kind, a sentence, and the places it names: in the output, and in the input."""

    kind: Kind
    text: str
    copies: Sequence[Copy] = ()
    places: Sequence[PlaceInInput] = ()
    letter: Letter | None = None


@dataclass
class EventReport:
    """The answer about one event. `now` is the verdict that it would get now, and by which rule and why."""

    question: Question
    at: InputPartition
    offset: int
    time_ms: int
    partition: int
    now: tuple[str, str, str] = ("", "", "")
    outcome: Outcome = field(default_factory=lambda: Outcome("unaccounted", "the search broke off"))
    known: Known | None = None
    generation: int | None = None
    elsewhere: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    key: bytes | None = field(default=None, repr=False)
    broken: str | None = None
    key_is_known: bool = False

    @property
    def status(self) -> int:
        """The exit status: 0 it passed, or its key is known; 5 a false positive; 1 the search broke off; else 4."""
        if self.broken:
            return BROKEN
        if self.outcome.kind == "unread":
            return KNOWN if self.key_is_known else NOT_KNOWN
        return _STATUS.get(self.outcome.kind, NOT_KNOWN)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON values; the key only if it was asked for."""
        verdict, rule, reason = self.now
        outcome = self.outcome
        made: dict[str, Any] = {
            "topic": self.at.topic,
            "partition": self.at.number,
            "offset": self.offset,
            "time_ms": self.time_ms,
            "now": {"verdict": verdict, "rule": rule, "reason": reason or None},
            "outcome": outcome.kind,
            "detail": outcome.text,
            "output_partition": self.partition,
            "passed": [{"offset": each.offset, "time_ms": each.time_ms} for each in outcome.copies],
            "input": [each.as_json() for each in outcome.places],
            "letter": outcome.letter and outcome.letter.as_json(),
            "generation": self.generation,
            "known_in_other_partitions": self.elsewhere,
            "notes": self.notes,
            "broken": self.broken,
            "status": self.status,
        }
        return made if self.key is None else {**made, "key": texts.shown(self.key)}

    def lines(self) -> Iterator[str]:
        """Yield the same for a person."""
        at = texts.place(self.at.topic, self.at.number, self.offset)
        yield f"{at}, {texts.time(self.time_ms)}"
        if self.key is not None:
            yield f"key: {texts.shown(self.key)}"
        yield f"{self.outcome.kind.replace('_', ' ')}: {self.outcome.text}"
        verdict, rule, reason = self.now
        if verdict:
            yield f"it would get now: {verdict}, by the {rule}" + (f": {reason}" if reason else "")
        clock = self.question.clock
        if self.known is not None and clock is not None and self.generation is not None:
            yield f"its key is {texts.forgotten(clock, self.generation, self.known.now)}"
        if self.elsewhere:
            numbers = ", ".join(map(str, self.elsewhere))
            yield f"its key is known in partition {numbers} of the output, too: duplicates pass across partitions"
