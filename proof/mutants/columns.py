"""How reading and copying by the record batch are broken."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import ANY, patch

import numpy as np

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.client.columns import _PartitionColumns
from streamdedup.kafka.client.open_batches import OpenBatches
from streamdedup.kafka.records import wire
from streamdedup.kafka.records.wire import RecordBatch, is_abort, record_batches

MUTANTS = (
    Mutant(
        "aborted-batches-read",
        "what is aborted is not seen, read as columns (invariant 4)",
        lambda: replaced(record_batches, _outside_of_transactions),
        ("test_only_committed_events_are_read",),
    ),
    Mutant(
        "abort-without-end",
        "what follows an abort of the same producer is seen, read as columns (invariant 4)",
        lambda: replaced(is_abort, lambda _batch: False),
        ("test_only_committed_events_are_read",),
    ),
    Mutant(
        "whole-batch-read-again",
        "reading goes on within a record batch, not at its start (invariant 4)",
        lambda: replaced(_PartitionColumns._cut, _from_its_start),
        ("test_what_was_deleted_in_front_is_not_read",),
    ),
    Mutant(
        "duplicates-copied-with-their-batch",
        "a record batch is copied as a whole only where all of it survives (invariant 4)",
        lambda: replaced(OpenBatches.copy, _with_their_batch),
        ("test_copies_are_what_was_copied[none-none-a_tenth_of-exactly_once]",),
    ),
    Mutant(
        "columns-not-checked",
        "a damaged byte is never trusted (invariant 9)",
        lambda: patch.object(wire, "crc32c", lambda _bytes: ANY),  # equal to whatever was written
        ("test_what_stands_before_damage_is_given[1]",),
    ),
)

_cut, _copy = _PartitionColumns._cut, OpenBatches.copy


def _outside_of_transactions(data: bytes) -> Iterator[RecordBatch]:
    for batch in record_batches(data):
        yield replace(batch, is_transactional=False)


def _from_its_start(
    self: _PartitionColumns, together: list[RecordBatch], *rest: Any
) -> Iterator[EventBatch]:
    self.next_fetch_offset = together[0].base_offset
    yield from _cut(self, together, *rest)


def _with_their_batch(
    self: OpenBatches, topic: str, batch: EventBatch, rows: Integers, size_max: int
) -> Iterator[Any]:
    for origin in batch.origins:
        whole = np.arange(origin.start, origin.end)
        if np.isin(whole, rows).any() and self._verbatim(batch, origin, size_max):
            rows = np.union1d(rows, whole)
    return _copy(self, topic, batch, rows, size_max)
