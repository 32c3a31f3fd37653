"""`python -m proof chaos [SCENARIO ...]`: play the matrix, or these scenarios, then write the page of guarantees.

Unless scenarios are named, the parsers of foreign bytes read wrong inputs first (--fuzz-minutes), events that are bombs
are decided, for which the loop must not stand still for more than 50 ms, and memory is watched (--memory-minutes).

If --old names a commit, the matrix has one scenario more, `upgrade`: workers of that commit and of the checkout replace
each other in one group. The page leaves it out, since it is about two versions, and its rounds are kept in a file for
each commit.

If --also names the codes of earlier rounds, as the page has them, they count for the scenarios that are not played, the
first code before the next: to play one scenario again after a change that matters to it alone. The page says which
rounds are of which code.

results/guarantees.md is written where the whole matrix has been played, in one run or several; else a page beside the
rounds has what there is. What was played with the same code is not played again.
"""

import argparse
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.entry import add_names
from proof.chaos.driver import play_scenario
from proof.chaos.matrix import SCENARIOS, UPGRADE, Scenario, upgrade_from
from proof.chaos.report import is_whole, write_report
from proof.chaos.results import ROOT, Results
from proof.chaos.versions import commit_of, compile_kernels, take_out

DIRECTORY = ROOT / "var" / "chaos"
PAGE = ROOT / "results" / "guarantees.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Status 1 where a promise was broken, or a round could not be judged or did not count."""
    wish = _wish(arguments)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # with all that we started
    for tool in [] if wish.names else _first(wish):
        if status := subprocess.run(
            [sys.executable, "-m", *tool], cwd=ROOT, check=False
        ).returncode:
            return status
    only = wish.names or [*SCENARIOS, UPGRADE]
    results = Results(DIRECTORY / "results.jsonl", str(wish.seed), wish.also, only)
    started = time.monotonic()
    kept = _play((s for s in SCENARIOS.values() if s.name in only), wish.scale, results)
    if wish.old and UPGRADE in only:
        old = take_out(wish.old, DIRECTORY)
        compile_kernels(old)
        beside = Results(DIRECTORY / f"old-{old.commit}.jsonl", results.seed)
        kept &= _play([upgrade_from(old)], wish.scale, beside)
    print(f"{time.monotonic() - started:.0f} s; rounds are kept in {_short(DIRECTORY)}")
    write_page(results, PAGE, DIRECTORY / PAGE.name)
    return 0 if kept else 1


def _wish(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What is asked for; a wrong argument ends the process with status 2, and the argument, its value and a remedy."""
    parser = argparse.ArgumentParser(
        prog="python -m proof chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_names(parser, "SCENARIO", [*SCENARIOS, UPGRADE])
    parser.add_argument("--scale", type=_positive, default=1, help="0.1: a tenth of the rounds")
    parser.add_argument("--seed", type=_whole, default=1, help="another number: other rounds")
    parser.add_argument("--old", type=_commit, metavar="COMMIT", help="to upgrade from")
    parser.add_argument("--also", nargs="+", default=(), metavar="CODE", help="of earlier rounds")
    parser.add_argument("--fuzz-minutes", type=_positive, default=8, help="8 if not given")
    parser.add_argument("--memory-minutes", type=_positive, default=60, help="60 if not given")
    wish = parser.parse_args(arguments)
    if UPGRADE in wish.names and not wish.old:
        parser.error(f"SCENARIO {UPGRADE}: it needs --old COMMIT")
    return wish


def _first(wish: argparse.Namespace) -> list[list[str]]:
    """The tools that run before the whole matrix."""
    return [
        ["proof", "fuzz", "--minutes", str(wish.fuzz_minutes), "--seed", str(wish.seed)],
        ["bench", "bombs"],
        ["bench", "lasting", "--minutes", str(wish.memory_minutes)],
    ]


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: a number above 0 is needed")
    return number


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text}: a whole number from 0 on is needed")
    return int(text)


def _commit(text: str) -> str:
    try:
        return commit_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


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


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


if __name__ == "__main__":
    sys.exit(main())
