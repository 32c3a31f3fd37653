"""Where a shard resumes: pure decisions on what the broker reported after the fence.

A committed offset counts only for the topics that its note names. To start too early is always safe, because the output
is folded first: so an offset that does not fit is replaced by the earliest one. A contradiction to the output stops the
shard.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from streamdedup.errors import DeliveryError
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.options import SinkOptions, SourceOptions
from streamdedup.kafka.topics import FOREVER, Topic
from streamdedup.snapshot.header import Log

INPUT_MADE_AGAIN = "the input topic was made again"

_ELSEWHERE = "the offset was committed on another cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
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
    # That of the newest snapshot; without one, those of other partitions' snapshots. Empty if `committed` has a note.
    snapshots: Sequence[Log] = ()
    # The output partitions that the input does not have, and to which something was written. Empty in the same case.
    beyond: Collection[int] = ()

    @property
    def known(self) -> list[Note]:
        """The notes from the group's past on this very input: the partition's own, or else those of the others."""
        own = self.committed.note if self.committed else None
        notes = [own] if own else self.others.values()
        return [note for note in notes if not differs(note.input_id, self.input_id)]

    @property
    def counts(self) -> list[int]:
        """How many partitions the input had when the memory was made, whichever input that was.

        The partition's own note decides; without one its newest snapshot; else all that is known of other partitions.
        """
        own = self.committed.note if self.committed else None
        if own and own.partitions and not differs(own.output_id, self.output_id):
            return [own.partitions]
        of_output = [log.identity for log in self.snapshots if self._is_of_output(log)]
        if mine := [of.partitions for of in of_output if of.partition == self.partition]:
            return mine
        notes = [n for n in self.others.values() if not differs(n.output_id, self.output_id)]
        return [
            *(note.partitions for note in notes if note.partitions),
            *(of.partitions for of in of_output),
            *([max(self.beyond) + 1] if self.beyond else []),
        ]

    @property
    def input_made_again(self) -> bool:
        """Whether the memory is of another input, by the offset's note; without an offset, by the snapshots."""
        note = self.committed.note if self.committed else None
        logs = () if self.committed else filter(self._is_of_output, self.snapshots)
        ids = [note.input_id] if note else [log.input_id for log in logs]
        return any(differs(known, self.input_id) for known in ids)

    def _is_of_output(self, log: Log) -> bool:
        """Return whether a snapshot is of this very output topic, as far as ids are known."""
        of = log.identity
        elsewhere = differs(of.cluster_id, self.cluster_id)
        return not elsewhere and not differs(of.topic_id, self.output_id)

    @property
    def born(self) -> int:
        """How many partitions the input had when the group began; as many as now if no note has it."""
        return min((note.born for note in self.known if note.born), default=self.partitions)

    @property
    def floor(self) -> int | None:
        """The output offset below which everything is forgotten, if `reset --forget` has noted one; else None."""
        note = self.note
        return note.floor if note and not differs(note.output_id, self.output_id) else None

    @property
    def since(self) -> int | None:
        """The input offset from which reading began again when the floor was set; None if that is not known."""
        note = self.note
        if note is None or self.floor is None or differs(note.input_id, self.input_id):
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
        return None if note and differs(note.cluster_id, self.cluster_id) else note


@dataclass(frozen=True, slots=True)
class Unfit:
    """A snapshot of this very log, folded up to `label`, that was refused because it was made with other settings.

    `way_back` says which options to change so that it fits. It is removed after this number of `saves`.
    """

    path: str
    label: int
    way_back: str
    saves: int


@dataclass(frozen=True, slots=True)
class Resume:
    """The input offset to read on from, and the reason.

    At a `birth`, and if the committed offset no longer counts (`anew`), it is committed before anything is read.
    """

    offset: int
    birth: bool
    why: str
    anew: bool = False
    skipped_from: int | None = None
    """The committed offset, if the broker deleted what lay from there to `offset` before it was read."""

    @property
    def skipped(self) -> int:
        """How many offsets of the input are passed over."""
        return 0 if self.skipped_from is None else max(0, self.offset - self.skipped_from)


def input_offset(
    found: PartitionState, source: SourceOptions, sink: SinkOptions, *, remembers: bool = True
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
        if differs(note.cluster_id, found.cluster_id):
            return Resume(found.input_start, False, _ELSEWHERE, anew=True)
        check_output(found, sink)
        if differs(note.input_id, found.input_id):
            return Resume(found.input_start, False, INPUT_MADE_AGAIN, anew=True)
    return within_bounds(committed.offset, found.input_start, found.input_end, source)


def check_output(found: PartitionState, sink: SinkOptions) -> None:
    """Raise DeliveryError if the output is another topic, or shorter, than the committed offset's note says."""
    note = found.note
    if note is None:
        return
    if differs(note.output_id, found.output_id):
        raise DeliveryError(
            f"{sink.topic} is not the topic that offsets were committed with: it was deleted and made again, or"
            " sink.topic was changed, and what was emitted is not in it",
            remedy="use another kafka.group_id to begin anew",
            finding="output-made-again",
        )
    if found.output_end < note.label:
        raise DeliveryError(
            f"{sink.topic} ends at offset {found.output_end}, but events up to {note.label} were committed to it: the"
            " log lost its end",
            remedy="restore it, or use another kafka.group_id to begin anew",
            finding="output-lost-end",
        )


def check_memory(
    label: int,
    found: PartitionState,
    sink: SinkOptions,
    *,
    outlived: bool = False,
    unfit: Unfit | None = None,
    search: str = "none was looked for",
) -> str | None:
    """Check that the output can be folded from `label` on: that it reaches that far, and nothing is missing above it.

    Return a warning if keys are missing and the operator accepts it; DeliveryError if not. `outlived` says that the
    window would have forgotten everything that retention deleted, so nothing is missing. `unfit` is a snapshot that was
    refused for other settings; None if there is none. `search` is what a search for snapshots found.
    """
    if label > found.output_end:
        raise DeliveryError(
            f"{sink.topic} ends at offset {found.output_end}, but its filter has folded it up to {label}: the log lost"
            " its end",
            remedy="restore it, or remove the snapshots to fold what is left",
            finding="output-lost-end",
        )
    if outlived or not is_short(label, found):
        return None
    if unfit and _holds(unfit, label, found):
        held = (
            f"{sink.topic} begins at offset {found.output_start}, and the events from {label} up to there are only in"
            f" {unfit.path}, which was made with other settings: {unfit.way_back}, and nothing is lost; else their"
            f" duplicates would pass, and that snapshot is removed after {unfit.saves} saves (snapshot.keep)"
        )
        if sink.on_gap == "stop":
            raise DeliveryError(
                held,
                remedy="set sink.on_gap: accept to go on so",
                finding="output-trimmed-other-settings",
            )
        return held
    missing = (
        f"{sink.topic} begins at offset {found.output_start}, and the events from {label} up to there are in no"
        f" snapshot ({search}). Put back one that reaches further, from a backup or another machine, and nothing is"
        " lost; else their duplicates would pass"
    )
    if sink.on_gap == "stop":
        raise DeliveryError(
            missing,
            remedy="set sink.on_gap: accept to go on without them",
            finding="output-trimmed",
        )
    return missing


def _holds(unfit: Unfit, label: int, found: PartitionState) -> bool:
    """Return whether that snapshot holds what was deleted from the output above `label`."""
    return label < unfit.label <= found.output_end and not is_short(unfit.label, found)


def is_short(label: int, found: PartitionState) -> bool:
    """Return whether events above `label` were deleted from the output."""
    return label < found.output_start and not is_complete(label, found)


def is_complete(label: int, found: PartitionState) -> bool:
    """Return whether no event of ours lies at or above `label`: only aborted events and markers can be missing."""
    ours_end = noted_end(found)
    return ours_end is not None and ours_end <= label


def noted_end(found: PartitionState) -> int | None:
    """Return the output offset after our last event, from a note in the same transaction; None without such a note."""
    note = found.committed.note if found.committed else None
    if note is None or not note.atomic or differs(note.cluster_id, found.cluster_id):
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


def growth(found: PartitionState, source: SourceOptions) -> str | None:
    """Check that the input has as many partitions as when the memory was made: it may have grown, or been made again.

    If it has not, return a warning if the operator accepts that duplicates pass, and raise DeliveryError otherwise.
    """
    now = found.partitions
    before = min((count for count in found.counts if count != now), default=None)
    if before is None:
        return None
    if before < now and not found.input_made_again:
        grown = (
            f"{source.topic} has grown from {before} to {now} partitions: keys move to other partitions, and"
            " their duplicates pass there"
        )
        if source.on_growth == "refuse":
            raise DeliveryError(
                grown,
                remedy="set source.on_growth: accept to go on, or begin again with a new input topic of as many"
                " partitions",
                finding="input-grown",
            )
        return grown
    moved = (
        f"{source.topic} has {now} partitions, and what was emitted is of {before}: keys are in other partitions,"
        " and their duplicates pass there"
    )
    if source.on_growth == "refuse":
        raise DeliveryError(
            moved,
            remedy=f"set source.on_growth: accept to go on, or make the input again with {before} partitions",
            finding="input-remade",
        )
    return moved


def _without_offset(found: PartitionState, source: SourceOptions, remembers: bool) -> Resume:
    if remembers and (found.output_end > 0 or found.has_memory):
        if found.input_made_again:
            return Resume(found.input_start, False, INPUT_MADE_AGAIN, anew=True)
        why = "no offset is committed, but the output is not empty"
        return Resume(found.input_start, False, why)
    if found.partition >= found.born:
        return Resume(found.input_start, True, "the partition was born after the group")
    start = found.input_start if source.start == "earliest" else found.input_end
    return Resume(start, True, f"born at {source.start}")


def within_bounds(offset: int, start: int, end: int, source: SourceOptions) -> Resume:
    """Return where reading goes on from the committed `offset`, if the input holds offsets from `start` to `end`.

    DeliveryError if events were deleted unread, and `source.on_gap` is `stop`.
    """
    if start <= offset <= end:
        return Resume(offset, False, "the committed offset")
    held = f"{start} to {end}"
    if source.repartition and source.topic_ == source.repartition.topic:
        raise DeliveryError(
            f"the committed offset {offset} is outside of the middle topic, which holds {held}: events were deleted"
            " before they were read, and source.on_gap is about the input alone",
            remedy=f"move the offset of this group to {start}, and those of GROUP-repartition back, so that they are"
            " copied again (docs/partitioning.md)",
            finding="middle-trimmed",
        )
    lost = f"the committed offset {offset} is outside of the input, which holds {held}"
    if source.on_gap == "stop":
        raise DeliveryError(
            f"{lost}: events were deleted before they were read",
            remedy="set source.on_gap: skip to go on without them",
            finding="input-trimmed",
        )
    return Resume(start, False, lost, anew=True, skipped_from=offset)


def differs(one: str | None, other: str | None) -> bool:
    """Return whether two ids of a topic or cluster differ. An unknown id (None) differs from no other."""
    return one is not None and other is not None and one != other
