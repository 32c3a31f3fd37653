"""Claims about what is measured over time: memory under steady events, and stalls with and between snapshots."""

import math

from bench.worker import lasting, saving
from tests.broker.base import Broker


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


def test_snapshots_are_measured_with_the_stalls_beside_them(broker: Broker) -> None:
    """On a real broker: each snapshot's seconds, and the beats of the loop meanwhile."""
    found = saving.saving(
        broker.bootstrap_servers, filter_bytes=1 << 24, filling=2000, interval_s=2, snapshots=1
    )
    assert found["filter_bytes"] >= 1 << 24
    assert len(found["seconds"]) == len(found["mb_a_s"]) == 1
    assert 0 <= found["beats_with"]["late"] < found["beats_with"]["beats"]


def test_the_beats_of_a_snapshot_are_those_between_the_looks_that_it_touches() -> None:
    """One that took 1.5 s, and that the fourth look found, touches three intervals; the others are between."""
    looks = [{0.01: 10 * n, 0.05: 10 * n, math.inf: 10 * n} for n in range(7)]
    for n in range(4, 7):  # three late beats before the fifth look, one of which later than 50 ms
        looks[n] = {0.01: 10 * n - 3, 0.05: 10 * n - 1, math.inf: 10 * n}
    found = saving.apart(looks, [(4, 1.5)])
    assert found["beats_with"] == {"beats": 30, "late": 3, "at_most_ms": math.inf}
    assert found["beats_between"] == {"beats": 30, "late": 0, "at_most_ms": 10.0}
