"""`python -m bench repartition`: the stages of `source.repartition` against a copy and a worker without them.

It writes results/repartition.json, and results/benchmarks.md from it. With --rounds or --events it measures less and
writes nothing.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench.harness import write
from bench.worker import broker, page
from bench.worker.cases import BASE, Case
from bench.worker.contenders import REPARTITION
from bench.worker.rounds import measure

CASE = replace(BASE, name="repartition", what="no duplicates", duplicates=0.0)
ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what a whole run found."""
    parser = argparse.ArgumentParser(prog="python -m bench.worker.repartition", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--events", type=int, default=CASE.events)
    asked = parser.parse_args(arguments)
    at, what = broker.found(broker.in_memory())
    try:
        case = replace(CASE, events=asked.events)
        found = staged(at.bootstrap_servers, what, case, asked.rounds)
    finally:
        at.close()
    print(f"{page.circumstances(found)}\n{page.stages_ratios(found['rounds'])}")
    if (asked.rounds, asked.events) == (ROUNDS, CASE.events):
        write(page.STAGES, found)
        page.write()
        print(f"{page.PAGE} is written", flush=True)
    return 0


def staged(bootstrap: str, broker_is: str, case: Case, rounds: int) -> dict[str, Any]:
    """What so many rounds find."""
    found = measure(bootstrap, broker_is, [case], [*REPARTITION.values()], rounds)
    cases = found.pop("cases")
    return {"command": "python -m bench repartition", **found, **cases[case.name]}


if __name__ == "__main__":
    sys.exit(main())
