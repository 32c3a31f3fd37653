"""`python -m bench.windows`: a window at its capacity, at 1e-6, beside `cuckoo`; writes a table of results/filters.md.

Both are filled from empty to their capacity. Then the window gets more keys, evenly in time, which take the cells of
those that it forgets. At last both are asked for keys that are in them and keys that are not. The kinds take turns.
`python -m bench.windows 1e7` measures one size and writes nothing.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from bench.default_kind import ABSENT, BATCH, DOCUMENT, ERROR_RATE, lookups
from bench.harness import Clock, sized_table
from bench.samples import random_digests
from streamdedup import build
from streamdedup.filters.base import Times
from streamdedup.filters.sizing import WINDOW_GENERATIONS
from streamdedup.keys.hashing import Digests

BEGIN, END = "<!-- written by `python -m bench.windows` -->", "<!-- end of the window -->"
HEADS = ("Keys", "Kind", "Add, from empty", "Add, in the long run", "Hit", "Miss")
SIZES = (10_000_000, 100_000_000)
RETENTION_MS = 7 * 24 * 3_600_000
TURNS = 2  # the full window gets so many times its capacity in keys; the last time counts
ROUNDS = 9
BATCHES_ASKED = 4


def main() -> int:
    """Measure and print the table; without arguments, write it."""
    measured(2 * BATCHES_ASKED * BATCH, Clock())  # compiles and loads the kernels
    sized_table(HEADS, measured, SIZES, (DOCUMENT, BEGIN, END))
    return 0


def measured(size: int, clock: Clock) -> list[list[str]]:
    """The rows of the table for both kinds, made for `size` keys."""
    options: dict[str, Any] = {"capacity": size, "error_rate": ERROR_RATE}
    window: Any = build({**options, "kind": "window", "retention": RETENTION_MS})
    cuckoo: Any = build({**options, "kind": "cuckoo"})
    empty: dict[str, float] = defaultdict(float)
    for first in range(0, size, BATCH):
        digests = random_digests(first, BATCH)[: size - first]
        empty["window"] += _added(window, digests, first, size, clock)
        empty["cuckoo"] += clock.once(partial(cuckoo.add_many, digests))[0]
    full = range(size, (1 + TURNS) * size, BATCH)
    taken = [_added(window, random_digests(first, BATCH), first, size, clock) for first in full]
    counted = taken[-(len(taken) // TURNS) :]
    long_run = {"window": f"{1e9 * sum(counted) / len(counted) / BATCH:.0f}", "cuckoo": "-"}
    batches = {"window": full[-(size // BATCH // 2) :], "cuckoo": range(0, size - BATCH, BATCH)}

    def asked(kind: str, number: int) -> Mapping[str, Digests]:
        return {"hit": _present(batches[kind], number), "miss": _absent(number)}

    found = lookups({"window": window, "cuckoo": cuckoo}, asked, ROUNDS, clock)
    return [
        [f"{size:,}", f"`{kind}`", f"{1e9 * empty[kind] / size:.0f}", text, *found[kind]]
        for kind, text in long_run.items()
    ]


def _added(window: Any, digests: Digests, first: int, size: int, clock: Clock) -> float:  # noqa: ANN401
    """Add keys from the number `first` on, and return the seconds that it took.

    They come evenly, `size` of them in any span of the retention and one generation.
    """
    span_ms = RETENTION_MS * WINDOW_GENERATIONS / (WINDOW_GENERATIONS - 1)
    numbers = np.arange(first, first + len(digests))
    times: Times = (numbers * (span_ms / size)).astype(np.int64)
    return clock.once(partial(window.add_many, digests, times))[0]


def _present(batches: range, number: int) -> Digests:
    """The keys of BATCHES_ASKED batches in a row, other ones in each round."""
    start = number * (len(batches) - BATCHES_ASKED) // ROUNDS
    chosen = batches[start : start + BATCHES_ASKED]
    return np.concatenate([random_digests(first, BATCH) for first in chosen])


def _absent(number: int) -> Digests:
    return random_digests(ABSENT + number, BATCHES_ASKED * BATCH)


if __name__ == "__main__":
    sys.exit(main())
