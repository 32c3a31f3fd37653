"""How a transaction is broken: what is rejected, what waits, what is awaited, what is committed with it."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.delivery import not_passed
from streamdedup.delivery.commit import Committer
from streamdedup.delivery.emit import Emitter
from streamdedup.delivery.leader_clocks import LeaderClocks
from streamdedup.delivery.not_passed import NotPassed
from streamdedup.delivery.second_writer import ForeignRange
from streamdedup.delivery.shard import Shard, verdicts_without_rules
from streamdedup.delivery.transactions import DecidedBatch, Transaction
from streamdedup.events import EventBatch, Integers, Verdict, Verdicts
from streamdedup.kafka import sink
from streamdedup.kafka.broker_clock import Span
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.sink import ForeignWriteError, KafkaWriter
from streamdedup.kafka.topics import Topic, Topology
from streamdedup.keys.extract import Keys
from streamdedup.rules.duplicates import Duplicates

MUTANTS = (
    Mutant(
        "gap-between-ours-not-noticed",
        "what comes between our events is noticed before the commit (rule 3)",
        lambda: replaced(KafkaWriter.settle, _settled_anywhere),
        ("test_foreign_markers_alone_stop_nobody",),
    ),
    Mutant(
        "note-names-no-output",
        "the commit's note names the logs that its offset belongs to (rule 4)",
        lambda: replaced(Note.encode, _encode_without_output),
        ("test_the_note_tells_the_logs_and_the_label",),
    ),
    Mutant(
        "deleted-at-once",
        "what the output would delete at once is rejected (rule 6)",
        lambda: patch.object(Topic, "deletes_by_age", new=False),
        ("test_the_narrower_of_retention_and_distance_counts",),
    ),
    Mutant(
        "rejected-waits",
        "what is rejected never enters pending (rule 8)",
        lambda: replaced(verdicts_without_rules, _rejected_judged),
        ("test_what_is_rejected_never_waits",),
    ),
    Mutant(
        "own-clock-believed",
        "what is rejected for its time is so by the broker's clock (rule 8)",
        lambda: replaced(LeaderClocks.present, _present_here),
        ("test_no_event_and_no_letter_is_judged_by_a_wrong_clock[-7200000]",),
    ),
    Mutant(
        "unjudged-waits",
        "what passes unjudged never enters pending (rule 8)",
        lambda: replaced(verdicts_without_rules, _unjudged_judged),
        ("test_what_has_no_key_never_waits",),
    ),
    Mutant(
        "limits-read-once",
        "limits are read again at each doubt (rule 8)",
        lambda: replaced(Emitter.observe, _observe_once),
        ("test_limits_are_read_anew_at_a_doubt",),
    ),
    Mutant(
        "send-not-awaited",
        "every send is awaited before the commit (rule 9)",
        lambda: replaced(KafkaWriter._post, _post_and_forget),
        ("test_what_the_broker_refuses_is_found_and_rejected",),
    ),
    Mutant(
        "abort-keeps-what-came-after",
        "an abort takes back all that came after (rule 9)",
        lambda: replaced(Duplicates.forget, _forget_the_open),
        ("test_the_next_is_decided_while_one_commits",),
    ),
    Mutant(
        "pending-kept-in-doubt",
        "a doubt drops pending (rule 9)",
        lambda: replaced(Shard.forget, lambda _self: None),
        ("test_the_next_is_decided_while_one_commits",),
    ),
    Mutant(
        "replaced-connection-trusted",
        "a replaced connection within a transaction is doubt (rule 9)",
        lambda: replaced(KafkaWriter._check_connections, lambda _self: None),
        ("test_a_late_duplicate_hits_no_later_transaction[replaced connection-end]",),
    ),
    Mutant(
        "deadline-beyond-the-time-out",
        "a transaction's deadline is shorter than a request's time-out (rule 9)",
        lambda: patch.object(sink, "DEADLINE_SHARE", 7.5),
        ("test_a_late_duplicate_hits_no_later_transaction[deadline-end]",),
    ),
    Mutant(
        "at-least-once-stopped",
        "at least once, what came between is folded, and delivery goes on (rule 18)",
        lambda: replaced(Committer._settle, _settle_as_exactly_once),
        ("test_at_least_once_folds_a_foreign_event_and_goes_on",),
    ),
    Mutant(
        "dropped-events-keep-their-keys",
        "what is noted of an event that did not pass holds no key",
        lambda: replaced(not_passed._noted, _noted_with_key),
        ("test_no_key_is_kept", "test_sigusr2_logs_what_did_not_pass"),
    ),
    Mutant(
        "dropped-before-the-commit",
        "an event that is taken back is not noted as one that did not pass",
        lambda: replaced(Committer.commit, _noted_at_once),
        ("test_what_is_taken_back_is_not_noted",),
    ),
    Mutant(
        "committed-before-the-output",
        "at least once, the offset is committed after the output (rule 18)",
        lambda: replaced(Committer.commit, _commit_first),
        ("test_at_least_once_commits_what_the_output_holds",),
    ),
)

_encode, _observe = Note.encode, Emitter.observe
_settle, _post = KafkaWriter.settle, KafkaWriter._post
_commit_one, _commit_offset = Committer.commit, Committer._commit
_settle_one = Committer._settle
_noted = not_passed._noted


async def _settled_anywhere(self: KafkaWriter, _label: int | None) -> int | None:
    return await _settle(self, None)


def _encode_without_output(self: Note) -> str:
    return _encode(replace(self, output_id=None))


def _rejected_judged(keys: Keys, rejected: Any) -> tuple[Verdicts, Integers]:
    verdicts, rows = verdicts_without_rules(keys, rejected)
    return verdicts, np.union1d(rows, np.array(rejected, np.int64))


def _present_here(self: LeaderClocks, _partition: int) -> Span:
    return Span.at(self._clock._now_ms())


def _unjudged_judged(keys: Keys, rejected: Any) -> tuple[Verdicts, Integers]:
    return verdicts_without_rules(replace(keys, unjudged=()), rejected)


def _observe_once(self: Emitter, topology: Topology) -> None:
    if not self._limits:
        _observe(self, topology)


async def _post_and_forget(self: KafkaWriter, topic: str, partition: int, batch: Any) -> None:
    await _post(self, topic, partition, batch)
    self._sent.clear()


def _forget_the_open(self: Duplicates) -> None:
    self._open = 0


async def _settle_as_exactly_once(
    self: Committer, shard: Shard, transaction: Transaction
) -> int | None:
    try:
        return await _settle_one(self, shard, transaction)
    except ForeignWriteError as error:
        self.foreign = ForeignRange(shard.label, error.found, self._writer.producer_id)
        raise


async def _commit_first(
    self: Committer, shard: Shard, topology: Topology, one: Transaction
) -> None:
    async def settle(*arguments: Any) -> int | None:
        await _commit_offset(self, topology, one)
        return await _settle_one(self, *arguments)

    async def nothing(*_: Any) -> None: ...

    if self._recipe.exactly_once:
        await _commit_one(self, shard, topology, one)
        return
    with (
        patch.object(self, _settle_one.__name__, settle),
        patch.object(self, _commit_offset.__name__, nothing),
    ):
        await _commit_one(self, shard, topology, one)


def _noted_with_key(batch: EventBatch, row: int, verdict: Verdict, reason: str) -> NotPassed:
    key = (batch.keys[row] or b"").decode(errors="replace")
    return _noted(batch, row, verdict, f"{reason}: {key}")


async def _noted_at_once(
    self: Committer, shard: Shard, topology: Topology, one: Transaction
) -> None:
    emit = self._emitter.emit

    async def noting(part: DecidedBatch) -> list[NotPassed]:
        found = await emit(part)
        self._services.not_passed.add(found)
        return found

    with patch.object(self._emitter, emit.__name__, noting):
        await _commit_one(self, shard, topology, one)
