"""`explain --at`: what became of one event of the input, and what would become of it now.

An event has no place in the output, so "this very event passed" is decided by its key, its value, its headers and its
timestamp. Of equal events of the input the earliest passed. The key itself is in no answer, unless it is asked for.
"""

from collections.abc import Sequence
from contextlib import aclosing

import numpy as np

from streamdedup.delivery.emit import refused_by
from streamdedup.delivery.schemas import resolved
from streamdedup.delivery.shard import Shard, verdicts_without_rules
from streamdedup.delivery.window_time import Latest
from streamdedup.errors import ConfigError
from streamdedup.events import NO_TIMESTAMP, EventBatch, Verdict
from streamdedup.explain import texts
from streamdedup.explain.event_report import EventReport, Kind, Outcome
from streamdedup.explain.hits import Hits
from streamdedup.explain.known import (
    Known,
    Question,
    State,
    from_output,
    from_snapshot,
    look_for,
    state_of,
)
from streamdedup.explain.letters import letter_about, letter_in
from streamdedup.explain.listed import Listed, listed
from streamdedup.explain.of_keys import UNANSWERED
from streamdedup.explain.places import PlaceInInput, event_at, place_of
from streamdedup.explain.search import Copy, Event, first
from streamdedup.explain.stages import Stage
from streamdedup.explain.wanted import Wanted
from streamdedup.kafka.broker_clock import Span
from streamdedup.kafka.cluster import failure_of
from streamdedup.kafka.header_limits import within_limits
from streamdedup.kafka.limits import Limits
from streamdedup.kafka.partitions import InputPartition
from streamdedup.keys.extract import Keys

COPIES_MAX = 20
LATE_READ_MAX = 1_000_000  # events of the input before a late one

_UNACCOUNTED = (
    "the group began after it or its offset was moved past it, a list that has changed since blocked it, or a filter"
    " that is gone, or that has forgotten, took it for known"
)
_LATE = Outcome("late", "it was older than the window (filter.late: drop)")


async def explain_event(
    question: Question,
    stage: Stage,
    at: InputPartition,
    offset: int,
    *,
    quick: bool = False,
    show_key: bool = False,
) -> EventReport:
    """Return what became of the event at `offset` of a partition of the input.

    ConfigError, with a sentence, if there is no such event. If a broker goes away, the report has what was found.
    """
    batch = await _event(question, at, offset)
    return await _Event(question, stage, at, batch).explained(quick=quick, show_key=show_key)


async def _event(question: Question, at: InputPartition, offset: int) -> EventBatch:
    start, end = await question.bounds(at)
    what = texts.place(at.topic, at.number, offset)
    if offset < start:
        raise ConfigError(
            f"--at {what} is trimmed: the partition begins at offset {start}; ask for an event that it still holds, or"
            " for the key"
        )
    if offset >= end:
        raise ConfigError(
            f"--at {what} is beyond the end: the partition ends at offset {end}, as far as it is decided; ask again"
            " once the event is there"
        )
    batch = await question.reader.at(at.topic, at.number, offset)
    if batch is None:
        raise ConfigError(
            f"--at {what} is no event: it is the marker of a transaction, an event of an aborted one, or was compacted"
            " away; ask for another offset"
        )
    return batch


class _Event:
    """One event of the input: `batch` has it alone."""

    def __init__(
        self, question: Question, stage: Stage, at: InputPartition, batch: EventBatch
    ) -> None:
        self._question, self._stage, self._at = question, stage, at
        self._batch, self._offset = batch, int(batch.offsets[0])
        self._event = Event.of(batch, 0)
        self._listed: Listed | None = None
        self._judged: Verdict | None = None  # by a filter that was asked as a worker asks it
        self._hits: Hits | None = None

    async def explained(self, *, quick: bool, show_key: bool) -> EventReport:
        question = self._question
        extractor = question.recipe.extractor()
        async for part in resolved(self._batch, extractor):
            self._batch = part
        bounded, above = within_limits(self._batch, question.settings.source)
        keys = extractor.extract(bounded)
        partition = self._stage.partition_of(self._at, keys, self._batch)
        report = self._report = EventReport(
            question, self._at, self._offset, self._event.time_ms, partition
        )
        if show_key:
            report.key = keys.keys[0]
        state = self._state = await state_of(question, partition)
        unread = await self._stage.unread(question, state, self._at, self._offset)
        try:
            limits = Limits.of(
                question.topology[question.output], question.settings.sink.compression
            )
            present = Span.at(question.services.now_ms())
            rejected = refused_by(limits, question.settings, bounded, keys, present)
            rejected |= {**above, **keys.unknown}
            await self._decide_now(keys, rejected, bounded)
            report.outcome = await (
                self._unread(unread) if unread else self._became(keys, quick=quick)
            )
            if keys.keys.sizes[0] >= 0 and not quick:
                await self._look_elsewhere()
        except Exception as error:
            failed = failure_of(error, UNANSWERED)
            if failed is None:
                raise
            report.broken = str(failed)
        finally:
            if self._hits is not None:
                self._wanted.close()
        return report

    async def _decide_now(self, keys: Keys, rejected: dict[int, str], bounded: EventBatch) -> None:
        """Set the verdict that the event would get now, by the rules in their order."""
        report, question = self._report, self._question
        before, rows = verdicts_without_rules(keys, list(rejected))
        verdict = Verdict(int(before[0]))
        if verdict == Verdict.MALFORMED:
            report.now = "malformed", "key", keys.malformed[0]
        elif verdict == Verdict.REJECTED:
            report.now = "rejected", "limits", rejected[0]
        elif verdict == Verdict.BLOCKED:
            report.now = "blocked", "key", "source.tombstones: drop"
        elif not len(rows):
            report.now = "pass", "key", "a tombstone is not judged (source.tombstones: pass)"
        if keys.keys.sizes[0] < 0:
            return
        self._listed = listed(question.lists, keys.keys).get(0)
        await self._ask(keys, bounded)
        if report.now[0]:
            return
        if self._listed is not None and not self._listed.exempt:
            report.now = "blocked", "blocklist", str(self._listed)
        elif not question.settings.filter.remembers:
            report.now = "pass", "lists", "there is no filter"
        elif self._is_late_now:
            report.now = "blocked", "filter", "it is older than the window (filter.late: drop)"
        elif report.key_is_known:
            report.now = "duplicate", "filter", ""
        elif self.known is not None and self.known.is_cut:
            report.now = "unknown", "filter", "the output was read from --since on only"
        else:
            report.now = "pass", "filter", (self.known.full or "") if self.known else ""

    @property
    def known(self) -> Known | None:
        """What the partition knows of the key."""
        return self._report.known

    async def _ask(self, keys: Keys, bounded: EventBatch) -> None:
        """Ask the partition for the key: its filter as a worker does, or the output alone."""
        question, report = self._question, self._report
        key = keys.keys[0] or b""
        wanted = self._wanted = Wanted([key], None)
        hits = self._hits = question.hits(wanted)
        if not question.settings.filter.remembers:
            return

        def judge(shard: Shard) -> None:
            passing = np.full(1, Verdict.PASS, dtype=np.uint8)
            digests = shard.filter.hash.of_column(keys.keys)
            rows = np.zeros(1, dtype=np.int64)
            verdicts = shard.decide(passing, rows, digests, bounded.timestamps).verdicts
            self._judged = Verdict(int(verdicts[0])) if len(verdicts) else None
            shard.forget()

        known = await from_snapshot(question, self._state, wanted, hits, judge)
        if not isinstance(known, Known):
            notes, known = known, await from_output(question, self._state, wanted, hits)
            known.notes[:0] = notes
        report.known = known
        if self._state.pending:
            report.notes.append(f"{self._state.pending}; what it holds is not in this answer")
        report.notes += known.notes
        report.key_is_known = (
            self._judged == Verdict.DUPLICATE
            if self._judged is not None
            else bool(known.present[0])
        )
        if known.generations is not None and known.present[0]:
            report.generation = known.generations.of(0)

    @property
    def _is_late_now(self) -> bool:
        """Whether a worker would drop the event as late now."""
        question, known, clock = self._question, self.known, self._question.clock
        if question.settings.filter.late != "drop" or clock is None or clock.by_count:
            return False
        if self._judged is not None:
            return self._judged == Verdict.BLOCKED
        if known is None or known.now is None or self._event.time_ms == NO_TIMESTAMP:
            return False
        own = clock.generation(self._event.time_ms)
        return own <= known.now - clock.generations and not known.present[0]

    async def _unread(self, why: str) -> Outcome:
        """Return that the event is unread, and whether it was in the output before all the same."""
        copies = await self._copies()
        if not copies:
            return Outcome("unread", why)
        at = texts.place(self._question.output, copies[0].partition, copies[0].offset)
        again = f"{why}; an equal event is at {at}: it was read just now, or before the offset was moved back"
        return Outcome("unread", again, copies)

    async def _became(self, keys: Keys, *, quick: bool) -> Outcome:
        """Return what became of an event that was read."""
        copies = await self._copies()
        has_key = keys.keys.sizes[0] >= 0
        if copies and (passed := await self._of_copies(copies, judged=has_key)):
            return passed
        if letter := await letter_about(
            self._question, self._at, self._offset, self._report.partition
        ):
            kind = "malformed" if keys.malformed and letter.kind == "rejected" else letter.kind
            return Outcome(kind, str(letter), letter=letter)
        if not has_key:
            return self._without_key(keys)
        return await self._judged_by_key(quick=quick)

    async def _copies(self) -> list[Copy]:
        """Return the events of the output that are equal to this one: the first, or all if the filter forgets."""
        question, found = self._question, self._state.found
        start = await question.since(question.output, found.partition, found.output_start)
        copies = list[Copy]()
        if start is None:
            return copies
        forgets = question.clock is not None or found.floor is not None
        reading = question.reader.equals(
            self._event,
            question.output,
            found.partition,
            start,
            found.output_end,
            in_output=True,
            timed=question.is_timed(question.output),
        )
        async with aclosing(reading) as equals:
            async for copy in equals:
                copies.append(copy)
                if not forgets or len(copies) == COPIES_MAX:
                    break
        return copies

    async def _of_copies(self, copies: Sequence[Copy], *, judged: bool) -> Outcome | None:
        """Return what became of an event that has equals in the output."""
        output = self._question.output
        marked = [copy for copy in copies if copy.mark != Verdict.PASS]
        places = [await place_of(self._question, self._state, copy) for copy in copies]
        mine = [
            (copy, where)
            for copy, where in zip(copies, places, strict=True)
            if not judged or self._is_here(where)
        ]
        if marked and (mine or not judged):
            copy = marked[0]
            kind: Kind = "duplicate" if copy.mark == Verdict.DUPLICATE else "blocked"
            if copy.mark == Verdict.MALFORMED:
                kind = "malformed"
            at = texts.place(output, copy.partition, copy.offset)
            return Outcome(
                kind,
                f"it was emitted to {at}, marked as {copy.mark.name.lower()} (sink.shadow)",
                copies,
                places,
            )
        if not mine:
            earlier = next((where.copy for where in places if where.copy is not None), None)
            if earlier is None:
                return None
            return self._duplicate(copies, places, f"the equal event at offset {earlier.offset}")
        how = "" if judged else ", without a verdict by a key"
        return self._passed([copy for copy, _ in mine], [where for _, where in mine], how)

    def _passed(
        self, copies: Sequence[Copy], places: Sequence[PlaceInInput], how: str = ""
    ) -> Outcome:
        said = map(self._passed_text, copies, places)
        return Outcome("passed", "; ".join(said) + how, copies, places)

    def _passed_text(self, copy: Copy, where: PlaceInInput) -> str:
        at = texts.place(self._question.output, copy.partition, copy.offset)
        who = "it passed" if where.is_first else "it, or an equal earlier one, passed"
        floor = self._state.found.floor
        gone = floor is not None and copy.offset < floor
        return f"{who} to {at}" + (", which `reset --forget` has made forgotten" if gone else "")

    def _own(self, where: PlaceInInput) -> int | None:
        """Return the offset of a place in the partition of this event; None if it is elsewhere, or not known."""
        copy = where.copy
        if copy is None or (copy.topic, copy.partition) != tuple(self._at):
            return None
        return copy.offset

    def _is_here(self, where: PlaceInInput) -> bool:
        return where.copy is None or self._own(where) == self._offset

    def _duplicate(
        self, copies: Sequence[Copy], places: Sequence[PlaceInInput], of: str, also: str = ""
    ) -> Outcome:
        copy = copies[0]
        at = texts.place(self._question.output, copy.partition, copy.offset)
        return Outcome("duplicate", f"of {of}, which passed to {at}{also}", copies, places)

    def _without_key(self, keys: Keys) -> Outcome:
        settings = self._question.settings
        if keys.dropped:
            return Outcome(
                "dropped", "it is a tombstone, and source.tombstones: drop asks for that"
            )
        reason = keys.malformed.get(0) or keys.unknown.get(0, "it is a tombstone")
        if settings.key.on_malformed == "drop" and 0 in keys.malformed:
            return Outcome("malformed", f"{reason}; it was dropped, as key.on_malformed: drop asks")
        where = settings.sink.dead_letter_topic
        letter = f", nor has {where} a letter about it" if where else ""
        return Outcome(
            "malformed" if 0 in keys.malformed else "unaccounted",
            f"{reason}; neither the output holds it any more{letter}",
        )

    async def _judged_by_key(self, *, quick: bool) -> Outcome:
        """Return what became of an event with a key that is not in the output, and of which no letter tells."""
        question, known = self._question, self.known
        sink = question.settings.sink
        is_blocked = self._listed is not None and not self._listed.exempt
        if is_blocked and not sink.blocked_topic:
            return Outcome(
                "blocked", f"{self._listed}; there is no sink.blocked_topic, so it is nowhere else"
            )
        if known is None:
            return Outcome("unaccounted", "it is in no topic that a worker writes")
        if self._is_late_now and await self._was_late():
            return _LATE
        is_read = await self._search(quick=quick)
        also = await self._among_duplicates()
        found = await self._by_its_key(also) or self._unfound(known, also, is_read=is_read)
        if found.kind == "unaccounted" and not self._is_cut and await self._was_late():
            return _LATE
        return found

    async def _by_its_key(self, also: str) -> Outcome | None:
        """Return what became of the event by those of the output that have its key; None if there are none."""
        copies, places = await self._emissions()
        equal = [self._event.is_in(copy.event) for copy in copies]  # far from its time in the log
        if mine := [
            at
            for at, where in enumerate(places)
            if self._is_here(where) and (equal[at] or where.copy is not None)
        ]:
            return self._passed([copies[at] for at in mine], [places[at] for at in mine])
        if not copies:
            return None
        if not all(map(self._is_later, places)):
            return self._duplicate(copies, places, self._of(places[0]), also)
        at = texts.place(self._question.output, copies[0].partition, copies[0].offset)
        later = f"its key passed by a later event only: {self._of(places[0])}, which passed to {at}"
        return Outcome(
            "duplicate" if also else "unaccounted",
            f"{later}{also}"
            if also
            else f"it is in no topic that a worker writes, and {later}; {_UNACCOUNTED}",
            copies,
            places,
        )

    def _unfound(self, known: Known, also: str, *, is_read: bool) -> Outcome:
        """Return what became of an event that did not pass, and whose key has no event in the output."""
        if self._is_cut:
            since = texts.time(self._question.since_ms or 0)
            return Outcome(
                "unaccounted",
                f"nothing was found about it from {since} on, and it is older than that; leave --since out, or let the"
                f" search begin earlier{also}",
            )
        if known.source == "snapshot" and known.present[0]:
            rate = f"the filter's error rate is {known.error_rate:.3g} now"
            if is_read and known.is_whole:
                return Outcome(
                    "false_positive",
                    "proven: the filter holds its key, and no event of the output that it remembers has that key"
                    f" ({rate}){also}",
                )
            return Outcome(
                "duplicate",
                f"of an event that was not found; perhaps a false positive ({rate}){also}",
            )
        if (
            known.source == "output"
            and known.is_whole
            and self._question.settings.source.start == "earliest"
        ):
            return Outcome(
                "false_positive",
                "it did not pass, and no event of the output has its key; there is no snapshot to ask, so it is one"
                f" unless the committed offset was moved past it{also}",
            )
        if also:
            return Outcome("duplicate", f"of an event that was not found{also}")
        return Outcome(
            "unaccounted",
            f"it is in no topic that a worker writes, and its key is not known: {_UNACCOUNTED}",
        )

    @property
    def _is_cut(self) -> bool:
        """Whether the search may have begun after what became of the event."""
        since, time_ms = self._question.since_ms, self._event.time_ms
        return since is not None and (time_ms == NO_TIMESTAMP or since > time_ms)

    def _is_later(self, where: PlaceInInput) -> bool:
        """Whether the event of the output came after this one, so that this one cannot be its duplicate."""
        own = self._own(where)
        return own is not None and own > self._offset

    def _of(self, where: PlaceInInput) -> str:
        if where.copy is None:
            if where.is_first:
                return "an event that is not in the input: another program has written it to the output"
            return "an event that the input does not hold, or no longer"
        at = texts.place(where.copy.topic, where.copy.partition, where.copy.offset)
        return at if where.is_first else f"{at} or an equal earlier one"

    async def _search(self, *, quick: bool) -> bool:
        """Search the output for the key; return whether all that the filter remembers was read."""
        question, known, hits, state = self._question, self.known, self._hits, self._state
        if known is None or hits is None:
            return False
        forgets = question.clock is not None
        is_read = True
        if known.source == "snapshot" and (forgets or not hits.of(0)):
            if quick:
                return False
            here = np.zeros(1, dtype=np.int64)
            is_read = await look_for(question, known, self._wanted, hits, here, every=forgets)
        if state.floor and not hits.of(0):
            await self._below_floor(hits)
        return is_read

    async def _below_floor(self, hits: Hits) -> None:
        """Search what `reset --forget` has made forgotten, too: the event may be older than that."""
        question, found = self._question, self._state.found
        start = await question.since(question.output, found.partition, found.output_start)
        if start is None:
            return
        reading = question.reader.keyed(
            question.recipe, question.output, found.partition, start, self._state.floor
        )
        async for batch, keys, rows in reading:
            if len(hits.add(batch, keys.keys, rows).rows):
                await reading.aclose()
                return

    async def _emissions(self) -> tuple[list[Copy], list[PlaceInInput]]:
        """Return the events of the output with the key, and their places; first that which this one repeats."""
        question, hits = self._question, self._hits
        copies = list[Copy]()
        for hit in hits.of(0) if hits is not None else ():
            copy = await event_at(question.reader, question.output, hit.partition, hit.offset)
            if copy is not None:
                copies.append(copy)
        places = [await place_of(question, self._state, copy) for copy in copies]

        def before(at: int) -> int:
            own = self._own(places[at])
            return own if own is not None and own < self._offset else -1

        order = sorted(range(len(copies)), key=before, reverse=True)
        return [copies[at] for at in order], [places[at] for at in order]

    async def _among_duplicates(self) -> str:
        """Return where the event is on the topic of duplicates, as the end of a sentence."""
        question, topic = self._question, self._question.settings.sink.duplicates_topic
        if topic is None or question.settings.sink.shadow:
            return ""
        partition = self._report.partition
        if question.settings.sink.duplicates_headers:
            letter = await letter_in(question, topic, self._at, self._offset, partition)
            return (
                f"; {texts.place(topic, partition, letter.offset)} is the letter about it"
                if letter
                else ""
            )
        start, end = await question.bounds(InputPartition(topic, partition))
        found = await first(
            question.reader.equals(
                self._event,
                topic,
                partition,
                start,
                end,
                in_output=True,
                timed=question.is_timed(topic),
            )
        )
        return f"; it is in {texts.place(topic, partition, found.offset)}" if found else ""

    async def _was_late(self) -> bool:
        """Return whether an earlier event of the input had moved the window past this one, so that it was dropped."""
        question, clock = self._question, self._question.clock
        if clock is None or clock.by_count or question.settings.filter.late != "drop":
            return False
        start, _ = await question.bounds(self._at)
        start = max(start, self._offset - LATE_READ_MAX)
        latest = Latest(clock)
        reading = question.reader.batches(self._at.topic, self._at.number, start, self._offset)
        async with aclosing(reading) as batches:
            async for batch in batches:
                latest.may_be_late(batch.timestamps)
        return bool(latest.may_be_late(self._batch.timestamps)[0])

    async def _look_elsewhere(self) -> None:
        """Ask the filters of the other partitions for the key, if they have snapshots."""
        question, here = self._question, self._report.partition
        if question.settings.source.repartition or not question.settings.filter.remembers:
            return
        for partition in range(question.recipe.partitions):
            if partition != here:
                state: State = await state_of(question, partition)
                hits = question.hits(self._wanted)
                known = await from_snapshot(question, state, self._wanted, hits)
                if isinstance(known, Known) and known.present[0]:
                    self._report.elsewhere.append(partition)
