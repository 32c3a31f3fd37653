"""How the invariants are broken, and what `reset` promises."""

import os
from dataclasses import replace
from stat import S_ISDIR
from typing import Any
from unittest.mock import patch

import numpy as np

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.commands.reset import _Group, note_after
from streamdedup.delivery.commit import Committer
from streamdedup.delivery.emit import Emitter
from streamdedup.delivery.fold import FoldedMemory
from streamdedup.delivery.resume import PartitionState
from streamdedup.delivery.shard import Decided, Shard
from streamdedup.delivery.snapshots import _has_moved
from streamdedup.delivery.transactions import DecidedBatch, Transaction
from streamdedup.delivery.turns import in_turns
from streamdedup.events import Verdict, Verdicts
from streamdedup.filters.base import Mask
from streamdedup.kafka.offsets import Note
from streamdedup.keys.hashing import Digests
from streamdedup.metrics.counts import ShardMeters
from streamdedup.rules.pending import PendingDigests, PendingTable, _put_new
from streamdedup.rules.pending_in_time import _judge as _judge_in_time
from streamdedup.snapshot import Identity, files
from streamdedup.snapshot.files import FileSystem, publish
from streamdedup.snapshot.format import Sums
from streamdedup.snapshot.read import SnapshotReader
from streamdedup.snapshot.store import _check_not_ahead

MUTANTS = (
    Mutant(
        "admit-before-commit",
        "a key enters the filter only when its event is committed (invariant 2)",
        lambda: replaced(Committer._settle, _admitting),
        ("test_the_next_is_decided_while_one_commits",),
    ),
    Mutant(
        "pending-not-consulted",
        "a duplicate of an event in flight is seen (invariant 2)",
        lambda: replaced(_put_new, _in_a_copy),
        ("test_a_duplicate_is_seen_before_its_first_is_committed",),
    ),
    Mutant(
        "pending-not-consulted-in-a-window",
        "a duplicate of an event in flight is seen by a window (invariant 2)",
        lambda: replaced(_judge_in_time, _in_time_in_a_copy),
        ("test_verdicts_are_those_of_the_events_times",),
    ),
    Mutant(
        "twice-in-a-batch",
        "a key passes once within what is judged together (invariant 2)",
        lambda: replaced(PendingDigests.judge, _as_its_first),
        ("test_a_duplicate_is_seen_before_its_first_is_committed",),
    ),
    Mutant(
        "label-ahead",
        "a label is never ahead of what is folded (invariant 3)",
        lambda: replaced(Committer._settle, _ahead),
        ("test_the_label_is_behind_our_last_event[exactly_once]",),
    ),
    Mutant(
        "label-behind-the-marker",
        "what a second writer puts before our marker is folded (invariant 3, rule 3)",
        lambda: replaced(Committer._settle, _behind_the_marker),
        ("test_the_label_is_behind_our_last_event[exactly_once]",),
    ),
    Mutant(
        "snapshot-ahead-of-the-output",
        "a snapshot beyond the output's end is refused (invariant 3)",
        lambda: replaced(_check_not_ahead, lambda *_: None),
        ("test_what_is_ahead_of_the_output_is_refused_and_left",),
    ),
    Mutant(
        "snapshot-of-two-states",
        "a snapshot holds one state (invariant 3)",
        lambda: replaced(_has_moved, lambda *_: False),
        ("test_a_copy_that_spans_a_change_is_void",),
    ),
    Mutant(
        "snapshot-of-other-settings",
        "a snapshot of another log or of other settings is refused (invariant 3)",
        lambda: replaced(Identity.differences, lambda _self, _other: []),
        ("test_another_log_or_other_settings_are_refused_and_left",),
    ),
    Mutant(
        "rejected-not-counted",
        "every event has one outcome, and dead letters are counted (invariant 4)",
        lambda: replaced(Shard._count, _without_rejected),
        ("test_what_is_rejected_never_waits",),
    ),
    Mutant(
        "dropped-unasked",
        "nothing is dropped that nobody asked to drop (invariant 4)",
        lambda: replaced(Emitter._reasons, _never_stopping),
        ("test_without_a_topic_for_dead_letters_the_partition_stops_and_says_why",),
    ),
    Mutant(
        "taken-back-not-counted",
        "what is read again in doubt is not counted twice (invariant 4)",
        lambda: replaced(ShardMeters.doubt, _only_counted),
        ("test_a_doubt_takes_back_all_that_is_in_hand",),
    ),
    Mutant(
        "time-not-in-the-note",
        "a window's time is committed with the offset (invariant 5)",
        lambda: replaced(Transaction.close, _timeless),
        ("test_the_time_of_a_trimmed_output_stands_in_the_commit",),
    ),
    Mutant(
        "budget-not-kept",
        "no filter goes past its error budget unasked (invariant 7)",
        lambda: replaced(Shard.decide, _past_the_budget),
        ("test_a_batch_is_cut_before_the_first_key_too_many",),
    ),
    Mutant(
        "fsync-left-out",
        "a snapshot survives a loss of power whole, or not at all",
        lambda: replaced(publish, _unsynced),
        ("test_power_may_fail_after_any_call_and_the_old_or_the_new_is_loaded",),
    ),
    Mutant(
        "name-not-synced",
        "a snapshot that was saved outlives a loss of power (invariant 9)",
        lambda: patch.object(files, "sync_directory", lambda *_: None),
        ("test_power_may_fail_after_any_call_and_the_old_or_the_new_is_loaded",),
    ),
    Mutant(
        "damaged-byte-trusted",
        "a damaged byte is found (invariant 9)",
        lambda: replaced(SnapshotReader._compare, _passed_over),
        ("test_a_damaged_generation_is_set_aside_and_the_one_before_used[5000]",),
    ),
    Mutant(
        "files-for-all",
        "snapshots are private (invariant 10)",
        lambda: replaced(publish, _for_all),
        ("test_files_are_private",),
    ),
    Mutant(
        "floor-not-set",
        "`reset --forget` sets a floor",
        lambda: replaced(note_after, _without_a_floor),
        ("test_forgetting_sets_a_floor_and_the_time_back",),
    ),
    Mutant(
        "floor-not-carried-on",
        "every commit carries the floor of `reset --forget` on",
        lambda: replaced(Committer._commit, _without_the_floor),
        ("test_forgetting_emits_every_first_again_once",),
    ),
    Mutant(
        "floor-folded-over",
        "what stands below the floor of `reset --forget` is forgotten",
        lambda: replaced(FoldedMemory._restore, _from_the_start),
        ("test_forgetting_what_comes_later_only",),
    ),
    Mutant(
        "reset-fences-nobody",
        "a reset shuts out a worker that sleeps",
        lambda: replaced(_Group._fence, _nobody),
        ("test_a_sleeping_worker_wakes_up_fenced",),
    ),
)

_settle, _commit, _restore = Committer._settle, Committer._commit, FoldedMemory._restore
_decide, _count, _judge = Shard.decide, Shard._count, PendingDigests.judge
_reasons, _close = Emitter._reasons, Transaction.close


async def _admitting(self: Committer, shard: Shard, transaction: Transaction) -> int | None:
    end = await _settle(self, shard, transaction)
    await in_turns(Shard.admit(shard, shard.label if end is None else end))
    vars(shard)["admit"] = lambda _label: iter(())  # it is done
    return end


async def _ahead(self: Committer, shard: Shard, transaction: Transaction) -> int | None:
    return (await _settle(self, shard, transaction) or shard.label) + 3


async def _behind_the_marker(self: Committer, shard: Shard, transaction: Transaction) -> int:
    return (await _settle(self, shard, transaction) or shard.label - 1) + 1


async def _without_the_floor(self: Committer, *arguments: Any) -> None:
    with patch.object(self, "_ground", replace(self._ground, floor=None)):
        await _commit(self, *arguments)


async def _from_the_start(self: FoldedMemory, identity: Identity, *found: Any) -> Shard:
    shard = await _restore(self, identity, *found)
    if shard.label == found[0].floor:
        shard.label = shard.end_label = 0
    return shard


def _in_a_copy(table: PendingTable, *rest: Any) -> int:
    return _put_new(table._replace(slots=table.slots.copy()), *rest)


def _in_time_in_a_copy(table: PendingTable, *rest: Any) -> int:
    return _judge_in_time(table._replace(slots=table.slots.copy()), *rest)


def _as_its_first(self: PendingDigests, digests: Digests, known: Mask, most: int) -> Verdicts:
    verdicts = _judge(self, digests, known, most)
    judged = digests[: len(verdicts)]
    _, first, same = np.unique(judged, axis=0, return_index=True, return_inverse=True)
    return verdicts[first][same]


def _without_rejected(self: Shard, verdicts: Verdicts, *rest: Any) -> None:
    _count(self, verdicts[verdicts != Verdict.REJECTED], *rest)


def _past_the_budget(self: Shard, *arguments: Any, **more: Any) -> Decided:
    with patch.object(self, "_stop_when_full", new=False):
        return _decide(self, *arguments, **more)


def _never_stopping(self: Emitter, part: DecidedBatch) -> dict[int, str]:
    with patch.object(self, "_sink", self._sink.model_copy(update={"on_rejected": "dead_letter"})):
        return _reasons(self, part)


def _only_counted(self: ShardMeters, cause: str) -> None:
    self.doubts[cause] += 1


class _Changed:
    """A file system with some calls changed."""

    def __init__(self, fs: FileSystem, **calls: object) -> None:
        self._fs = fs
        vars(self).update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)


def _unsynced(fs: FileSystem, *rest: Any) -> int:
    def fsync(fd: int) -> None:
        if S_ISDIR(os.fstat(fd).st_mode):
            fs.fsync(fd)

    changed: Any = _Changed(fs, fsync=fsync)
    return publish(changed, *rest)


def _for_all(fs: FileSystem, *rest: Any) -> int:
    def opened(path: Any, flags: int, *mode: int) -> int:
        return fs.open(path, flags, *(each | 0o044 for each in mode))

    changed: Any = _Changed(fs, open=opened)
    return publish(changed, *rest)


def _passed_over(self: SnapshotReader, sums: Sums) -> None:
    self._take(sums.nbytes)


def _without_a_floor(found: PartitionState, to: int, *, forget: bool) -> Note:
    return replace(note_after(found, to, forget=forget), floor=found.floor, since=found.since)


async def _nobody(_self: _Group, _partition: int) -> None:
    """Shut out nobody."""


def _timeless(self: Transaction, next_offset: int, _watermark: int | None) -> None:
    _close(self, next_offset, None)
