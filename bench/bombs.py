"""`python -m bench.bombs [MB ...]`: for how long the loop stands still while it decides an event that is a bomb.

Each bomb of `tests/bombs.py` is an event of 1, 16 and 120 MB, or of the sizes that are named. Its key is found, hashed
and judged as a worker does. A stall is how much later than asked the loop wakes; the best of five runs counts, since
other processes delay it, too. Ends with status 1 if a stall is above 50 ms.
"""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter

from bench.machine import machine
from streamdedup import filters
from streamdedup.delivery.shard import Shard
from streamdedup.delivery.turns import digests_of, keys_of
from streamdedup.kafka.records.records import Record, batch_of
from streamdedup.keys.extract import Extractor
from streamdedup.rules import warm_up
from streamdedup.threads import Lane
from tests import bombs

MB = 10**6
SIZES_MB = (1, 16, 120)
STALL_MS_MAX = 50.0
RUNS = 5
BEAT_S = 0.001
FILTER = {
    "kind": "bloom",
    "capacity": 1000,
    "hash": "siphash",
    "hash_key": bytes(16),
}  # the slower hash


def main() -> int:
    """Print the table."""
    sizes = [int(size) for size in sys.argv[1:]] or list(SIZES_MB)
    Extractor("json", (bombs.FIELD,)).warm_up()
    warm_up(filters.build(FILTER))
    print(machine("numpy", "numba"))
    print(
        f"{'longest stall in ms, best of ' + str(RUNS):<36}{''.join(f'{size:>7} MB' for size in sizes)}"
    )
    worst = 0.0
    for name, bomb in bombs.JSON.items():
        stalls = [_stall_ms(bomb(size * MB)) for size in sizes]
        print(f"{name:<36}{''.join(f'{stall:>10.1f}' for stall in stalls)}", flush=True)
        worst = max(worst, *stalls)
    if worst > STALL_MS_MAX:
        print(f"the loop stood still for {worst:.0f} ms, which is above {STALL_MS_MAX:.0f} ms")
        return 1
    return 0


def _stall_ms(value: bytes) -> float:
    batch = batch_of("bombs", 0, [0], [Record.of(0, None, value)], next_offset=1)
    extractor = Extractor("json", (bombs.FIELD,))

    async def decide() -> None:
        keys = await keys_of(batch, extractor, Lane(1))
        digests = await digests_of(keys.keys, shard.filter.hash)
        shard.decide(keys, batch.timestamps, digests=digests)

    best = float("inf")
    for _ in range(RUNS):
        shard = Shard(0, filters.build(FILTER), stop_when_full=False)
        gc.collect()
        best = min(best, asyncio.run(_longest(decide)))
    return best * 1000


async def _longest(work: Callable[[], Awaitable[None]]) -> float:
    """Do the work, and return the most seconds by which the loop woke late meanwhile."""
    longest, ends = 0.0, asyncio.Event()

    async def beat() -> None:
        nonlocal longest
        while not ends.is_set():
            due = perf_counter() + BEAT_S
            await asyncio.sleep(BEAT_S)
            longest = max(longest, perf_counter() - due)

    beating = asyncio.create_task(beat())
    await asyncio.sleep(BEAT_S * 2)
    longest = 0.0
    await work()
    ends.set()
    await beating
    return longest


if __name__ == "__main__":
    raise SystemExit(main())
