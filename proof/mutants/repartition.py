"""How the stages of `source.repartition` lose or double an event, or mislead."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.delivery.middle import Middle
from streamdedup.delivery.resume import PartitionState, Resume
from streamdedup.events import Column, EventBatch, Integers
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.origin_header import unmarked
from streamdedup.keys.placement import NOWHERE
from streamdedup.repartition import pieces, resume
from streamdedup.repartition.heads import Heads
from streamdedup.repartition.lost_markers import finish_copies
from streamdedup.repartition.offsets import of_each
from streamdedup.repartition.purge import Purge
from streamdedup.repartition.resume import input_offset
from streamdedup.repartition.skew import NO_TIMES, Wait, heads_of
from streamdedup.repartition.stage import Stage
from streamdedup.repartition.transfer import Transfer
from streamdedup.settings import Settings
from streamdedup.settings.meaning import Meaning
from streamdedup.settings.stages import max_skew_ms

MUTANTS = (
    Mutant(
        "misplaced-copies-judged",
        "an event of the middle topic lies where its key belongs (rule 20)",
        lambda: replaced(Middle.check_placement, _nothing),
        ("test_a_misplaced_event_stops_the_shard",),
    ),
    Mutant(
        "misplaced-outputs-folded",
        "an event of the output lies where its key belongs (rule 20)",
        lambda: replaced(Middle.check_placement, _nothing),
        ("test_a_misplaced_event_of_the_output_stops_the_fold",),
    ),
    Mutant(
        "placed-by-record-key",
        "a copy goes where its judged key leads (rule 20)",
        lambda: patch.object(pieces, "partitions_of", _nowhere),
        ("test_each_key_passes_once",),
    ),
    Mutant(
        "markers-of-copies-left-lost",
        "a transaction whose markers the broker lost is ended as it had ended (rule 22)",
        lambda: replaced(finish_copies, _nothing),
        ("test_lost_markers_are_made_good",),
    ),
    Mutant(
        "a-deleted-group-is-a-birth",
        "`source.start` applies once (rule 23)",
        lambda: replaced(Stage._was_used, _false),
        ("test_deleted_groups_lose_and_double_nothing[copying]",),
    ),
    Mutant(
        "middle-ids-ignored",
        "offsets count for the middle topic that they name (rule 23)",
        lambda: patch.object(resume, "differs", lambda _one, _other: False),
        ("test_a_middle_that_was_made_again_is_filled_anew",),
    ),
    Mutant(
        "stage-of-any-meaning",
        "offsets of another meaning stop their partition (rule 20)",
        lambda: replaced(input_offset, _of_any_meaning),
        ("test_another_meaning_stops",),
    ),
    Mutant(
        "strangers-judged",
        "an event of the middle topic without our origin stops its shard (rule 24)",
        lambda: replaced(Middle.stripped, _trusting),
        ("test_an_event_of_a_stranger_stops_the_shard",),
    ),
    Mutant(
        "origins-left-on",
        "events of the output are those of the input (rule 24)",
        lambda: replaced(Middle.stripped, _as_read),
        ("test_copies_are_judged_and_emitted_as_they_lay_in_the_input",),
    ),
    Mutant(
        "copied-without-end",
        "the first stage pauses for what the second has not read (rule 25)",
        lambda: replaced(Transfer._room, _nothing),
        ("test_it_pauses_between_transactions",),
    ),
    Mutant(
        "purged-ahead",
        "nothing is purged before it is committed (rule 26)",
        lambda: replaced(Purge.__init__, purging_ahead),
        ("test_the_purge_follows_the_commits",),
    ),
    Mutant(
        "purged-by-name",
        "a topic that was made again is not purged (rule 26)",
        lambda: replaced(Purge.once, _without_looking),
        ("test_the_purge_spares_a_topic_that_was_made_again",),
    ),
    Mutant(
        "ahead-without-end",
        "no partition is copied further than max_skew ahead of the slowest (rule 29)",
        lambda: replaced(Wait.waits_for, lambda *_: None),
        ("test_a_partition_waits_for_one_that_is_behind",),
    ),
    Mutant(
        "batches-left-whole",
        "a batch that reaches too far ahead is cut (rule 29)",
        lambda: replaced(Wait.events, lambda self, _standings: len(self._heads)),
        ("test_a_backlog_is_judged_in_the_order_of_its_times",),
    ),
    Mutant(
        "waits-without-end",
        "a wait ends when the slow partition has copied what it held (rule 29)",
        lambda: replaced(Wait._awaited, lambda *_: False),
        ("test_a_wait_ends_when_the_slow_one_has_copied_what_it_held",),
    ),
    Mutant(
        "nothing-read-ahead",
        "one event of the present holds no backlog back (rule 29)",
        lambda: replaced(Stage._read_ahead, _nothing_ahead),
        ("test_one_event_of_the_present_leaves_no_other_late",),
    ),
    Mutant(
        "a-wrong-head-kept",
        "a head that came from a wrong time is dropped (rule 29)",
        lambda: replaced(heads_of, _never_back),
        ("test_the_heads_of_a_batch",),
    ),
    Mutant(
        "open-transactions-read",
        "events of an open transaction are unread (rule 29)",
        lambda: replaced(Heads._ends, _stable),
        ("test_events_of_an_open_transaction_are_unread",),
    ),
    Mutant(
        "windows-of-retention-alone",
        "the windows cover retention and max_skew (rule 29)",
        lambda: replaced(max_skew_ms, lambda _settings: None),
        ("test_the_windows_cover_the_skew",),
    ),
    Mutant(
        "a-loop-by-pattern",
        "a deployment's own topics are never its inputs (rule 30)",
        lambda: patch.object(Settings, "own_topics", frozenset()),
        ("test_the_deployments_own_topics_never_match",),
    ),
    Mutant(
        "new-inputs-at-the-latest",
        "an input that comes is read from its first event (rule 30)",
        lambda: replaced(input_offset, _always_born),
        ("test_a_topic_that_appears_later_is_read_from_its_first_event",),
    ),
    Mutant(
        "inputs-in-the-meaning",
        "inputs come and go without a new group (rule 30)",
        lambda: patch.object(Meaning, "of", _of_inputs),
        ("test_inputs_are_no_meaning_of_a_stage",),
    ),
    Mutant(
        "skew-of-one-input",
        "the partitions of all inputs are kept together in event time (rule 30)",
        lambda: replaced(Heads.begin, _within_the_first),
        ("test_the_partitions_of_all_inputs_are_kept_together",),
    ),
)

_input_offset, _init, _begin = input_offset, Purge.__init__, Heads.begin
_heads_of = heads_of
_meaning_of = Meaning.of


async def _nothing(*_: Any, **__: Any) -> None: ...


async def _nothing_ahead(*_: Any) -> tuple[None, Integers]:
    return None, NO_TIMES


async def _false(*_: Any) -> bool:
    return False


def _nowhere(keys: Column, _partitions: int) -> Integers:
    return np.full(len(keys), NOWHERE)


def _of_any_meaning(found: PartitionState, *arguments: Any, is_birth: bool) -> Resume:
    if (committed := found.committed) and committed.note is not None:
        note = replace(committed.note, meaning=None)
        found = replace(found, committed=replace(committed, note=note))
    return _input_offset(found, *arguments, is_birth=is_birth)


def _of_inputs(settings: Settings) -> Meaning:
    return replace(_meaning_of(settings), source=settings.source.shown)


def _always_born(*arguments: Any, **_is_birth: bool) -> Resume:
    return _input_offset(*arguments, is_birth=True)


def _within_the_first(
    self: Heads, partitions: Sequence[InputPartition], stopped: Mapping[InputPartition, str]
) -> Any:
    of_one = [partition for partition in partitions if partition.topic == partitions[0].topic]
    return _begin(self, of_one, stopped)


def _never_back(timestamps: Integers, before: int | None, after: Integers) -> Integers:
    heads = _heads_of(timestamps, before, after)
    return heads if before is None else np.maximum(heads, before)


async def _stable(
    self: Heads, partitions: Sequence[InputPartition]
) -> Mapping[InputPartition, int]:
    return await of_each(partitions, self._cluster.stable_offsets)


async def _trusting(self: Middle, batch: EventBatch) -> EventBatch:
    ours, stranger = unmarked(batch, self.group)
    return ours if stranger is None or len(ours) else batch


async def _as_read(_self: Middle, batch: EventBatch) -> EventBatch:
    return batch


def purging_ahead(
    self: Purge,
    cluster: Any,
    middle: str,
    topic_id: str | None,
    committed: Callable[[], Mapping[int, int]],
) -> None:
    """Take one event more for committed, in place of `Purge.__init__`."""
    _init(self, cluster, middle, topic_id, lambda: {p: at + 1 for p, at in committed().items()})


async def _without_looking(self: Purge) -> None:
    await self._cluster.delete_records(self._middle, self._committed())
