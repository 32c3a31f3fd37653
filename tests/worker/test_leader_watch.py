"""Claims about partitions without a leader: said once when it lasts, and once when it is over."""

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamdedup.metrics.counts import Meters
from streamdedup.server.pulse import Pulse
from streamdedup.server.routes import pages
from streamdedup.server.status import Phase, Status
from streamdedup.worker.leader_watch import AFTER_S, LeaderWatch


def looked(*looks: tuple[float, list[tuple[str, int]]]) -> tuple[list[Any], Status]:
    """The lines of the log after these looks, each at its time, and the status."""
    status = Status("in", {}, Meters())
    watch = LeaderWatch(status)
    with capture_logs() as lines:
        for now_s, leaderless in looks:
            watch.look(leaderless, now_s)
    return lines, status


def test_one_that_lasts_is_said_once_and_its_end_too() -> None:
    """All partitions of a topic in one line; `/readyz` has each as long as it lasts."""
    places = [("out", 0), ("in", 3), ("in", 1)]
    lines, status = looked((0, places), (AFTER_S, places), (2 * AFTER_S, places))
    said = [(line["event"], line["topic"], line["partitions"], line["log_level"]) for line in lines]
    assert said == [
        ("partition_without_leader", "in", [1, 3], "warning"),
        ("partition_without_leader", "out", [0], "warning"),
    ]
    assert status.leaderless == set(places)
    lines, status = looked((0, places), (AFTER_S, places), (AFTER_S + 10, [("in", 3)]))
    assert [(line["event"], line["topic"], line["partitions"]) for line in lines[2:]] == [
        ("partition_has_leader", "in", [1]),
        ("partition_has_leader", "out", [0]),
    ]
    assert status.leaderless == {("in", 3)}


def test_an_election_is_not_said() -> None:
    """It is over soon; and the time begins anew with the next one."""
    lines, _ = looked((0, [("in", 0)]), (10, []), (20, [("in", 0)]), (40, [("in", 0)]), (49, []))
    assert lines == []


@pytest.mark.finding("partition-without-leader")
def test_the_page_names_it() -> None:
    """As a warning."""
    _, status = looked((0, [("in", 3)]), (AFTER_S, [("in", 3)]))
    status.phase = Phase.SERVING
    served = frozenset({3})
    member: Any = SimpleNamespace(epoch=status.epoch, assigned=served, refused_since=None)
    status.source = member
    page = pages(status, Pulse())["/readyz"]()
    assert "warning: in/3: it has no leader" in page.text
