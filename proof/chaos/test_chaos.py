"""A small part of the matrix of `python -m proof chaos`, and claims about the oracle and the page.

What is played here is the table in proof/chaos/part.py; the whole is in results/guarantees.md.
"""

import random
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException

from proof.chaos.__main__ import main, write_page
from proof.chaos.asking import patiently
from proof.chaos.brokers import OneBroker
from proof.chaos.feeding import REPEATED_SHARE, draw_keys
from proof.chaos.matrix import SCENARIOS
from proof.chaos.oracle import Finding
from proof.chaos.part import (
    KEPT,
    KILLED,
    LOSES,
    SmallRound,
    in_words,
    keep_the_promise,
    one_broker,
    see_a_broken_promise,
)
from proof.chaos.report import write_report
from proof.chaos.results import Result, Results
from proof.chaos.segments import LogBatch, aborted, zombie_batches
from proof.chaos.trial import End, Trial, undecided
from proof.chaos.upgrades import NEW, OLD, Crossing, crossings, served_by_both
from proof.chaos.versions import commit_of, take_out

ROOT = Path(__file__).parents[2]
KEYS = 40_000


@pytest.fixture(scope="module")
def brokers() -> Iterator[OneBroker]:
    """A broker whose log files can be read."""
    yield from one_broker()


@pytest.mark.broker
@pytest.mark.private_broker
@pytest.mark.parametrize(
    "small", [small for small in KEPT if small != KILLED], ids=lambda small: small.scenario
)
def test_a_small_round_keeps_its_promise(
    brokers: OneBroker, tmp_path: Path, small: SmallRound
) -> None:
    """Some faults of the matrix, really done, some of them to open transactions: nothing lost, nothing twice."""
    keep_the_promise(small, brokers, tmp_path)


@pytest.mark.broker
@pytest.mark.private_broker
def test_the_oracle_sees_a_lost_event(brokers: OneBroker, tmp_path: Path) -> None:
    """A worker that admits what was not committed loses events; tests/broker/test_oracle.py has one that doubles."""
    see_a_broken_promise(LOSES, brokers, tmp_path)


@pytest.mark.broker
@pytest.mark.private_broker
def test_a_trial_is_answered_after_its_broker_was_killed(
    brokers: OneBroker, tmp_path: Path
) -> None:
    """Its client asks with the leader's epoch of before: that alone leaves no round unjudged."""
    with closing(Trial(brokers, tmp_path, "killed")) as trial:
        assert not trial.open_transactions()
        brokers.node.end(signal.SIGKILL)
        brokers.node.start()
        assert not trial.open_transactions()


def test_what_passes_is_asked_again() -> None:
    """Errors and silence alike, as often as there is time."""
    answers: list[Exception | int] = [
        KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)),
        TimeoutError("nobody"),
        KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)),
        7,
    ]

    def ask() -> int:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    assert patiently(ask) == 7


def test_what_does_not_pass_is_told() -> None:
    """With the last error; one that has ended the client is raised at once."""

    def ask(*error: Any) -> NoReturn:
        raise KafkaException(KafkaError(*error))

    with pytest.raises(
        TimeoutError, match=r"did not answer within 0 s, but: .*FENCED_LEADER_EPOCH"
    ):
        patiently(lambda: ask(KafkaError.FENCED_LEADER_EPOCH), within_s=0)
    with pytest.raises(KafkaException, match="the end"):
        patiently(lambda: ask(KafkaError._FATAL, "the end", True))


def test_the_document_names_what_is_played_here() -> None:
    """docs/testing.md has what the tests play, line by line."""
    assert "\n".join(in_words()) in (ROOT / "docs" / "testing.md").read_text("utf-8")


def test_only_what_stays_undecided_is_a_hit() -> None:
    """A log that moves on between two questions is no hit, nor is a leader that changes; an open transaction is."""

    def asked(*answers: Mapping[int, End]) -> bool:
        left = iter(answers)
        return undecided(lambda _: next(left))

    assert not asked({0: End(10)}, {0: End(15)})
    assert not asked({0: End(10)}, {0: End(10)})
    assert not asked({0: End(10, epoch=1)}, {0: End(8, epoch=2)})
    assert asked({0: End(10), 1: End(7)}, {0: End(12), 1: End(4)})


def test_repeated_keys_are_as_many_as_the_page_says() -> None:
    """The share of events that repeat an earlier key is that of the feeder's arithmetic."""
    keys = draw_keys(random.Random(1))
    drawn = [next(keys) for _ in range(KEYS)]
    assert 1 - len(set(drawn)) / KEYS == pytest.approx(REPEATED_SHARE, abs=0.01)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--scale", "abc"),
        ("--scale", "0"),
        ("--scale", "-1"),
        ("--scale", "nan"),
        ("--scale", "inf"),
        ("--seed", "x"),
        ("--seed", "-1"),
        ("SCENARIO", "nothing"),
        ("SCENARIO", "upgrade"),
        ("--old", "nothing"),
        ("--old", "--all"),
    ],
)
def test_a_wrong_argument_is_named(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its value and what it takes; status 2; nothing is played."""
    with pytest.raises(SystemExit, match="2"):
        main([f"{option}={value}"] if option.startswith("--") else ["kill", value])
    line = capsys.readouterr().err.splitlines()[-1]
    assert option in line
    assert f"{value}: " in line


def test_a_part_leaves_the_page_of_the_whole_alone(tmp_path: Path) -> None:
    """While a round is missing, the page goes beside the rounds; with the last, over several runs, it is written."""
    rounds = [(s.name, n) for s in SCENARIOS.values() for n in range(s.rounds)]
    whole, part = tmp_path / "whole.md", tmp_path / "part.md"
    whole.write_text("as it was")
    results = Results(tmp_path / "results.jsonl", "7")
    for name, number in rounds[1:]:
        results.add(_result(name, results, number=number, counts=True))
    results.add(_result(rounds[0][0], results, number=rounds[0][1], counts=False))
    write_page(results, whole, part)
    assert whole.read_text() == "as it was"
    assert "Guarantees" in part.read_text("utf-8")
    resumed = Results(tmp_path / "results.jsonl", "7")
    resumed.add(_result(rounds[0][0], resumed, number=rounds[0][1], counts=True))
    write_page(resumed, whole, part)
    assert "not run" not in whole.read_text("utf-8")


def test_the_page_names_the_scenarios_that_must_abort(tmp_path: Path) -> None:
    """Each scenario stands in one list or the other; if nobody asked for hits, the page has no number."""
    results = Results(tmp_path / "results.jsonl", "7")
    results.add(_result("once", results, counts=True, hits=None))
    write_report(results, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text("utf-8")
    must, need_not = (
        next(line for line in page.splitlines() if line.startswith(f"`{first}`,"))
        for first in ("kill", "remade")
    )
    for scenario in SCENARIOS.values():
        assert (f"`{scenario.name}`" in must) is scenario.must_abort
        assert (f"`{scenario.name}`" in need_not) is not scenario.must_abort
    row = next(line for line in page.splitlines() if line.startswith("| `once`: "))
    assert "| 3 | \N{EN DASH} | 40 |" in row
    assert "\n".join(in_words()) in page


def test_a_snapshot_crosses_over_if_only_the_other_version_saved_it() -> None:
    """What its own version saved, too, or nobody, is no proof; the events are those of the fold that follows."""

    def line(event: str, partition: int, **fields: int) -> dict[str, object]:
        return {"event": event, "partition": partition, **fields}

    logs = [
        (OLD, [line("snapshot_saved", 0, label=10), line("snapshot_saved", 1, label=10)]),
        (NEW, [line("snapshot_saved", 1, label=10), line("shard_live", 1)]),
        (
            NEW,
            [
                line("output_folded", 0, start=10, events=1),
                line("snapshot_loaded", 0, label=10),
                line("snapshot_loaded", 1, label=10),
                line("snapshot_loaded", 2, label=10),
                line("output_folded", 1, start=10, events=2),
                line("output_folded", 0, start=10, events=3),
                line("snapshot_saved", 0, label=20),
            ],
        ),
        (OLD, [line("snapshot_loaded", 0, label=20), line("shard_live", 1), line("shard_live", 0)]),
    ]
    assert list(crossings(logs)) == [Crossing(NEW, 0, 10, events=3), Crossing(OLD, 0, 20, events=0)]
    assert served_by_both(logs) == {1}
    assert not served_by_both(logs[:3])


def test_an_old_version_runs_from_its_own_sources(tmp_path: Path) -> None:
    """Also if the current directory holds today's package; what was extracted once is not extracted again."""
    try:
        commit = commit_of("HEAD")
    except ValueError:
        pytest.skip("there is no history here")
    old = take_out(commit, tmp_path)
    assert old.sources.is_relative_to(tmp_path / f"old-{commit}")
    (old.sources / "streamdedup" / "__init__.py").write_text("print('kept')")
    with pytest.raises(RuntimeError, match="kept"):
        take_out(commit, tmp_path)


def test_aborted_records_are_those_before_an_abort_marker() -> None:
    """Of two producers in one log, the records of the transaction that was aborted count, and no others."""
    batches = [
        LogBatch(0, 10, producer_id=1, epoch=0, abort=None),
        LogBatch(10, 5, producer_id=2, epoch=0, abort=None),
        LogBatch(15, 1, producer_id=2, epoch=0, abort=True),
        LogBatch(16, 1, producer_id=1, epoch=0, abort=False),
        LogBatch(17, 1, producer_id=1, epoch=1, abort=True),  # of a transaction that wrote nothing
    ]
    left = aborted(batches)
    assert (left.transactions, left.records) == (1, 5)


def test_a_batch_after_its_successors_is_a_zombies() -> None:
    """A batch of an earlier epoch counts once a later one has written; markers and other producers do not."""
    batches = [
        LogBatch(0, 1, producer_id=1, epoch=0, abort=None),
        LogBatch(1, 1, producer_id=1, epoch=1, abort=None),
        LogBatch(2, 1, producer_id=2, epoch=0, abort=None),
        LogBatch(3, 1, producer_id=1, epoch=0, abort=True),
    ]
    assert zombie_batches(batches) == 0
    late = LogBatch(4, 1, producer_id=1, epoch=0, abort=None)
    assert zombie_batches([*batches, late]) == 1


def test_rounds_of_other_code_count_if_it_is_named(tmp_path: Path) -> None:
    """But for the scenarios that are played again; the page says which rounds are of which code."""
    path = tmp_path / "results.jsonl"
    before = Results(path, "7")
    before.code = "0123456789ab"
    for scenario in ("kill", "grown"):
        before.add(_result(scenario, before, counts=True))
    assert not Results(path, "7").done("kill", 0)
    after = Results(path, "7", [before.code], ["grown"])
    assert after.done("kill", 0)
    assert not after.done("grown", 0)
    after.add(_result("grown", after, counts=True))
    write_report(after, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text("utf-8")
    assert f"code {after.code}; code 0123456789ab for `kill`." in page


def test_rounds_are_played_once_and_the_page_tells_the_rest(tmp_path: Path) -> None:
    """A round that counts is done for its seed alone; what is missing stands on the page as not run."""
    results = Results(tmp_path / "results.jsonl", "7")
    assert not results.done("kill", 0)
    results.add(_result("kill", results, counts=False))
    assert not results.done("kill", 0)
    results.add(_result("kill", results, counts=True))
    again = Results(tmp_path / "results.jsonl", "7")
    assert again.done("kill", 0)
    assert not Results(tmp_path / "results.jsonl", "8").done("kill", 0)
    write_report(again, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text("utf-8")
    kill = SCENARIOS["kill"]
    row = next(line for line in page.splitlines() if line.startswith("| `kill`: "))
    assert f"kept in 1 of 1 rounds; {kill.rounds - 1} not run" in row
    assert "| 3 | 2 | 40 |" in row
    assert sum("| not run |" in line for line in page.splitlines()) == len(SCENARIOS) - 1
    assert "Rounds that did not count: 1 of `kill`." in page


def _result(
    name: str, results: Results, *, counts: bool, number: int = 0, hits: int | None = 2
) -> Result:
    return Result(
        scenario=name,
        number=number,
        attempt=0,
        seed=results.seed,
        code=results.code,
        at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        tried={"SIGKILL": 3},
        hits=hits,
        counts=counts,
        failures=[],
        finding=Finding(0, 0, 0, 100, 60, 2, 40, 0),
    )
