"""How the decision where reading goes on is broken: void offsets, births, gaps, growth."""

from dataclasses import replace
from typing import Any

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.delivery.lifecycle import Delivery
from streamdedup.delivery.resume import (
    PartitionState,
    Resume,
    _without_offset,
    check_memory,
    check_output,
    growth,
    input_offset,
    is_outlived,
    within_bounds,
)
from streamdedup.kafka.options import SinkOptions, SourceOptions
from streamdedup.kafka.topics import FOREVER, Topic

MUTANTS = (
    Mutant(
        "offset-of-another-input",
        "an offset of another input is void (rule 4)",
        lambda: replaced(input_offset, _of_any_input),
        ("test_an_offset_of_another_log_is_void",),
    ),
    Mutant(
        "output-made-again-not-noticed",
        "an output that was made again stops the shard (rule 4)",
        lambda: replaced(check_output, _made_again_unseen),
        ("test_an_output_that_was_made_again_stops",),
    ),
    Mutant(
        "lost-end-not-noticed",
        "an output that lost its end stops the shard (rule 4)",
        lambda: replaced(check_output, _lost_end_unseen),
        ("test_an_output_that_lost_its_end_stops",),
    ),
    Mutant(
        "lost-offset-is-a-birth",
        "a lost offset is no birth if the output is not empty (rule 4)",
        lambda: replaced(_without_offset, _born_over_an_output),
        ("test_a_lost_offset_is_no_birth",),
    ),
    Mutant(
        "birth-not-committed",
        "`source.start` is resolved once: a crash cannot move it (rule 4)",
        lambda: replaced(Delivery._commit_start, _uncommitted),
        ("test_a_birth_that_fails_is_still_a_birth",),
    ),
    Mutant(
        "gap-passed-over",
        "an output that was trimmed beyond the snapshots stops the shard (rule 5)",
        lambda: replaced(check_memory, _gap_accepted),
        ("test_an_output_that_was_trimmed_beyond_the_label_stops",),
    ),
    Mutant(
        "unread-passed-over",
        "what the input deleted unread stops the shard (rule 5)",
        lambda: replaced(within_bounds, _unread_skipped),
        ("test_an_offset_outside_of_the_input_stops_or_skips",),
    ),
    Mutant(
        "retention-taken-for-outlived",
        "only what is older than the window may be missing (rules 5, 6)",
        lambda: replaced(is_outlived, _outlived_by_any_retention),
        ("test_what_retention_deletes_may_be_older_than_the_window",),
    ),
    Mutant(
        "growth-not-noticed",
        "growth of the input is refused (rule 14)",
        lambda: replaced(growth, lambda _found, _source: None),
        ("test_an_input_that_has_grown_is_refused",),
    ),
    Mutant(
        "younger-partition-skipped",
        "a partition that is younger than the group is read from its start (rule 14)",
        lambda: replaced(_without_offset, _old_as_the_group),
        ("test_a_partition_that_is_younger_than_the_group_is_read_from_its_start",),
    ),
)


def _of_any_input(found: PartitionState, *options: Any, **more: Any) -> Resume:
    return input_offset(replace(found, input_id=None), *options, **more)


def _made_again_unseen(found: PartitionState, sink: SinkOptions) -> None:
    check_output(replace(found, output_id=None), sink)


def _lost_end_unseen(found: PartitionState, sink: SinkOptions) -> None:
    check_output(replace(found, output_end=FOREVER), sink)


def _born_over_an_output(found: PartitionState, source: SourceOptions, remembers: bool) -> Resume:
    return _without_offset(replace(found, output_end=0), source, remembers)


async def _uncommitted(*_start: Any) -> None:
    """Where the group begins is decided anew by whoever comes after a crash."""


def _gap_accepted(label: int, found: PartitionState, sink: SinkOptions, **more: Any) -> str | None:
    return check_memory(label, found, sink.model_copy(update={"on_gap": "accept"}), **more)


def _unread_skipped(offset: int, start: int, end: int, source: SourceOptions) -> Resume:
    return within_bounds(offset, start, end, source.model_copy(update={"on_gap": "skip"}))


def _outlived_by_any_retention(
    output: Topic, now_ms: int, watermark: int | None, _window_ms: int
) -> bool:
    return is_outlived(output, now_ms, watermark, -FOREVER)


def _old_as_the_group(found: PartitionState, source: SourceOptions, remembers: bool) -> Resume:
    return _without_offset(replace(found, partition=-1), source, remembers)
