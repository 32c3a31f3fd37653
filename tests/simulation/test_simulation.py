"""Whole deployments by seeds: what no schedule and no fault may do, and that the oracle would see it."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from streamdedup.delivery import emit, fold, side_topics
from streamdedup.rules.lists import NOTHING_BLOCKED, Lists
from tests.simulation.mutants import mutants
from tests.simulation.plan import Plan, listed, screening, shadowed
from tests.simulation.run import simulate

SEEDS = 2_000
LISTED_SEEDS = 200
SEEDS_A_TEST = 100
MUTANT_SEEDS = 800  # the rarest is seen in one of 200


@pytest.mark.parametrize("start", range(0, SEEDS, SEEDS_A_TEST))
def test_no_schedule_loses_or_doubles_an_event(start: int) -> None:
    """Every key once, nothing foreign, every filter the fold of its output; whatever happened on the way."""
    for seed in range(start, start + SEEDS_A_TEST):
        outcome = simulate(seed)
        assert outcome.breach is None, again(seed, outcome.breach)


@pytest.mark.parametrize("changed", [listed, screening, shadowed])
@pytest.mark.parametrize("start", range(0, LISTED_SEEDS, SEEDS_A_TEST))
def test_with_a_block_list_no_schedule_does_either(
    start: int, changed: Callable[[Plan], Plan]
) -> None:
    """What is listed is where blocked events go, and no other event is; with a filter, and without any memory.

    And where it is marked as such, by workers in shadow mode among others that are not.
    """
    for seed in range(start, start + SEEDS_A_TEST):
        outcome = simulate(seed, changed=changed)
        assert outcome.breach is None, again(seed, outcome.breach)


@pytest.mark.parametrize(
    "broken",
    [
        patch.object(Lists, "screen", lambda *_: NOTHING_BLOCKED),
        patch.object(side_topics.Letters, "turns", lambda *_: iter(())),
    ],
    ids=["not screened", "not sent"],
)
def test_a_list_that_does_not_hold_is_seen(broken: AbstractContextManager[Any]) -> None:
    """The oracle misses what is blocked and nowhere, and sees what passes though it is listed."""
    with broken:
        assert any(simulate(seed, changed=screening).breach for seed in range(MUTANT_SEEDS))


@pytest.mark.parametrize(
    "broken",
    [
        patch.object(fold, "marks_of", lambda headers: np.zeros(len(headers), dtype=np.uint8)),
        patch.object(emit, "marked_rows", lambda _: np.zeros(0, dtype=np.int64)),
    ],
    ids=["marks not read", "another's mark believed"],
)
def test_a_mark_that_does_not_hold_is_seen(broken: AbstractContextManager[Any]) -> None:
    """The oracle sees a filter that holds what did not pass, and one that lacks what somebody marked."""
    with broken:
        assert any(simulate(seed, changed=shadowed).breach for seed in range(MUTANT_SEEDS))


@pytest.mark.parametrize("name", mutants())
def test_a_broken_promise_is_seen(name: str) -> None:
    """The product, broken in one place, does not survive many seeds."""
    with mutants()[name]:
        assert any(simulate(seed).breach for seed in range(MUTANT_SEEDS))


def test_a_seed_has_one_history() -> None:
    """The same seed makes the same trace, in this process and in one that hashes otherwise."""
    here = [simulate(seed).digest for seed in range(8)]
    assert [simulate(seed).digest for seed in range(8)] == here
    program = (
        "from tests.simulation.run import simulate; print(*(simulate(n).digest for n in range(8)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    assert told.stdout.split() == here
    assert len(set(here)) == len(here)


def again(seed: int, breach: str | None) -> str:
    """What to do about it."""
    return (
        f"seed {seed}: {breach}; see: python -m tests.simulation --seeds 1 --start {seed} --trace"
    )
