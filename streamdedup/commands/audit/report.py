"""The result of an audit: a table for people, JSON for programs, and whether the promise is broken.

A finding is None if it cannot be known; the limits give the reason. Events are named by partition and offset, never by
key.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from streamdedup.commands.audit.across import Across
from streamdedup.commands.audit.chance import most_explained
from streamdedup.commands.audit.limits import FINDINGS, Limit
from streamdedup.commands.audit.unread import COUNTED_MAX
from streamdedup.kafka.partitions import InputPartition
from streamdedup.settings import Settings
from streamdedup.units import counted, escaped


@dataclass(frozen=True)
class PartitionCounts:
    """The counts of one partition, or of all: then `partition` is None.

    Of the `read` events, the worker has `judged` those that have a key and are neither dead letters nor under way.
    `unread` are those that it has not read; in offsets if they are many. The oldest of them, by the timestamps, has
    waited for `oldest_unread_s` seconds; those that are under way are among them.
    `keys`, `missing` and `wrongly_dropped` count keys; everything else counts events. `missing` are keys that are due
    and were not emitted: lost, or dropped as false duplicates. `lost` counts only those that are certainly lost.
    Of a window by time, `untimed` counts events of the output with a key and without a timestamp.
    Of a window, `due_again` counts events of the output whose key was emitted before, and forgotten by then; and
    `late_again` those of them that were later than the window.
    `input_start` and `committed` are input offsets; `output_start`, `output_end` and `floor` are output offsets.
    """

    partition: int | None
    input_start: int | None
    committed: int | None
    output_start: int | None
    output_end: int | None
    floor: int | None
    read: int
    judged: int
    unread: int
    oldest_unread_s: float | None
    newest_unread_s: float | None
    emitted: int
    duplicates: int | None
    malformed: int
    rejected: int
    blocked: int | None
    dropped: int
    unjudged: int
    keys: int
    lost: int | None
    missing: int | None
    wrongly_dropped: int | None
    explained_max: int | None
    doubled: int | None
    untimed: int | None
    due_again: int | None
    late_again: int | None
    foreign: int | None
    wrongly_rejected: int | None
    offsets: Mapping[str, Sequence[int]]
    limits: tuple[Limit, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return them as plain JSON values; names are stable."""
        fields = asdict(self)
        fields["limits"] = [limit.name for limit in self.limits]
        return fields


@dataclass(frozen=True, kw_only=True)
class Staged:
    """What is special with `source.repartition`: the `middle` topic, and what was found over all partitions.

    `under_way` counts the events of the input that wait in the middle topic. `misplaced` counts the events of the
    output in another partition than that of their key. `inputs_left` are topics that the configuration names no more,
    compared up to the first stage's offsets on them. `places`: finding -> its first events, by partition (with its
    topic) and offset.
    """

    middle: str
    under_way: int
    misplaced: int
    inputs_left: Sequence[str]
    places: Mapping[str, Sequence[tuple[InputPartition, int]]]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values; names are stable."""
        return {
            "middle": self.middle,
            "under_way": self.under_way,
            "misplaced": self.misplaced,
            "inputs_left": list(self.inputs_left),
            "first": {
                name: [
                    {"topic": at.topic, "partition": at.number, "offset": offset}
                    for at, offset in places
                ]
                for name, places in self.places.items()
            },
        }

    @property
    def left_as_text(self) -> list[str]:
        """A line that names the inputs that were left; none without any."""
        if not self.inputs_left:
            return []
        topics = ", ".join(self.inputs_left)
        return [f"named no more, and compared up to the committed offsets: {topics}"]

    def where(self, name: str) -> str:
        """Return the first few events of a finding, in words."""
        places = (f"{at} at offset {offset}" for at, offset in self.places.get(name, ()))
        return f"first: {'; '.join(places)}"


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result. `breaches` are sentences; without any, the promise holds as far as is known."""

    group: str
    source: str
    sink: str
    guarantee: str
    error_rate: float
    partitions: tuple[PartitionCounts, ...]
    total: PartitionCounts
    breaches: tuple[str, ...]
    notes: tuple[str, ...]
    across: Across | None = None
    repartition: Staged | None = None

    @property
    def fine(self) -> bool:
        """Whether no breach of the promise was found, and no key in several partitions."""
        return not self.breaches and self.evidence is None

    @property
    def evidence(self) -> str | None:
        """That events of one key come in several partitions, in words; None if that was not seen."""
        return self.across.evidence if self.across else None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values; names are stable."""
        return {
            "group": self.group,
            "source": self.source,
            "sink": self.sink,
            "guarantee": self.guarantee,
            "error_rate": self.error_rate,
            "fine": self.fine,
            "breaches": list(self.breaches),
            "notes": list(self.notes),
            "across": self.across.as_json() if self.across else None,
            "repartition": self.repartition.as_json() if self.repartition else None,
            "total": self.total.as_json(),
            "partitions": [counts.as_json() for counts in self.partitions],
        }

    def as_text(self) -> str:
        """Return it as text for people."""
        middle = f"{self.repartition.middle} -> " if self.repartition else ""
        head = f"{self.group}: {self.source} -> {middle}{self.sink}, {self.guarantee}, up to the committed offsets"
        lines = [head, "", *_table((*self.partitions, self.total)), ""]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"across partitions: {self.across.text}"] if self.across else []
        if self.repartition:
            lines.append(
                f"under way in {self.repartition.middle}: {self.repartition.under_way:,} events"
            )
            lines += self.repartition.left_as_text
        lines += [f"breach: {breach}" for breach in self.breaches]
        return "\n".join(map(escaped, (*lines, self._reading, self._verdict))) + "\n"

    @property
    def _read(self) -> int:
        """How many events the worker has read to their end: those under way are not among them."""
        return self.total.read - (self.repartition.under_way if self.repartition else 0)

    @property
    def _of(self) -> str:
        """How many events there are to read, as text."""
        about = "about " if self.total.unread > COUNTED_MAX else ""
        return f"{about}{self.total.read + self.total.unread:,}"

    @property
    def _waiting(self) -> int:
        return self.total.read + self.total.unread - self._read

    @property
    def _reading(self) -> str:
        """What was read, how much of it was judged, and for how long the rest has waited, in words."""
        total = self.total
        outcomes = ((getattr(total, name), shown) for name, shown in OUTCOMES.items())
        shown = (f"{events:,} {name}" for events, name in outcomes if events or name == "judged")
        text = f"read: {self._read:,} of {self._of} events: {', '.join(shown)}"
        if not self._waiting:
            return text
        text += f"; {counted(self._waiting, 'event')} not read yet"
        if total.oldest_unread_s is None or total.newest_unread_s is None:
            return text
        oldest, newest = (
            f"{each:,.0f} s" for each in (total.oldest_unread_s, total.newest_unread_s)
        )
        return f"{text}: by their timestamps the oldest has waited {oldest}, the newest {newest}"

    @property
    def _verdict(self) -> str:
        """The last line."""
        total = self.total
        if self.breaches:
            return "breach of the promise"
        if not self._read:
            of = f" of {self._of}" if self._waiting else ""
            across = "; keys are in several partitions" if self.evidence else ""
            return f"nothing breaks the promise, but no event{of} was read{across}"
        verdict = "the promise holds"
        if self.evidence:
            verdict += " within each partition only"
        if self.notes and self.fine:
            verdict += " as far as can be known"
        if self._waiting or not total.judged:
            of = f" of {self._of}" if self._waiting else ""
            verdict += f" for the {self._read:,}{of} events that were read"
        if not total.judged:
            verdict += ", of which none was judged"
        if total.wrongly_dropped:
            verdict += f", with {counted(total.wrongly_dropped, 'key')} dropped wrongly"
        return verdict


def judged(
    settings: Settings,
    capacity: int,
    partitions: Sequence[PartitionCounts],
    across: Across | None = None,
    staged: Staged | None = None,
) -> Report:
    """Draw the conclusions from the counts of all partitions, whose filters are for `capacity` keys each.

    `across` is what was found across partitions, if there are several. With `staged`, the only element of `partitions`
    is of all partitions together.
    """
    rate = settings.filter.error_rate
    if settings.filter.kind == "exact":  # its error rate is n / 2^64
        rate = min(rate, capacity / 2**64)
    bounded = [_with_budget(settings, counts, rate, capacity) for counts in partitions]
    total = _total(bounded, rate)
    if staged:
        total = replace(total, limits=bounded[0].limits)
    excess = _beyond_chance(bounded, rate)
    return Report(
        group=settings.kafka.group_id,
        source=settings.source.shown,
        sink=settings.sink.topic,
        guarantee=settings.delivery.guarantee,
        error_rate=settings.filter.error_rate,
        partitions=() if staged else tuple(bounded),
        total=total,
        breaches=(
            *_breaches(settings, bounded, total, staged, excess),
            *_breaches_across(settings, across),
            *_misplaced(staged),
        ),
        notes=(*_notes(settings, bounded, total, staged, excess), *_notes_across(across)),
        across=across,
        repartition=staged,
    )


def _with_budget(
    settings: Settings, counts: PartitionCounts, rate: float, capacity: int
) -> PartitionCounts:
    if settings.filter.on_full == "warn" and counts.keys > capacity:
        beyond = Limit(
            "beyond_capacity",
            "the filter holds more keys than its capacity, which filter.on_full: warn allows: it is not known how many"
            " false duplicates that explains",
        )
        return replace(counts, limits=(*counts.limits, beyond))
    return replace(counts, explained_max=most_explained(counts.keys * rate))


def _total(partitions: Sequence[PartitionCounts], rate: float) -> PartitionCounts:
    summed: dict[str, Any] = dict.fromkeys(BOUNDS)
    for name in (
        *("read", "emitted", "duplicates", "malformed", "rejected", "blocked", "dropped"),
        *("judged", "unjudged", "unread", "keys", "untimed", "due_again", "late_again"),
        *FINDINGS,
    ):
        known = [value for c in partitions if (value := getattr(c, name)) is not None]
        summed[name] = sum(known) if known else None
    for name, of in (("oldest_unread_s", max), ("newest_unread_s", min)):
        waits = [wait for c in partitions if (wait := getattr(c, name)) is not None]
        summed[name] = of(waits, default=None)
    judged_by_rate = [
        c for c in partitions if c.missing is not None and c.explained_max is not None
    ]
    keys = sum(c.keys for c in judged_by_rate)
    explained = most_explained(keys * rate) if judged_by_rate else None
    return PartitionCounts(**summed, explained_max=explained, offsets={})


OUTCOMES = {
    "judged": "judged",
    "malformed": "malformed",
    "rejected": "rejected",
    "unjudged": "passing tombstones",
    "dropped": "dropped tombstones",
}
BOUNDS = ("partition", "input_start", "committed", "output_start", "output_end", "floor")


def _breaches(
    settings: Settings,
    partitions: Sequence[PartitionCounts],
    total: PartitionCounts,
    staged: Staged | None,
    excess: tuple[str, PartitionCounts] | None,
) -> Iterator[str]:
    def where(topic: str, name: str) -> str:
        return staged.where(name) if staged else _where(topic, partitions, name)

    source, sink = settings.source.shown, settings.sink.topic
    if total.lost:
        yield f"{counted(total.lost, 'event')} lost; {where(source, 'lost')}"
    if excess:
        name, found = excess
        count = getattr(found, name)
        if name == "wrongly_dropped":
            what = "dropped as duplicates, although never emitted"
        else:
            what = "in the input but not in the output: lost, dropped as false duplicates, or skipped by moved offsets"
        yield (
            f"{counted(count, 'key')} {what}; an error rate of {settings.filter.error_rate:g} explains at most"
            f" {found.explained_max:,} of {counted(found.keys, 'key')}; {where(source, name)}"
        )
    if total.doubled and settings.delivery.exactly_once:
        yield f"{counted(total.doubled, 'event')} emitted again; {where(sink, 'doubled')}"
    if total.foreign:
        yield (
            f"{counted(total.foreign, 'event')} in the output that no event of the input explains;"
            f" {where(sink, 'foreign')}{_forgotten_inputs(settings)}"
        )
    if total.wrongly_rejected:
        yield (
            f"{counted(total.wrongly_rejected, 'event')} rejected for their time, although {sink} takes them by the"
            f" broker's clock: the worker's clock was wrong, or the limits of {sink} were changed since;"
            f" {where(source, 'wrongly_rejected')}"
        )


def _forgotten_inputs(settings: Settings) -> str:
    """Return, for a breach, which inputs would explain events of the output although nothing shows them any more."""
    if settings.source.repartition is None:
        return ""
    expired = "if its offsets have expired (offsets.retention.minutes)"
    if settings.source.pattern is not None:
        return (
            "; a topic that source.pattern matched would explain them, if it was deleted since, and so would one that"
            f" it matches no more, {expired}"
        )
    return (
        f"; an input that was taken out would explain them, {expired}: name it once more, for an audit"
        " alone"
    )


def _breaches_across(settings: Settings, across: Across | None) -> Iterator[str]:
    if across and across.doubled:
        places = (f"{settings.sink.topic}/{at} at offset {offset}" for at, offset in across.places)
        yield (
            f"{counted(across.doubled, 'event')} emitted again in another partition, of"
            f" {counted(across.in_several, 'key')} in several partitions; first: {'; '.join(places)}"
        )


def _misplaced(staged: Staged | None) -> Iterator[str]:
    if staged and staged.misplaced:
        yield (
            f"{counted(staged.misplaced, 'event')} in another partition of the output than that of their key: somebody"
            f" else writes there, or it was emitted by another rule; {staged.where('misplaced')}"
        )


def _notes_across(across: Across | None) -> Iterator[str]:
    if across and across.whole and across.doubled is None and across.in_several:
        yield "a window by count has no time: it is not known which keys in several partitions it would have held"


def _beyond_chance(
    partitions: Sequence[PartitionCounts], rate: float
) -> tuple[str, PartitionCounts] | None:
    """Return a finding with more false duplicates than the error rate explains, and the counts that it is in.

    Partitions beyond their capacity are left out: nothing is known of their error rate.
    """
    bounded = [counts for counts in partitions if counts.explained_max is not None]
    for counts in (_total(bounded, rate), *bounded):
        name = _dropped_by(counts)
        found = getattr(counts, name)
        if found is not None and counts.explained_max is not None and found > counts.explained_max:
            return name, counts
    return None


def _dropped_by(counts: PartitionCounts) -> str:
    """Return the finding that counts against the error rate.

    If every missing key is proven to be a false duplicate, it is `wrongly_dropped`; otherwise `missing`.
    """
    return "wrongly_dropped" if counts.missing == counts.wrongly_dropped else "missing"


def _where(topic: str, partitions: Sequence[PartitionCounts], name: str) -> str:
    """Return the first few events of a finding, in words."""
    places = [
        f"{topic}/{c.partition} at offset {', '.join(map(str, offsets))}"
        for c in partitions
        if getattr(c, name) and (offsets := c.offsets.get(name))
    ]
    more = f"; and in {counted(len(places) - 4, 'partition')} more" if len(places) > 4 else ""
    return f"first: {'; '.join(places[:4])}{more}"


def _notes(
    settings: Settings,
    partitions: Sequence[PartitionCounts],
    total: PartitionCounts,
    staged: Staged | None,
    excess: tuple[str, PartitionCounts] | None,
) -> Iterator[str]:
    limits: dict[str, list[int]] = {}
    for counts in partitions:
        for limit in counts.limits:
            limits.setdefault(limit.text, []).append(counts.partition or 0)
    for text, where in limits.items():
        every = len(where) == len(partitions)
        named = "all partitions" if every else f"partition {', '.join(map(str, where))}"
        yield text if staged else f"{named}: {text}"
    if total.missing and not excess:
        yield f"{_not_emitted(settings, total)}; {_explained(settings, partitions, total)}"
    if settings.filter.kind == "window" and total.keys:
        yield (
            "a window forgets: a key that was emitted once does not count as missing, even if it was due again later"
            + _again(total)
        )
    if total.untimed:
        yield (
            f"{counted(total.untimed, 'emitted event')} without a timestamp: each has the greatest time of those before"
            " it, and keeps its place in the window by that"
        )
    if total.doubled and not settings.delivery.exactly_once:
        sink = settings.sink.topic
        yield (
            f"{counted(total.doubled, 'event')} emitted again, as at_least_once allows:"
            f" {staged.where('doubled') if staged else _where(sink, partitions, 'doubled')}"
        )


def _not_emitted(settings: Settings, total: PartitionCounts) -> str:
    """Return, for a note, how many keys are missing, and whether these are proven to be false duplicates."""
    keys = f"{counted(total.missing or 0, 'key')} not emitted"
    if _dropped_by(total) == "wrongly_dropped":
        where = settings.sink.duplicates_topic or settings.sink.topic
        return f"{keys}: new, and dropped as duplicates, as {where} shows"
    return f"{keys}, and without sink.duplicates_topic a lost key looks like a false duplicate"


def _explained(
    settings: Settings, partitions: Sequence[PartitionCounts], total: PartitionCounts
) -> str:
    """Return, for a note, how many missing keys the error rate explains."""
    beyond = "a filter beyond its capacity has no promised error rate"
    if total.explained_max is None:
        return beyond
    rate = f"an error rate of {settings.filter.error_rate:g} explains up to {total.explained_max:,}"
    are_bounded = all(counts.explained_max is not None for counts in partitions)
    return rate if are_bounded else f"{rate} within the capacity, and {beyond}"


def _again(total: PartitionCounts) -> str:
    """Return, for the note about windows, how many keys passed again; nothing if that is not known."""
    if total.due_again is None:
        return ""
    late = f", {total.late_again:,} of them later than the window" if total.late_again else ""
    return f"; {counted(total.due_again, 'event')} passed again, after it had forgotten their keys{late}"


_COLUMNS = {
    "read": "read",
    "unread": "unread",
    "keys": "keys",
    "emitted": "emitted",
    "malformed": "malformed",
    "rejected": "rejected",
    "blocked": "blocked",
    "unjudged": "unjudged",  # these events are emitted, but not counted as keys
    "missing": "missing",
    "wrongly_dropped": "wrongly dropped",
    "explained_max": "explained",
    "lost": "lost",
    "doubled": "doubled",
    "foreign": "foreign",
    "wrongly_rejected": "wrongly rejected",
}


def _table(rows: Sequence[PartitionCounts]) -> Iterator[str]:
    # These columns are shown only if they count anything.
    seldom = ("unread", "blocked", "unjudged", "wrongly_rejected")
    columns = {
        n: t for n, t in _COLUMNS.items() if n not in seldom or any(getattr(c, n) for c in rows)
    }
    lines = [["partition", "input", *columns.values()]]
    for counts in rows:
        at = f"{counts.input_start} to {counts.committed if counts.committed is not None else '-'}"
        place = ["all", ""] if counts.partition is None else [str(counts.partition), at]
        lines.append([*place, *(_cell(getattr(counts, name)) for name in columns)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *cells in lines:
        padded = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *padded))


def _cell(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
