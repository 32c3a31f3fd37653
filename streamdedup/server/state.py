"""The document of `/api/status`: all that the page, `streamdedup status` and peers show of a worker, as plain values.

`streamdedup.shape` describes it; add to both. It holds no key. Any thread may call `document`, as `Status` allows. With
many partitions it pauses now and then, so that the worker's loop need not wait for the interpreter.
"""

import math
import platform
import time
from collections.abc import Iterable, Sequence
from typing import Any

from streamdedup.delivery.lifecycle import Delivery, State
from streamdedup.events import Verdict
from streamdedup.metrics.counts import ShardMeters
from streamdedup.metrics.findings import Finding
from streamdedup.rules.lists import Sized
from streamdedup.server.findings import active
from streamdedup.server.history import NO_EVENTS, Counts, History, Seen
from streamdedup.server.pulse import Pulse
from streamdedup.server.status import Copying, Status
from streamdedup.shape import FINDINGS_MAX, OTHERS_MAX, VERSION
from streamdedup.units import counted, escaped
from streamdedup.version import __version__

NOT_PASSED_MAX = 50
BREATH_S, BREATH_EVERY = 0.0001, 8  # partitions

Values = dict[str, Any]

_NOTHING_YET = ShardMeters()
_VERDICTS = tuple(verdict.name.lower() for verdict in Verdict)


def observe(status: Status, pulse: Pulse) -> None:
    """Look at the worker once, for its findings and its history. Call it once a second, in one thread at a time."""
    failures, _ = active(status, pulse)
    deliveries, meters = dict(status.deliveries), status.meters.shards
    seen = {}
    for partition, meter in meters.items():
        counts, delivery = tuple(meter.ledger.tally.by_verdict.tolist()), deliveries.get(partition)
        seen[partition] = (
            Seen(counts, delivery.state, delivery.lag, delivery.read_ms)
            if delivery
            else Seen(counts, None)
        )
    copied = status.copying.copied if status.copying else 0
    status.history.observe(time.monotonic(), seen, ready=not failures, copied=copied)


def document(
    status: Status, pulse: Pulse, *, can_act: bool = False, address: str | None = None
) -> Values:
    """Return the document about this worker alone; that of its peers is added by who asks them."""
    status.others.look()
    now, wall = time.monotonic(), time.time()
    failures, others = active(status, pulse)
    was_ready, since = status.history.ready
    is_ready = not failures
    shards = list(_shards(status, now))
    return {
        "version": VERSION,
        "at": wall,
        "worker": _worker(status, can_act=can_act, address=address),
        "ready": {
            "is": is_ready,
            "since": since if is_ready == was_ready else wall,
            "sentence": _sentence(status, failures),
        },
        "findings": [_finding(found) for found in (*failures, *others)[:FINDINGS_MAX]],
        "shards": shards,
        "totals": {
            "lag": sum(shard["lag"] or 0 for shard in shards),
            "rate": sum(shard["rate"] for shard in shards),
            "verdicts": _total(shard["verdicts"] for shard in shards),
            "minute": _total(shard["minute"] for shard in shards),
        },
        "minutes": _minutes(status, now),
        "stages": _stages(status),
        "lists": list(_lists(status)),
        "not_passed": status.not_passed.as_json()[: -NOT_PASSED_MAX - 1 : -1],
        "others": list(_others(status)),
    }


def _worker(status: Status, *, can_act: bool, address: str | None) -> Values:
    deployed = status.deployed
    return {
        "instance": status.instance,
        "name": deployed.name,
        "version": __version__,
        "python": platform.python_version(),
        "up_since": status.history.wall(status.began_at),
        "phase": status.phase.value,
        "meaning": status.meaning,
        "group": deployed.group,
        "topic": status.topic,
        "output": deployed.output,
        "delivery": "exactly_once" if deployed.exactly_once else "at_least_once",
        "filter": deployed.filter,
        "window_s": deployed.window_s,
        "shadow": status.shadow,
        "judges": status.judges,
        "address": address,
        "can_act": can_act,
    }


def _sentence(status: Status, failures: Sequence[Finding]) -> str:
    """Return whether the worker is ready, in one sentence."""
    if not failures:
        return escaped(ready_sentence(status))
    if len(failures) == 1:
        return escaped(f"not ready: {failures[0].text}")
    places = {found.place for found in failures if found.place}
    if len(places) == len(failures):
        return f"not ready: {counted(len(failures), 'partition')} are not live"
    return f"not ready, for {counted(len(failures), 'reason')}"


def ready_sentence(status: Status) -> str:
    """Return what a worker that is ready does."""
    assigned = status.assigned
    if not status.judges and (copying := status.copying):
        count = len(copying.assigned or ())
        return f"ready: {counted(count, 'partition')} of {copying.status.topic} copied to {copying.middle}"
    if assigned:
        return f"ready: {len(assigned)} of {status.topic} live"
    return "ready: no partition is assigned, because the group has more workers than partitions"


def _finding(found: Finding) -> Values:
    return {
        "id": found.kind.id,
        "severity": found.kind.severity.value,
        "place": found.place,
        "sentence": found.sentence,
        "remedy": found.remedy,
        "since": found.since,
    }


def _shards(status: Status, now: float) -> Iterable[Values]:
    """Yield each partition that is assigned now or, during a rebalance, was before."""
    assigned, meters = status.assigned, status.meters.shards
    for number, (partition, delivery) in enumerate(sorted(dict(status.deliveries).items()), 1):
        if assigned is None or partition in assigned:
            yield _shard(status.history, meters.get(partition, _NOTHING_YET), delivery, now)
        if number % BREATH_EVERY == 0:
            time.sleep(BREATH_S)


def _shard(history: History, meters: ShardMeters, delivery: Delivery, now: float) -> Values:
    partition, lag = delivery.partition, delivery.lag
    per_second = history.per_second(partition)
    return {
        "partition": partition,
        "state": delivery.state.value,
        "since": history.since(partition),
        "trouble": delivery.trouble.sentence if delivery.trouble else None,
        "lag": lag,
        "oldest_unread_s": 0.0 if lag == 0 else history.oldest_unread_s(partition, now),
        "rate": round(sum(per_second), 1),
        "verdicts": _by_verdict(meters.ledger.tally.by_verdict.tolist()),
        "per_second": _by_verdict([round(rate, 1) for rate in per_second]),
        "minute": _by_verdict(history.last_minute(partition)),
        **_filter(delivery, meters.forecast.left_s),
        "fold": _fold(delivery),
        "snapshot": _snapshot(delivery),
    }


def _filter(delivery: Delivery, left_s: float | None) -> Values:
    full_in_s = left_s if left_s is not None and math.isfinite(left_s) else None
    shard = delivery.shard
    return {  # a filter without keys is false, so the shard is asked
        "keys": len(shard.filter) if shard else None,
        "capacity": shard.filter.capacity if shard else None,
        "error_rate": shard.filter.error_rate_now if shard else None,
        "error_rate_allowed": shard.filter.error_rate if shard else None,
        "full_in_s": full_in_s,
        "filter_bytes": shard.filter.size_bytes if shard else None,
    }


def _fold(delivery: Delivery) -> Values | None:
    """Return the progress of a fold that runs; None if none does."""
    fold = delivery.fold
    if fold is None or delivery.state is not State.FOLDING:
        return None
    done, seconds = fold.ratio, fold.seconds
    return {
        "start": fold.start,
        "position": fold.position,
        "end": fold.end,
        "ratio": done,
        "seconds": seconds,
        "left_s": seconds * (1 - done) / done if done > 0 else None,
    }


def _snapshot(delivery: Delivery) -> Values | None:
    newest = delivery.snapshots.newest if delivery.snapshots else None
    if newest is None or delivery.shard is None:
        return None
    return {
        "age_s": max(0.0, time.time() - newest.saved_at),
        "bytes": newest.size_bytes,
        "behind": max(0, delivery.shard.label - newest.label),
    }


def _minutes(status: Status, now: float) -> Values:
    first, minutes = status.history.minutes(now)
    of_each = {
        name: [None if counts is None else counts[row] for counts in minutes]
        for row, name in enumerate(_VERDICTS)
    }
    return {"first": first, **of_each}


def _stages(status: Status) -> Values | None:
    """Return what is known of the stages of `source.repartition`; None without it."""
    if status.copying is None and status.uncopied is None and status.purge is None:
        return None
    return {
        "copying": _copying(status.copying, status) if status.copying else None,
        "judging": {
            "middle": status.topic,
            "partitions": len(status.assigned or ()),
            "lag": sum(delivery.lag or 0 for delivery in dict(status.deliveries).values()),
            "uncopied": status.uncopied.offsets if status.uncopied else None,
        }
        if status.judges
        else None,
    }


def _copying(copying: Copying, status: Status) -> Values:
    stage = copying.stage
    return {
        "topic": copying.status.topic,
        "middle": copying.middle,
        "ready": bool(stage and stage.copying and not stage.trouble),
        "partitions": len(copying.assigned or ()),
        "lag": copying.lag,
        "copied": copying.copied,
        "rate": round(status.history.copied_per_s, 1),
        "paused": stage.paused if stage else None,
        "held": stage.held_partitions if stage else 0,
        "stopped": copying.stopped,
        "left_out": len(copying.left_out),
        "unread": copying.unread.events if copying.unread else None,
    }


def _lists(status: Status) -> Iterable[Values]:
    for which, listed in status.lists.now.by_section.items():
        yield {
            "list": which,
            "name": listed.name,
            "version": listed.version,
            "keys": listed.entries if isinstance(listed, Sized) else None,
            "changes": listed.changes if isinstance(listed, Sized) else None,
            "refused": status.lists.refused.get(which),
        }


def _others(status: Status) -> Iterable[Values]:
    for partition in status.theirs[:OTHERS_MAX]:
        owner, host = status.owners.get((status.topic, partition), (None, None))
        yield {
            "topic": status.topic,
            "partition": partition,
            "owner": owner,
            "host": host,
            "lag": status.others.lags.get(partition),
        }


def _by_verdict(values: Sequence[float]) -> Values:
    return dict(zip(_VERDICTS, values, strict=True))


def _total(each: Iterable[Values]) -> Values:
    total: Counts = NO_EVENTS
    for counts in each:
        total = tuple(a + b for a, b in zip(total, counts.values(), strict=True))
    return _by_verdict(total)
