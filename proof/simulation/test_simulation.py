"""Whole deployments by seeds: what no schedule and no fault may do, and that the oracle would see it."""

import os
import subprocess
import sys
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import streamdedup
from proof.mutants.repartition import purging_ahead
from proof.simulation.__main__ import again
from proof.simulation.mutants import mutants
from proof.simulation.plan import repartitioned, screening, shadowed
from proof.simulation.run import simulate
from proof.simulation.seeds import SORTS, left_by_tests
from streamdedup.delivery import emit, fold, side_topics
from streamdedup.events import Column, Integers
from streamdedup.repartition import pieces, resume
from streamdedup.repartition.purge import Purge
from streamdedup.rules.lists import NOTHING_BLOCKED, Lists

ROOT = Path(streamdedup.__file__).parents[1]

SEEDS_A_TEST = 25
MUTANT_SEEDS = 800  # the rarest is seen in one of 200
# The seed by which each mutant was seen soonest. It is tried first: that saves time, and changes no claim.
SEE_MUTANTS = {
    "admit before commit": 1,
    "pending not consulted": 1,
    "pending kept in doubt": 8,
    "label ahead": 1,
    "snapshot's label ahead": 14,
    "end label asked first": 47,
    "copy of a moment left out": 0,
    "admitted while it is copied": 99,
    "copy over a rotation": 3,
    "side topics beside the transaction": 8,
    "duplicates dropped": 19,
    "rejected after the rules": 1,
    "a window's time without pending": 4,
    "a window folded by the clock": 6,
    "second writer not noticed": 230,
    "output not folded": 6,
    "offset read before fencing": 145,
    "transactional id by process": 45,
    "writer not fenced again in doubt": 2,
    "lost answer of a commit ignored": 15,
    "topic ids ignored": 52,
    "not screened": 15,
    "not sent": 19,
    "marks not read": 0,
    "another's mark believed": 3,
    "middle ids ignored": 118,
    "purged ahead": 1,
    "placed by nothing": 0,
}


def _all_in_one(keys: Column, _partitions: int) -> Integers:
    return np.zeros(len(keys), dtype=np.int64)


@pytest.mark.parametrize("start", range(0, SORTS["drawn"].in_tests, SEEDS_A_TEST))
def test_no_schedule_loses_or_doubles_an_event(start: int) -> None:
    """Every key once, nothing foreign, every filter the fold of its output; whatever happened on the way."""
    play("drawn", start)


@pytest.mark.parametrize(
    ("plan", "start"),
    [
        (plan, start)
        for plan in ("listed", "screening", "shadowed")
        for start in range(0, SORTS[plan].in_tests, SEEDS_A_TEST)
    ],
)
def test_with_a_block_list_no_schedule_does_either(plan: str, start: int) -> None:
    """What is listed is where blocked events go, and no other event is; with a filter, and without any memory.

    And where it is marked as such, by workers in shadow mode among others that are not.
    """
    play(plan, start)


@pytest.mark.parametrize("start", range(0, SORTS["repartitioned"].in_tests, SEEDS_A_TEST))
def test_with_a_first_stage_no_schedule_does_either(start: int) -> None:
    """Events of a key in any partitions, machines with both stages or one, and what may happen to groups and middle."""
    play("repartitioned", start)


def play(plan: str, start: int) -> None:
    """Play so many seeds of a test; none breaks a promise."""
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


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("not screened", patch.object(Lists, "screen", lambda *_: NOTHING_BLOCKED)),
        ("not sent", patch.object(side_topics.Letters, "chunks", lambda *_: iter(()))),
    ],
    ids=["not screened", "not sent"],
)
def test_a_list_that_does_not_hold_is_seen(name: str, broken: AbstractContextManager[Any]) -> None:
    """The oracle misses what is blocked and nowhere, and sees what passes though it is listed."""
    with broken:
        assert any(simulate(seed, changed=screening).breach for seed in mutant_seeds(name))


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        (
            "marks not read",
            patch.object(fold, "marks_of", lambda headers: np.zeros(len(headers), dtype=np.uint8)),
        ),
        (
            "another's mark believed",
            patch.object(emit, "marked_rows", lambda _: np.zeros(0, dtype=np.int64)),
        ),
    ],
    ids=["marks not read", "another's mark believed"],
)
def test_a_mark_that_does_not_hold_is_seen(name: str, broken: AbstractContextManager[Any]) -> None:
    """The oracle sees a filter that holds what did not pass, and one that lacks what somebody marked."""
    with broken:
        assert any(simulate(seed, changed=shadowed).breach for seed in mutant_seeds(name))


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("middle ids ignored", patch.object(resume, "differs", lambda *_: False)),
        ("purged ahead", patch.object(Purge, "__init__", purging_ahead)),
        ("placed by nothing", patch.object(pieces, "partitions_of", _all_in_one)),
    ],
    ids=["middle ids ignored", "purged ahead", "placed by nothing"],
)
def test_a_stage_that_does_not_hold_is_seen(name: str, broken: AbstractContextManager[Any]) -> None:
    """The oracle misses what a new middle topic lacks, or a purge took, and sees a key that is out of place."""
    with broken:
        assert any(simulate(seed, changed=repartitioned).breach for seed in mutant_seeds(name))


@pytest.mark.parametrize("name", mutants())
def test_a_broken_promise_is_seen(name: str) -> None:
    """The product, broken in one place, does not survive many seeds."""
    with mutants()[name]:
        assert any(simulate(seed).breach for seed in mutant_seeds(name))


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


def mutant_seeds(name: str) -> list[int]:
    """The first 800 seeds, beginning with the one that saw this mutant soonest."""
    return sorted(range(MUTANT_SEEDS), key=lambda seed: seed != SEE_MUTANTS[name])
