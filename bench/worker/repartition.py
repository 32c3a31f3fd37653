"""`python -m bench repartition`: the stages of `source.repartition` against a copy and a worker without them.

It writes results/repartition.json, and results/benchmarks.md from it. With --rounds or --events it measures less and
writes nothing.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from bench.worker import broker, page, results
from bench.worker.cases import BASE, Case
from bench.worker.contenders import REPARTITION
from bench.worker.rounds import Rounds

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
        found = measure(
            at.bootstrap_servers, what, replace(CASE, events=asked.events), asked.rounds
        )
    finally:
        at.close()
    print(f"{page.circumstances(found)}\n{page.stages_ratios(found['rounds'])}")
    if (asked.rounds, asked.events) == (ROUNDS, CASE.events):
        results.write(page.STAGES, found)
        page.write()
        print(f"{page.PAGE} is written", flush=True)
    return 0


def measure(bootstrap: str, broker_is: str, case: Case, rounds: int) -> dict[str, Any]:
    """What so many rounds find, after a warm-up that does not count."""
    began, here = time.monotonic(), results.circumstances(broker_is)
    playing = Rounds(bootstrap, [*REPARTITION.values()], math.inf, partial(print, flush=True))
    playing.warm_up(case)
    playing.play([case], rounds)
    playing.close()
    return {
        **here,
        "command": "python -m bench repartition",
        "minutes": round((time.monotonic() - began) / 60, 1),
        "case": asdict(case),
        "rounds": playing.found[case.name],
    }


if __name__ == "__main__":
    sys.exit(main())
