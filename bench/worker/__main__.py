"""`make bench`: one base case, and one thing changed at a time, against a plain copy and a loop written by hand.

It takes twenty minutes at most, and writes results/worker.json, and results/benchmarks.md from it. With
--cases, --rounds, --events or --contenders it measures less and writes nothing.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.harness import write
from bench.worker import broker, page, results
from bench.worker.cases import CASES
from bench.worker.contenders import CONTENDERS, OURS, Contender
from bench.worker.profile import profile
from bench.worker.rounds import measure

LIMIT_S = 18.5 * 60  # and a minute for the profile
ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what a whole run found."""
    asked = _asked(arguments)
    cases = [replace(case, events=asked.events or case.events) for case in asked.cases]
    at, what = broker.found(broker.in_memory())
    try:
        found = {"command": "make bench"} | measure(
            at.bootstrap_servers, what, cases, asked.contenders, asked.rounds, limit_s=LIMIT_S
        )
        print(summary(found, asked.contenders))
        if asked.whole:
            _written(found)
            found["profile"] = profile(at.bootstrap_servers)
            _written(found)
    finally:
        at.close()
    return 0


def summary(found: Mapping[str, Any], contenders: Sequence[Contender]) -> str:
    """The ratios of our rate to each of the others', as text."""
    names = {contender.name: contender.what for contender in contenders}
    ours = names.pop(OURS, None)
    lines = [page.circumstances(found)]
    for case, told in found["cases"].items() if ours else []:
        load = results.other_load(told["rounds"], "unknown")
        for name, what in names.items():
            each = results.spread(results.ratios(told["rounds"], name))
            lines.append(f"{case:14} {each} times the {what}; other load at most {load}")
    return "\n".join(lines)


def _written(found: Mapping[str, Any]) -> None:
    write(page.THROUGHPUT, found)
    page.write()
    print(f"{page.PAGE} is written", flush=True)


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.worker", description=__doc__)
    known = {case.name: case for case in CASES}
    parser.add_argument("--cases", default="", help=f"with commas between, of: {', '.join(known)}")
    parser.add_argument(
        "--contenders", default="", help=f"with commas between, of: {', '.join(CONTENDERS)}"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--events", type=int, default=0, help="of each case's input")
    given = parser.parse_args(arguments)
    given.whole = not (given.cases or given.contenders or given.events) and given.rounds == ROUNDS
    for option, there in (("cases", known), ("contenders", CONTENDERS)):
        names = [name for name in getattr(given, option).split(",") if name]
        if unknown := [name for name in names if name not in there]:
            parser.error(f"--{option}: no {', '.join(unknown)}; choose from {', '.join(there)}")
        setattr(given, option, [there[name] for name in names or there])
    return given


if __name__ == "__main__":
    sys.exit(main())
