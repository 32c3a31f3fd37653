"""Claims about what is measured over time: memory under steady events, and stalls with and between snapshots."""

import math

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from bench.worker import full_page, lasting, saving
from tests.broker.base import Broker

CIRCUMSTANCES = {
    "measured": "2026-01-01",
    "commit": "abc",
    "broker": "one",
    "machine": {"processor": "P", "cores": 2, "memory_bytes": 1 << 34},
}


def test_memory_is_measured_while_every_event_is_judged(broker: Broker) -> None:
    """On a real broker: a size at every look, medians over both spans, as many events as were due."""
    found = lasting.lasting(
        broker.bootstrap_servers, rate=2000, seconds=2, warm_s=0.5, span_s=0.5, look_every_s=0.1
    )
    sizes = [size for _, size in found["resident"]]
    assert min(sizes) <= found["first_bytes"] <= max(sizes)
    assert min(sizes) <= found["last_bytes"] <= max(sizes)
    assert len(sizes) >= 10
    assert 3000 < found["events"] <= 4000


def test_many_events_are_counted_as_few_are() -> None:
    """The page writes a million as a float with an exponent."""
    counter = Counter("streamdedup_events", "how many", ["partition", "verdict"], registry=None)
    counter.labels("0", "pass").inc(12_007_081)
    counter.labels("1", "pass").inc(7)
    counter.labels("1", "duplicate").inc(1_000_000)
    registry = CollectorRegistry()
    registry.register(counter)
    text = generate_latest(registry).decode()
    assert "e+07" in text
    assert lasting.judged(text) == {"pass": 12_007_088, "duplicate": 1_000_000}


def test_snapshots_are_measured_with_the_stalls_beside_them(broker: Broker) -> None:
    """On a real broker: each snapshot's seconds, and the beats of the loop meanwhile."""
    found = saving.saving(
        broker.bootstrap_servers, filter_bytes=1 << 24, filling=2000, interval_s=2, snapshots=1
    )
    assert found["filter_bytes"] >= 1 << 24
    assert len(found["seconds"]) == len(found["mb_a_s"]) == 1
    assert 0 <= found["beats_with"]["late"] < found["beats_with"]["beats"]


def test_the_beats_of_a_snapshot_are_those_between_the_looks_that_it_touches() -> None:
    """One that took 3 s, and that the fourth look found, touches three intervals; the others are between."""
    looks = [{0.01: 10 * n, 0.05: 10 * n, math.inf: 10 * n} for n in range(7)]
    for n in range(4, 7):  # three late beats before the fifth look, one of which later than 50 ms
        looks[n] = {0.01: 10 * n - 3, 0.05: 10 * n - 1, math.inf: 10 * n}
    found = saving.apart(looks, [(4, 3.0)])
    assert found["beats_with"] == {"beats": 30, "late": 3, "at_most_ms": math.inf}
    assert found["beats_between"] == {"beats": 30, "late": 0, "at_most_ms": 10.0}


@pytest.mark.parametrize(
    ("late", "grown", "held", "said"),
    [(0, 10, 0.4, "met"), (1, 11, 0.2, "**missed**"), (0, 11, 0.5, "**missed**")],
)
def test_the_page_says_whether_stalls_and_growth_are_within_their_bounds(
    late: int, grown: int, held: float, said: str
) -> None:
    """One late beat with a snapshot is too many, and so is growth above 10 MB, and commits that wait for longer.

    Late beats between snapshots are only told.
    """
    snapshot = {
        "filter_bytes": 1 << 30,
        "rate": 50_000,
        "seconds": [0.9, 1.1, 1.0],
        "mb_a_s": [1190.0, 976.0, 1073.0],
        "held_s": [0.1, held, 0.2],
        "beats_with": {"beats": 150, "late": late, "at_most_ms": 10.0 + 15 * late},
        "beats_between": {"beats": 900, "late": 2, "at_most_ms": 25.0},
    }
    memory = {
        "rate": 1000,
        "warm_s": 120.0,
        "span_s": 60.0,
        "events": 600_000,
        "filter_bytes": 9_000_000,
        "resident": [[second, 200_000_000] for second in range(0, 600, 5)],
        "first_bytes": 200_000_000,
        "last_bytes": 200_000_000 + grown * 1_000_000,
    }
    cells = {
        "snapshot/cuckoo": snapshot | {"commit": "0123"},
        "memory": memory | {"commit": "4567"},
    }
    text = "\n".join(full_page.sections({"cells": cells, **CIRCUMSTANCES}))
    assert "at commit `0123` (snapshot) and `4567` (memory)" in text
    assert f"held 0.4 s at most: {said}" in text
    assert f"it grew by {grown:.1f} MB; at most 10 MB: {said}" in text
    assert "| **1.00** (0.90, 1.10, 1.00) | 1,073 |" in text
    assert f"{late} of 150, at most" in text
    assert "| 10 | 200.0 | 200.0 |" in text
