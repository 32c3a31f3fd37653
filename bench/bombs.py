"""`python -m bench bombs`: for how long the event loop stands still while it decides events that are bombs.

The bombs of JSON are those of `tests/bombs.py`, of 1, 16 and 120 MB: their key is found, hashed and judged as a worker
does. The bombs of headers take their whole way from the fetched bytes to their dead letter. A task beside it expects a
turn every millisecond. The best of five runs counts, since a machine has other work, too. Ends with status 1 if a stall
is above 50 ms.
"""

import asyncio
import gc
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import structlog

from bench.harness import machine_text
from streamdedup import filters
from streamdedup.delivery.recipe import Recipe
from streamdedup.delivery.shard import Shard, verdicts_without_rules
from streamdedup.delivery.turns import digests_of, keys_of
from streamdedup.kafka.records import encoding
from streamdedup.kafka.records.codecs import NONE, ZSTD
from streamdedup.kafka.records.records import Record, batch_of
from streamdedup.keys.extract import Extractor
from streamdedup.rules import warm_up
from streamdedup.settings import Settings
from streamdedup.threads import Lane
from tests import bombs
from tests.delivery.bombs import EMPTY, Way, body, bomb, record_batch, settings_of

MB = 10**6
SIZES_MB = (1, 16, 120)
STALL_MS_MAX = 50.0
RUNS = 5
BEAT_S = 0.001
SLOWER_HASH = {"hash": "siphash", "hash_key": bytes(16)}
FILTER = {"kind": "bloom", "capacity": 1000, **SLOWER_HASH}
HEADERS: dict[str, Callable[[], bytes]] = {
    "30,000,000 empty headers in a zstd record": lambda: record_batch(0, [bomb(30_000_000)], ZSTD),
    "60,000,000 empty headers in a zstd record": lambda: record_batch(0, [bomb(60_000_000)], ZSTD),
    "20 records of 1 MB, 524,170 headers each": lambda: b"".join(
        record_batch(n, [bomb(524_170)], NONE) for n in range(20)
    ),
    "1,000 records of 1,000 headers": lambda: record_batch(
        0, [body(b"{}", EMPTY * 1000, 1000)] * 1000, ZSTD
    ),
}
KEYS: dict[str, dict[str, Any]] = {
    "json": {"from": "json", "field": "id"},
    "header": {"from": "header", "field": "id"},
}

Decide = Callable[[], Awaitable[None]]


def main() -> int:
    """Print the longest stalls of each bomb."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    print(machine_text("numpy", "numba"))
    worst = 0.0
    with tempfile.TemporaryDirectory() as directory:
        for name, size, decider in (*_of_json(), *_of_headers(Path(directory))):
            stalls, at_work = zip(*(_run(decider) for _ in range(RUNS)), strict=True)
            worst = max(worst, min(stalls))
            every = ", ".join(f"{ms:.1f}" for ms in sorted(stalls))
            print(
                f"{name:58} {size:>11,} bytes  {every} ms, at work {min(at_work):.1f} ms",
                flush=True,
            )
    print(f"the longest stall, best of {RUNS} runs: {worst:.0f} ms; at most {STALL_MS_MAX:.0f} ms")
    return int(worst > STALL_MS_MAX)


def _of_json() -> Iterator[tuple[str, int, Callable[[], Decide]]]:
    """Each bomb: its name, its size, and a function that makes ready to decide it."""
    Extractor("json", (bombs.FIELD,)).warm_up()
    warm_up(filters.build(FILTER))
    for name, made in bombs.JSON.items():
        for size_mb in SIZES_MB:
            value = made(size_mb * MB)
            yield f"{name}, {size_mb} MB", len(value), partial(_judged, value)


def _judged(value: bytes) -> Decide:
    batch = batch_of("bombs", 0, [0], [Record.of(0, None, value)], next_offset=1)
    extractor = Extractor("json", (bombs.FIELD,))
    shard = Shard(0, filters.build(FILTER), stop_when_full=False)

    async def decide() -> None:
        keys = await keys_of(batch, extractor, Lane(1))
        verdicts, rows = verdicts_without_rules(keys, ())
        digests = await digests_of(keys.keys.take(rows), shard.filter.hash)
        shard.decide(verdicts, rows, digests, batch.timestamps)

    return decide


def _of_headers(directory: Path) -> Iterator[tuple[str, int, Callable[[], Decide]]]:
    for key, options in KEYS.items():
        settings = settings_of(directory, key=options)
        recipe = Recipe(settings, 1)
        warm_up(recipe.empty_filter())
        recipe.extractor().warm_up()
        encoding.warm_up()
        for name, made in HEADERS.items():
            data = made()
            yield f"key.from: {key}, {name}", len(data), partial(_taken, settings, data)


def _taken(settings: Settings, data: bytes) -> Decide:
    return partial(Way(settings).take, data)


def _run(ready: Callable[[], Decide]) -> tuple[float, float]:
    gc.collect()
    decide = ready()
    return asyncio.run(stalled_ms(decide))


async def stalled_ms(decide: Decide) -> tuple[float, float]:
    """Return for how long, at most, the loop gave no turn meanwhile; and how long it was at work in one."""
    longest = at_work = 0.0

    async def beat() -> None:
        nonlocal longest, at_work
        while True:
            before, work = perf_counter(), thread_time()
            await asyncio.sleep(BEAT_S)
            longest = max(longest, perf_counter() - before - BEAT_S)
            at_work = max(at_work, thread_time() - work)

    beating = asyncio.create_task(beat())
    await asyncio.sleep(10 * BEAT_S)
    longest = at_work = 0.0
    await decide()
    await asyncio.sleep(0)
    beating.cancel()
    return 1000 * longest, 1000 * at_work


if __name__ == "__main__":
    sys.exit(main())
