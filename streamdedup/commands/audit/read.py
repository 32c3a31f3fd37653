"""From the topics of one partition to rows: what each event is to the audit, and how many events are of each sort."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, fields

import numpy as np

from streamdedup.commands.audit.extents import Extent
from streamdedup.commands.audit.match import APART, EXAMPLES_MAX
from streamdedup.commands.audit.rows import (
    DROPPED,
    DUE,
    DUE_UNJUDGED,
    EMITTED,
    EMITTED_UNJUDGED,
    KNOWN,
    OFFSET_BITS,
    UNLETTERED,
    WITHHELD,
    Sorter,
    rows_of,
)
from streamdedup.commands.audit.unread import Unread
from streamdedup.delivery.cross_partition import Watch
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import refuse_unknown, resolved
from streamdedup.delivery.window_time import Latest, WindowTime
from streamdedup.events import EventBatch, Integers, Verdict
from streamdedup.filters.base import Mask
from streamdedup.filters.window.clock import Clock
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.log import naming_trims
from streamdedup.kafka.options import BLOCKED_BY
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.marks import headers_of, marks_of
from streamdedup.keys.extract import Keys
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.keys.placement import partitions_of
from streamdedup.repartition.middle import options_of

STALL_S_MAX = 60.0
_UNKNOWN_REMEDY = (
    "its key is not known; set kafka.schema_registry to the registry that has it, and audit again"
)
OnProgress = Callable[[str, int], None]  # gets the topic and how many more of its events were read


@dataclass
class Sorts:
    """Numbers of events: of the input up to the committed offset, by their outcome; and of the output."""

    read: int = 0
    judged: int = 0  # by the worker's lists and filter
    malformed: int = 0
    rejected: int = 0
    blocked: int = 0  # by a list, according to letters or marks
    dropped: int = 0  # as the operator configured
    unjudged: int = 0
    emitted: int = 0
    untimed: int = 0  # of these, in a window by time, those with a key and without a timestamp
    duplicates: int = 0
    keyless: int = 0  # of the topic of duplicates, without a key

    def __add__(self, other: "Sorts") -> "Sorts":
        return Sorts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class Offsets:
    """Some offsets of the input, one bit for each from `start` up to, but not including, `until`."""

    def __init__(self, start: int, until: int) -> None:
        self._start = start
        self._bits = np.zeros(max(0, until - start + 7) // 8, np.uint8)

    def add(self, offsets: Integers) -> None:
        """Add offsets. Those out of bounds are left out."""
        at = offsets - self._start
        at = at[(at >= 0) & (at < 8 * len(self._bits))]
        np.bitwise_or.at(self._bits, at >> 3, (1 << (at & 7)).astype(np.uint8))

    def of(self, offsets: Integers) -> Mask:
        """Return which of `offsets` were added."""
        at = offsets - self._start
        within = at < 8 * len(self._bits)
        at = np.where(within, at, 0)
        if not len(self._bits):
            return np.zeros(len(offsets), dtype=np.bool_)
        return np.asarray(within & (self._bits[at >> 3] >> (at & 7).astype(np.uint8) & 1 == 1))


@dataclass(frozen=True)
class Reading:
    """All that the readers of one comparison share. `clock` is that of its windows, if any."""

    cluster: Cluster
    hash: Hash
    sorter: Sorter
    clock: Clock | None
    watch: Watch | None
    on_progress: OnProgress

    async def batches(
        self, topic: str, partition: int, start: int, end: int
    ) -> AsyncGenerator[EventBatch]:
        """Yield the committed events. TrimmedError if they are trimmed meanwhile."""
        events = self.cluster.committed_events(topic, partition, start, end, stall_s=STALL_S_MAX)
        instead = "it was trimmed during the audit; run the audit again"
        async with aclosing(naming_trims(events, instead)) as batches:
            async for batch in batches:
                yield batch
                self.on_progress(topic, len(batch))


class _Reader:
    """Adds rows of one partition to the sorter, with the partition's `number` here in their offsets."""

    def __init__(self, reading: Reading, recipe: Recipe, extent: Extent, number: int = 0) -> None:
        self._reading, self._settings, self.extent = reading, recipe.settings, extent
        self._extractor, self._bits = recipe.extractor(), number << OFFSET_BITS
        self.sorts = Sorts()

    async def _each(
        self, topic: str, start: int, end: int, take: Callable[[EventBatch], None]
    ) -> None:
        partition = self.extent.partition
        start = max(start, await self._reading.cluster.first_offset(topic, partition))
        events = self._reading.batches(topic, partition, start, end)
        async with aclosing(events) as batches:
            async for batch in batches:
                async for part in resolved(batch, self._extractor):
                    take(part)

    def _judged(self, keys: Keys) -> tuple[Mask, Mask]:
        """Return which events a filter judges by their keys, and which have a key but pass, as there is no filter."""
        have = keys.keys.sizes >= 0
        nobody = np.zeros(len(have), dtype=np.bool_)
        return (have, nobody) if self._settings.filter.remembers else (nobody, have)

    def _add_judged(
        self,
        batch: EventBatch,
        keys: Keys,
        kind: int,
        which: Mask,
        times: tuple[Integers, Integers] | None = None,
    ) -> None:
        rows = np.flatnonzero(which)
        if not len(rows):
            return
        cells, watch = keys.keys.take(rows), self._reading.watch
        if watch and kind == DUE:
            watch.read(batch.partition, cells)
        elif watch and kind == EMITTED:
            watch.read_emitted(batch.partition, cells)
        self._add(batch, kind, self._reading.hash.of_column(cells), rows, times)

    def _add_unjudged(self, batch: EventBatch, kind: int, which: Mask) -> None:
        """Add rows of events without a key. The digest is of all that is copied of the event."""
        rows = np.flatnonzero(which)
        if len(rows):
            contents = [_content(batch, row) for row in rows.tolist()]
            self._add(batch, kind, self._reading.hash.digests(contents), rows)

    def _add(
        self,
        batch: EventBatch,
        kind: int,
        digests: Digests,
        rows: Integers,
        times: tuple[Integers, Integers] | None = None,
    ) -> None:
        offsets = batch.offsets[rows] | self._bits
        made = rows_of(self._reading.clock is not None, kind, digests, offsets)
        if times:
            made["generation"], made["reach"] = times
        self._reading.sorter.add(made)


class InputReader(_Reader):
    """Reads a partition of the input. Its events below `until` are due, but for those that it has marked.

    Letters name those that are `lettered` or `blocked`; a copy of those that are `under_way` waits in the middle topic.
    """

    def __init__(
        self, reading: Reading, recipe: Recipe, at: InputPartition, extent: Extent, number: int = 0
    ) -> None:
        super().__init__(reading, recipe, extent, number)
        self.at, self.until, self.waiting = at, extent.until, Unread()
        """`waiting` are the events that are under way."""
        sink, clock, start = self._settings.sink, reading.clock, extent.found.input_start
        marked = (sink.dead_letter_topic, sink.blocked_topic, self._settings.source.repartition)
        self.lettered, self.blocked, self.under_way = (
            Offsets(start, self.until if is_there else start) for is_there in marked
        )
        self._late = Latest(clock) if clock and self._settings.filter.late == "drop" else None

    async def read(self) -> None:
        """Read what is due."""
        await self._each(self.at.topic, self.extent.found.input_start, self.until, self._due)

    async def read_on(self, end: int) -> None:
        """Read what follows. Its events need not be in the output yet, but may be."""
        await self._each(self.at.topic, self.until, end, self._known)

    def _due(self, batch: EventBatch) -> None:
        keys, offsets = self._extractor.extract(batch), batch.offsets
        lettered, blocked, under_way = (
            marked.of(offsets) for marked in (self.lettered, self.blocked, self.under_way)
        )
        self.waiting += Unread.among(batch.timestamps[under_way])
        due = ~(lettered | blocked | under_way) & (offsets >= (self.extent.found.since or 0))
        if self._late is not None:
            due &= ~self._late.may_be_late(batch.timestamps)
        judged, passes = self._judged(keys)
        malformed, dropped, unjudged, unknown = (
            _mask(rows, len(batch))
            for rows in (keys.malformed, keys.dropped, keys.unjudged, keys.unknown)
        )
        passing = passes | unjudged | (malformed & (self._settings.key.on_malformed == "pass"))
        letters = unknown | malformed & (self._settings.key.on_malformed == "dead_letter")
        self._add_judged(batch, keys, DUE, judged & due)
        self._add_judged(batch, keys, KNOWN, judged & ~due)
        self._add_unjudged(batch, DUE_UNJUDGED, passing & due)
        self._add_unjudged(batch, UNLETTERED, letters & due)
        self._add_unjudged(batch, KNOWN, ~judged & ~(due & (passing | letters)))
        sorts = self.sorts
        sorts.read += len(batch)
        has_key = keys.keys.sizes >= 0
        sorts.judged += int(np.count_nonzero(has_key & ~(lettered | under_way)))
        sorts.malformed += int(np.count_nonzero(malformed))
        sorts.rejected += int(np.count_nonzero(lettered & ~malformed))
        sorts.blocked += int(np.count_nonzero(blocked))
        sorts.unjudged += int(np.count_nonzero(unjudged & ~lettered))
        sorts.dropped += int(np.count_nonzero(dropped))

    def _known(self, batch: EventBatch) -> None:
        keys = self._extractor.extract(batch)
        judged, _ = self._judged(keys)
        self._add_judged(batch, keys, KNOWN, judged)
        self._add_unjudged(batch, KNOWN, ~judged)


class OutputReader(_Reader):
    """Reads a partition of the output, and of the duplicates.

    With `source.repartition`, `misplaced` counts the events whose key belongs in another partition, and `first` are the
    first places of these.
    """

    def __init__(self, reading: Reading, recipe: Recipe, extent: Extent, number: int = 0) -> None:
        super().__init__(reading, recipe, extent, number)
        self._window = WindowTime(reading.clock, number) if reading.clock else None
        self.misplaced, self.first = 0, list[int]()

    @property
    def undated(self) -> Mapping[int, int]:
        """What `rows.dated` needs for the rows of this reader, when all is read."""
        return self._window.generations if self._window else {}

    async def read(self) -> None:
        """Read all that is compared."""
        sink, ends = self._settings.sink, self.extent.ends
        floor = self.extent.found.floor or 0
        await self._each(sink.topic, floor, ends[sink.topic], self._emitted)
        if self._window:
            self.sorts.untimed = self._window.untimed
        if sink.duplicates_topic:
            await self._each(sink.duplicates_topic, 0, ends[sink.duplicates_topic], self._duplicate)

    def _emitted(self, batch: EventBatch) -> None:
        keys = self._extractor.extract(batch)
        refuse_unknown(batch, keys, _UNKNOWN_REMEDY)
        judged, _ = self._judged(keys)
        marks = marks_of(batch.headers)
        passed, duplicate, blocked = (
            judged & (marks == verdict)
            for verdict in (Verdict.PASS, Verdict.DUPLICATE, Verdict.BLOCKED)
        )
        elsewhere, times = self._elsewhere(batch, keys, judged)[passed], None
        if self._window:  # it knows no time of another partition
            own, reach = self._window.follow(batch.timestamps[passed])
            times = np.where(elsewhere, -APART, own), np.where(elsewhere, APART, reach)
        self._add_judged(batch, keys, EMITTED, passed, times)
        self._add_judged(batch, keys, DROPPED, duplicate)
        self._add_judged(batch, keys, WITHHELD, blocked)
        self._add_unjudged(batch, EMITTED_UNJUDGED, ~judged)
        self.sorts.emitted += len(batch)
        self.sorts.duplicates += int(np.count_nonzero(duplicate))
        by_list = headers_of(batch.headers, BLOCKED_BY[0]).sizes >= 0
        self.sorts.blocked += int(np.count_nonzero(by_list & (marks == Verdict.BLOCKED)))

    def _duplicate(self, batch: EventBatch) -> None:
        keys = self._extractor.extract(batch)
        keyed = keys.keys.sizes >= 0
        self._add_judged(batch, keys, DROPPED, keyed)
        self.sorts.duplicates += len(batch)
        self.sorts.keyless += int(np.count_nonzero(~keyed))

    def _elsewhere(self, batch: EventBatch, keys: Keys, judged: Mask) -> Mask:
        """Return which of the `judged` events belong in another partition, and count them."""
        rows, elsewhere = np.flatnonzero(judged), np.zeros(len(batch), dtype=np.bool_)
        if self._settings.source.repartition and len(rows):
            places = partitions_of(keys.keys.take(rows), options_of(self._settings).partitions)
            elsewhere[rows] = places != batch.partition
            self.misplaced += int(np.count_nonzero(elsewhere))
            found = batch.offsets[elsewhere] | self._bits
            self.first = [*self.first, *found.tolist()][:EXAMPLES_MAX]
        return elsewhere


def _mask(rows: object, count: int) -> Mask:
    mask = np.zeros(count, dtype=np.bool_)
    mask[list(rows)] = True  # type: ignore[call-overload]
    return mask


def _content(batch: EventBatch, row: int) -> bytes:
    key, value = batch.keys[row], batch.values[row]
    sizes = b"%d %d %d" % (
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        batch.timestamps[row],
    )
    return b"\0".join((b"an event without a key", sizes, key or b"", value or b""))
