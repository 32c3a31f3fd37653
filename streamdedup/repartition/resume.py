"""Where the first stage reads on in one partition of the input: pure decisions on what the broker reported.

The stage remembers nothing but its committed offset. To start too early is safe, because the second stage knows the
keys. Events that it does not judge (`tombstones: pass`, malformed ones) are then emitted once more.
"""

from streamdedup.delivery.resume import (
    INPUT_MADE_AGAIN,
    PartitionState,
    Resume,
    differs,
    within_bounds,
)
from streamdedup.errors import DeliveryError
from streamdedup.kafka.options import SourceOptions
from streamdedup.kafka.partitions import InputPartition
from streamdedup.settings.meaning import Meaning, shown_check


def input_offset(
    found: PartitionState,
    partition: InputPartition,
    source: SourceOptions,
    middle: str,
    meaning: Meaning,
    *,
    is_birth: bool,
) -> Resume:
    """Return where reading of `partition` goes on. DeliveryError if only an operator can decide.

    `middle` is the topic of the copies, `meaning` our own. `is_birth`: the group has no offset at all, and the middle
    topic never held an event.
    """
    committed = found.committed
    if committed is None:
        if not is_birth:
            why = "no offset is committed, but the stage has worked before"
            return Resume(found.input_start, True, why)
        start = found.input_start if source.start == "earliest" else found.input_end
        return Resume(start, True, f"born at {source.start}")
    if (note := committed.note) is not None:
        if note.meaning not in (None, meaning.check) and note.meaning not in meaning.kin:
            raise DeliveryError(
                f"{partition}: the offset {committed.offset} was committed by a stage of another meaning"
                f" ({shown_check(note.meaning)}, ours is {shown_check(meaning.check)}): with another key, middle topic,"
                " or number of its partitions",
                remedy="set that back, or begin with a new kafka.group_id, middle and output (docs/partitioning.md)",
                finding="meaning-differs",
            )
        for was, is_now, why in (
            (note.cluster_id, found.cluster_id, "the offset was committed on another cluster"),
            (note.input_id, found.input_id, INPUT_MADE_AGAIN),
            (note.output_id, found.output_id, f"{middle} was made again"),
        ):
            if differs(was, is_now):
                return Resume(found.input_start, False, why, anew=True)
    return within_bounds(committed.offset, found.input_start, found.input_end, source)
