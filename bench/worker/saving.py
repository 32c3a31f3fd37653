"""Snapshots: how long one of a filter of 1 GiB takes, and for how long the event loop stands still meanwhile.

The worker is first fed as fast as it goes, so that the filter's memory is in use, then steadily. Its own histogram of
stalls is read every second, and the seconds in which a snapshot was written are counted apart from the others.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.worker import log
from bench.worker.cases import Case
from bench.worker.feeding import Feed
from bench.worker.measuring import ERROR_RATE, Contending, running
from streamdedup.commands.plan.sizes import size_of

GIB = 1 << 30
FILLING_EVENTS = 5_000_000
RATE = 50_000
LOOK_EVERY_S = 2.0  # more than the second for which the worker keeps what it has rendered
INTERVAL_S, SNAPSHOTS, SLOW_S, SECONDS_MAX = 20.0, 5, 10.0, 600.0
LATE_S = 0.01
STALLS = "streamdedup_loop_stall_seconds_bucket"

Counts = dict[float, int]  # beats of the loop that were late by so many seconds at most


def saving(
    bootstrap: str,
    *,
    kind: str = "bloom",
    filter_bytes: int = GIB,
    filling: int = FILLING_EVENTS,
    interval_s: float = INTERVAL_S,
    snapshots: int = SNAPSHOTS,
) -> dict[str, Any]:
    """So many snapshots, in seconds and MB/s, and the stalls of the loop with them and between them."""
    case = Case(
        partitions=1,
        kind=kind,
        capacity=int(filter_bytes / (size_of(kind, 10**7, ERROR_RATE).size_bytes / 10**7)),
        worker={
            "filter": {"partition_headroom": 0, "on_full": "stop"},
            "snapshot": {"interval_s": interval_s},
            "server": {"port": 0},
        },
    )
    feed = Feed(RATE, (snapshots + 1) * (interval_s + SLOW_S), partitions=1, filling=filling)
    with running(bootstrap, case) as (worker, source, _):
        return asyncio.run(_watched(bootstrap, source, feed, worker, snapshots))


def apart(looks: Sequence[Counts], saved: Iterable[tuple[int, float]]) -> dict[str, Any]:
    """The beats of the loop between two looks, by whether a snapshot was written then."""
    lasts = {
        look - k for look, took_s in saved for k in range(1 + math.ceil(took_s / LOOK_EVERY_S))
    }
    found = {name: Counter(dict.fromkeys(looks[0], 0)) for name in ("with", "between")}
    for look in range(1, len(looks)):
        late = {bound: count - looks[look - 1][bound] for bound, count in looks[look].items()}
        found["with" if look in lasts else "between"].update(late)
    return {f"beats_{name}": counted(counts) for name, counts in found.items()}


def counted(cumulative: Mapping[float, int]) -> dict[str, Any]:
    """How many beats there were, how many of them late by more than 10 ms, and a bound of the latest, in ms."""
    beats = cumulative[math.inf]
    bound_s = min(bound for bound, count in cumulative.items() if count == beats)
    return {"beats": beats, "late": beats - cumulative[LATE_S], "at_most_ms": 1000 * bound_s}


async def _watched(
    bootstrap: str, source: str, feed: Feed, worker: Contending, snapshots: int
) -> dict[str, Any]:
    async with log.opened(bootstrap, source) as there:
        feeding = asyncio.create_task(feed.run(there))
        await feed.steady.wait()
        looks, before = [_stalls(worker)], len(worker.lines("snapshot_saved"))
        saved_by: list[int] = []  # the look that found a snapshot written
        while len(saved_by) < snapshots:
            worker.check(len(looks) * LOOK_EVERY_S < SECONDS_MAX, f"only {len(saved_by)} snapshots")
            await asyncio.sleep(LOOK_EVERY_S)
            looks.append(await asyncio.to_thread(_stalls, worker))
            written = len(worker.lines("snapshot_saved")) - before - len(saved_by)
            saved_by += [len(looks) - 1] * written
        feeding.cancel()
        await asyncio.wait([feeding])
    saved = worker.lines("snapshot_saved")[before : before + snapshots]
    return {
        "filter_bytes": worker.lines("worker_starts")[0]["filter_bytes_in_all"],
        "rate": RATE,
        "seconds": [line["seconds"] for line in saved],
        "held_s": [line["commits_held_s"] for line in saved],
        "mb_a_s": [
            round(line["size_bytes"] / 1e6 / max(1e-3, line["seconds"]), 1) for line in saved
        ],
        **apart(looks, zip(saved_by, (line["seconds"] for line in saved), strict=True)),
    }


def _stalls(worker: Contending) -> Counts:
    return {float(labels["le"]): count for labels, count in worker.samples(STALLS)}
