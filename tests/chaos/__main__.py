"""`make chaos`: play the matrix, or the part that ONLY names, at SCALE, from SEED; then write docs/guarantees.md."""

import os
import sys
import time
from pathlib import Path

from tests.chaos.driver import play_scenario
from tests.chaos.matrix import SCENARIOS
from tests.chaos.report import write_report
from tests.chaos.results import ROOT, Results

DIRECTORY = ROOT / "var" / "chaos"


def main() -> int:
    """Status 1 where a promise was broken, or a round could not be judged; 2 for names that are unknown."""
    only = [name for name in os.environ.get("ONLY", "").replace(",", " ").split() if name]
    scale = float(os.environ.get("SCALE", "1"))
    if unknown := set(only) - set(SCENARIOS):
        print(f"ONLY names {', '.join(sorted(unknown))}; there are: {', '.join(SCENARIOS)}")
        return 2
    results = Results(DIRECTORY / "results.jsonl", os.environ.get("SEED", "1"))
    started = time.monotonic()
    for scenario in SCENARIOS.values():
        if not only or scenario.name in only:
            rounds = max(1, round(scenario.rounds * scale))
            play_scenario(scenario, rounds, results, DIRECTORY / "trials")
    print(f"{time.monotonic() - started:.0f} s; rounds are kept in {_short(DIRECTORY)}")
    write_report(results, ROOT / "docs" / "guarantees.md")
    broken = [r for r in results.rounds if r.failures]
    return 1 if broken else 0


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
