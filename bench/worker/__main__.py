"""`make bench`: one base case, and one thing changed at a time, against a plain copy and a loop written by hand.

It takes twenty minutes at most, and writes results/worker.json, and results/benchmarks.md from it. With
--cases, --rounds, --events or --contenders it measures less and writes nothing.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from statistics import median
from typing import Any

from bench.worker import broker, page, results
from bench.worker.cases import CASES, Case
from bench.worker.contenders import CONTENDERS, OURS, Contender
from bench.worker.profile import profile
from bench.worker.rounds import OTHER_LOAD_MAX, Rounds

LIMIT_S = 18.5 * 60  # and a minute for the profile
ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write what a whole run found."""
    asked = _asked(arguments)
    cases = [replace(case, events=asked.events or case.events) for case in asked.cases]
    at, what = broker.found(broker.in_memory())
    try:
        found = measure(at.bootstrap_servers, what, cases, asked.contenders, asked.rounds)
        print(summary(found, asked.contenders))
        if asked.whole:
            _written(found)
            found["profile"] = profile(at.bootstrap_servers)
            _written(found)
    finally:
        at.close()
    return 0


def measure(
    bootstrap: str,
    broker_is: str,
    cases: Sequence[Case],
    contenders: Sequence[Contender],
    rounds: int,
) -> dict[str, Any]:
    """What so many rounds of these cases find, after a warm-up that does not count."""
    began, here = time.monotonic(), results.circumstances(broker_is)
    playing = Rounds(bootstrap, contenders, began + LIMIT_S, partial(print, flush=True))
    warm_ups = playing.warm_up(cases[0])
    playing.play(cases, rounds)
    playing.close()
    return {
        **here,
        "command": "make bench",
        "warm_ups": warm_ups,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "cases": {
            case.name: {"case": asdict(case), "rounds": playing.found[case.name]}
            for case in cases
            if case.name in playing.found
        },
    }


def summary(found: Mapping[str, Any], contenders: Sequence[Contender]) -> str:
    """The ratios of our rate to each of the others', as text."""
    others = [contender for contender in contenders if contender.name != OURS]
    lines = [page.circumstances(found)]
    for name, told in found["cases"].items():
        for other in others if len(others) < len(contenders) else []:
            each = results.ratios(told["rounds"], other.name)
            lines.append(f"{name:14} {median(each):6.2f} times the {other.what}{_doubts(told)}")
    return "\n".join(lines)


def _doubts(told: Mapping[str, Any]) -> str:
    most = max(found["other_load"] or 0.0 for found in told["rounds"])
    return f", while others took up to {most:.0%}: not a quiet machine" * (most > OTHER_LOAD_MAX)


def _written(found: Mapping[str, Any]) -> None:
    results.write(page.THROUGHPUT, found)
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
