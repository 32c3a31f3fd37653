"""`make chaos`: play the matrix, or the part that ONLY names, at SCALE, from SEED; then write the page of guarantees.

If OLD names a commit, the matrix has one scenario more, `upgrade`; the page leaves it out, since it is about two
versions, and its rounds are kept in a file for each OLD.

If ALSO names the codes of earlier rounds, as the page has them, they count for the scenarios that are not played, the
first code before the next: to play one scenario again after a change that matters to it alone. The page says which
rounds are of which code.

docs/guarantees.md is written where the whole matrix has been played, in one run or several; else a page beside the
rounds tells what there is.
"""

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proof.chaos.driver import play_scenario
from proof.chaos.matrix import SCENARIOS, UPGRADE, Scenario, upgrade_from
from proof.chaos.report import is_whole, write_report
from proof.chaos.results import ROOT, Results
from proof.chaos.versions import commit_of, compile_kernels, take_out

DIRECTORY = ROOT / "var" / "chaos"
PAGE = ROOT / "docs" / "guarantees.md"


@dataclass(frozen=True)
class Wish:
    """What the variables ask for."""

    only: Collection[str]
    scale: float
    seed: int
    old: str | None
    """The commit to upgrade from."""
    also: Sequence[str] = ()
    """Other code, by its ids, whose rounds count for the scenarios that are not played."""


def main() -> int:
    """Status 1 where a promise was broken, or a round could not be judged or did not count; 2 for a wrong variable."""
    try:
        wish = wish_of(os.environ)
    except ValueError as error:
        print(error)
        return 2
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # with all that we started
    results = Results(DIRECTORY / "results.jsonl", str(wish.seed), wish.also, wish.only)
    started = time.monotonic()
    kept = _play((s for s in SCENARIOS.values() if s.name in wish.only), wish.scale, results)
    if wish.old and UPGRADE in wish.only:
        old = take_out(wish.old, DIRECTORY)
        compile_kernels(old)
        beside = Results(DIRECTORY / f"old-{old.commit}.jsonl", results.seed)
        kept &= _play([upgrade_from(old)], wish.scale, beside)
    print(f"{time.monotonic() - started:.0f} s; rounds are kept in {_short(DIRECTORY)}")
    write_page(results, PAGE, DIRECTORY / PAGE.name)
    return 0 if kept else 1


def wish_of(variables: Mapping[str, str]) -> Wish:
    """Read ONLY, SCALE, SEED, OLD and ALSO; ValueError with the variable, its value and what it takes."""
    old = commit_of(variables["OLD"]) if variables.get("OLD") else None
    known = [*SCENARIOS, UPGRADE] if old else list(SCENARIOS)
    only = variables.get("ONLY", "").replace(",", " ").split() or known
    if unknown := set(only) - set(known):
        more = "" if old else f", and with OLD=<commit> {UPGRADE}"
        raise ValueError(f"ONLY={','.join(sorted(unknown))}: there are {', '.join(known)}{more}")
    scale, seed = variables.get("SCALE", "1"), variables.get("SEED", "1")
    if not _is_positive(scale):
        raise ValueError(
            f"SCALE={scale}: a number above 0 is needed, as 0.1 for a tenth of the rounds"
        )
    if not (seed.isascii() and seed.isdigit()):
        raise ValueError(f"SEED={seed}: a whole number from 0 on is needed")
    return Wish(
        only, float(scale), int(seed), old, variables.get("ALSO", "").replace(",", " ").split()
    )


def _play(scenarios: Iterable[Scenario], scale: float, results: Results) -> bool:
    """Play what is missing; return whether every round counts, and none that is known has failed."""
    complete = True
    for scenario in scenarios:
        rounds = max(1, round(scenario.rounds * scale))
        play_scenario(scenario, rounds, results, DIRECTORY / "trials")
        complete &= all(results.done(scenario.name, number) for number in range(rounds))
    return complete and not any(result.failures for result in results.rounds)


def write_page(results: Results, whole: Path, part: Path) -> None:
    """Write `whole` if every round of the matrix was played by this code, else `part`; say which."""
    if is_whole(results):
        write_report(results, whole)
        print(f"the page is {_short(whole)}")
    else:
        write_report(results, part)
        print(f"the page is {_short(part)}; {_short(whole)} is written once every round was played")


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    # It takes variables alone; so --help tells of them, and does not play for two hours.
    argparse.ArgumentParser(prog="python -m proof.chaos", description=__doc__).parse_args()
    sys.exit(main())
