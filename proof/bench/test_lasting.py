"""The tools that measure over time, `lasting` and the parts of `full`, measure on a real broker."""

from bench.worker import lasting, latency, restart, saving
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


def test_each_part_of_full_measures(broker: Broker) -> None:
    """A restart both ways, the latency of events, and snapshots with the beats of the loop beside them."""
    address = broker.bootstrap_servers
    restarted = restart.restart(address, 2000, rounds=1)
    assert min(restarted["folded_median_s"], restarted["loaded_median_s"]) > 0
    late = latency.latency(address, 1000, 20, warm_s=0.5, measured_s=0.5)
    values = [*late["percentiles_ms"].values(), late["max_ms"]]
    assert 0 < values[0] <= values[-1]
    saved = saving.saving(address, filter_bytes=1 << 24, filling=2000, interval_s=2, snapshots=1)
    assert len(saved["seconds"]) == len(saved["mb_a_s"]) == 1
    assert 0 <= saved["beats_with"]["late"] < saved["beats_with"]["beats"]
