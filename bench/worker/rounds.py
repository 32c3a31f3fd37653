"""Rounds: every case in turn, and in each all contenders, one right after the other, each time another one first.

A round in which others took too much of the machine is measured again, a bounded number of times, and the quietest of
them counts. No round begins that would not be over in time.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from bench.harness import turns
from bench.worker import results
from bench.worker.cases import Case
from bench.worker.contenders import Contender
from bench.worker.measuring import Input, Run, filled, measured
from tests.broker.topics import delete_topic

OTHER_LOAD_MAX = 0.1
REPEATS_MAX = 2
WARM_UPS_MAX, LAST_RUNS, HARDLY_LESS = 8, 3, 0.9  # one run may be disturbed

Round = dict[str, Any]


class Rounds:
    """What was measured so far, on one broker, until a moment of `time.monotonic`; every line is told as it comes."""

    def __init__(
        self,
        bootstrap: str,
        contenders: Sequence[Contender],
        until: float,
        tell: Callable[[str], None],
    ) -> None:
        self._bootstrap, self._contenders = bootstrap, contenders
        self._until, self._tell = until, tell
        self._inputs: dict[Any, Input] = {}
        self._longest_s: dict[str, float] = {}
        self.found: dict[str, list[Round]] = {}

    def warm_up(self, case: Case) -> int:
        """Not counted: the broker's code is compiled as it runs, so an event takes it less and less at first.

        Every contender runs once, and then the first of them until that has settled, if it is known. Return how often
        it ran.
        """
        for contender in self._contenders[1:]:
            self._run(case, contender)
        times = list[float]()
        while not has_settled(times) and time.monotonic() < self._until:
            run = self._run(case, self._contenders[0])
            if run.broker_cpu_s is None:
                return 1
            times.append(run.broker_cpu_s / run.events)
            self._tell(f"warming up: {1e6 * times[-1]:.2f} us an event of the broker")
        return len(times)

    def play(self, cases: Sequence[Case], rounds: int) -> None:
        """So many rounds of each case, as time allows."""
        for number in range(1, rounds + 1):
            for case in cases:
                if not self._fits(case):
                    self._tell(f"round {number}  {case.name:14} left out: time is over")
                    continue
                began = time.monotonic()
                self.found.setdefault(case.name, []).append(self._round(case, number))
                took_s = time.monotonic() - began
                self._longest_s[case.name] = max(took_s, self._longest_s.get(case.name, 0.0))

    def close(self) -> None:
        """Delete the inputs."""
        for made in self._inputs.values():
            delete_topic(self._bootstrap, made.topic)
        self._inputs = {}

    def _fits(self, case: Case) -> bool:
        expected_s = self._longest_s.get(case.name, max(self._longest_s.values(), default=0.0))
        return time.monotonic() + expected_s < self._until

    def _round(self, case: Case, number: int) -> Round:
        quietest = self._once(case, number)
        for repeats in range(1, REPEATS_MAX + 1):
            if (quietest["other_load"] or 0.0) <= OTHER_LOAD_MAX or not self._fits(case):
                break
            self._tell(
                f"round {number}  {case.name:14} others took {quietest['other_load']:.0%}: again"
            )
            again = self._once(case, number)
            quietest = min(quietest, again, key=lambda found: found["other_load"])
            quietest["repeats"] = repeats
        return quietest

    def _once(self, case: Case, number: int) -> Round:
        runs = {}
        for contender in turns(self._contenders, number):
            run = self._run(case, contender)
            runs[contender.name] = run.fields()
            self._tell(f"round {number}  {case.name:14} {told(contender, run)}")
        loads = [run["other_load"] for run in runs.values() if run["other_load"] is not None]
        return {"runs": runs, "other_load": max(loads, default=None), "repeats": 0}

    def _run(self, case: Case, contender: Contender) -> Run:
        if case.input not in self._inputs:
            self._inputs[case.input] = filled(self._bootstrap, case)
        return measured(self._bootstrap, case, contender, self._inputs[case.input])


def measure(
    bootstrap: str,
    broker_is: str,
    cases: Sequence[Case],
    contenders: Sequence[Contender],
    rounds: int,
    *,
    limit_s: float = math.inf,
) -> dict[str, Any]:
    """What so many rounds of these cases find, after a warm-up that does not count."""
    began, here = time.monotonic(), results.circumstances(broker_is)
    playing = Rounds(bootstrap, contenders, began + limit_s, partial(print, flush=True))
    warm_ups = playing.warm_up(cases[0])
    playing.play(cases, rounds)
    playing.close()
    return {
        **here,
        "warm_ups": warm_ups,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "cases": {
            case.name: {"case": asdict(case), "rounds": playing.found[case.name]}
            for case in cases
            if case.name in playing.found
        },
    }


def has_settled(times: Sequence[float]) -> bool:
    """Whether the last ones are hardly less than those before, or there are WARM_UPS_MAX."""
    before, last = times[:-LAST_RUNS], times[-LAST_RUNS:]
    if len(times) >= WARM_UPS_MAX:
        return True
    return bool(before) and min(last) > HARDLY_LESS * min(before)


def told(contender: Contender, run: Run) -> str:
    """One run as a line of text."""
    load = "" if run.other_load is None else f"  others {run.other_load:4.0%}"
    cpu_us, mib = 1e6 * run.cpu_s / run.events, run.rss_bytes / 2**20
    return (
        f"{contender.name:12} {run.rate:>11,.0f} events/s {cpu_us:6.2f} us CPU an event"
        f" {mib:6,.0f} MiB  missing {run.missing}{load}"
    )
