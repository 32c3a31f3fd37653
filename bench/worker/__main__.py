"""`make bench`: one base case, and one thing changed at a time, against a plain copy and a loop written by hand.

It takes twenty minutes at most, and writes results/worker.json, and results/benchmarks.md from it. With --cases or
--rounds it measures less and writes nothing.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from bench.worker import broker, page, results
from bench.worker.cases import CASES
from bench.worker.contenders import CONTENDERS, COPY, LOOP
from bench.worker.profile import profile
from bench.worker.rounds import measure

LIMIT_S = 18.5 * 60  # and a minute for the profile
ROUNDS = 3


def main() -> int:
    """Measure, print, and write what a whole run found."""
    asked = _asked()
    at, what = broker.found(broker.in_memory())
    try:
        found = {"command": "make bench"} | measure(
            at.bootstrap_servers,
            what,
            asked.cases,
            [*CONTENDERS.values()],
            asked.rounds,
            limit_s=LIMIT_S,
        )
        print(summary(found))
        if asked.whole:
            found["profile"] = profile(at.bootstrap_servers)
            page.write(page.THROUGHPUT, found)
    finally:
        at.close()
    return 0


def summary(found: Mapping[str, Any]) -> str:
    """The ratios of our rate to each of the others', as text."""
    lines = [page.circumstances(found)]
    for case, told in found["cases"].items():
        load = results.other_load(told["rounds"], "unknown")
        for name in (COPY, LOOP):
            each = results.spread(results.ratios(told["rounds"], name))
            what = CONTENDERS[name].what
            lines.append(f"{case:14} {each} times the {what}; other load at most {load}")
    return "\n".join(lines)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench worker", description=__doc__)
    known = {case.name: case for case in CASES}
    parser.add_argument("--cases", default="", help=f"with commas between, of: {', '.join(known)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    given.whole = not given.cases and given.rounds == ROUNDS
    names = given.cases.split(",") if given.cases else [*known]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"--cases: no {', '.join(unknown)}; choose from {', '.join(known)}")
    given.cases = [known[name] for name in names]
    return given


if __name__ == "__main__":
    sys.exit(main())
