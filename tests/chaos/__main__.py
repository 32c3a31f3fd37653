"""`make chaos`: play the matrix, or the part that ONLY names, at SCALE, from SEED; then write docs/guarantees.md."""

import os
import signal
import sys
import time
from pathlib import Path

from tests.chaos.driver import play_scenario
from tests.chaos.matrix import SCENARIOS
from tests.chaos.report import write_report
from tests.chaos.results import ROOT, Results

DIRECTORY = ROOT / "var" / "chaos"


def main() -> int:
    """Status 1 where a promise was broken, or a round could not be judged or did not count; 2 for unknown names."""
    only = [name for name in os.environ.get("ONLY", "").replace(",", " ").split() if name]
    scale = float(os.environ.get("SCALE", "1"))
    if unknown := set(only) - set(SCENARIOS):
        print(f"ONLY names {', '.join(sorted(unknown))}; there are: {', '.join(SCENARIOS)}")
        return 2
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # with all that we started
    results = Results(DIRECTORY / "results.jsonl", os.environ.get("SEED", "1"))
    started = time.monotonic()
    complete = True
    for scenario in SCENARIOS.values():
        if not only or scenario.name in only:
            rounds = max(1, round(scenario.rounds * scale))
            play_scenario(scenario, rounds, results, DIRECTORY / "trials")
            complete &= all(results.done(scenario.name, number) for number in range(rounds))
    print(f"{time.monotonic() - started:.0f} s; rounds are kept in {_short(DIRECTORY)}")
    write_report(results, ROOT / "docs" / "guarantees.md")
    kept = not any(result.failures for result in results.rounds)
    return 0 if kept and complete else 1


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
