"""How reading and copying by the record batch are broken."""

from unittest.mock import ANY, patch

from streamdedup.kafka import wire
from tests.mutants.mutant import Mutant
from tests.mutants.text import TextMutant

MUTANTS: tuple[Mutant | TextMutant, ...] = (
    TextMutant(
        "aborted-batches-read",
        "what is aborted is not seen, read as columns (invariant 4)",
        "kafka/columns.py",
        "if batch.is_control or (committed_only and hidden):",
        "if batch.is_control:",
        ("tests/test_record_paths.py::test_only_committed_events_are_read",),
    ),
    TextMutant(
        "abort-without-end",
        "what follows an abort of the same producer is seen, read as columns (invariant 4)",
        "kafka/columns.py",
        "self._aborted_producers.discard(batch.producer_id)",
        "pass",
        ("tests/test_record_paths.py::test_only_committed_events_are_read",),
    ),
    TextMutant(
        "whole-batch-read-again",
        "reading goes on within a record batch, not at its start (invariant 4)",
        "kafka/columns.py",
        "row = int(np.searchsorted(records.offsets, self.next_fetch_offset))",
        "row = 0",
        ("tests/test_record_paths.py::test_what_was_deleted_in_front_is_not_read",),
    ),
    TextMutant(
        "duplicates-copied-with-their-batch",
        "a record batch is copied as a whole only where all of it survives (invariant 4)",
        "kafka/open_batches.py",
        "survives = behind - first == origin.end - origin.start",
        "survives = behind > first",
        ("tests/test_record_paths.py::test_both_copy_the_same[none-none-a_tenth_of-exactly_once]",),
    ),
    Mutant(
        "columns-not-checked",
        "a damaged byte is never trusted (invariant 9)",
        lambda: patch.object(wire, "crc32c", lambda _bytes: ANY),
        ("test_what_stands_before_damage_is_given[1]",),
    ),
)
