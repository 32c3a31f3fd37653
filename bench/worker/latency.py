"""Latency: from the moment an event is sent to the moment a reader of committed events has it.

Events are sent in batches on a schedule, and counted from when they were due, whether or not the broker was ready for
them: a queue in front of it is part of the latency. Sender and reader are one process beside the worker's.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.worker import log
from bench.worker.cases import BASE
from bench.worker.checking import missing_max, positions_of
from bench.worker.events import Integers
from bench.worker.feeding import Feed
from bench.worker.load import OtherLoad, Tree
from bench.worker.measuring import ERROR_RATE, running

BATCHES_A_SECOND = 200
WARM_S, MEASURED_S, DRAIN_S = 5.0, 20.0, 10.0
PERCENTILES = (50.0, 99.0, 99.9)

Read = Sequence[tuple[float, Integers]]
"""When events were read from a partition, and which positions they have in the input."""


def latency(
    bootstrap: str,
    rate: int,
    commit_interval_ms: int,
    *,
    warm_s: float = WARM_S,
    measured_s: float = MEASURED_S,
) -> dict[str, Any]:
    """Percentiles in ms over the events due after `warm_s`, `rate` events a second in all."""
    feed = Feed(rate, warm_s + measured_s, batches_a_second=BATCHES_A_SECOND)
    case = replace(BASE, worker={"delivery": {"commit_interval_ms": commit_interval_ms}})
    with running(bootstrap, case) as (worker, source, sink):
        other = OtherLoad(bootstrap, Tree(worker.process))
        read = asyncio.run(_read(bootstrap, feed, source, sink))
        load = other.share()
    due_s = np.concatenate([feed.due_s(positions) for _, positions in read])
    read_s = np.concatenate([np.full(len(each), at - feed.began) for at, each in read])
    waited_ms = 1000 * (read_s - due_s)[due_s >= warm_s]
    values = np.percentile(waited_ms, PERCENTILES)
    named = zip(PERCENTILES, values, strict=True)
    return {
        "rate": rate,
        "commit_interval_ms": commit_interval_ms,
        "events": len(waited_ms),
        "percentiles_ms": {f"{at:g}": round(float(value), 2) for at, value in named},
        "max_ms": round(float(waited_ms.max()), 2),
        "other_load": load,
    }


async def _read(bootstrap: str, feed: Feed, source: str, sink: str) -> Read:
    """Send and read everything; SystemExit if more is missing than a filter may drop.

    One request for all partitions: one that waits would hold up the next on its connection.
    """
    read: list[tuple[float, Integers]] = []
    found, until = 0, math.inf
    positions = dict.fromkeys(range(BASE.partitions), 0)
    async with log.opened(bootstrap, source) as there, log.opened(bootstrap, sink) as here:
        feeding = asyncio.create_task(feed.run(there))
        while time.monotonic() < until and not (feeding.done() and found == feed.new):
            fetched = await here.fetch(positions)
            at = time.monotonic()
            if feeding.done():
                feeding.result()
                until = min(until, at + DRAIN_S)
            for partition, each in fetched.items():
                positions[partition] = each.position
                for batch in each.batches:
                    told = np.empty(batch.events, dtype=np.int64)
                    records = np.frombuffer(batch.records, dtype=np.uint8)
                    positions_of(records, batch.events, len(BASE.form.value), told)
                    read.append((at, told))
                    found += batch.events
    if feed.new - found > missing_max(feed.new, ERROR_RATE):
        raise SystemExit(
            f"{feed.new - found:,} of {feed.new:,} events were not read {DRAIN_S:g} s after the last was sent"
        )
    return read
