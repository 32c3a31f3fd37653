"""`python -m bench repartition`: the stages of `source.repartition` against a copy and a worker without them.

It writes results/repartition.json, and results/benchmarks.md from it.
"""

from dataclasses import replace
from typing import Any

from bench.worker import broker, page
from bench.worker.cases import BASE, Case
from bench.worker.contenders import REPARTITION
from bench.worker.rounds import measure

CASE = replace(BASE, name="repartition", what="no duplicates", duplicates=0.0)
ROUNDS = 3


def main() -> None:
    """Measure, print and write."""
    at, what = broker.found(broker.in_memory())
    try:
        found = staged(at.bootstrap_servers, what, CASE, ROUNDS)
    finally:
        at.close()
    print(f"{page.circumstances(found)}\n{page.stages_ratios(found['rounds'])}")
    page.write(page.STAGES, found)


def staged(bootstrap: str, broker_is: str, case: Case, rounds: int) -> dict[str, Any]:
    """What so many rounds find."""
    found = measure(bootstrap, broker_is, [case], [*REPARTITION.values()], rounds)
    cases = found.pop("cases")
    return {"command": "python -m bench repartition", **found, **cases[case.name]}


if __name__ == "__main__":
    main()
