"""Whole deployments by seeds: what no schedule and no fault may do, and that the oracle would see it."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import streamdedup
from proof.simulation.__main__ import again
from proof.simulation.mutants import mutants
from proof.simulation.plan import SORTS, left_by_tests
from proof.simulation.run import simulate

ROOT = Path(streamdedup.__file__).parents[1]

SEEDS_A_TEST = 25
MUTANT_SEEDS = 800  # the rarest is seen in one of 200


@pytest.mark.parametrize(
    ("plan", "start"),
    [
        (plan, start)
        for plan, seeds in SORTS.items()
        for start in range(0, seeds.in_tests, SEEDS_A_TEST)
    ],
)
def test_no_schedule_loses_or_doubles_an_event(plan: str, start: int) -> None:
    """Every key once, nothing foreign, every filter the fold of its output; whatever happened on the way.

    What is listed is where blocked events go, and no other event is; with a filter, and without any memory; and where
    it is marked as such, by workers in shadow mode among others that are not. With a first stage, events of a key lie
    in any partitions, machines have both stages or one, and groups and the middle topic come to harm, too.
    """
    for seed in range(start, start + SEEDS_A_TEST):
        outcome = simulate(seed, changed=SORTS[plan].changed)
        assert outcome.breach is None, f"seed {seed}: {outcome.breach}; see: {again(seed, plan)}"


def test_every_promised_seed_is_played_by_the_tests_or_by_the_command() -> None:
    """It plays what the tests leave with `--left`: together all promised seeds, and no seed twice."""
    left = list(left_by_tests())
    tested = [(plan, seed) for plan, seeds in SORTS.items() for seed in range(seeds.in_tests)]
    promised = {(plan, seed) for plan, seeds in SORTS.items() for seed in range(seeds.promised)}
    assert Counter(left + tested) == Counter(promised)
    assert all(seeds.in_tests % SEEDS_A_TEST == 0 for seeds in SORTS.values())


@pytest.mark.parametrize("name", mutants())
def test_a_broken_promise_is_seen(name: str) -> None:
    """The product, broken in one place, does not survive many seeds.

    With a block list, the oracle misses what is blocked and nowhere, and sees what passes though it is listed; with
    marks, a filter that holds what did not pass, and one that lacks what somebody marked; with a first stage, what a
    new middle topic lacks, or a purge took, and a key that is out of place.
    """
    mutant = mutants()[name]
    changed = SORTS[mutant.plan].changed
    with mutant.broken:
        seeds = mutant.seeds(range(MUTANT_SEEDS))
        assert any(simulate(seed, changed=changed).breach for seed in seeds)


def test_a_seed_has_one_history() -> None:
    """The same seed makes the same trace, in this process and in one that hashes otherwise."""
    here = [simulate(seed).digest for seed in range(8)]
    assert [simulate(seed).digest for seed in range(8)] == here
    program = (
        "from proof.simulation.run import simulate; print(*(simulate(n).digest for n in range(8)))"
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
