"""Where a shard goes on: pure decisions from what was found at the broker after fencing.

A committed offset counts only for the logs that its note names. Starting too early is always safe, since the output is
folded first; so whatever does not fit starts at the earliest event, and what would contradict the output stops.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from streamdedup.errors import DeliveryError
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.options import SinkOptions, SourceOptions
from streamdedup.kafka.topics import FOREVER, Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The input and output partition as the broker shows them. Ids are None where it tells none."""

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
    others: Mapping[int, Note]  # of the group's other partitions, where `committed` has no note

    @property
    def known(self) -> list[Note]:
        """What tells of the group's past in this very input: its own note, else those of other partitions."""
        own = self.committed.note if self.committed else None
        notes = [own] if own else self.others.values()
        return [note for note in notes if not _differs(note.input_id, self.input_id)]

    @property
    def born(self) -> int:
        """How many partitions the input had when the group began, as far as anything tells."""
        return min((note.born for note in self.known if note.born), default=self.partitions)

    @property
    def floor(self) -> int | None:
        """The output offset below which all is forgotten, as `reset --forget` has noted; None where it has not."""
        note = self.note
        return note.floor if note and not _differs(note.output_id, self.output_id) else None

    @property
    def since(self) -> int | None:
        """The input offset from which on all is read again above the floor; None where that is not known."""
        note = self.note
        if note is None or self.floor is None or _differs(note.input_id, self.input_id):
            return None
        return note.since

    @property
    def note(self) -> Note | None:
        """The committed offset's note, if it is of this cluster."""
        note = self.committed.note if self.committed else None
        return None if note and _differs(note.cluster_id, self.cluster_id) else note


@dataclass(frozen=True, slots=True)
class Resume:
    """The input offset to read on from; at a birth it is committed before anything is read."""

    offset: int
    birth: bool
    why: str


def input_offset(
    found: Found, source: SourceOptions, sink: SinkOptions, *, remembers: bool = True
) -> Resume:
    """Where reading goes on. Raises DeliveryError where output and offset contradict one another.

    `remembers`: the output is folded, so what it holds passes once; else it tells nothing.
    """
    committed = found.committed
    if committed is None:
        return _without_offset(found, source, remembers)
    note = committed.note
    if note is not None:
        if _differs(note.cluster_id, found.cluster_id):
            return Resume(found.input_start, False, "the offset was committed on another cluster")
        check_output(found, sink)
        if _differs(note.input_id, found.input_id):
            return Resume(found.input_start, False, "the input topic was made again")
    return _within_bounds(committed.offset, found, source)


def check_output(found: Found, sink: SinkOptions) -> None:
    """DeliveryError where the output is not the one, or not as long as, the committed offset's note says."""
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
    """Whether the output can be folded from `label`. `outlived`: a window has forgotten all that retention deleted.

    Returns a warning where the operator accepts that keys are missing; raises DeliveryError where not.
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
    """Whether no event of ours stands above `label`: only aborted ones and markers can be missing."""
    ours_end = noted_end(found)
    return ours_end is not None and ours_end <= label


def noted_end(found: Found) -> int | None:
    """Where the last event of ours ends, by a note that was committed in one transaction with it; None without one."""
    note = found.committed.note if found.committed else None
    if note is None or not note.atomic or _differs(note.cluster_id, found.cluster_id):
        return None
    ours = note.output_id is not None and note.output_id == found.output_id
    return note.label if ours else None


def is_outlived(output: Topic, now_ms: int, watermark: int | None, window_ms: int) -> bool:
    """Whether all that the retention of `output` can have deleted by now is older than a window of `window_ms`.

    A segment is deleted once its newest event is older than retention.ms; by retention.bytes it may be any.
    """
    by_time = bool(output.settings) and output.retention_ms < FOREVER
    if watermark is None or not by_time or output.number("retention.bytes", -1) >= 0:
        return False
    return now_ms - output.retention_ms <= watermark - window_ms


def growth(found: Found, source: SourceOptions) -> str | None:
    """Whether the input has got partitions since the last commit.

    Returns a warning where the operator accepts that duplicates pass; raises DeliveryError where not.
    """
    before = min((note.partitions for note in found.known if note.partitions), default=None)
    if before is None or before >= found.partitions:
        return None
    grown = (
        f"{source.topic} has grown from {before} to {found.partitions} partitions: keys move to others, and their"
        " duplicates pass there"
    )
    if source.on_growth == "refuse":
        raise DeliveryError(
            f"{grown}; set source.on_growth: accept to go on, or begin anew with an input of as many partitions"
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
    return Resume(found.input_start, False, lost)


def _differs(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other
