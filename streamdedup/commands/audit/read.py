"""From the topics of one partition to rows: what each event is to the audit, and how many events are of each sort."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from streamdedup.commands.audit.extents import Extent
from streamdedup.commands.audit.rows import (
    DROPPED,
    DUE,
    DUE_UNJUDGED,
    EMITTED,
    EMITTED_UNJUDGED,
    KNOWN,
    UNLETTERED,
    WITHHELD,
    Rows,
    rows_of,
)
from streamdedup.commands.audit.time_check import Claim, TimeCheck
from streamdedup.commands.audit.window_time import Latest, WindowTime
from streamdedup.delivery.cross_partition import Watch
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.schemas import refuse_unknown, resolved
from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch, Integers, Verdict
from streamdedup.filters.base import Mask
from streamdedup.filters.window.clock import Clock
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.options import BLOCKED_BY
from streamdedup.kafka.records.marks import headers_of, marks_of
from streamdedup.keys.extract import Keys
from streamdedup.keys.hashing import Digests, Hash

STALL_S_MAX = 60.0
_UNKNOWN_REMEDY = (
    "its key is not known; set kafka.schema_registry to the registry that has it, and audit again"
)
# The headers of a letter that name its event.
PLACE = ("streamdedup.topic", "streamdedup.partition", "streamdedup.offset")
# Topic and partition, as a letter names them -> the partition's number here.
Named = Mapping[tuple[bytes | None, bytes | None], int]
OnProgress = Callable[[str, int], None]  # gets the topic and how many more of its events were read


@dataclass
class Sorts:
    """Numbers of events: of the input up to the committed offset, by their outcome; and of the output."""

    read: int = 0
    malformed: int = 0
    rejected: int = 0
    blocked: int = 0  # by a list, according to letters or marks
    dropped: int = 0  # as the operator configured
    unjudged: int = 0
    emitted: int = 0
    untimed: int = 0  # of these, in a window by time, those with a key and without a timestamp
    duplicates: int = 0


class TakesRows(Protocol):
    """Something that rows are added to."""

    def add(self, rows: Rows) -> None:
        """Take rows."""


@dataclass
class Offsets:
    """Some offsets of the input, one bit for each from `start` on; the letters of a side topic name them."""

    start: int
    bits: "np.typing.NDArray[np.uint8]" = field(default_factory=lambda: np.zeros(0, np.uint8))

    def reach(self, until: int) -> None:
        """Make room for the offsets below `until`. Others are left out."""
        self.bits = np.zeros(max(0, until - self.start + 7) // 8, np.uint8)

    def add(self, offsets: Integers) -> None:
        """Add offsets."""
        at = offsets - self.start
        at = at[(at >= 0) & (at < 8 * len(self.bits))]
        np.bitwise_or.at(self.bits, at >> 3, (1 << (at & 7)).astype(np.uint8))

    def of(self, offsets: Integers) -> Mask:
        """Return which of `offsets` were added."""
        at = offsets - self.start
        within = at < 8 * len(self.bits)
        at = np.where(within, at, 0)
        if not len(self.bits):
            return np.zeros(len(offsets), dtype=np.bool_)
        return np.asarray(within & (self.bits[at >> 3] >> (at & 7).astype(np.uint8) & 1 == 1))


class PartitionReader:
    """Reads one partition's topics into `sorter`."""

    def __init__(
        self,
        recipe: Recipe,
        hash_: Hash,
        cluster: Cluster,
        extent: Extent,
        *,
        sorter: TakesRows,
        clock: Clock | None,
        time_check: TimeCheck | None,
        watch: Watch | None,
        on_progress: OnProgress,
        number: int = 0,
    ) -> None:
        self._cluster, self._hash, self._settings = cluster, hash_, recipe.settings
        self._extent, self._sorter, self._clock, self._on_progress = (
            extent,
            sorter,
            clock,
            on_progress,
        )
        self._extractor = recipe.extractor()
        self.lettered, self.blocked, self.under_way = (
            Offsets(extent.found.input_start) for _ in range(3)
        )
        self._remembers = self._settings.filter.remembers
        self._watch = watch
        self._time_check, self._claims = time_check, list[Claim]()
        self._late = Latest(clock) if clock and self._settings.filter.late == "drop" else None
        self._window = WindowTime(clock, number) if clock else None
        self.sorts = Sorts()

    @property
    def undated(self) -> Mapping[int, int]:
        """What `window_time.dated` needs for the rows of this reader, when all is read."""
        return self._window.generations if self._window else {}

    async def read(self, until: int) -> None:
        """Read everything that is compared. Input events below `until` are due."""
        sink = self._settings.sink
        for topic, letters in (
            (sink.dead_letter_topic, self.lettered),
            (sink.blocked_topic, self.blocked),
        ):
            if topic:
                letters.reach(until)
                await self._each(topic, 0, partial(self._letter, letters))
        await self.read_input(until)
        await self.read_output()

    async def read_input(self, until: int) -> None:
        """Read the input. Its events below `until` are due, unless they are `lettered`, `blocked` or `under_way`."""
        start = self._extent.found.input_start
        await self._each(self._settings.source.topic, start, self._due, until)

    async def read_output(self) -> None:
        """Read the output and the duplicates."""
        found, sink = self._extent.found, self._settings.sink
        await self._each(sink.topic, found.floor or 0, self._emitted)
        if self._window:
            self.sorts.untimed = self._window.untimed
        if sink.duplicates_topic:
            await self._each(sink.duplicates_topic, 0, self._duplicate)

    async def read_on(self, start: int, end: int) -> None:
        """Read the input from `start` on. Its events need not be in the output yet, but may be."""
        await self._each(self._settings.source.topic, start, self._known, end)

    async def _each(
        self,
        topic: str,
        start: int,
        take: Callable[[EventBatch], None],
        end: int | None = None,
    ) -> None:
        cluster, partition = self._cluster, self._extent.partition
        start = max(start, await cluster.first_offset(topic, partition))
        end = self._extent.ends[topic] if end is None else end
        batches = cluster.committed_events(topic, partition, start, end, stall_s=STALL_S_MAX)
        try:
            async for batch in batches:
                async for part in resolved(batch, self._extractor):
                    take(part)
                if self._claims and self._time_check:
                    await self._time_check.check(self._claims)
                    self._claims = []
                self._on_progress(topic, len(batch))
        except TrimmedError as error:
            raise DeliveryError(
                f"{error}: it was trimmed during the audit; run the audit again"
            ) from None
        finally:
            await batches.aclose()

    def _letter(self, letters: Offsets, batch: EventBatch) -> None:
        offsets, topic = list[int](), self._settings.source.topic
        check = self._time_check if letters is self.lettered else None
        ours: Named = {(topic.encode(), b"%d" % self._extent.partition): 0}
        for row, _, offset in letters_in(batch, ours):
            offsets.append(offset)
            if check and (claim := check.claim(batch, row, offset)):
                self._claims.append(claim)
        letters.add(np.array(offsets, dtype=np.int64))

    def _due(self, batch: EventBatch) -> None:
        keys, offsets = self._extractor.extract(batch), batch.offsets
        lettered, blocked = self.lettered.of(offsets), self.blocked.of(offsets)
        due = ~(lettered | blocked | self.under_way.of(offsets)) & (
            offsets >= (self._extent.found.since or 0)
        )
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

    def _emitted(self, batch: EventBatch) -> None:
        keys = self._extractor.extract(batch)
        refuse_unknown(batch, keys, _UNKNOWN_REMEDY)
        judged, _ = self._judged(keys)
        marks = marks_of(batch.headers)
        passed, duplicate, blocked = (
            judged & (marks == verdict)
            for verdict in (Verdict.PASS, Verdict.DUPLICATE, Verdict.BLOCKED)
        )
        times = self._window.follow(batch.timestamps[passed]) if self._window else None
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
        self._add_judged(batch, keys, DROPPED, keys.keys.sizes >= 0)
        self.sorts.duplicates += len(batch)

    def _judged(self, keys: Keys) -> tuple[Mask, Mask]:
        """Return which events a filter judges by their keys, and which have a key but pass, as there is no filter."""
        have = keys.keys.sizes >= 0
        nobody = np.zeros(len(have), dtype=np.bool_)
        return (have, nobody) if self._remembers else (nobody, have)

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
        cells = keys.keys.take(rows)
        if self._watch and kind == DUE:
            self._watch.read(batch.partition, cells)
        elif self._watch and kind == EMITTED:
            self._watch.read_emitted(batch.partition, cells)
        digests = self._hash.of_column(cells)
        made = rows_of(self._clock is not None, kind, digests, batch.offsets[rows])
        if times:
            made["generation"], made["reach"] = times
        self._sorter.add(made)

    def _add_unjudged(self, batch: EventBatch, kind: int, which: Mask) -> None:
        """Add rows of events without a key. The digest is of all that is copied of the event."""
        rows = np.flatnonzero(which)
        if len(rows):
            digests: Digests = self._hash.digests([_content(batch, row) for row in rows.tolist()])
            self._sorter.add(rows_of(self._clock is not None, kind, digests, batch.offsets[rows]))


def letters_in(batch: EventBatch, partitions: Named) -> Iterator[tuple[int, int, int]]:
    """Yield the letters about events of `partitions`: the row, the partition's number here, and the event's offset."""
    places = (headers_of(batch.headers, header) for header in PLACE)
    for row, (topic, partition, offset) in enumerate(zip(*places, strict=True)):
        here = partitions.get((topic, partition))
        if here is not None and offset is not None and offset.isdigit():
            yield row, here, int(offset)


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
