"""`python -m bench lock`: what the lock of a filter of the library costs a call, beside the same filter without it.

The two take turns, nine rounds of new filters, and the median of the ratios counts. One thread calls, so it
never waits.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

import streamdedup
from bench.harness import Clock, machine_text, turns
from bench.samples import random_digests
from streamdedup import filters
from streamdedup.filters.base import Addable

KINDS = ("bloom", "cuckoo", "exact")
ROUNDS = 9
SINGLES = 20_000
BATCH, BATCHES = 1000, 80


def main() -> int:
    """Measure and print."""
    clock = Clock()
    print(machine_text("numba", "numpy"))
    for kind in KINDS:
        config = {"kind": kind, "capacity": SINGLES + BATCH * BATCHES}
        _times(filters.build(config), clock)  # compiles
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for number in range(ROUNDS):
            both = turns([filters.build, streamdedup.build], number)
            times = {build: _times(build(config), clock) for build in both}
            for what, without in times[filters.build].items():
                found[what].append((without, times[streamdedup.build][what]))
        for what, pairs in found.items():
            without, locked = (median(side) for side in zip(*pairs, strict=True))
            ratio = median(one / other for other, one in pairs)
            print(
                f"{kind:7}{what:24}{without:9.2f} us, {locked:9.2f} us with the lock: {ratio:.2f}"
            )
    print(clock)
    return 0


def _times(seen: Addable, clock: Clock) -> dict[str, float]:
    """Microseconds a call, by what is called."""
    keys = [b"%d" % number for number in range(SINGLES)]
    batches = np.split(random_digests(0, BATCH * BATCHES), BATCHES)
    calls: dict[str, tuple[Callable[[Any], object], Sequence[Any]]] = {
        "add": (seen.add, keys),
        "in": (seen.__contains__, keys),
        f"add_many of {BATCH:,}": (seen.add_many, batches),
        f"contains_many of {BATCH:,}": (seen.contains_many, batches),
    }
    return {
        what: 1e6 * clock.once(lambda: [call(one) for one in of])[0] / len(of)  # noqa: B023 - called at once
        for what, (call, of) in calls.items()
    }


if __name__ == "__main__":
    sys.exit(main())
