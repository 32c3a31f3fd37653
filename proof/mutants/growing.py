"""How a window that grows would lose keys, memory or its error rate; and a filter beyond its capacity its end."""

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np

from proof.mutants.mutant import Mutant
from proof.mutants.patches import recompiled, replaced
from streamdedup.filters import stash
from streamdedup.filters.base import Mask
from streamdedup.filters.digest_filter import KEYS
from streamdedup.filters.growing.window_stages import StagedTable
from streamdedup.filters.memory import Counts
from streamdedup.filters.stash import Stash
from streamdedup.filters.window.cells import WindowLayout
from streamdedup.filters.window.clock import NEVER, Generations
from streamdedup.filters.window.placing import _beyond
from streamdedup.keys.hashing import Digests
from streamdedup.rules import duplicates

MUTANTS = (
    Mutant(
        "stages-ever-larger",
        "a stage that has drained is made again, so that indexes and error budgets last",
        lambda: replaced(StagedTable._missing, _above_all),
        (
            "test_a_burst_is_held_and_its_memory_comes_back",
            "test_thousands_of_turns_keep_the_budget",
        ),
    ),
    Mutant(
        "drained-stages-are-kept",
        "a window gives back the memory of keys that it has forgotten",
        lambda: replaced(StagedTable._drop, lambda _table: None),
        ("test_a_burst_is_held_and_its_memory_comes_back", "test_no_stage_outlives_its_keys"),
    ),
    Mutant(
        "older-stages-are-not-asked",
        "a key is found in any stage",
        lambda: replaced(StagedTable._found, _in_the_newest),
        ("test_it_shrinks_while_events_go_on",),
    ),
    Mutant(
        "a-stage-takes-any-number",
        "no stage holds more keys than its share of the error rate is for",
        lambda: replaced(StagedTable._fitting, _all_of_them),
        ("test_a_burst_is_held_and_its_memory_comes_back",),
    ),
    Mutant(
        "max-size-without-stashes",
        "what keys that somebody chose take is within max_size",
        lambda: patch.object(stash, "spare_bytes", lambda: 0),
        ("test_what_somebody_chooses_stays_within_max_size",),
    ),
    Mutant(
        "a-hundredth-of-a-window-in-its-stash",
        "the stash of a window is bounded like that of other kinds",
        lambda: recompiled(_beyond, _a_hundredth_more),
        ("test_chosen_keys_of_a_window_are_refused",),
        fresh_kernels=True,
    ),
    Mutant(
        "warn-without-end",
        "on_full: warn stops before the keys without a cell take memory without limit",
        lambda: patch.object(Stash, "overfull", property(lambda _stash: False)),
        ("test_it_stops_before_its_memory_grows_without_end",),
    ),
    Mutant(
        "long-steps-beyond-the-capacity",
        "beyond the capacity few keys are added in a turn of the loop",
        lambda: patch.object(duplicates, "ROWS_A_STEP_BEYOND", duplicates.ROWS_A_STEP),
        ("test_beyond_the_capacity_steps_are_short",),
    ),
)

_found = StagedTable._found


def _above_all(table: StagedTable) -> Iterator[int]:
    return iter(range(max(table.tables) + 1, table.most))


def _in_the_newest(table: StagedTable, digests: Digests) -> tuple[Generations, Generations]:
    here, elsewhere = _found(table, digests)
    return here, np.full_like(elsewhere, NEVER)


def _all_of_them(_table: StagedTable, takes: Mask) -> int:
    return len(takes)


def _a_hundredth_more(layout: WindowLayout, counts: Counts) -> int:
    capacity = np.int64(layout.capacity)
    return int(max(np.int64(0), counts[KEYS] - capacity) + capacity // 100)
