"""`explain KEY`: whether keys are known, by which rule, and which event of the output made them known.

Each partition with a snapshot is asked first, one after the other, and each without one is read. Then the output is
searched for the event behind each "known". If it has none, the filter errs: a false positive. That is proven only if
the output still has all that the filter remembers, and all of it was read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from streamdedup.events import Column, Integers
from streamdedup.explain import texts
from streamdedup.explain.hits import HITS_A_KEY_MAX, Hit, Hits
from streamdedup.explain.known import (
    Known,
    Question,
    State,
    from_output,
    from_snapshot,
    look_for,
    state_of,
)
from streamdedup.explain.listed import Listed, listed
from streamdedup.explain.places import PlaceInInput, place_of_hit
from streamdedup.explain.wanted import Wanted
from streamdedup.filters.base import Mask
from streamdedup.filters.window.clock import Clock
from streamdedup.kafka.cluster import failure_of
from streamdedup.keys.placement import partitions_of
from streamdedup.units import counted

KNOWN, NOT_KNOWN, FALSE_POSITIVE, BROKEN = 0, 4, 5, 1
# So many keys are shown by their normal forms, and their events are looked up in the input; of more, neither is.
DETAILED_MAX = 100
UNANSWERED = "a broker went away during the search"
PROOF = (
    "a search of all that the filter remembers would prove it: leave --quick and --since out; it takes an output that"
    " is not trimmed"
)

FalsePositive = Literal["proven", "possible"] | None


@dataclass(frozen=True)
class InPartition:
    """What one partition knows of one key; `passed` are the events of the output that have it."""

    known: Known
    passed: Sequence[Hit]
    false_positive: FalsePositive
    generation: int | None
    place: PlaceInInput | None = None


@dataclass(frozen=True, kw_only=True)
class KeyAnswer:
    """The answer about one key. `number` counts the given keys from 1; `key` is its normal form, None if not shown.

    `home` is the partition that Kafka's partitioner gives the key; None if the key as it was given is not kept.
    `remembers`: there is a filter. `undecided` says why
    nothing follows from no partition being found to know the key; None if it follows that none does.
    """

    number: int
    malformed: str | None = None
    key: bytes | None = field(default=None, repr=False)
    digest: str | None = field(default=None, repr=False)
    home: int | None = None
    listed: Listed | None = None
    partitions: Sequence[InPartition] = ()
    remembers: bool = True
    undecided: str | None = None

    @property
    def status(self) -> int:
        """The exit status of this answer."""
        if any(each.false_positive == "proven" for each in self.partitions):
            return FALSE_POSITIVE
        return KNOWN if self.partitions else NOT_KNOWN

    @property
    def verdict(self) -> tuple[str, str]:
        """The verdict that the key's next event would get, and the rule; `unknown` if it is not known which."""
        if self.malformed is not None:
            return "malformed", "key"
        if self.listed is not None and not self.listed.exempt:
            return "blocked", "blocklist"
        if self.partitions:
            return "duplicate", "filter"
        if not self.remembers:
            return "pass", "lists"
        return "pass" if self.undecided is None else "unknown", "filter"


@dataclass
class KeysReport:
    """The answers, made one by one. `broken` says why the search ended early; what was found is here all the same."""

    question: Question
    wanted: Wanted
    hits: Hits
    states: list[Known] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)  # partitions: the first hit was enough
    false: dict[int, tuple[FalsePositive, Mask]] = field(default_factory=dict)
    places: dict[tuple[int, int], PlaceInInput] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    broken: str | None = None
    pending: bool = False  # a transaction is open, and a key that is not known may be in it

    def status(self, answers: Iterable[int]) -> int:
        """Return the exit status, given those of the answers: the greatest; 1 if the search broke off.

        It is 1, too, if a key that is not known may be pending.
        """
        worst = max(answers, default=KNOWN)
        return BROKEN if self.broken or (self.pending and worst == NOT_KNOWN) else worst

    def close(self) -> None:
        """Remove the temporary file, if there is one."""
        self.wanted.close()

    def answers(self) -> Iterator[KeyAnswer]:
        """Yield the answer of each key, in the order in which they were given."""
        number = 0
        for column, places in self.wanted.blocks():
            numbers = self.wanted.usable[places]
            homes = self._homes(column)
            digests = self.question.recipe.common_hash.of_column(column)
            blocked = listed(self.question.lists, column)
            for row, place in enumerate(places.tolist()):
                while number < int(numbers[row]):
                    yield self._malformed(number)
                    number += 1
                yield KeyAnswer(
                    number=number + 1,
                    key=column[row] if len(self.wanted) <= DETAILED_MAX else None,
                    digest=digests[row].tobytes().hex(),
                    home=None if homes is None else int(homes[row]),
                    listed=blocked.get(row),
                    partitions=tuple(self._in_partitions(place)),
                    remembers=self.question.settings.filter.remembers,
                    undecided=self._undecided,
                )
                number += 1
        while number < self.wanted.count:
            yield self._malformed(number)
            number += 1

    @property
    def _undecided(self) -> str | None:
        if self.broken:
            return "the search broke off"
        if self.pending:
            return "a transaction is open"
        if any(known.is_cut for known in self.states):
            return "the output was read from --since on only"
        return None

    def _homes(self, keys: Column) -> Integers | None:
        """Return the partition of each key: by its normal form with a middle topic, else as it was given.

        None if that is not kept: of several keys that were normalized.
        """
        recipe = self.question.recipe
        if recipe.settings.source.repartition is None and recipe.extractor().normalizer is not None:
            if self.wanted.count > 1:
                return None
            keys = Column.of([self.wanted.first])
        return partitions_of(keys, recipe.partitions)

    def _malformed(self, number: int) -> KeyAnswer:
        return KeyAnswer(
            number=number + 1, malformed=self.wanted.malformed.get(number, "malformed")
        )

    def _in_partitions(self, place: int) -> Iterator[InPartition]:
        hits = self.hits.of(place)
        for known in self.states:
            if not known.present[place]:
                continue
            its = [hit for hit in hits if hit.partition == known.partition]
            false: FalsePositive = None
            if known.source == "snapshot":
                kind, unfound = self.false.get(known.partition, ("possible", known.present))
                false = kind if unfound[place] else None
            generation = known.generations.of(place) if known.generations else None
            where = self.places.get((place, known.partition))
            yield InPartition(known, its, false, generation, where)

    def as_json(self, answer: KeyAnswer) -> dict[str, Any]:
        """Return an answer as plain JSON values."""
        verdict, rule = answer.verdict
        made: dict[str, Any] = {"number": answer.number, "verdict": verdict, "rule": rule}
        if answer.malformed is not None:
            return {**made, "reason": answer.malformed, "status": answer.status}
        return {
            **made,
            "key": None if answer.key is None else texts.shown(answer.key),
            "digest": answer.digest,
            "partition_by_key": answer.home,
            "listed": answer.listed and answer.listed.as_json(),
            "known_in": [self._partition_json(each) for each in answer.partitions],
            "not_read": self.unread,
            **({"notes": self.all_notes()} if self.wanted.count == 1 else {}),
            "broken": self.broken,
            "status": BROKEN if self.broken else answer.status,
        }

    def _partition_json(self, each: InPartition) -> dict[str, Any]:
        known = each.known
        return {
            "partition": known.partition,
            "by": known.source,
            "error_rate_now": known.error_rate if known.source == "snapshot" else None,
            "false_positive": each.false_positive,
            "passed": [{"offset": hit.offset, "time_ms": hit.time_ms} for hit in each.passed],
            "input": each.place and each.place.as_json(),
            "generation": each.generation,
        }

    def all_notes(self) -> list[str]:
        """Return what the answers depend on."""
        notes = [*self.notes, *(note for known in self.states for note in known.notes)]
        if left_out := self.hits.left_out:
            notes.append(
                f"{counted(left_out, 'more event')} of the output with these keys are left out: {HITS_A_KEY_MAX} of"
                " each are listed"
            )
        return notes

    def row(self, answer: KeyAnswer) -> list[str]:
        """Return an answer as the cells of one line, for one of many keys.

        They are: number, verdict, rule, where it is known, by which event, and the key (or why it is malformed).
        """
        verdict, rule = answer.verdict
        where = ",".join(str(each.known.partition) for each in answer.partitions)
        passed = [
            texts.place(self.question.output, hit.partition, hit.offset)
            for each in answer.partitions
            for hit in each.passed
        ]
        false = {each.false_positive for each in answer.partitions}
        by = ", ".join(passed[:2]) or "-"
        if "proven" in false:
            by = "false positive"
        key = answer.malformed or (texts.shown(answer.key) if answer.key is not None else "-")
        return [str(answer.number), verdict, rule, where or "-", by, key]

    def lines(self, answer: KeyAnswer) -> Iterator[str]:
        """Yield an answer about one key as lines for a person."""
        verdict, rule = answer.verdict
        if answer.malformed is not None:
            yield f"malformed: {answer.malformed}"
            return
        recipe = self.question.recipe
        if answer.key is not None:
            yield f"key: {texts.shown(answer.key)}"
        yield f"digest ({recipe.common_hash.name}): {answer.digest}"
        if answer.home is not None:
            yield self._home_line(answer.home)
        why = f": {answer.undecided}" if verdict == "unknown" else ""
        yield f"its next event: {verdict}, by the {rule}{why}"
        if answer.listed is not None:
            yield f"  {answer.listed}"
        for each in answer.partitions:
            yield from self._partition_lines(each)
        others = [
            known for known in self.states if all(known is not p.known for p in answer.partitions)
        ]
        if others:
            numbers = sorted(known.partition for known in others)
            yield f"not known in {_partitions(numbers)}"
        for known in others:
            if known.full:
                yield f"partition {known.partition}: {known.full}; new events wait there"
        if self.unread and self.broken:
            yield f"not asked, as the search broke off: {_partitions(self.unread)}"
        elif self.unread:
            yield f"not read, as it was found: {_partitions(self.unread)} (--all reads on)"

    def _home_line(self, home: int) -> str:
        of = self.question.recipe.partitions
        if self.question.settings.source.repartition is not None:
            return f"its events go to partition {home} of {of} of the output"
        source = self.question.settings.source.shown
        return (
            f"as a record key, Kafka's partitioner sends it to partition {home} of {of} of {source}"
        )

    def _partition_lines(self, each: InPartition) -> Iterator[str]:
        known, output, clock = each.known, self.question.output, self.question.clock
        yield f"known in partition {known.partition}, {_source(known)}"
        for hit in each.passed:
            passed = texts.place(output, hit.partition, hit.offset)
            yield f"  by the event that passed to {passed}, {texts.time(hit.time_ms)}"
        if each.place is not None:
            yield f"  {each.place}"
        if each.false_positive == "proven":
            yield (
                "  a false positive, proven: no event of the output that the filter remembers has this key, so its"
                f" events are dropped wrongly (the filter's error rate is {known.error_rate:.3g} now)"
            )
        elif each.false_positive == "possible":
            yield (
                f"  perhaps a false positive: a key that never passed is found with probability {known.error_rate:.3g};"
                f" {PROOF}"
            )
        if clock is not None and each.generation is not None:
            generation = _generation(clock, each.generation)
            yield f"  {generation}{texts.forgotten(clock, each.generation, known.now)}"


def _generation(clock: Clock, generation: int) -> str:
    return "" if clock.by_count or abs(generation) > 1 << 50 else f"generation {generation}, "


def _source(known: Known) -> str:
    found = known.state.found
    if known.source == "output":
        return f"by the output alone, up to offset {found.output_end}"
    return f"by {known.snapshot} and the output from its label up to offset {found.output_end}"


def _partitions(numbers: Sequence[int]) -> str:
    if len(numbers) > 8:
        return f"{len(numbers)} partitions"
    return ("partition " if len(numbers) == 1 else "partitions ") + ", ".join(map(str, numbers))


async def explain_keys(
    question: Question,
    wanted: Wanted,
    partitions: Sequence[int],
    *,
    quick: bool = False,
    every: bool = False,
) -> KeysReport:
    """Return what `partitions`, in this order, know of the keys. `quick` searches no output if there is a snapshot.

    Without `every`, no partition is read for a key that was found. A broker that goes away ends the search: the report
    has what was found, and the reason.
    """
    report = KeysReport(question, wanted, question.hits(wanted))
    try:
        await _asked_all(report, partitions, quick=quick, every=every)
        await _placed(report)
    except BaseException as error:
        failed = failure_of(error, UNANSWERED) if isinstance(error, Exception) else None
        if failed is None or not report.states:
            report.close()
            raise
        report.broken = str(failed)
        asked = {known.partition for known in report.states}
        report.unread = sorted(set(partitions) - asked)
    return report


async def _asked_all(
    report: KeysReport, partitions: Sequence[int], *, quick: bool, every: bool
) -> None:
    """Ask all snapshots, then read where there is none, then search for the events behind what snapshots know."""
    question, wanted = report.question, report.wanted
    if not len(wanted) or not question.settings.filter.remembers:
        return
    unread = list[tuple[State, list[str]]]()
    for number in partitions:
        state = await state_of(question, number)
        if state.pending:
            report.notes.append(
                f"{state.pending}; until it ends, its events are pending, and are not in this answer"
            )
            report.pending = True
        known = await from_snapshot(question, state, wanted, report.hits)
        if isinstance(known, Known):
            report.states.append(known)
        else:
            unread.append((state, known))
    found = np.zeros(len(wanted), dtype=np.bool_)
    _note_found(report, found)
    await _read_others(report, unread, found, every=every)
    await _behind(report, found, quick=quick, every=every)


async def _read_others(
    report: KeysReport, unread: Sequence[tuple[State, list[str]]], found: Mask, *, every: bool
) -> None:
    """Read the output of the partitions without a snapshot, each with the notes that say why it has none."""
    question, wanted = report.question, report.wanted
    for at, (state, notes) in enumerate(unread):
        if found.all() and not every:
            report.unread = [each.found.partition for each, _ in unread[at:]]
            break
        known = await from_output(question, state, wanted, report.hits, every=every)
        known.notes[:0] = notes
        report.states.append(known)
        _note_found(report, found)


async def _behind(report: KeysReport, found: Mask, *, quick: bool, every: bool) -> None:
    """Search the output for the event behind each key that a snapshot knows; note which keys have none."""
    question, wanted = report.question, report.wanted
    for known in report.states:
        if known.source != "snapshot":
            continue
        left = known.present & ~_in_partition(report, known)
        if not every:
            left &= ~found
        places = left.nonzero()[0]
        if quick or not len(places):
            report.false[known.partition] = ("possible", left)
            continue
        is_read = await look_for(question, known, wanted, report.hits, places, every=every)
        left &= ~_in_partition(report, known)
        proven = is_read and known.is_whole
        report.false[known.partition] = ("proven" if proven else "possible", left)
        _note_found(report, found)


def _note_found(report: KeysReport, found: Mask) -> None:
    """Mark the keys that have an event in the output."""
    found |= report.hits.seen[report.wanted.first_of]


def _in_partition(report: KeysReport, known: Known) -> Mask:
    return known.seen[report.wanted.first_of]


async def _placed(report: KeysReport) -> None:
    """Look up where in the input the events lay, if the keys are few."""
    if len(report.wanted) > DETAILED_MAX:
        return
    for place in range(len(report.wanted)):
        for known in report.states:
            hits = [h for h in report.hits.of(place) if h.partition == known.partition]
            if known.present[place] and hits:
                # The first made it known; a window has forgotten all but the last.
                hit = hits[0] if report.question.clock is None else hits[-1]
                found = await place_of_hit(report.question, known.state, hit)
                report.places[place, known.partition] = found
