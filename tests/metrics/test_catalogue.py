"""What is claimed of the metrics by themselves: their names, and that what is counted can be trusted."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamdedup.events import Damage, EventBatch, Verdict
from streamdedup.kafka.records.records import Record, batch_of
from streamdedup.metrics import catalogue
from streamdedup.metrics.catalogue import METRICS, PROCESS, Metric
from streamdedup.metrics.counts import Histogram, Meters, ShardMeters
from tests.rows import table

ROOT = Path(__file__).parents[2]
UNITS = {
    "seconds": "seconds",
    "seconds since 1970": "seconds",
    "bytes": "bytes",
    "ratio": "ratio",
    "offset": "offset",
    "offsets": "offsets",
    "events": "events",
    "keys": "keys",
}


# --- names ---


@table(METRICS)
def test_a_metric_is_named_as_prometheus_wants_it(metric: Metric) -> None:
    """Lower case, ours begin with our name, counters alone end in _total, units stand at the end, in base units."""
    assert re.fullmatch(r"(streamdedup|process)(_[a-z]+)+", metric.name)
    assert (metric in PROCESS) == metric.name.startswith("process_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(r"_(ms|milliseconds|kb|mb|percent|count|sum|bucket)(_|$)", metric.name)
    if metric.kind in ("gauge", "histogram") and metric.unit in UNITS:
        assert metric.name.endswith(f"_{UNITS[metric.unit]}")
    assert metric.meaning.endswith(".")
    assert len(metric.meaning.split()) > 3
    assert list(metric.bounds) == sorted(metric.bounds)
    assert bool(metric.bounds) == (metric.kind == "histogram")


def test_every_name_stands_once() -> None:
    """METRICS has every metric of the module, each name once."""
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    declared = {value.name for value in vars(catalogue).values() if isinstance(value, Metric)}
    assert set(names) == declared | {metric.name for metric in PROCESS}


def test_the_alerts_use_metrics_that_exist() -> None:
    """Every name of ours in docs/metrics.md is a metric, or a series of a histogram."""
    histograms = [metric.name for metric in METRICS if metric.kind == "histogram"]
    known = {metric.name for metric in METRICS}
    known |= {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}
    used = set(re.findall(r"streamdedup_\w+", (ROOT / "docs" / "metrics.md").read_text()))
    assert used <= known
    assert len(used) > 30


# --- counts ---


def batch(offsets: Sequence[int]) -> EventBatch:
    """Events at these offsets."""
    records = [Record.of(at, None, None) for at in offsets]
    return batch_of("t", 0, offsets, records, next_offset=offsets[-1] + 1)


def decide(meters: ShardMeters, events: int, verdict: Verdict = Verdict.PASS) -> None:
    """What a shard does that admits so many events."""
    meters.tally.by_verdict[verdict] += events


def test_what_is_consumed_is_counted_by_the_committed_offset() -> None:
    """Gaps in the log count nothing; of a batch that is committed in part, the rest stays in flight."""
    meters = ShardMeters()
    meters.read(batch([5, 6, 9]))
    meters.read(batch([20, 21, 30]))
    assert (meters.in_flight, meters.ledger.consumed) == (6, 0)
    decide(meters, 4)
    meters.commit(21)
    assert (meters.in_flight, meters.ledger.consumed, meters.ledger.difference) == (2, 4, 0)
    decide(meters, 2, Verdict.DUPLICATE)
    meters.commit(31)
    assert (meters.in_flight, meters.ledger.consumed, meters.ledger.difference) == (0, 6, 0)


@pytest.mark.parametrize(("verdicts", "difference"), [(2, 1), (3, 0), (4, -1)])
def test_the_difference_shows_what_got_no_verdict_or_several(
    verdicts: int, difference: int
) -> None:
    """It is no tautology: three events, whose offsets are committed, with fewer or more verdicts."""
    meters = ShardMeters()
    meters.read(batch([0, 1, 2]))
    decide(meters, verdicts)
    meters.commit(3)
    assert meters.ledger.difference == difference


def test_the_difference_shows_what_was_read_again_without_being_taken_back() -> None:
    """An event that is in hand twice, as after a lost doubt, is consumed twice and decided once."""
    meters = ShardMeters()
    meters.read(batch([0, 1]))
    meters.read(batch([0, 1]))
    decide(meters, 2)
    meters.commit(2)
    assert meters.ledger.difference == 2


def test_a_doubt_takes_back_all_that_is_in_hand() -> None:
    """It counts under its cause, and what is read again counts once."""
    meters = ShardMeters()
    meters.read(batch([0, 1, 2]))
    meters.doubt("timeout")
    assert (meters.doubts["timeout"], meters.taken_back["timeout"], meters.in_flight) == (1, 3, 0)
    meters.read(batch([0, 1, 2]))
    decide(meters, 3)
    meters.commit(3)
    meters.take_back("left")
    assert (meters.ledger.consumed, meters.ledger.difference) == (3, 0)
    assert (meters.doubts["timeout"], sum(meters.taken_back.values())) == (1, 3)


def damage(first: int, last: int) -> Damage:
    """A record batch that cannot be read."""
    return Damage(
        reason="", first_offset=first, last_offset=last, raw=memoryview(b""), is_checked=True
    )


def test_what_is_skipped_is_counted_by_the_committed_offset_and_has_no_verdict() -> None:
    """Once, however often it is taken back; `in_flight` and the difference know nothing of it."""
    meters = ShardMeters()
    meters.read(batch([0, 1]))
    meters.skip(damage(2, 5))
    meters.skip(damage(6, 6))
    meters.take_back("full", 6)
    decide(meters, 2)
    meters.commit(6)
    assert (meters.ledger.batches_skipped, meters.ledger.offsets_skipped) == (1, 4)
    meters.skip(damage(6, 6))
    meters.doubt("timeout")
    assert (meters.in_flight, meters.ledger.difference) == (0, 0)
    meters.skip(damage(6, 6))
    meters.commit(7)
    assert (meters.ledger.batches_skipped, meters.ledger.offsets_skipped) == (2, 5)
    assert (meters.ledger.consumed, sum(meters.taken_back.values())) == (2, 0)


def test_what_a_full_filter_could_not_take_is_taken_back_from_its_offset_on() -> None:
    """What was decided before, in this batch and in transactions before it, stays in flight."""
    meters = ShardMeters()
    for offsets in ([0, 1], [2, 3, 5], [6, 7]):
        meters.read(batch(offsets))
    meters.take_back("full", 4)
    assert (meters.taken_back["full"], meters.in_flight) == (3, 4)
    decide(meters, 4)
    meters.commit(4)
    assert (meters.ledger.consumed, meters.ledger.difference, meters.in_flight) == (4, 0, 0)


def test_a_partition_that_comes_back_goes_on_with_its_counts() -> None:
    """The meters of a partition are the same ones whoever asks, and the sum is over all."""
    meters = Meters()
    decide(meters.of(3), 5)
    decide(meters.of(1), 2, Verdict.DUPLICATE)
    decide(meters.of(3), 1)
    assert meters.of(3).tally[Verdict.PASS] == 6
    assert list(meters.shards) == [1, 3]
    assert meters.tally.by_verdict.tolist() == [6, 2, 0, 0, 0]


def test_a_histogram_counts_as_prometheus_does() -> None:
    """Each bucket counts what is not above its bound, the last one all."""
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(seconds)
    buckets, total = histogram.read()
    assert buckets == [("0.1", 2), ("1.0", 4), ("+Inf", 5)]
    assert total == pytest.approx(8.65)
