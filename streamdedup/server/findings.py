"""What a worker has found, read from its status: why events wait, and what is not as it should be.

Any thread may call these functions; see `status`.
"""

import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from streamdedup.delivery.cross_partition import REMEDY
from streamdedup.delivery.leader_clocks import UNVERIFIED
from streamdedup.delivery.lifecycle import Delivery, State
from streamdedup.kafka.groups import NEWER_REMEDY, UNSERVED_REMEDY
from streamdedup.kafka.partitions import LEADER_REMEDY, WITHOUT_LEADER
from streamdedup.metrics import findings
from streamdedup.metrics.findings import Finding, Kind
from streamdedup.metrics.prevalence import REMEDIES
from streamdedup.server.pulse import Pulse
from streamdedup.server.status import Copying, Phase, Status
from streamdedup.units import counted

STALL_S_MAX = 10.0
AWAY_S_MAX = 1.0  # to connect takes a while
LOOKUP_S_MAX = 10.0  # to read a busy disk does, too
LARGE_S_MAX = 10.0
SHOWN_MAX = 10  # topics that are left out


class Active(NamedTuple):
    """What a worker has found now: the failures, in their order on `/readyz`, and all else."""

    failures: list[Finding]
    others: list[Finding]


def active(status: Status, pulse: Pulse) -> Active:
    """Return all findings of now, each with its `since`."""
    failures = list(_failures(status, pulse))
    others = [*_warnings(status), *(_notes(status) if not failures else ())]
    seen = status.findings.observe(time.time(), [*failures, *others])
    return Active(seen[: len(failures)], seen[len(failures) :])


def stalled(pulse: Pulse) -> Iterator[Finding]:
    """Yield why the process should be restarted.

    A broker that is away or a stopped shard is not a reason: a restart does not cure them.
    """
    if (stalled_s := pulse.stalled_s) > STALL_S_MAX:
        yield findings.LOOP_STANDS.at(None, f"the event loop has stood still for {stalled_s:.0f} s")


def _failures(status: Status, pulse: Pulse) -> Iterator[Finding]:
    """Yield why some events of our partitions would not be decided now."""
    yield from stalled(pulse)
    if (away_s := status.broker_away_s) > AWAY_S_MAX:
        yield findings.BROKER_AWAY.at(None, f"the broker has been away for {away_s:.0f} s")
    if (away_s := status.registry_away_s) > AWAY_S_MAX:
        yield findings.REGISTRY_AWAY.at(
            None, f"the schema registry has been away for {away_s:.0f} s"
        )
    if status.copying and status.phase is not Phase.DRAINING:
        yield from _not_copying(status.copying)
    if not status.judges:
        return
    phase, assigned, refusal = status.phase, status.assigned, status.refusal
    if refusal is not None and phase is not Phase.DRAINING:
        yield refusal
    elif phase is not Phase.SERVING:
        yield _phase(status, findings.STARTING, None)
    elif assigned is None:
        yield findings.STARTING.at(None, "waiting for the group to assign partitions")
    else:
        deliveries = dict(status.deliveries)
        for partition in sorted(assigned):
            yield from _not_live(deliveries.get(partition), f"{status.topic}/{partition}")


_PHASES = {
    Phase.CONNECTING: "connecting: finding the cluster, checking its topics, compiling code",
    Phase.JOINING: "joining the group",
    Phase.DRAINING: "draining",
}


def _phase(status: Status, starts: Kind, place: str | None) -> Finding:
    kind = findings.DRAINING if status.phase is Phase.DRAINING else starts
    return kind.at(place, status.waits or _PHASES[status.phase])


def _not_copying(copying: Copying) -> Iterator[Finding]:
    """Yield why some events of the input would not be copied now."""
    status, stage = copying.status, copying.stage
    starts, of = findings.STAGE_STARTS, f"{status.topic} to {copying.middle}"
    if (refusal := status.refusal) is not None:
        yield refusal
    elif status.phase is not Phase.SERVING or stage is None:
        yield _phase(status, starts, of)
    elif stage.trouble:
        yield stage.trouble
    elif copying.assigned is None:
        yield starts.at(of, "waiting for the group to assign partitions")
    elif stage.waits:
        yield starts.at(of, stage.waits)
    elif copying.assigned and not stage.copying:
        yield starts.at(of, "asking where to go on")
    if stage:
        yield from (found for _, found in sorted(dict(stage.stopped).items()))


def _not_live(delivery: Delivery | None, place: str) -> Iterator[Finding]:
    """Yield the shard's state and the reason for it; nothing if it is live and decides."""
    starts = findings.PARTITION_STARTS
    if delivery is None:
        yield starts.at(place, State.ASSIGNED.value)
        return
    state, trouble = delivery.state, delivery.trouble
    if state is State.LIVE:
        if waits := delivery.lookup_waits(LOOKUP_S_MAX):
            yield findings.LOOKUP_WAITS.at(place, f"{state.value}, {waits}")
        elif waits := delivery.memory_waits(LARGE_S_MAX):
            yield findings.LARGE_BATCH_WAITS.at(place, f"{state.value}, {waits}")
    elif delivery.snapshots and (waits := delivery.snapshots.waits):
        yield findings.SNAPSHOT_WAITS.at(place, f"{state.value}, {waits}")
    elif waits := delivery.memory_waits(LARGE_S_MAX):
        yield findings.LARGE_BATCH_WAITS.at(place, f"{state.value}, {waits}")
    elif state is State.FOLDING and (fold := delivery.fold):
        yield starts.at(
            place,
            f"folding, {fold.ratio:.0%} of the output from offset {fold.start} to {fold.end}",
        )
    elif state in (State.FULL, State.STOPPED) and trouble:
        yield trouble
    else:
        yield starts.at(place, state.value)


def _warnings(status: Status) -> Iterator[Finding]:
    yield from _stage_warnings(status)
    yield from _unserved(status, "the group")
    if status.phase is not Phase.SERVING or not (assigned := status.assigned):
        return
    if status.clocks:
        yield from status.clocks.findings(assigned)
    if status.group_shared_with:
        yield _of_new_protocol(status.group_shared_with, "this group")
    for topic, partition in sorted(status.leaderless):
        yield _without_leader(topic, partition)
    yield from _held(status, assigned)
    yield from _beyond_capacity(status, assigned)
    if status.output_shared:
        yield status.output_shared
    if status.output_forgets:
        yield status.output_forgets
    for which, reason in status.lists.refused.items():
        yield findings.LIST_REFUSED.at(
            which,
            f"its file as it is now is refused, and the list before it is in force; the next start of a worker will"
            f" fail, unless the file is replaced before: {reason}",
        )
    if evidence := status.watch.evidence:
        yield findings.ACROSS_PARTITIONS.at(status.topic, evidence.text, REMEDY)
    for one in status.meters.prevailing:
        sentence = f"{one}; {status.fates[one.outcome]}"
        yield findings.VERDICT_PREVAILS.at(status.topic, sentence, REMEDIES[one.outcome])


def _beyond_capacity(status: Status, assigned: Collection[int]) -> Iterator[Finding]:
    """Yield the filters that are beyond their capacity, as `filter.on_full: warn` allows."""
    for partition, delivery in sorted(dict(status.deliveries).items()):
        if partition in assigned and delivery.beyond_capacity and delivery.shard:
            filter_ = delivery.shard.filter
            yield findings.BEYOND_CAPACITY.at(
                f"{status.topic}/{partition}",
                f"its filter has {len(filter_):,} keys of {filter_.capacity:,} and an error rate of"
                f" {filter_.error_rate_now:.2g}, so new events may be dropped wrongly, more of them than"
                f" filter.error_rate ({filter_.error_rate:g}) promises (filter.on_full: warn)",
                delivery.larger,
            )


def _held(status: Status, assigned: Collection[int]) -> Iterator[Finding]:
    """Yield the partitions of the input at which a transaction stays open."""
    for partition, held in sorted(status.held.items()):
        if partition in assigned:
            yield findings.INPUT_TRANSACTION.at(
                f"{status.topic}/{partition}",
                f"a transaction{held.whose} is open on the input from offset {held.offset} on, for"
                f" {time.monotonic() - held.since:.0f} s; nothing above is read before it ends",
                "have its producer end it, or abort it by the command of the line input_transaction_open",
            )


def _stage_warnings(status: Status) -> Iterator[Finding]:
    """Yield what is wrong around the middle topic of `source.repartition`."""
    if status.purge and (failed := status.purge.failed):
        yield findings.MIDDLE_NOT_PURGED.at(
            status.topic,
            f"what was read could not be deleted from {counted(len(failed), 'partition')}"
            f" ({', '.join(sorted(set(failed.values())))}); it is tried again, and the disk fills up meanwhile",
            "check the brokers, and the right Delete on it",
        )
    if status.uncopied and (missing := status.uncopied.missing):
        yield missing
    if (copying := status.copying) is None:
        return
    left_out = copying.left_out
    for topic, why in sorted(left_out.items())[:SHOWN_MAX]:
        yield findings.INPUT_LEFT_OUT.at(topic, f"it matches source.pattern and is left out: {why}")
    if (more := len(left_out) - SHOWN_MAX) > 0:
        yield findings.INPUT_LEFT_OUT.at(
            None,
            f"{counted(more, 'more topic')} that match source.pattern are left out; the log names them",
        )
    if (stage := copying.stage) and (paused := stage.paused):
        yield findings.STAGE_PAUSED.at(copying.status.topic, paused)
    if (stage := copying.stage) and (held := stage.held):
        yield findings.STAGE_HELD.at(copying.status.topic, held)
    for of_topic in dict(copying.inputs).values():
        yield from _held(of_topic, of_topic.assigned or ())
    for topic, partition in sorted(copying.status.leaderless - status.leaderless):
        yield _without_leader(topic, partition)
    yield from _unserved(copying.status, "the first stage's group")
    if copying.status.group_shared_with:
        yield _of_new_protocol(copying.status.group_shared_with, "the first stage's group")


def _of_new_protocol(members: int, group: str) -> Finding:
    return findings.OTHER_PROTOCOL.at(
        None,
        f"{counted(members, 'member')} of the new group protocol (KIP-848) took partitions of {group}",
        NEWER_REMEDY,
    )


def _without_leader(topic: str, partition: int) -> Finding:
    return findings.NO_LEADER.at(
        f"{topic}/{partition}",
        WITHOUT_LEADER,
        LEADER_REMEDY,
    )


def _unserved(status: Status, group: str) -> Iterator[Finding]:
    if status.unserved:
        topic, partition = min(status.unserved)
        missing = counted(len(status.unserved), "partition")
        yield findings.PARTITIONS_UNSERVED.at(
            None,
            f"no member of {group} has {missing}, so nobody reads them (one is {topic}/{partition})",
            UNSERVED_REMEDY,
        )


def _notes(status: Status) -> Iterator[Finding]:
    if status.clocks and status.assigned and not status.clocks.is_verified(status.assigned):
        yield findings.CLOCK_UNVERIFIED.at(None, UNVERIFIED)
