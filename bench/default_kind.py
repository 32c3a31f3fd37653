"""`python -m bench.default_kind`: the kinds that could be the default, at 1e-6; writes a table of results/filters.md.

Each filter is filled from empty to its capacity, then asked for keys that are in it and keys that are not. A second
one begins with room for a seventh of the keys, and grows. The kinds take turns.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

from bench.harness import RESULTS, Clock, sized_table, turns
from bench.samples import random_digests
from streamdedup import build
from streamdedup.filters.base import Addable
from streamdedup.keys.hashing import Digests

DOCUMENT = RESULTS / "filters.md"
BEGIN, END = "<!-- written by `python -m bench.default_kind` -->", "<!-- end of the default -->"
HEADS = ("Keys", "Kind", "Bits a key", "Add", "Hit", "Miss")
KINDS = ("bloom", "cuckoo", "blocked", "exact")
ERROR_RATE = 1e-6
SIZES = (1_000_000, 10_000_000, 50_000_000)
GROWS = 7  # times its first capacity; three stages
BATCH = 1 << 16
ROUNDS = 5
ASKED = 1 << 20
ABSENT = 1 << 40  # a seed that no added key has


def main() -> int:
    """Measure and print the table; without sizes as arguments, write it."""
    list(measured(2 * BATCH, Clock()))  # compiles and loads the kernels
    sized_table(HEADS, measured, SIZES, (DOCUMENT, BEGIN, END))
    return 0


def measured(size: int, clock: Clock) -> Iterator[list[str]]:
    """Yield the rows of all kinds at `size` keys: those that have room for all, and those that grow."""
    for grows in (False, True):
        yield from _rows(size, grows=grows, clock=clock)


def _rows(size: int, *, grows: bool, clock: Clock) -> Iterator[list[str]]:
    filters = {kind: _empty(kind, size, grows=grows) for kind in KINDS}
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

    found = lookups(filters, asked, ROUNDS, clock)
    for kind, filter_ in filters.items():
        bits = 8 * filter_.size_bytes / size
        name = f"`{kind}`, grown" if grows else f"`{kind}`"
        yield [f"{size:,}", name, f"{bits:.1f}", f"{1e9 * added[kind] / size:.0f}", *found[kind]]


def lookups(
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


def _empty(kind: str, size: int, *, grows: bool) -> Addable:
    options: dict[str, Any] = {"kind": kind, "capacity": size, "error_rate": ERROR_RATE}
    if grows:
        options |= {"capacity": -(-size // GROWS), "on_full": "grow"}
    return build(options)


if __name__ == "__main__":
    sys.exit(main())
