"""Snapshots: how long one of a filter of 1 GiB takes, and for how long the event loop stands still meanwhile.

The worker is first fed as fast as it goes, so that the filter's memory is in use, then steadily; its own gauge tells
the longest stall in the minute before a snapshot, and in the minute that ends with one.
"""

import asyncio
import re
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from bench.worker import log
from bench.worker.batches import encode, of_part
from bench.worker.cases import Case
from bench.worker.contenders import run_command
from bench.worker.events import Part, parts
from bench.worker.measuring import ERROR_RATE, Contending, contending
from streamdedup.filters.sizing import bloom_size
from tests.broker.topics import create_topic, delete_topic, unique_name

GIB = 1 << 30
FILLING_EVENTS = 5_000_000
RATE = 50_000
TICK_S = 0.02
INTERVAL_S = 100.0
BEFORE_S = 5.0  # the one look is so long before the snapshot is due
SAVED_S_MAX = 300.0
STALL = re.compile(r"^streamdedup_loop_stall_max_seconds (\S+)$", re.MULTILINE)


def saving(
    bootstrap: str,
    *,
    filter_bytes: int = GIB,
    filling: int = FILLING_EVENTS,
    interval_s: float = INTERVAL_S,
) -> dict[str, Any]:
    """The first snapshot, in seconds and MB/s, and the longest stalls before and with it, in ms."""
    source, sink = unique_name("bench-in"), unique_name("bench-out")
    for topic in (source, sink):
        create_topic(bootstrap, topic, 1)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        case = Case().settings(bootstrap, unique_name("bench"), source, sink)
        command = run_command(_settings(case, filter_bytes, interval_s, name), Path(name))
        with contending(command, Path(name)) as worker:
            feed = _Feed(filling, interval_s)
            found = asyncio.run(_watched(bootstrap, source, feed, worker, interval_s))
            worker.end()
    for topic in (source, sink):
        delete_topic(bootstrap, topic)
    return found


def _settings(
    case: dict[str, Any], filter_bytes: int, interval_s: float, directory: str
) -> dict[str, Any]:
    bits_a_key = bloom_size(10**6, ERROR_RATE)[0] / 10**6
    return {
        **case,
        "filter": {
            "capacity": int(8 * filter_bytes / bits_a_key),
            "partition_headroom": 0,
            "on_full": "stop",
        },
        "snapshot": {"directory": directory, "interval_s": interval_s},
        "server": {"port": 0},
    }


class _Feed:
    """Events of one partition: the first as fast as they go, then `RATE` a second, for the whole interval and more."""

    def __init__(self, filling: int, interval_s: float) -> None:
        self._filling = filling
        (self._model,) = parts(filling + int(RATE * (interval_s + SAVED_S_MAX)), 1, 0.2)

    async def run(self, there: log.Log) -> None:
        """Until it is cancelled."""
        numbers, form = self._model.numbers, Case().form
        at, step = self._filling, int(RATE * TICK_S)
        await there.append(0, of_part(form, Part(numbers[:at], self._model.first[:at]), "none"))
        while at < len(numbers):
            await asyncio.sleep(TICK_S)
            await there.append(0, [(at, encode(form, numbers[at : at + step], at))])
            at += step


async def _watched(
    bootstrap: str, source: str, feed: _Feed, worker: Contending, interval_s: float
) -> dict[str, Any]:
    await asyncio.to_thread(worker.wait_for, "shard_live")
    due = time.monotonic() + interval_s
    async with log.opened(bootstrap, source) as there:
        feeding = asyncio.create_task(feed.run(there))
        await asyncio.sleep(due - BEFORE_S - time.monotonic())
        before_s = await asyncio.to_thread(_longest_stall_s, worker)
        saved = await asyncio.to_thread(
            worker.wait_for, "snapshot_saved", 1, interval_s + SAVED_S_MAX
        )
        with_s = await asyncio.to_thread(_longest_stall_s, worker)
        feeding.cancel()
        await asyncio.wait([feeding])
    return {
        "filter_bytes": worker.lines("worker_starts")[0]["filter_bytes_in_all"],
        "size_bytes": saved["size_bytes"],
        "seconds": saved["seconds"],
        "mb_a_s": round(saved["size_bytes"] / 1e6 / max(1e-3, saved["seconds"]), 1),
        "stall_before_ms": round(1000 * before_s, 2),
        "stall_with_ms": round(1000 * with_s, 2),
        "rate": RATE,
    }


def _longest_stall_s(worker: Contending) -> float:
    port = worker.lines("server_listens")[0]["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        found = STALL.search(answer.read().decode())
    if found is None:
        raise SystemExit("the worker does not tell how long its loop stood still")
    return float(found[1])
