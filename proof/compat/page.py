"""results/compatibility.md, written from what is kept in `results`: what held on which version, what others lack."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from proof.chaos.results import ROOT
from proof.compat.playing import STORMS, VERSIONS
from proof.compat.results import OfVersion, Storm, origins
from tests.broker.needs import FEATURES
from tests.broker.versions import FEATURE, Kafka

PAGE = ROOT / "results" / "compatibility.md"
NOT_RUN = "not run"
OWN_LEVEL = {"4.0.1": 2, "4.1.0": 2, "4.4.0": 2}
"""The level of transactions that a version takes by itself."""

INTRODUCTION = """\
# Compatibility

The worker runs on Apache Kafka 2.5 and later; 3.6 or later is advised. This page tells on which versions that was
tried, and what older brokers lack. `python -m proof compat` writes it: only the last section is not measured.

On each version, a broker from its own jars is started, with a ZooKeeper where it needs one. Then

- storms are played, as in [guarantees.md](guarantees.md), under load, a round of each:
  {storms}.
  An oracle judges each round: lost and twice must be 0.
- all tests that need a broker run, those of `make test-all`. A test that needs what old brokers lack is marked
  `needs_broker`; it says that it is skipped, and why.

The newest version is that of `make test`. `python -m proof compat 2.5.1` plays one version, `--part storms` or `--part
tests` one part; what was played with the same code is not played again. `python -m proof compat --report` writes this
page from what is kept in `results/compatibility.json`.
"""

LACKS: Sequence[tuple[str, str, str]] = (
    (
        "3.6",
        "a check that a transaction is still open when an event is added to it",
        "a transaction may hang open, and the partition [stops](../docs/runbook.md#when-a-partition-stops) at the "
        "next fence, with a command that ends it",
    ),
    (
        "2.8",
        "topic ids",
        "the worker sees by [fingerprints](../docs/delivery.md#an-output-that-was-replaced) and offsets alone that a "
        "topic was deleted and made again",
    ),
    (
        "2.8",
        "topic ids",
        "if retention deleted the last record batch that a snapshot folded, the snapshot is refused at the next start, "
        "and the partition does not go live by itself",
    ),
    (
        "2.8",
        "idempotent producers without a right on the cluster",
        "`at_least_once` needs [IdempotentWrite](../docs/security.md#rights)",
    ),
    (
        "2.8",
        "an answer to the question which producers have written to a partition",
        "a partition that stops for a [second writer](../docs/runbook.md#second-writer) does not say "
        "which wrote last",
    ),
    (
        "2.5",
        "a committed offset that waits for open transactions",
        "`exactly_once` is refused",
    ),
)

LOST_MARKERS = """\
Kafka from 4.1 on loses markers of transactions: while a broker that was killed starts again, its coordinator takes
partitions without a leader for deleted ones, skips their markers, and reports the transaction as ended (its log, at
level INFO: `Couldn't find leader endpoint for partitions ... likely deleted already`). Before, the coordinator waited
for a leader. In 6 of 20 kills of a cluster of one broker under load, the committed offset of a partition stayed
undecided, and neither a new producer nor a restart of the broker ended that. A cluster of several brokers may meet it
if all replicas of a partition are away at once.

With `exactly_once` the worker mends it at its next fence. The notes of its commits show how the transaction had
ended. The worker then ends an empty transaction of the same producer id in the same way, and the brokers write the
markers. The log says `transaction_finished`. If the worker's next transaction has ended the lost one with another
outcome, the broker has lost a commit that it confirmed. The worker notices that, too: it drops its filter, reads
those events again and makes the filter anew of the output (`commit_lost`). A letter or a duplicate in a side topic
that was left undecided alone ends with the next transaction that writes there. Consumers and producers other than the
worker have no such remedy."""

ZOOKEEPER = """\
With ZooKeeper, of whatever version:

- A broker that has just started answers before it knows its topics. A worker that runs waits for it. One that starts
  at this moment, while no other broker is up, may end with `the topic TOPIC does not exist or may not be seen` and
  status 2: start it again, as a supervisor does.
- The name of a resource in an ACL has no slash. So grant Write on the transactional ids with the prefix `events-unique`
  in place of `events-unique/` ([rights](../docs/security.md#rights))."""

REFUSED_SNAPSHOT = """\
The third row is no mistake. Without topic ids, such an output looks like one that was deleted, made again and trimmed,
whose keys are not in the output any more. The log says `snapshot_refused` with `the broker reports no topic ids`, and
the partition stops with `OUTPUT begins at offset N`. It takes an output partition that got no event for as long as its
retention, and then a restart, or another worker that takes over: a worker that runs keeps its memory. So give the
output a longer `retention.ms` than its longest silence. If it has happened, set `sink.on_gap: accept` and restart: the
keys of the deleted events then pass once more."""


def write_page(results: Mapping[str, OfVersion], path: Path = PAGE) -> None:
    """Write the document anew."""
    path.write_text(page(results), "utf-8")


def page(results: Mapping[str, OfVersion]) -> str:
    """The whole document."""
    storms = "; ".join(f"`{name}` ({scenario.fault})" for name, scenario in STORMS.items())
    parts = (
        [INTRODUCTION.format(storms=storms).rstrip()],
        _circumstances(results),
        table(results),
        _commits(results),
        _skipped(results),
        _failed(results),
        _older(),
        _newer(),
    )
    return "\n".join(line for part in parts if part for line in (*part, ""))[:-1] + "\n"


def table(results: Mapping[str, OfVersion]) -> list[str]:
    """What came of each version, in one row."""
    return [
        "| Kafka | Runs with | Storms | Faults | Events | Lost | Twice | Tests passed | Failed | Skipped |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
        *(_row(kafka, results.get(str(kafka), OfVersion())) for kafka in VERSIONS),
    ]


def failures(results: Mapping[str, OfVersion]) -> list[str]:
    """Everything that failed, in a sentence each."""
    return [
        failure
        for kafka in VERSIONS
        for failure in _failures(str(kafka), results.get(str(kafka), OfVersion()))
    ]


def mode(kafka: Kafka) -> str:
    """What the broker has beside it, and the level of its transactions."""
    if not kafka.has_controllers:
        return "ZooKeeper"
    level = kafka.transaction_version
    if level is None:
        level = OWN_LEVEL.get(kafka.version)
    return "KRaft" if level is None else f"KRaft, {FEATURE} {level}"


def _row(kafka: Kafka, of: OfVersion) -> str:
    cells = [kafka.version, mode(kafka)]
    storms = list(of.storms.values())
    if storms:
        failed = sum(bool(storm.failures) for storm in storms)
        cells.append(f"{failed} of {len(storms)} failed" if failed else "kept")
        cells += map(_number, _summed(storms))
    else:
        cells += [NOT_RUN, "", "", "", ""]
    if of.files:
        passed = _number(sum(file.passed for file in of.files.values()))
        if len(of.files) < of.files_in_all:
            passed += f" in {len(of.files)} of {of.files_in_all} files"
        cells += [passed, *map(_number, (len(of.failed), of.skipped.total()))]
    else:
        cells += [NOT_RUN, "", ""]
    return f"| {' | '.join(cells)} |"


def _summed(storms: Iterable[Storm]) -> tuple[int, int, int, int]:
    parts = [(s.faults, s.events, s.lost, s.doubled) for s in storms]
    faults, events, lost, doubled = map(sum, zip(*parts, strict=True))
    return faults, events, lost, doubled


def _number(number: int) -> str:
    return f"{number:,}"


def _circumstances(results: Mapping[str, OfVersion]) -> list[str]:
    found = origins(results.values())
    if not found:
        return []
    days = sorted(origin.at[:10] for origin in found)
    machines = sorted({origin.machine for origin in found})
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return [f"Played {when}, on {' and on '.join(machines)}."]


def _commits(results: Mapping[str, OfVersion]) -> list[str]:
    """Which code each row is about."""
    rows = []
    for kafka in VERSIONS:
        of = results.get(str(kafka), OfVersion())
        storms = _named(storm.origin.commit for storm in of.storms.values())
        hits = sum(storm.hits for storm in of.storms.values())
        aborted = sum(storm.aborted_records for storm in of.storms.values())
        tests = _named(file.origin.commit for file in of.files.values())
        spent = sum(origin.seconds for origin in origins([of]))
        rows.append(
            f"| {kafka} | {storms} | {_number(hits)} | {_number(aborted)} | {tests} | {spent / 60:.0f} |"
        )
    return [
        "Which commit each row is about (marked if changes were not committed), how many faults hit an open",
        "transaction, how many records the storms left aborted in the output, and how long it all took:",
        "",
        "| Kafka | Commit of the storms | Hits | Aborted records | Commit of the tests | Minutes |",
        "|---|---|--:|--:|---|--:|",
        *rows,
    ]


def _skipped(results: Mapping[str, OfVersion]) -> list[str]:
    rows = [
        f"| {kafka} | {count} | {reason} |"
        for kafka in VERSIONS
        for reason, count in sorted(results.get(str(kafka), OfVersion()).skipped.items())
    ]
    if not rows:
        return []
    features = ", ".join(f"{name} ({feature})" for name, feature in FEATURES.items())
    return [
        "## What was skipped",
        "",
        f"What tests need that not every broker has: {features}.",
        "",
        "| Kafka | Tests | Why |",
        "|---|--:|---|",
        *rows,
    ]


def _failed(results: Mapping[str, OfVersion]) -> list[str]:
    found = failures(results)
    return ["## What failed", "", *(f"- {failure}" for failure in found)] if found else []


def _failures(name: str, of: OfVersion) -> list[str]:
    storms = [
        f"{name}: `{scenario}`: {failure.splitlines()[0].strip(' :')}"
        for scenario, storm in of.storms.items()
        for failure in storm.failures
    ]
    return storms + [f"{name}: `{test}`" for test in of.failed]


def _older() -> list[str]:
    """What brokers lack that are older than others."""
    return [
        "## Older brokers",
        "",
        "The promise holds from Kafka 2.5 on. What older brokers lack, and what that means:",
        "",
        "| Brokers before | Lack | What happens |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in LACKS),
        "",
        REFUSED_SNAPSHOT,
        "",
        ZOOKEEPER,
    ]


def _newer() -> list[str]:
    """What newer brokers do wrong."""
    return ["## Newer brokers", "", LOST_MARKERS]


def _named(commits: Iterable[str]) -> str:
    return ", ".join(f"`{commit}`" for commit in sorted(set(commits))) or NOT_RUN
