"""Whole deployments by seeds: what no schedule and no fault may do, and that the oracle would see it."""

import os
import subprocess
import sys

import pytest

from tests.simulation.mutants import mutants
from tests.simulation.run import simulate

SEEDS = 2_000
SEEDS_A_TEST = 100
MUTANT_SEEDS = 800  # the rarest is seen in one of 200


@pytest.mark.parametrize("start", range(0, SEEDS, SEEDS_A_TEST))
def test_no_schedule_loses_or_doubles_an_event(start: int) -> None:
    """Every key once, nothing foreign, every filter the fold of its output; whatever happened on the way."""
    for seed in range(start, start + SEEDS_A_TEST):
        outcome = simulate(seed)
        assert outcome.breach is None, again(seed, outcome.breach)


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
