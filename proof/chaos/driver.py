"""Plays rounds: brokers that live as long as a scenario, a trial of its own for each round, a result for each trial."""

import shutil
import time
import traceback
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

from proof.chaos.brokers import Brokers
from proof.chaos.matrix import Scenario
from proof.chaos.oracle import Finding, audit_breach
from proof.chaos.results import Result, Results
from proof.chaos.trial import Trial

ATTEMPTS_MAX = 3


def play_scenario(scenario: Scenario, rounds: int, results: Results, directory: Path) -> None:
    """Play those of the first `rounds` that were not played yet; each until it counts, within reason."""
    missing = [n for n in range(rounds) if not results.done(scenario.name, n)]
    if not missing:
        return
    with closing(scenario.brokers()) as brokers:
        for number in missing:
            for attempt in range(ATTEMPTS_MAX):
                result = play_round(
                    scenario,
                    number,
                    attempt,
                    brokers,
                    directory,
                    seed=results.seed,
                    code=results.code,
                )
                results.add(result)
                print(line_of(result), flush=True)
                if result.counts:
                    break


def play_round(
    scenario: Scenario,
    number: int,
    attempt: int,
    brokers: Brokers,
    directory: Path,
    *,
    seed: str,
    code: str,
    size: int | None = None,
) -> Result:
    """One round; what goes wrong in it is part of the result. Its files stay where it failed."""
    started = time.monotonic()
    at = datetime.now(UTC).isoformat(timespec="seconds")
    folder = directory / f"{scenario.name}-{number}-{attempt}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name = f"{seed}/{scenario.name}/{number}/{attempt}"
    trial = scenario.ground(
        brokers,
        folder,
        name,
        number=number,
        partitions=scenario.partitions,
        at_least_once=scenario.at_least_once,
    )
    finding = play(scenario, trial, scenario.size if size is None else size)
    failures = trial.count.failures
    if not failures:
        trial.forget()
    return Result(
        scenario=scenario.name,
        number=number,
        attempt=attempt,
        seed=seed,
        code=code,
        at=at,
        seconds=round(time.monotonic() - started, 1),
        tried=dict(sorted(trial.count.tried.items())),
        hits=trial.count.hits,
        counts=bool(failures) or _counts(scenario, finding),
        failures=failures,
        longest_s={what: round(value, 2) for what, value in trial.count.longest_s.items()},
        finding=finding,
        seen=dict(trial.count.seen),
    )


def play(scenario: Scenario, trial: Trial, size: int) -> Finding | None:
    """Play and judge; None where the trial could not be judged, which is a failure, too."""
    with ExitStack() as stack:
        stack.callback(trial.close)
        try:
            scenario.play(trial, size)
            finding = trial.finish()
        except Exception as error:  # whatever it is, it is this round's result
            where = traceback.extract_tb(error.__traceback__)[-1]
            trial.failed(
                f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            )
            return None
    check(scenario, trial, finding)
    return finding


def check(scenario: Scenario, trial: Trial, finding: Finding) -> None:
    """Note as failures what the promise does not allow."""
    if finding.lost or finding.foreign or (finding.doubled and not scenario.at_least_once):
        trial.failed(f"lost {finding.lost}, doubled {finding.doubled}, foreign {finding.foreign}")
    if finding.zombie_batches and not scenario.at_least_once:
        trial.failed(f"{finding.zombie_batches} batches were written by a fenced producer")
    if trial.model.is_plain and not scenario.at_least_once:
        breach = audit_breach(trial.deployment.write_config(), spread=trial.model.spread)
        if (breach is None) != finding.exact:
            trial.failed(f"`streamdedup audit` does not agree with the oracle: {breach}")


def line_of(result: Result) -> str:
    """A round in one line, for whoever watches."""
    finding = result.finding
    state = "failed" if result.failures else "kept" if result.counts else "does not count"
    judged = (
        f"lost {finding.lost} doubled {finding.doubled} of {finding.events} events, "
        f"{finding.aborted_records} records aborted"
        if finding
        else "not judged"
    )
    hits = "" if result.hits is None else f", {result.hits} hits"
    faults = f"{sum(result.tried.values())} faults{hits}"
    seen = "".join(f"\n    {what}: {count:,}" for what, count in result.seen.items())
    ends = "".join(f"\n    {failure}" for failure in result.failures)
    return f"{result.scenario} {result.number}: {state}; {judged}; {faults}; {result.seconds} s{seen}{ends}"


def _counts(scenario: Scenario, finding: Finding | None) -> bool:
    """Whether it proves anything: without events nothing can be lost, and kills between transactions break little."""
    if finding is None or not finding.events:
        return False
    return finding.aborted_records > 0 or not scenario.must_abort
