"""results/guarantees.md, written from the rounds that were played: fault, promise, how often really tried, result."""

from collections.abc import Iterable
from pathlib import Path

from proof.chaos.feeding import ABORTED_SHARE, REPEATED_SHARE
from proof.chaos.matrix import SCENARIOS, Scenario
from proof.chaos.part import in_words
from proof.chaos.results import Result, Results, machine, tried
from tests.broker.versions import wanted

NOT_ASKED = "\N{EN DASH}"


def write_report(results: Results, path: Path) -> None:
    """Write the document anew."""
    path.write_text("\n".join(_lines(results)) + "\n", "utf-8")


def _lines(results: Results) -> list[str]:
    parts = (_introduction(), _circumstances(results), _table(results), _details(results))
    return [line for part in parts for line in ("", *part)][1:]


def is_whole(results: Results) -> bool:
    """Whether every round of the matrix at --scale 1 was played, and counts."""
    return all(results.done(s.name, n) for s in SCENARIOS.values() for n in range(s.rounds))


def _introduction() -> list[str]:
    must, need_not = (
        _names(s.name for s in SCENARIOS.values() if s.must_abort is wanted)
        for wanted in (True, False)
    )
    return f"""\
# Guarantees, as tried

What the worker promises was put to the test by real faults, on real workers and brokers. This page is written by
`python -m proof chaos`, from the rounds that it played: nothing in it is written by hand.

Each round has topics, a feeder and workers of its own. The feeder writes transactions while the faults happen,
{ABORTED_SHARE:.0%} of them aborted; about {REPEATED_SHARE:.0%} of the events repeat an earlier key. In the end a worker
reads all that is left, and an oracle that knows nothing of filters compares the whole input with the whole output, by
another client library. Where delivery is exactly once, and no operator took a part of the topics away, `streamdedup
audit` judges as well, and must agree. Aborted records are counted in the log files of the broker itself.

A fault is *tried* when it was done to something alive. It is a *hit* when, at that moment, records stood in the output,
or in the middle topic of `repartition`, of which nobody knew yet whether they would be committed: these are the faults
that could break the promise. The brokers are asked for it right after a fault that ends or stops every worker, and
right before any other; {NOT_ASKED} stands where nobody asks, as at least once, which has no transactions.

{must}:
a round of these in whose output no aborted record is found does not count, and is played again with other random
numbers.

{need_not}:
rounds of these count without one, since they need not abort anything, or deliver at least once.

{chr(10).join(in_words())}
""".splitlines()


def _names(scenarios: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in scenarios)


def _circumstances(results: Results) -> list[str]:
    days = sorted(r.at[:10] for r in results.rounds)
    minutes = sum(r.seconds for r in results.rounds) / 60
    spent = (
        f"{minutes:.0f} minutes of rounds, {days[0]} to {days[-1]}"
        if days
        else "nothing was played"
    )
    return [
        f"- Seed {results.seed}; {spent}; {_codes(results)}.",
        f"- {machine()};",
        f"  Apache Kafka {wanted()}, one broker, or three where the row says so.",
    ]


def _codes(results: Results) -> str:
    """The code of the rounds; if some are of other code, which."""
    others: dict[str, dict[str, None]] = {}
    for found in results.rounds:
        if found.code != results.code:
            others.setdefault(found.code, {})[found.scenario] = None
    named = (f"; code {code} for {_names(scenarios)}" for code, scenarios in others.items())
    return f"code {results.code}{''.join(named)}"


def _table(results: Results) -> list[str]:
    rows = [_row(scenario, results) for scenario in SCENARIOS.values()]
    return [
        "| Fault | Promise | Tried | Hits | Aborted records | Events | Lost | Twice | Result |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
        *rows,
    ]


def _row(scenario: Scenario, results: Results) -> str:
    rounds = results.of(scenario.name)
    fault, promise = f"`{scenario.name}`: {scenario.fault}", scenario.promise
    if not rounds:
        return f"| {fault} | {promise} | | | | | | | not run |"
    found = [r.finding for r in rounds if r.finding]
    hits = [r.hits for r in rounds if r.hits is not None]
    cells = [
        sum(tried(rounds).values()),
        sum(hits) if hits else None,
        sum(f.aborted_records for f in found),
        sum(f.events for f in found),
        sum(f.lost for f in found),
        sum(f.doubled for f in found),
    ]
    numbers = " | ".join(NOT_ASKED if cell is None else f"{cell:,}" for cell in cells)
    return f"| {fault} | {promise} | {numbers} | {_outcome(scenario, rounds)} |"


def _outcome(scenario: Scenario, rounds: list[Result]) -> str:
    failed = sum(bool(r.failures) for r in rounds)
    kept = f"kept in {len(rounds) - failed} of {len(rounds)} rounds"
    missing = scenario.rounds - len(rounds)
    return f"{kept}; {missing} not run" if missing > 0 else kept


def _details(results: Results) -> list[str]:
    lines = ["## What was done, how often", "", "| Scenario | Fault | Times |", "|---|---|--:|"]
    for name in SCENARIOS:
        rounds = results.of(name)
        lines += [f"| `{name}` | {fault} | {n:,} |" for fault, n in sorted(tried(rounds).items())]
    voids = {name: void for name in SCENARIOS if (void := results.void(name))}
    longest = max((r.longest_s.get("drain", 0.0) for r in results.rounds), default=0.0)
    if voids:
        told = ", ".join(f"{count} of `{name}`" for name, count in voids.items())
        lines += ["", f"Rounds that did not count: {told}."]
    if longest:
        lines += ["", f"The longest drain took {longest:.1f} s."]
    failures = [(r, failure) for r in results.rounds for failure in r.failures]
    if failures:
        lines += ["", "## What went wrong", ""]
        lines += [f"- `{r.scenario}`, round {r.number}: {failure}" for r, failure in failures]
    return lines
