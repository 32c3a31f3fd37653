"""Memory over time: what the worker has resident, every few seconds of ten minutes of steady events.

Each event has a new key, or that of an earlier one, by chance; no filter is ever full. What the filters hold grows all
the time; what they take of memory must not.

`python -m bench lasting` takes an hour, and filters that begin with room for a hundredth of the keys and grow.
What is resident beside them must not grow.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bench.harness import machine_text
from bench.worker import broker, log
from bench.worker.cases import Case
from bench.worker.checking import missing_max
from bench.worker.feeding import Feed
from bench.worker.measuring import ERROR_RATE, Contending, running

RATE = 100_000
SECONDS, WARM_S, SPAN_S = 600.0, 120.0, 60.0
EVENTS = int(RATE * SECONDS)
LOOK_EVERY_S, DRAIN_S = 5.0, 30.0
EVENTS_BY_VERDICT = "streamdedup_events_total"
FILTER_BYTES = "streamdedup_filter_size_bytes"
GROWN_RATE, GROWN_TIMES = 2_000, 100  # few events, so that an hour of them holds up nobody
MORE_BYTES_MAX = 32 << 20  # beside the filters, from the first minutes to the last


def lasting(
    bootstrap: str,
    *,
    rate: int = RATE,
    seconds: float = SECONDS,
    warm_s: float = WARM_S,
    span_s: float = SPAN_S,
    look_every_s: float = LOOK_EVERY_S,
    grows: bool = False,
) -> dict[str, Any]:
    """Resident bytes every so often, and their medians over the first `span_s` after `warm_s` and the last `span_s`.

    If the filters grow, the bytes are those beside them.
    """
    keys, feed = int(rate * seconds), Feed(rate, seconds)
    grown = {"filter": {"max_size": f"{8 * keys}B"}} if grows else {}
    capacity = keys // GROWN_TIMES if grows else keys
    case = Case(capacity=capacity, worker={**grown, "server": {"port": 0}})
    with running(bootstrap, case) as (worker, source, _):
        resident = asyncio.run(
            _watched(bootstrap, source, feed, worker, look_every_s, beside=grows)
        )
        filter_bytes = worker.lines("worker_starts")[0]["filter_bytes_in_all"]
    return {
        "rate": rate,
        "seconds": seconds,
        "warm_s": warm_s,
        "span_s": span_s,
        "events": feed.sent,
        "filter_bytes": filter_bytes,
        "resident": resident,
        "first_bytes": _median_bytes(resident, warm_s, span_s),
        "last_bytes": _median_bytes(resident, seconds - span_s, span_s),
    }


def _median_bytes(resident: Sequence[tuple[float, int]], begin_s: float, span_s: float) -> float:
    return statistics.median(size for at, size in resident if begin_s <= at < begin_s + span_s)


async def _watched(
    bootstrap: str,
    source: str,
    feed: Feed,
    worker: Contending,
    look_every_s: float,
    *,
    beside: bool,
) -> list[tuple[float, int]]:
    """Seconds and resident bytes, `beside` the filters or in all; SystemExit if the events are not judged rightly."""
    resident = []
    async with log.opened(bootstrap, source) as there:
        began, feeding = time.monotonic(), asyncio.create_task(feed.run(there))
        while not feeding.done():
            worker.check(True, "it ended")
            size = worker.process.memory_info().rss - (filter_bytes(worker) if beside else 0)
            resident.append((round(time.monotonic() - began, 1), size))
            await asyncio.wait([feeding], timeout=look_every_s)
        feeding.result()
    until = time.monotonic() + DRAIN_S
    while (found := judged(worker)).total() < feed.sent:
        worker.check(time.monotonic() < until, f"{found} of {feed.sent:,} events were judged")
        await asyncio.sleep(look_every_s)
    missing = feed.new - found["pass"]
    if not 0 <= missing <= missing_max(feed.new, ERROR_RATE):
        raise SystemExit(f"{found} of {feed.sent:,} events, {feed.new:,} of them with a new key")
    return resident


def filter_bytes(worker: Contending) -> int:
    """The memory of all filters, as /metrics states it."""
    return int(sum(size for _, size in worker.samples(FILTER_BYTES)))


def judged(worker: Contending) -> Counter[str]:
    """Events by verdict, over all partitions, as /metrics tells them."""
    found = Counter[str]()
    for labels, count in worker.samples(EVENTS_BY_VERDICT):
        found[labels["verdict"]] += count
    return found


def main() -> int:
    """Watch filters that grow; status 1 if memory beside them grew by more than MORE_BYTES_MAX."""
    parser = argparse.ArgumentParser(prog="python -m bench lasting", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    arguments = parser.parse_args()
    at, what = broker.found()
    try:
        seconds = 60 * arguments.minutes
        seen = lasting(at.bootstrap_servers, rate=GROWN_RATE, seconds=seconds, grows=True)
    finally:
        at.close()
    print(f"{machine_text('aiokafka', 'numba', 'numpy')}\nbroker: {what}")
    for at, size in seen["resident"][:: max(1, len(seen["resident"]) // 30)]:
        print(f"{at:8.0f} s  {size / 1e6:8.1f} MB beside the filters")
    more = seen["last_bytes"] - seen["first_bytes"]
    print(f"{seen['events']:,} events in {arguments.minutes:g} minutes: {more / 1e6:+.1f} MB")
    return 1 if more > MORE_BYTES_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
