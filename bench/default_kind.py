"""`python -m bench default-kind`: kinds that could be the default, and windows, at 1e-6; writes results/filters.md.

Each filter is filled from empty to its capacity, then asked for keys that are in it and keys that are not. A second
one begins with room for a seventh of the keys, and grows. A window gets more keys before it is asked, evenly in time,
which take the cells of those that it forgets. The kinds take turns. Of given sizes the tables are only printed.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from bench.harness import RESULTS, Clock, machine_text, markdown, put_between, turns
from bench.samples import random_digests
from streamdedup import build
from streamdedup.filters.base import Addable, Times
from streamdedup.filters.sizing import WINDOW_GENERATIONS
from streamdedup.keys.hashing import Digests

DOCUMENT = RESULTS / "filters.md"
DEFAULT_PLACE = "<!-- written by `python -m bench default-kind` -->", "<!-- end of the default -->"
WINDOW_PLACE = (
    "<!-- windows, written by `python -m bench default-kind` -->",
    "<!-- end of the window -->",
)
DEFAULT_HEADS = ("Keys", "Kind", "Bits a key", "Add", "Hit", "Miss")
WINDOW_HEADS = ("Keys", "Kind", "Add, from empty", "Add, in the long run", "Hit", "Miss")
KINDS = ("bloom", "cuckoo", "blocked", "exact")
ERROR_RATE = 1e-6
DEFAULT_SIZES = (1_000_000, 10_000_000, 50_000_000)
WINDOW_SIZES = (10_000_000, 100_000_000)
GROWS = 7  # times its first capacity; three stages
RETENTION_MS = 7 * 24 * 3_600_000
TURNS = 2  # the full window gets so many times its capacity in keys; the last time counts
BATCH = 1 << 16
BATCHES_ASKED = 4  # of a window
DEFAULT_ROUNDS, WINDOW_ROUNDS = 5, 9
ASKED = 1 << 20
ABSENT = 1 << 40  # a seed that no added key has

Rows = Iterator[list[str]]


def main() -> int:
    """Measure and print the tables; without sizes as arguments, write them."""
    parser = argparse.ArgumentParser(prog="python -m bench default-kind", description=__doc__)
    parser.add_argument("sizes", nargs="*", type=float, metavar="KEYS", help="as in 1e7")
    given, clock = [int(size) for size in parser.parse_args().sizes], Clock()
    print(machine_text("numba", "numpy"))
    for rows_of, heads, sizes, place in (
        (defaults, DEFAULT_HEADS, DEFAULT_SIZES, DEFAULT_PLACE),
        (windows, WINDOW_HEADS, WINDOW_SIZES, WINDOW_PLACE),
    ):
        list(rows_of(2 * BATCHES_ASKED * BATCH, Clock()))  # compiles and loads the kernels
        rows = [row for size in given or sizes for row in rows_of(size, clock)]
        table = markdown(heads, rows).rstrip()
        print(f"{table}\nnanoseconds a key; {clock}")
        if not given:
            put_between(DOCUMENT, *place, table)
    return 0


def defaults(size: int, clock: Clock) -> Rows:
    """Yield the rows of all kinds at `size` keys: those that have room for all, and those that grow."""
    for grows in (False, True):
        yield from _defaults(size, grows=grows, clock=clock)


def _defaults(size: int, *, grows: bool, clock: Clock) -> Rows:
    options = {"capacity": -(-size // GROWS), "on_full": "grow"} if grows else {"capacity": size}
    filters: dict[str, Addable] = {
        kind: build({"kind": kind, "error_rate": ERROR_RATE, **options}) for kind in KINDS
    }
    added: dict[str, float] = defaultdict(float)
    for first in range(0, size, BATCH):
        digests = random_digests(first, min(BATCH, size - first))
        for kind, filter_ in filters.items():
            added[kind] += clock.once(partial(filter_.add_many, digests))[0]

    def asked(_kind: str, number: int) -> Mapping[str, Digests]:
        first = number * BATCH % (size - BATCH) // BATCH * BATCH
        return {
            "hit": random_digests(first, BATCH),
            "miss": random_digests(ABSENT + number, ASKED),
        }

    found = _lookups(filters, asked, DEFAULT_ROUNDS, clock)
    for kind, filter_ in filters.items():
        bits = 8 * filter_.size_bytes / size
        name = f"`{kind}`, grown" if grows else f"`{kind}`"
        yield [f"{size:,}", name, f"{bits:.1f}", f"{1e9 * added[kind] / size:.0f}", *found[kind]]


def windows(size: int, clock: Clock) -> Rows:
    """Yield the rows of a window for `size` keys, and of a cuckoo filter beside it."""
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
        start = number * (len(batches[kind]) - BATCHES_ASKED) // WINDOW_ROUNDS
        chosen = batches[kind][start : start + BATCHES_ASKED]  # other ones in each round
        return {
            "hit": np.concatenate([random_digests(first, BATCH) for first in chosen]),
            "miss": random_digests(ABSENT + number, BATCHES_ASKED * BATCH),
        }

    found = _lookups({"window": window, "cuckoo": cuckoo}, asked, WINDOW_ROUNDS, clock)
    for kind, text in long_run.items():
        yield [f"{size:,}", f"`{kind}`", f"{1e9 * empty[kind] / size:.0f}", text, *found[kind]]


def _added(window: Any, digests: Digests, first: int, size: int, clock: Clock) -> float:  # noqa: ANN401
    """Add keys from the number `first` on, and return the seconds that it took.

    They come evenly, `size` of them in any span of the retention and one generation.
    """
    span_ms = RETENTION_MS * WINDOW_GENERATIONS / (WINDOW_GENERATIONS - 1)
    numbers = np.arange(first, first + len(digests))
    times: Times = (numbers * (span_ms / size)).astype(np.int64)
    return clock.once(partial(window.add_many, digests, times))[0]


def _lookups(
    filters: Mapping[str, Addable],
    asked: Callable[[str, int], Mapping[str, Digests]],
    rounds: int,
    clock: Clock,
) -> dict[str, list[str]]:
    """For each filter the median nanoseconds of a key, of all that it is `asked` for in a round; filters take turns."""
    found: dict[str, dict[str, list[float]]] = {kind: defaultdict(list) for kind in filters}
    for number in range(rounds):
        for kind in turns([*filters], number):
            ask = filters[kind].contains_many
            ask(random_digests(ABSENT // 2 + number, ASKED))  # the others had the cache
            for what, digests in asked(kind, number).items():
                took_s, _ = clock.quiet(partial(ask, digests))
                found[kind][what].append(1e9 * took_s / len(digests))
    return {
        kind: [f"{median(ns):.0f}" for ns in by_what.values()] for kind, by_what in found.items()
    }


if __name__ == "__main__":
    sys.exit(main())
