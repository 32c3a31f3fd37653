"""`python -m bench.header_bombs`: how long the event loop stands still for records that are made of headers.

Each bomb takes its whole way from the fetched bytes to its dead letter, while a task beside it expects a turn every
millisecond. The best of five runs counts, since a machine has other work, too. The status is 1 if one is above 50 ms.
"""

import asyncio
import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from streamdedup.delivery.recipe import Recipe
from streamdedup.kafka.records import encoding
from streamdedup.kafka.records.codecs import NONE, ZSTD
from streamdedup.rules import warm_up
from tests.delivery.bombs import EMPTY, Way, body, bomb, record_batch, settings_of

STALL_MS_MAX = 50.0
RUNS = 5
BEAT_S = 0.001

BOMBS: dict[str, Callable[[], bytes]] = {
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


async def stalled_ms(way: Way, data: bytes) -> tuple[float, float]:
    """Return for how long, at most, the loop gave no turn while it took `data`; and how long it was at work in one."""
    longest = at_work = 0.0

    async def beat() -> None:
        nonlocal longest, at_work
        while True:
            before, work = time.perf_counter(), time.thread_time()
            await asyncio.sleep(BEAT_S)
            longest = max(longest, time.perf_counter() - before - BEAT_S)
            at_work = max(at_work, time.thread_time() - work)

    beating = asyncio.create_task(beat())
    await asyncio.sleep(10 * BEAT_S)
    longest = at_work = 0.0
    await way.take(data)
    await asyncio.sleep(0)
    beating.cancel()
    return 1000 * longest, 1000 * at_work


def main() -> int:
    """Measure all bombs, and print the longest stalls of each."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    worst = 0.0
    with tempfile.TemporaryDirectory() as directory:
        for key, options in KEYS.items():
            settings = settings_of(Path(directory), key=options)
            recipe = Recipe(settings, 1)
            warm_up(recipe.empty_filter())
            recipe.extractor().warm_up()
            encoding.warm_up()
            for name, made in BOMBS.items():
                data = made()
                runs = []
                for _ in range(RUNS):
                    gc.collect()
                    runs.append(asyncio.run(stalled_ms(Way(settings), data)))
                stalls, at_work = zip(*runs, strict=True)
                worst = max(worst, min(stalls))
                every = ", ".join(f"{ms:.0f}" for ms in sorted(stalls))
                print(
                    f"key.from: {key:6}  {name:42} {len(data):>11,} bytes  {every} ms,"
                    f" at work {min(at_work):.0f} ms",
                    flush=True,
                )
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"the longest stall, best of {RUNS} runs: {worst:.0f} ms; memory at most {memory_mb:,.0f} MB"
    )
    return int(worst > STALL_MS_MAX)


if __name__ == "__main__":
    sys.exit(main())
