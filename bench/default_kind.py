"""`python -m bench.default_kind`: the kinds that could be the default, at 1e-6; writes a table of results/filters.md.

Each filter is filled from empty to its capacity, then asked for keys that are in it and keys that are not. A second
one begins with room for a seventh of the keys, and grows. The kinds take turns.
"""

import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.clock import Clock
from bench.machine import machine
from bench.report import put_between
from bench.samples import random_digests
from streamdedup import build
from streamdedup.filters.base import Addable

DOCUMENT = Path(__file__).parents[1] / "results" / "filters.md"
BEGIN, END = "<!-- written by `python -m bench.default_kind` -->", "<!-- end of the default -->"
KINDS = ("bloom", "cuckoo", "blocked", "exact")
ERROR_RATE = 1e-6
SIZES = (1_000_000, 10_000_000, 50_000_000)
GROWS = 7  # times its first capacity; three stages
BATCH = 1 << 16
ROUNDS = 5
ASKED = 1 << 20
ABSENT = 1 << 40  # a seed that no added key has


def main() -> int:
    """Measure, print and write the table."""
    clock = Clock()
    for grows in (False, True):  # compiles and loads the kernels
        list(measured(2 * BATCH, grows=grows, clock=clock))
    rows = [
        row
        for size in SIZES
        for grows in (False, True)
        for row in measured(size, grows=grows, clock=clock)
    ]
    head = "| Keys | Kind | Bits a key | Add | Hit | Miss |\n| --- | --- | --- | --- | --- | --- |"
    table = "\n".join([head, *rows])
    where = machine("numba", "numpy")
    print(
        f"{where}\n{table}\nnanoseconds a key; in {clock.disturbed} of {clock.calls} calls somebody else took the core"
    )
    put_between(DOCUMENT, BEGIN, END, table)
    return 0


def measured(size: int, *, grows: bool, clock: Clock) -> Iterator[str]:
    """Yield the rows of all kinds at `size` keys."""
    filters = {kind: _empty(kind, size, grows=grows) for kind in KINDS}
    added: dict[str, float] = defaultdict(float)
    for first in range(0, size, BATCH):
        digests = random_digests(first, min(BATCH, size - first))
        for kind, filter_ in filters.items():
            seconds, _ = clock.once(partial(filter_.add_many, digests))
            added[kind] += seconds
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(ROUNDS):
        first = number * BATCH % (size - BATCH) // BATCH * BATCH
        asked = {
            "hit": random_digests(first, BATCH),
            "miss": random_digests(ABSENT + number, ASKED),
        }
        for kind, filter_ in filters.items():
            filter_.contains_many(
                random_digests(ABSENT // 2 + number, ASKED)
            )  # others had the cache
            for what, digests in asked.items():
                seconds, _ = clock.quiet(partial(filter_.contains_many, digests))
                found[kind, what].append(1e9 * seconds / len(digests))
    for kind, filter_ in filters.items():
        bits = 8 * filter_.size_bytes / size
        hit, miss = (statistics.median(found[kind, what]) for what in ("hit", "miss"))
        name = f"`{kind}`, grown" if grows else f"`{kind}`"
        yield f"| {size:,} | {name} | {bits:.1f} | {1e9 * added[kind] / size:.0f} | {hit:.0f} | {miss:.0f} |"


def _empty(kind: str, size: int, *, grows: bool) -> Addable:
    options: dict[str, Any] = {"kind": kind, "capacity": size, "error_rate": ERROR_RATE}
    if grows:
        options |= {"capacity": -(-size // GROWS), "on_full": "grow"}
    return build(options)


if __name__ == "__main__":
    sys.exit(main())
