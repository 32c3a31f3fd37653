"""Claims about shadow mode, over a broker in memory: what a fold, an audit and a page make of marked events."""

import random
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from streamdedup.errors import ConfigError
from streamdedup.events import Verdict
from streamdedup.kafka.options import MARK
from streamdedup.settings import load
from tests.broker.topics import Record
from tests.lists.numbered import addressed, build_lists
from tests.memory import measured
from tests.memory_deployment import MemoryDeployment, findings


@pytest.fixture
def deployment(tmp_path: Path) -> MemoryDeployment:
    """One partition in shadow mode, both lists, a topic for each sort of event."""
    made = MemoryDeployment(tmp_path).create()
    made.config["key"] = {"from": "key", "normalize": "email"}
    made.config |= build_lists(tmp_path)
    made.config["sink"]["shadow"] = True
    for leaf in ("duplicates_topic", "blocked_topic", "dead_letter_topic"):
        made.create_side_topic(leaf)
    return made


def output_of(deployment: MemoryDeployment) -> list[Record]:
    """All of it, in its order."""
    return deployment.read_all(deployment.sink)


def judged(records: Iterable[Record]) -> list[tuple[bytes | None, bytes | None]]:
    """Return value and verdict of each."""
    return [(record.value, dict(record.headers).get(MARK)) for record in records]


def test_a_fold_leaves_out_what_did_not_pass(deployment: MemoryDeployment) -> None:
    """Shadow mode is left, without a snapshot. Keys that passed are known; blocked keys pass once the list is gone."""
    deployment.feed(addressed([1, 1, 5, 5, 3, 2]))
    deployment.work()
    deployment.delete_snapshots()  # so that the next worker folds all of the output
    del deployment.config["blocklist"], deployment.config["allowlist"]
    for leaf in ("shadow", "blocked_topic"):
        del deployment.config["sink"][leaf]
    before = len(output_of(deployment))
    deployment.feed(addressed([1, 2, 5, 5, 3, 4]))
    worker = deployment.work()
    assert judged(output_of(deployment)[before:]) == [(b"5", None), (b"3", None), (b"4", None)]
    [folded] = worker.lines("output_folded")
    assert (folded["events"], folded["not_passed"], folded["without_key"]) == (6, 4, 0)


def test_nobody_keeps_a_key_out_of_the_filter_by_a_header(deployment: MemoryDeployment) -> None:
    """An event that comes with a mark of its own passes once, before and after a fold: ours stands behind it."""
    del deployment.config["sink"]["shadow"]
    deployment.feed(addressed([1, 2], headers=[(MARK, b"duplicate"), ("own", b"1")]))
    deployment.feed(addressed([4]))
    deployment.work()
    assert [record.headers for record in output_of(deployment)] == [
        *[((MARK, b"duplicate"), ("own", b"1"), (MARK, b"pass"))] * 2,
        (),
    ]
    deployment.delete_snapshots()
    deployment.feed(addressed([1, 2, 4]))
    deployment.work()
    assert len(output_of(deployment)) == 3


def test_the_page_says_that_nothing_is_dropped(deployment: MemoryDeployment) -> None:
    """And the verdicts are counted as ever."""
    deployment.feed(addressed([1, 1, 5]))
    worker = deployment.work()
    assert measured(worker, "shadow") == [1]
    assert sum(measured(worker, "events_total")) == 3


def test_an_event_that_fits_only_without_its_mark_is_a_dead_letter(
    deployment: MemoryDeployment,
) -> None:
    """It is decided beforehand: no transaction fails by what we append."""
    deployment.alter(deployment.sink, max_message_bytes=10_000)
    value = random.Random(1).randbytes(9_500)  # which lz4 does not make smaller
    deployment.feed([(0, b"user1@example.com", value, [], None), *addressed([2])])
    deployment.work()
    assert judged(output_of(deployment)) == [(b"2", b"pass")]
    letters = deployment.read_all(deployment.config["sink"]["dead_letter_topic"])
    assert [dict(letter.headers)["streamdedup.reason"] for letter in letters] == [b"too large"]


def test_a_tombstone_that_the_output_refuses_is_a_dead_letter(deployment: MemoryDeployment) -> None:
    """If tombstones are dropped, it goes nowhere; but in shadow mode it would have to go to the output."""
    deployment.config["source"]["tombstones"] = "drop"
    deployment.alter(deployment.source, message_timestamp_after_max_ms=1 << 40)
    deployment.alter(deployment.sink, message_timestamp_after_max_ms=3_600_000)
    ahead_ms = int(time.time() * 1000) + 7_200_000
    deployment.feed([(0, b"user1@example.com", None, [], ahead_ms), *addressed([2])])
    worker = deployment.work()
    assert judged(output_of(deployment)) == [(b"2", b"pass")]
    assert worker.tally[Verdict.REJECTED] == 1
    deployment.config["sink"]["shadow"] = False
    deployment.feed([(0, b"user1@example.com", None, [], ahead_ms)])
    assert deployment.work().tally[Verdict.BLOCKED] == 1


@pytest.mark.parametrize("on_malformed", ["dead_letter", "drop", "pass"])
@pytest.mark.parametrize("shadow_first", [True, False])
def test_an_audit_knows_marks(
    deployment: MemoryDeployment, on_malformed: str, shadow_first: bool
) -> None:
    """What is in the output and did not pass is neither doubled nor lost; whenever shadow mode is set and unset."""
    deployment.config["key"]["on_malformed"] = on_malformed
    deployment.config["source"]["tombstones"] = "drop"
    for shadow in (shadow_first, not shadow_first):
        deployment.config["sink"]["shadow"] = shadow
        deployment.feed(addressed([1, 2, 1, 5, 5, 3, 15]))
        deployment.feed(
            [(0, b"no address", b"m", [], None), (0, b"user7@example.com", None, [], None)]
        )
        deployment.work()
        report = deployment.audited()
        assert not report.breaches
        assert not any(findings(report).values()), findings(report)
    assert report.total.blocked == 6


def test_an_audit_without_a_filter_knows_marks(deployment: MemoryDeployment) -> None:
    """Each event is there once, and those are counted that a list blocked."""
    deployment.config["filter"] = {"kind": "none"}
    for name in ("duplicates_topic", "blocked_topic"):
        del deployment.config["sink"][name]
    deployment.feed(addressed([1, 1, 5, 3]))
    deployment.work()
    report = deployment.audited()
    assert not report.breaches
    assert (report.total.emitted, report.total.blocked) == (4, 2)


def test_a_compacted_output_is_refused_in_shadow_too(deployment: MemoryDeployment) -> None:
    """Also without a filter: what is blocked would take the place of what is not."""
    deployment.config["filter"] = {"kind": "none"}
    del deployment.config["sink"]["duplicates_topic"]
    deployment.alter(deployment.sink, cleanup_policy="compact")
    with pytest.raises(ConfigError, match=r"compacted .* sink\.shadow=false"):
        deployment.work()


@pytest.mark.parametrize("name", [MARK, "streamdedup.list", "streamdedup.rule"])
def test_what_we_write_is_no_key(deployment: MemoryDeployment, name: str) -> None:
    """Else a fold would judge by our own header."""
    deployment.config["key"] = {"from": "header", "field": name}
    with pytest.raises(ConfigError, match="streamdedup writes that header itself"):
        load(deployment.write_config())
