"""A small part of the matrix of `make chaos`, in each run of the tests; and that its oracle sees a broken promise.

What is played here is named in CONTRIBUTING.md; the whole is in docs/guarantees.md.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.broker.base import Unavailable
from tests.broker.plugin import NO_BROKER, do_without
from tests.chaos.brokers import ProxiedBroker
from tests.chaos.driver import ATTEMPTS_MAX, play, play_round
from tests.chaos.matrix import SCENARIOS
from tests.chaos.oracle import Finding
from tests.chaos.report import write_report
from tests.chaos.results import Result, Results
from tests.chaos.segments import LogBatch, aborted, zombie_batches
from tests.chaos.trial import Trial
from tests.chaos.worker import broken

TRANSACTION_APIS = (
    2  # the round whose three faults hit AddPartitionsToTxn, AddOffsetsToTxn and EndTxn
)

END_TXN_IS_CUT = 8  # the round of one fault that cuts the connection before EndTxn


@pytest.fixture(scope="module")
def brokers() -> Iterator[ProxiedBroker]:
    """A broker whose log files can be read, with a way in for a proxy."""
    try:
        found = ProxiedBroker()
    except Unavailable as unavailable:
        do_without(f"{NO_BROKER}{unavailable}")
    with closing(found):
        yield found


@pytest.mark.broker
@pytest.mark.private_broker
@pytest.mark.parametrize(
    ("name", "number", "size"),
    [
        ("kill", 0, 3),
        ("step", 0, 4),
        ("pause", 0, 1),
        ("network", TRANSACTION_APIS, 3),
        ("offsets", 0, 1),
    ],
)
def test_a_small_round_keeps_its_promise(
    brokers: ProxiedBroker, tmp_path: Path, name: str, number: int, size: int
) -> None:
    """Some faults of the matrix, really done, some of them to open transactions: nothing lost, nothing twice."""
    for attempt in range(ATTEMPTS_MAX):
        result = play_round(
            SCENARIOS[name], number, attempt, brokers, tmp_path, seed="test", code="-", size=size
        )
        assert not result.failures
        if result.counts:
            break
    assert result.counts, "no aborted record reached the output in any attempt"
    assert sum(result.tried.values()) == size


@pytest.mark.broker
@pytest.mark.private_broker
@pytest.mark.parametrize(
    ("promise", "where", "breach"),
    [
        ("doubt is success", ("network", END_TXN_IS_CUT, 1), "lost"),
        ("no fold", ("kill", 0, 2), "doubled"),
    ],
    ids=["doubt is success", "no fold"],
)
def test_the_oracle_sees_a_broken_promise(
    brokers: ProxiedBroker, tmp_path: Path, promise: str, where: tuple[str, int, int], breach: str
) -> None:
    """A worker that admits what was not committed loses events; one that does not fold its output doubles some."""
    name, number, size = where
    trial = Trial(brokers, tmp_path, f"broken {promise}", number=number)
    trial.broken = broken(promise)
    finding = play(SCENARIOS[name], trial, size)
    assert finding is not None, trial.count.failures
    assert getattr(finding, breach) > 0
    assert any(breach in failure for failure in trial.count.failures)


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


def _result(name: str, results: Results, *, counts: bool) -> Result:
    return Result(
        scenario=name,
        number=0,
        attempt=0,
        seed=results.seed,
        code=results.code,
        at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        tried={"SIGKILL": 3},
        hits=2,
        counts=counts,
        failures=[],
        finding=Finding(0, 0, 0, 100, 60, 2, 40, 0),
    )
