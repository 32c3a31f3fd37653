"""How explain is broken: it forgets what is pending, the fold after a snapshot, the floor, what it touched."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from proof.mutants.mutant import Mutant
from proof.mutants.patches import replaced
from streamdedup.delivery.fold import FoldedMemory
from streamdedup.delivery.shard import Shard
from streamdedup.explain import known
from streamdedup.explain.known import State
from streamdedup.explain.places import PlaceInInput, place_of
from streamdedup.snapshot.touched import TouchedReader

MUTANTS = (
    Mutant(
        "explain-forgets-pending",
        "what is pending is waited for, and never unknown",
        lambda: replaced(known.state_of, _as_far_as_decided),
        ("test_what_is_pending_is_waited_for",),
    ),
    Mutant(
        "explain-forgets-the-fold",
        "what the output has after the snapshot is known",
        lambda: replaced(FoldedMemory._fold, _not_folded),
        ("test_what_the_output_has_after_the_snapshot_is_known",),
    ),
    Mutant(
        "explain-forgets-the-floor",
        "nothing below the floor is known",
        lambda: patch.object(State, "floor", 0),
        ("test_nothing_below_the_floor_is_known[output]",),
    ),
    Mutant(
        "explain-trusts-what-it-touched",
        "what was touched of a snapshot is verified before an answer counts (invariant 9)",
        lambda: replaced(TouchedReader.check, lambda _: 0),
        ("test_a_damaged_snapshot_is_passed_over_and_stays",),
    ),
    Mutant(
        "explain-takes-any-equal-event",
        "of equal events the earliest passed",
        lambda: replaced(place_of, _here),
        ("test_of_equal_events_the_earliest_passed",),
    ),
)

_state_of = known.state_of


async def _as_far_as_decided(question: Any, partition: int) -> State:
    state = await _state_of(question, partition)
    return replace(state, pending=None)


async def _not_folded(_self: FoldedMemory, shard: Shard, found: Any, _foreign: object) -> None:
    """Take the filter of the snapshot as it is."""
    shard.end_fold(found.output_end)


async def _here(*_: object) -> PlaceInInput:
    return PlaceInInput(None, is_first=False)
