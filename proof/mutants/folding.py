"""How the fold of the output is broken: gaps under it, snapshots against retention, fingerprints, keys added twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any
from unittest.mock import patch

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.delivery.fold import FoldedMemory, _foreign_at
from streamdedup.delivery.second_writer import _last
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.events import EventBatch, Fingerprint
from streamdedup.kafka.base import Cluster
from streamdedup.kafka.cluster import KafkaCluster
from streamdedup.kafka.log import TrimmedError
from streamdedup.rules.duplicates import adder
from streamdedup.snapshot import Identity
from streamdedup.worker.assignment import Assignment

MUTANTS = (
    Mutant(
        "second-writer-folded",
        "a second writer stops the shard (rule 3)",
        lambda: replaced(_foreign_at, lambda *_: None),
        ("test_a_second_writers_event_stops_before_the_commit",),
    ),
    Mutant(
        "our-write-is-anothers",
        "who wrote last to an output that has a second writer is not we (rule 3)",
        lambda: replaced(_last, _with_ours),
        ("test_a_writer_without_an_id_is_said_to_have_none",),
    ),
    Mutant(
        "trimmed-under-a-fold",
        "what is deleted under a fold is a gap like any other (rule 5)",
        lambda: replaced(KafkaCluster.committed_events, _up_to_what_was_trimmed),
        ("test_an_output_trimmed_while_it_is_folded",),
    ),
    Mutant(
        "snapshot-never-due",
        "a snapshot is due before retention takes the last but one (rule 6)",
        lambda: replaced(ShardSnapshots.due, lambda *_: False),
        ("test_a_snapshot_is_due_while_one_alone_can_be_used",),
    ),
    Mutant(
        "retention-not-watched",
        "where the output begins is watched while a worker runs (rule 6)",
        lambda: replaced(Assignment.outrun_retention, _unwatched),
        ("test_a_snapshot_is_taken_before_retention_takes_the_last_but_one",),
    ),
    Mutant(
        "fingerprint-not-compared",
        "another record batch in the place of ours is another log (rule 7)",
        lambda: replaced(Fingerprint.__eq__, lambda *_: True),
        ("test_another_batch_in_the_place_of_ours_contradicts",),
    ),
    Mutant(
        "memory-of-another-log",
        "a filter in memory is dropped if the log was replaced (rule 7)",
        lambda: replaced(FoldedMemory._remembered, _unlooked_at),
        ("test_a_memory_of_another_log_is_dropped",),
    ),
    Mutant(
        "fold-deadline-on-the-total",
        "the deadline of a fold is on its progress (rule 9)",
        lambda: replaced(KafkaCluster.committed_events, _within_a_total),
        ("test_a_fold_may_take_long_as_long_as_it_moves",),
    ),
    Mutant(
        "fold-adds-again",
        "a fold makes the table that was alive (rule 15)",
        lambda: replaced(adder, lambda seen: seen.add_many),
        ("test_folding_again_from_an_earlier_label_does_no_harm",),
    ),
)

_remembered, _committed_events = FoldedMemory._remembered, KafkaCluster.committed_events


async def _with_ours(cluster: Cluster, output: str, partition: int, _ours: int) -> str:
    return await _last(cluster, output, partition, -1)


async def _up_to_what_was_trimmed(
    self: KafkaCluster, *log: Any, **more: Any
) -> AsyncIterator[EventBatch]:
    with suppress(TrimmedError):
        async with aclosing(_committed_events(self, *log, **more)) as batches:
            async for batch in batches:
                yield batch


async def _unwatched(*_: Any) -> None:
    """What retention has deleted is not asked for."""


async def _unlooked_at(self: FoldedMemory, identity: Identity) -> Shard | None:
    async def unknown(_folded: object) -> None: ...

    with patch.object(self, FoldedMemory._in_place_of.__name__, unknown):
        return await _remembered(self, identity)


async def _within_a_total(
    self: KafkaCluster, *log: Any, stall_s: float
) -> AsyncIterator[EventBatch]:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + stall_s
    async with aclosing(_committed_events(self, *log, stall_s=stall_s)) as batches:
        async for batch in batches:
            yield batch
            if loop.time() > ends_at:
                raise TimeoutError
