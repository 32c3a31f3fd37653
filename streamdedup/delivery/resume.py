"""Where a shard resumes: pure decisions on what the broker reported after the fence.

A committed offset counts only for the topics that its note names. To start too early is always safe, because the output
is folded first: so an offset that does not fit is replaced by the earliest one. A contradiction to the output stops.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from streamdedup.errors import DeliveryError
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.options import SinkOptions, SourceOptions
from streamdedup.kafka.topics import FOREVER, Topic

_ELSEWHERE = "the offset was committed on another cluster"
_REMADE = "the input topic was made again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The input and output partition as the broker reports them after the fence. An id is None if it reports none."""

    committed: Committed | None
    cluster_id: str | None
    input_id: str | None
    output_id: str | None
    input_start: int
    input_end: int
    output_start: int
    output_end: int
    has_memory: bool  # a snapshot exists, or a filter is in memory
    partition: int
    partitions: int  # of the input
    others: Mapping[int, Note]  # of the group's other partitions; empty if `committed` has a note

    @property
    def known(self) -> list[Note]:
        """The notes from the group's past on this very input: the partition's own, or else those of the others."""
        own = self.committed.note if self.committed else None
        notes = [own] if own else self.others.values()
        return [note for note in notes if not _differs(note.input_id, self.input_id)]

    @property
    def born(self) -> int:
        """How many partitions the input had when the group began; as many as now if no note says."""
        return min((note.born for note in self.known if note.born), default=self.partitions)

    @property
    def floor(self) -> int | None:
        """The output offset below which everything is forgotten, if `reset --forget` has noted one; else None."""
        note = self.note
        return note.floor if note and not _differs(note.output_id, self.output_id) else None

    @property
    def since(self) -> int | None:
        """The input offset from which reading began again when the floor was set; None if that is not known."""
        note = self.note
        if note is None or self.floor is None or _differs(note.input_id, self.input_id):
            return None
        return note.since

    @property
    def meaning(self) -> int | None:
        """The check of the meaning by which the last commit took keys; None if that is not known."""
        return self.note.meaning if self.note else None

    @property
    def note(self) -> Note | None:
        """The committed offset's note, if it is of this cluster."""
        note = self.committed.note if self.committed else None
        return None if note and _differs(note.cluster_id, self.cluster_id) else note


@dataclass(frozen=True, slots=True)
class Resume:
    """The input offset to read on from, and the reason.

    At a `birth`, and if the committed offset counts no more (`anew`), it is committed before anything is read.
    """

    offset: int
    birth: bool
    why: str
    anew: bool = False
    skipped_from: int | None = None
    """The committed offset, if the events from there to `offset` were deleted unread, as far as there were any."""

    @property
    def skipped(self) -> int:
        """How many offsets of the input are passed over."""
        return 0 if self.skipped_from is None else max(0, self.offset - self.skipped_from)


def input_offset(
    found: Found, source: SourceOptions, sink: SinkOptions, *, remembers: bool = True
) -> Resume:
    """Return where reading resumes. DeliveryError if the output contradicts the offset, or the offset is out of bounds.

    `remembers` says whether the output is folded. If so, an event that is read again does not pass again, and an output
    that is not empty shows that the partition is not new.
    """
    committed = found.committed
    if committed is None:
        return _without_offset(found, source, remembers)
    note = committed.note
    if note is not None:
        if _differs(note.cluster_id, found.cluster_id):
            return Resume(found.input_start, False, _ELSEWHERE, anew=True)
        check_output(found, sink)
        if _differs(note.input_id, found.input_id):
            return Resume(found.input_start, False, _REMADE, anew=True)
    return _within_bounds(committed.offset, found, source)


def check_output(found: Found, sink: SinkOptions) -> None:
    """Raise DeliveryError if the output is another topic, or shorter, than the committed offset's note says."""
    note = found.note
    if note is None:
        return
    if _differs(note.output_id, found.output_id):
        raise DeliveryError(
            f"{sink.topic} is not the topic that offsets were committed with: it was deleted and made again, or"
            " sink.topic was changed, and what was emitted is not in it; use another kafka.group_id to begin anew"
        )
    if found.output_end < note.label:
        raise DeliveryError(
            f"{sink.topic} ends at offset {found.output_end}, but events up to {note.label} were committed to it: the"
            " log lost its end; restore it, or use another kafka.group_id to begin anew"
        )


def check_memory(
    label: int, found: Found, sink: SinkOptions, *, outlived: bool = False
) -> str | None:
    """Check that the output can be folded from `label` on: that it reaches that far, and nothing is missing above it.

    Return a warning if keys are missing and the operator accepts it; DeliveryError if not. `outlived` says that the
    window would have forgotten everything that retention deleted, so nothing is missing.
    """
    if label > found.output_end:
        raise DeliveryError(
            f"{sink.topic} ends at offset {found.output_end}, but its filter has folded it up to {label}: the log lost"
            " its end; restore it, or remove the snapshots to fold what is left"
        )
    if found.output_start <= label or is_complete(label, found) or outlived:
        return None
    missing = (
        f"{sink.topic} begins at offset {found.output_start}, and the events from {label} up to there are in no"
        " snapshot: their duplicates would pass"
    )
    if sink.on_gap == "stop":
        raise DeliveryError(f"{missing}; set sink.on_gap: accept to go on without them")
    return missing


def is_complete(label: int, found: Found) -> bool:
    """Return whether no event of ours lies at or above `label`: only aborted events and markers can be missing."""
    ours_end = noted_end(found)
    return ours_end is not None and ours_end <= label


def noted_end(found: Found) -> int | None:
    """Return the output offset after our last event, from a note in the same transaction; None without such a note."""
    note = found.committed.note if found.committed else None
    if note is None or not note.atomic or _differs(note.cluster_id, found.cluster_id):
        return None
    ours = note.output_id is not None and note.output_id == found.output_id
    return note.label if ours else None


def is_outlived(output: Topic, now_ms: int, watermark: int | None, window_ms: int) -> bool:
    """Return whether everything that the retention of `output` can have deleted is older than a window of `window_ms`.

    Kafka deletes a segment once its newest event is older than retention.ms. With retention.bytes it may delete an
    event of any age, so then nothing is known.
    """
    by_time = bool(output.settings) and output.retention_ms < FOREVER
    if watermark is None or not by_time or output.number("retention.bytes", -1) >= 0:
        return False
    return now_ms - output.retention_ms <= watermark - window_ms


def growth(found: Found, source: SourceOptions) -> str | None:
    """Check whether the input has got more partitions since the last commit.

    Return a warning if it has and the operator accepts that duplicates pass; DeliveryError if not.
    """
    before = min((note.partitions for note in found.known if note.partitions), default=None)
    if before is None or before >= found.partitions:
        return None
    grown = (
        f"{source.topic} has grown from {before} to {found.partitions} partitions: keys move to other partitions, and"
        " their duplicates pass there"
    )
    if source.on_growth == "refuse":
        raise DeliveryError(
            f"{grown}; set source.on_growth: accept to go on, or begin again with a new input topic of as many"
            " partitions"
        )
    return grown


def _without_offset(found: Found, source: SourceOptions, remembers: bool) -> Resume:
    if remembers and (found.output_end > 0 or found.has_memory):
        return Resume(
            found.input_start, False, "no offset is committed, but the output is not empty"
        )
    if found.partition >= found.born:
        return Resume(found.input_start, True, "the partition was born after the group")
    start = found.input_start if source.start == "earliest" else found.input_end
    return Resume(start, True, f"born at {source.start}")


def _within_bounds(offset: int, found: Found, source: SourceOptions) -> Resume:
    if found.input_start <= offset <= found.input_end:
        return Resume(offset, False, "the committed offset")
    held = f"{found.input_start} to {found.input_end}"
    lost = f"the committed offset {offset} is outside of the input, which holds {held}"
    if source.on_gap == "stop":
        raise DeliveryError(
            f"{lost}: events were deleted before they were read; set source.on_gap: skip to go on without them"
        )
    return Resume(found.input_start, False, lost, anew=True, skipped_from=offset)


def _differs(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other
