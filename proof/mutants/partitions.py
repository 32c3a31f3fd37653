"""How it is hidden that events of one key come in several partitions."""

from typing import Any
from unittest.mock import patch

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.commands.audit.across import Across, EmittedKeys
from streamdedup.keys.sampling import Sample

MUTANTS = (
    Mutant(
        "one-key-in-4096",
        "few keys are compared in full",
        lambda: replaced(Sample.__init__, _of_few),
        ("test_of_3000_events_each_of_1402_duplicates_that_pass_is_seen",),
    ),
    Mutant(
        "evidence-kept-back",
        "an audit with evidence never says that the promise holds",
        lambda: patch.object(Across, "evidence", None),
        ("test_with_evidence_the_promise_holds_within_partitions_only",),
    ),
    Mutant(
        "first-partition-only",
        "an audit across partitions compares the keys of all of them",
        lambda: replaced(EmittedKeys.add, _first_only),
        ("test_across_partitions_each_copy_is_doubled",),
    ),
)

_init, _add = Sample.__init__, EmittedKeys.add


def _of_few(self: Sample, *arguments: Any, **named: Any) -> None:
    _init(self, *arguments, **named)
    self._state[0] = 0xFFF


def _first_only(self: EmittedKeys, partition: int, parts: Any) -> None:
    if partition == 0:
        _add(self, partition, parts)
