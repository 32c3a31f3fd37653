"""The metrics in Prometheus' format, read from the worker at each scrape."""

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from prometheus_client import Metric as Family
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector
from typing_extensions import override

from streamdedup import logs
from streamdedup.delivery.lifecycle import Delivery, State
from streamdedup.delivery.memory import FoldProgress
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.snapshots import Newest
from streamdedup.events import Verdict
from streamdedup.metrics import catalogue
from streamdedup.metrics.catalogue import Metric
from streamdedup.metrics.counts import Histogram, ShardMeters
from streamdedup.metrics.findings import KINDS
from streamdedup.rules.lists import Answer, Match
from streamdedup.server.findings import active
from streamdedup.server.pulse import Pulse
from streamdedup.server.status import Status
from streamdedup.version import __version__

BREATH_S = 0.0001  # a pause after each metric, so that the loop need not wait for the interpreter until all are made

Sample = tuple[tuple[str, ...], float]

_VERDICTS = tuple(verdict.name.lower() for verdict in Verdict)
_RULES = tuple(match.name.lower() for match in Match)
_ANSWERS = tuple(answer.name.lower() for answer in Answer)
_COUNTED: dict[Metric, Callable[[ShardMeters], float]] = {
    catalogue.CONSUMED: lambda meters: meters.ledger.consumed,
    catalogue.LEDGER_DIFFERENCE: lambda meters: meters.ledger.difference,
    catalogue.IN_FLIGHT: lambda meters: meters.in_flight,
    catalogue.LATE: lambda meters: meters.ledger.tally.late,
    catalogue.UNTIMED: lambda meters: meters.ledger.tally.untimed,
    catalogue.EXEMPT: lambda meters: meters.ledger.tally.exempt,
    catalogue.EXPECTED_FALSE: lambda meters: meters.ledger.tally.expected_false,
    catalogue.BATCHES_SKIPPED: lambda meters: meters.ledger.batches_skipped,
    catalogue.OFFSETS_SKIPPED: lambda meters: meters.ledger.offsets_skipped,
    catalogue.GAP_OFFSETS: lambda meters: meters.gap_offsets,
    catalogue.FOLDED: lambda meters: meters.folded,
    catalogue.SNAPSHOTS_SAVED: lambda meters: meters.snapshots_saved,
    catalogue.SNAPSHOTS_FAILED: lambda meters: meters.snapshots_failed,
    catalogue.SNAPSHOTS_REFUSED: lambda meters: meters.snapshots_refused,
}
_BY_LABEL: dict[Metric, Callable[[ShardMeters], Iterable[tuple[str, int]]]] = {
    catalogue.EVENTS: lambda meters: zip(_VERDICTS, meters.ledger.tally.by_verdict, strict=True),
    catalogue.LISTED: lambda meters: zip(_RULES[1:], meters.ledger.tally.by_match[1:], strict=True),
    catalogue.VERIFIED: lambda meters: zip(
        _ANSWERS[1:], meters.ledger.tally.by_answer[1:], strict=True
    ),
    catalogue.TAKEN: lambda meters: meters.taken_back.items(),
    catalogue.DOUBT: lambda meters: meters.doubts.items(),
}
_OF_SHARD: dict[Metric, Callable[[Shard], float]] = {
    catalogue.PENDING: lambda shard: shard.pending,
    catalogue.FILTER_KEYS: lambda shard: len(shard.filter),
    catalogue.FILTER_CAPACITY: lambda shard: shard.filter.capacity,
    catalogue.FILL: lambda shard: shard.filter.fill_ratio,
    catalogue.ERROR: lambda shard: shard.filter.error_rate_now,
    catalogue.ERROR_ALLOWED: lambda shard: shard.filter.error_rate,
    catalogue.FILTER_BYTES: lambda shard: shard.filter.size_bytes,
}
_OF_FOLD: dict[Metric, Callable[[FoldProgress], float]] = {
    catalogue.FOLD_START: lambda fold: fold.start,
    catalogue.FOLD_POSITION: lambda fold: fold.position,
    catalogue.FOLD_END: lambda fold: fold.end,
    catalogue.FOLD_PROGRESS: lambda fold: fold.ratio,
    catalogue.FOLD_SECONDS: lambda fold: fold.seconds,
}
_OF_SNAPSHOT: dict[Metric, Callable[[Newest, Shard], float]] = {
    catalogue.SNAPSHOT_AGE: lambda newest, _shard: max(0.0, time.time() - newest.saved_at),
    catalogue.SNAPSHOT_BEHIND: lambda newest, shard: max(0, shard.label - newest.label),
    catalogue.SNAPSHOT_BYTES: lambda newest, _shard: newest.size_bytes,
}


class WorkerCollector(Collector):
    """Reads a worker's metrics. Several threads may scrape at once."""

    def __init__(self, status: Status, pulse: Pulse) -> None:
        self._status, self._pulse = status, pulse

    @override
    def collect(self) -> Iterator[Family]:
        """Yield each metric of `catalogue.METRICS`, except those of the process, with all of its samples."""
        shards = {
            (self._status.topic, str(partition)): delivery
            for partition, delivery in sorted(dict(self._status.deliveries).items())
        }
        for family in chain(self._of_worker(), self._counts(), self._of_shards(shards)):
            yield family
            time.sleep(BREATH_S)

    def describe(self) -> Iterable[Family]:
        """Yield nothing. Without this method, the registry would scrape the worker to learn the names."""
        return ()

    def _of_worker(self) -> Iterator[Family]:
        yield InfoMetricFamily(
            catalogue.BUILD.name.removesuffix("_info"),
            catalogue.BUILD.meaning,
            {"version": __version__, "python": platform.python_version()},
        )
        failures, others = active(self._status, self._pulse)
        yield _family(catalogue.READY, [((), not failures)])
        count = Counter(found.kind.id for found in (*failures, *others))
        yield _family(
            catalogue.FINDING,
            [((kind.id, kind.severity), count[kind.id]) for kind in KINDS.values()],
        )
        yield _family(catalogue.SHADOW, [((), self._status.shadow)])
        yield _family(catalogue.BROKER_AWAY, [((), self._status.broker_away_s)])
        yield _family(catalogue.REGISTRY_AWAY, [((), self._status.registry_away_s)])
        yield _family(catalogue.GROUP_REFUSES, [((), self._status.refusal is not None)])
        yield _family(catalogue.OUTPUT_SHARED, [((), len(self._status.fenced_by_others))])
        clocks, assigned = self._status.clocks, self._status.assigned
        ahead = clocks.differences_s(assigned) if clocks and assigned else {}
        yield _family(
            catalogue.CLOCK_AHEAD, [((str(leader),), seconds) for leader, seconds in ahead.items()]
        )
        failed = self._status.meters.task_errors
        yield _family(catalogue.TASK_ERRORS, [((task,), errors) for task, errors in failed.items()])
        yield _histogram(catalogue.LOOP_STALL, self._pulse.stalls)
        yield _family(catalogue.LOOP_STALL_MAX, [((), self._pulse.longest_s)])
        yield _family(catalogue.LOG_LINES_DROPPED, [((), logs.lines_dropped())])
        yield _histogram(catalogue.TRANSACTION, self._status.meters.transactions)
        yield self._lists()
        refusals, refused = self._status.meters.list_refusals, self._status.lists.refused
        yield _family(catalogue.LIST_REFUSED, [((which,), which in refused) for which in refusals])
        yield _family(
            catalogue.LIST_REFUSALS, [((which,), count) for which, count in refusals.items()]
        )
        malformed = self._status.meters.changes_malformed
        yield _family(catalogue.CHANGES_MALFORMED, [((), malformed)])
        read_at = self._status.meters.changes_read_at
        behind = [] if read_at is None else [((), max(0.0, time.monotonic() - read_at))]
        yield _family(catalogue.CHANGES_BEHIND, behind)
        watch = self._status.watch
        yield _family(catalogue.UNSEEN, [((), watch.unseen)])
        yield _family(catalogue.UNSEEN_SHARE, [((), watch.unseen_share)])
        yield _family(catalogue.KEYS_IN_SEVERAL_SHARE, [((), watch.in_several_share)])

        yield _family(catalogue.LAG_OF_ALL, [((), self._status.lag)])
        purge = self._status.purge
        yield _family(catalogue.PURGE_FAILED, [((), len(purge.failed))] if purge else [])
        yield from self._of_copying()

    def _of_copying(self) -> Iterator[Family]:
        """Yield the metrics of the first stage of `source.repartition`; without it they have no samples."""
        copying = self._status.copying
        stage = copying.stage if copying else None
        uncopied = self._status.uncopied
        unread = copying.unread if copying else None
        copied = (
            ((topic, str(partition)), meters.ledger.consumed)
            for topic, its in sorted(dict(copying.inputs if copying else {}).items())
            for partition, meters in its.meters.shards.items()
        )
        yield _family(catalogue.COPIED, copied)
        yield _family(catalogue.COPY_LAG, [((), stage.lag)] if stage else [])
        yield _family(catalogue.COPY_STOPPED, [((), copying.stopped)] if copying and stage else [])
        left_out = [((), len(copying.left_out))] if copying and stage else []
        yield _family(catalogue.INPUTS_LEFT_OUT, left_out)
        yield _family(catalogue.COPY_PAUSED, [((), stage.paused is not None)] if stage else [])
        missing = [((), uncopied.missing is not None)] if uncopied else []
        yield _family(catalogue.COPY_MISSING, missing)
        yield _family(catalogue.COPY_HELD, [((), stage.held_partitions)] if stage else [])
        yield _family(catalogue.MIDDLE_UNREAD, [((), unread.events)] if unread else [])

    def _lists(self) -> Family:
        family = InfoMetricFamily(
            catalogue.LIST.name.removesuffix("_info"), catalogue.LIST.meaning, labels=["list"]
        )
        for which, listed in self._status.lists.now.by_section.items():
            family.add_metric([which], {"name": listed.name, "version": listed.version})
        return family

    def _counts(self) -> Iterator[Family]:
        topic = self._status.topic
        shards = {(topic, str(p)): meters for p, meters in self._status.meters.shards.items()}
        for metric, count in _COUNTED.items():
            yield _family(metric, ((labels, count(meters)) for labels, meters in shards.items()))
        for metric, counts in _BY_LABEL.items():
            yield _family(
                metric,
                (
                    ((*labels, value), number)
                    for labels, meters in shards.items()
                    for value, number in counts(meters)
                ),
            )

    def _of_shards(self, deliveries: dict[tuple[str, str], Delivery]) -> Iterator[Family]:
        yield _family(
            catalogue.STATE,
            (
                ((*labels, state.value), delivery.state is state)
                for labels, delivery in deliveries.items()
                for state in State
            ),
        )
        yield _family(
            catalogue.LAG,
            ((labels, lag) for labels, d in deliveries.items() if (lag := d.lag) is not None),
        )
        now = time.monotonic()
        waited = (
            (at, self._status.history.oldest_unread_s(d.partition, now))
            for at, d in deliveries.items()
            if d.lag is not None
        )
        yield _family(
            catalogue.OLDEST_UNREAD,
            ((at, waited_s) for at, waited_s in waited if waited_s is not None),
        )
        shards = {labels: d.shard for labels, d in deliveries.items() if d.shard}
        for metric, value in _OF_SHARD.items():
            yield _family(metric, ((labels, value(shard)) for labels, shard in shards.items()))
        forecasts = (
            (at, self._status.meters.of(d.partition).forecast) for at, d in deliveries.items()
        )
        yield _family(
            catalogue.FILTER_FULL_IN,
            ((at, left_s) for at, each in forecasts if (left_s := each.left_s) is not None),
        )
        folds = {labels: d.fold for labels, d in deliveries.items() if d.fold}
        for metric, part in _OF_FOLD.items():
            yield _family(metric, ((labels, part(fold)) for labels, fold in folds.items()))
        snapshots = {
            labels: (newest, shards[labels])
            for labels, d in deliveries.items()
            if labels in shards and d.snapshots and (newest := d.snapshots.newest)
        }
        for metric, of in _OF_SNAPSHOT.items():
            yield _family(metric, ((labels, of(*held)) for labels, held in snapshots.items()))


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, histogram: Histogram) -> Family:
    buckets, total = histogram.read()
    return HistogramMetricFamily(metric.name, metric.meaning, buckets, total)
