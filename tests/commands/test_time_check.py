"""Claims about dead letters that reject an event for its time: only what the broker's stamps contradict is wrong."""

import asyncio
from bisect import bisect_left
from types import SimpleNamespace
from typing import Any

from streamdedup.commands.audit.time_check import Claim, TimeCheck
from streamdedup.kafka.topics import Topic
from streamdedup.settings import Settings

NOW_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
AHEAD_MS, KEPT_MS = HOUR_MS, 24 * HOUR_MS
SETTINGS: Any = {
    "kafka": {"bootstrap_servers": "memory:1", "group_id": "group"},
    "source": {"topic": "in"},
    "key": {"from": "key"},
    "filter": {"capacity": 1000, "error_rate": 1e-3},
    "sink": {"topic": "out", "dead_letter_topic": "dead"},
    "snapshot": {"directory": "unused"},
}
OUTPUT = Topic(
    "out",
    None,
    1,
    1,
    settings={
        "message.timestamp.after.max.ms": f"{AHEAD_MS}",
        "message.timestamp.before.max.ms": f"{KEPT_MS}",
    },
)


class Markers:
    """A cluster with one log of letters: each marker stands after its letters, with its stamp. It counts questions."""

    def __init__(self, markers: list[tuple[int, int]]) -> None:
        self.markers, self.asked = markers, 0

    async def stamp(self, _topic: str, _partition: int, start: int, end: int) -> Any:
        """The first marker from `start` on."""
        self.asked += 1
        at = bisect_left(self.markers, (start, 0))
        if at == len(self.markers) or self.markers[at][0] >= end:
            return None
        return SimpleNamespace(stamped_ms=self.markers[at][1])


def check_on(markers: list[tuple[int, int]], guarantee: str = "exactly_once") -> TimeCheck:
    """A check over that log."""
    settings = Settings(**{**SETTINGS, "delivery": {"guarantee": guarantee}})
    cluster: Any = Markers(markers)
    letters = Topic("dead", None, 1, 1)
    return TimeCheck(settings, cluster, OUTPUT, letters, partition=0, end=1 << 40)


def wrong_in(check: TimeCheck, claims: list[Claim]) -> list[int]:
    """The letters that are wrong."""
    asyncio.run(check.check(claims))
    return sorted(claim.at for claim in check.wrong)


def test_good_events_of_a_worker_whose_clock_was_behind_are_wrong() -> None:
    """All of one transaction, with two questions; its letters were stamped two hours ago."""
    claims = [Claim(at, at, NOW_MS, True, NOW_MS - 2 * HOUR_MS) for at in range(200)]
    check = check_on([(200, NOW_MS + 50)])
    assert wrong_in(check, claims) == list(range(200))
    assert check.worker_ahead_s == -7200.05
    cluster: Any = check._cluster
    assert cluster.asked == 2


def test_what_the_output_would_refuse_is_right() -> None:
    """Further ahead than it allows when the marker was written, or older than it keeps."""
    ahead = Claim(0, 0, NOW_MS + AHEAD_MS + 10_000, True, NOW_MS)
    behind = Claim(1, 1, NOW_MS - KEPT_MS - 60_000, False, NOW_MS)
    check = check_on([(2, NOW_MS)])
    assert wrong_in(check, [ahead, behind]) == []
    assert (check.unknown, check.worker_ahead_s) == (0, 0.0)


def test_without_a_marker_nothing_is_known() -> None:
    """At least once none is even looked for."""
    claims = [Claim(0, 0, NOW_MS, True, NOW_MS)]
    for check in (check_on([]), check_on([(1, NOW_MS)], "at_least_once")):
        assert wrong_in(check, claims) == []
        assert check.unknown == 1
