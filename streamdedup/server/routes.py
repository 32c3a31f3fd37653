"""The pages: /metrics, /livez, /readyz. No page holds a key, and what others chose is `escaped`."""

import time
from collections.abc import Collection, Iterator, Mapping
from http import HTTPStatus

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from streamdedup.delivery.cross_partition import REMEDY
from streamdedup.delivery.leader_clocks import UNVERIFIED
from streamdedup.delivery.lifecycle import Delivery, State
from streamdedup.metrics.prevalence import REMEDIES
from streamdedup.server.exposition import WorkerCollector
from streamdedup.server.listener import Make, Page
from streamdedup.server.pulse import Pulse
from streamdedup.server.status import Copying, Phase, Status
from streamdedup.units import counted, escaped

STALL_S_MAX = 10.0
AWAY_S_MAX = 1.0  # to connect takes a while
LOOKUP_S_MAX = 10.0  # to read a busy disk does, too
LARGE_S_MAX = 10.0
SHOWN_MAX = 10  # topics that are left out
TAKES_LONG = frozenset({"/metrics"})  # the more partitions, the longer
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def pages(status: Status, pulse: Pulse) -> Mapping[str, Make]:
    """Return, for each path, the function that makes its page."""
    registry = CollectorRegistry()
    registry.register(WorkerCollector(status, pulse, lambda: not list(_unready(status, pulse))))
    ProcessCollector(registry=registry)
    return {
        "/metrics": lambda: Page(
            HTTPStatus.OK, generate_latest(registry).decode(), PROMETHEUS_TEXT
        ),
        "/livez": lambda: _probe("alive", _unlive(pulse)),
        "/readyz": lambda: _readyz(status, pulse),
    }


def _probe(well: str, reasons: Iterator[str]) -> Page:
    if text := "".join(f"{escaped(reason)}\n" for reason in reasons):
        return Page(HTTPStatus.SERVICE_UNAVAILABLE, text)
    return Page(HTTPStatus.OK, f"{well}\n")


def _readyz(status: Status, pulse: Pulse) -> Page:
    """Return the page: the probe, and below it what is wrong although no event waits."""
    page = _probe(_ready(status), _unready(status, pulse))
    notes = [*_warnings(status), *(_unverified(status) if page.status == HTTPStatus.OK else ())]
    return page._replace(text=page.text + "".join(f"{escaped(note)}\n" for note in notes))


def _warnings(status: Status) -> Iterator[str]:
    yield from _stage_warnings(status)
    yield from _unserved(status, "the group")
    if status.phase is not Phase.SERVING or not (assigned := status.assigned):
        return
    if status.clocks:
        yield from (f"warning: {text}" for text in status.clocks.warnings(assigned))
    if status.group_shared_with:
        shared = counted(status.group_shared_with, "member")
        yield _of_new_protocol(shared, "this group")
    for topic, partition in sorted(status.leaderless):
        yield _without_leader(topic, partition)
    yield from _held(status, assigned)
    yield from _beyond_capacity(status, assigned)
    if status.output_shared:
        yield f"warning: {status.output_shared}"
    if status.output_forgets:
        yield f"warning: {status.output_forgets}"
    for which, reason in status.lists.refused.items():
        yield (
            f"warning: the {which} as its file is now is refused, and the one before is in force; the next start of a"
            f" worker will fail, unless the file is replaced before: {reason}"
        )
    if evidence := status.watch.evidence:
        yield f"warning: {status.topic}: {evidence.text}; {REMEDY}"
    for one in status.meters.prevailing:
        outcome = one.outcome
        yield f"warning: {status.topic}: {one}; {status.fates[outcome]}; {REMEDIES[outcome]}"


def _held(status: Status, assigned: Collection[int]) -> Iterator[str]:
    """Yield the partitions of the input at which a transaction stays open."""
    for partition, held in sorted(status.held.items()):
        if partition in assigned:
            yield (
                f"warning: {status.topic}/{partition}: a transaction{held.whose} is open on the input from offset"
                f" {held.offset} on, for {time.monotonic() - held.since:.0f} s; nothing above is read before it ends:"
                " have its producer end it, or abort it by the command of the line input_transaction_open"
            )


def _beyond_capacity(status: Status, assigned: Collection[int]) -> Iterator[str]:
    """Yield, in one line for the topic, which filters are beyond their capacity, as `filter.on_full: warn` allows."""
    deliveries = [d for p, d in sorted(dict(status.deliveries).items()) if p in assigned]
    beyond = [(d, d.shard.filter) for d in deliveries if d.beyond_capacity and d.shard]
    if not beyond:
        return
    each = [
        f"partition {delivery.partition} has {len(filter_):,} keys of {filter_.capacity:,} and an error rate of"
        f" {filter_.error_rate_now:.2g}"
        for delivery, filter_ in beyond[:SHOWN_MAX]
    ]
    if (more := len(beyond) - SHOWN_MAX) > 0:
        each.append(f"{counted(more, 'more partition')} are beyond it, too")
    delivery, filter_ = beyond[0]
    yield (
        f"warning: {status.topic}: new events may be dropped wrongly, more of them than filter.error_rate"
        f" ({filter_.error_rate:g}) promises, since filters are beyond their capacity (filter.on_full: warn):"
        f" {'; '.join(each)}: {delivery.larger}"
    )


def _stage_warnings(status: Status) -> Iterator[str]:
    """Yield what is wrong around the middle topic of `source.repartition`."""
    if status.purge and (failed := status.purge.failed):
        yield (
            f"warning: {status.topic}: what was read could not be deleted from {counted(len(failed), 'partition')}"
            f" ({', '.join(sorted(set(failed.values())))}); it is tried again, and the disk fills up meanwhile:"
            " check the brokers, and the right Delete on it"
        )
    if status.uncopied and (missing := status.uncopied.missing):
        yield f"warning: {missing}"
    if (copying := status.copying) is None:
        return
    left_out = copying.left_out
    for topic, why in sorted(left_out.items())[:SHOWN_MAX]:
        yield f"warning: {topic} matches source.pattern and is left out: {why}"
    if (more := len(left_out) - SHOWN_MAX) > 0:
        yield f"warning: {counted(more, 'more topic')} that match source.pattern are left out; the log names them"
    if (stage := copying.stage) and (paused := stage.paused):
        yield f"warning: {copying.status.topic}: {paused}"
    if (stage := copying.stage) and (held := stage.held):
        yield f"note: {copying.status.topic}: {held}"
    for of_topic in dict(copying.inputs).values():
        yield from _held(of_topic, of_topic.assigned or ())
    for topic, partition in sorted(copying.status.leaderless - status.leaderless):
        yield _without_leader(topic, partition)
    yield from _unserved(copying.status, "the first stage's group")
    if copying.status.group_shared_with:
        shared = counted(copying.status.group_shared_with, "member")
        yield _of_new_protocol(shared, "the first stage's group")


def _of_new_protocol(shared: str, group: str) -> str:
    return (
        f"warning: {shared} of the new group protocol (KIP-848) took partitions of {group}; stop them, or give them"
        " another group.id"
    )


def _without_leader(topic: str, partition: int) -> str:
    return (
        f"warning: {topic}/{partition} has no leader, so nothing is read from it or written to it; start the brokers of"
        " its replicas (kafka-topics.sh --describe names them)"
    )


def _unserved(status: Status, group: str) -> Iterator[str]:
    if status.unserved:
        topic, partition = min(status.unserved)
        missing = counted(len(status.unserved), "partition")
        yield (
            f"warning: no member of {group} has {missing}, so nobody reads them (one is {topic}/{partition}); if this"
            " lasts, restart a worker: the leader of the group assigns them then"
        )


def _unverified(status: Status) -> Iterator[str]:
    if status.clocks and status.assigned and not status.clocks.is_verified(status.assigned):
        yield f"note: {UNVERIFIED}"


def _unlive(pulse: Pulse) -> Iterator[str]:
    """Yield why the process should be restarted.

    A broker that is away or a stopped shard is not a reason: a restart does not cure them.
    """
    if (stalled_s := pulse.stalled_s) > STALL_S_MAX:
        yield f"the event loop has stood still for {stalled_s:.0f} s"


def _ready(status: Status) -> str:
    assigned = status.assigned
    if not status.judges and (copying := status.copying):
        count = len(copying.assigned or ())
        return f"ready: {counted(count, 'partition')} of {copying.status.topic} copied to {copying.middle}"
    if assigned:
        return f"ready: {len(assigned)} of {status.topic} live"
    return "ready: no partition is assigned, because the group has more workers than partitions"


def _unready(status: Status, pulse: Pulse) -> Iterator[str]:
    """Yield why some events of our partitions would not be decided now, one line for each reason."""
    yield from _unlive(pulse)
    if (away_s := status.broker_away_s) > AWAY_S_MAX:
        yield f"the broker has been away for {away_s:.0f} s"
    if (away_s := status.registry_away_s) > AWAY_S_MAX:
        yield f"the schema registry has been away for {away_s:.0f} s"
    if status.copying and status.phase is not Phase.DRAINING:
        yield from _not_copying(status.copying)
    if not status.judges:
        return
    phase, assigned, refusal = status.phase, status.assigned, status.refusal
    if refusal is not None and phase is not Phase.DRAINING:
        yield refusal
    elif phase is not Phase.SERVING:
        yield status.waits or _PHASES[phase]
    elif assigned is None:
        yield "waiting for the group to assign partitions"
    else:
        deliveries = dict(status.deliveries)
        for partition in sorted(assigned):
            if reason := _not_live(deliveries.get(partition)):
                yield f"{status.topic}/{partition}: {reason}"


def _not_copying(copying: Copying) -> Iterator[str]:
    """Yield why some events of the input would not be copied now."""
    status, stage = copying.status, copying.stage
    of = f"{status.topic} to {copying.middle}"
    if (refusal := status.refusal) is not None:
        yield refusal
    elif status.phase is not Phase.SERVING or stage is None:
        yield f"{of}: {_PHASES[status.phase]}"
    elif stage.trouble:
        yield f"{of}: stopped: {stage.trouble}"
    elif copying.assigned is None:
        yield f"{of}: waiting for the group to assign partitions"
    elif stage.waits:
        yield f"{of}: {stage.waits}"
    elif copying.assigned and not stage.copying:
        yield f"{of}: asking where to go on"
    if stage:
        for partition, why in sorted(dict(stage.stopped).items()):
            yield f"{partition}: stopped: {why}"


_PHASES = {
    Phase.CONNECTING: "connecting: finding the cluster, checking its topics, compiling code",
    Phase.JOINING: "joining the group",
    Phase.DRAINING: "draining",
}


def _not_live(delivery: Delivery | None) -> str | None:
    """Return the shard's state and the reason for it; None if it is live and decides."""
    if delivery is None:
        return State.ASSIGNED.value
    state = delivery.state
    waits = delivery.memory_waits(LARGE_S_MAX)
    if state is State.LIVE:
        waits = delivery.lookup_waits(LOOKUP_S_MAX) or waits
        return f"{state.value}, {waits}" if waits else None
    if waits := (delivery.snapshots and delivery.snapshots.waits) or waits:
        return f"{state.value}, {waits}"
    if state is State.FOLDING and (fold := delivery.fold):
        return f"folding, {fold.ratio:.0%} of the output from offset {fold.start} to {fold.end}"
    if state in (State.FULL, State.STOPPED):
        return f"{state.value}: {delivery.trouble}"
    return state.value
