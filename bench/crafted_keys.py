"""`python -m bench.crafted_keys`: what keys cost that somebody chose who knows the hash, beside keys at random.

For each table: nanoseconds a random key, the same of a chosen one, and how many chosen ones it takes before it refuses
one. Runs in seconds; to compare two versions, run it on both, in turns.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bench.samples import random_digests
from streamdedup import filters
from streamdedup.errors import ConfigError
from streamdedup.keys.hashing import Digests
from streamdedup.rules.pending import PendingDigests
from tests.chosen import for_few_buckets, for_few_of_each, for_one_slot, grid, in_line

ROUNDS = 5
ROWS_A_BATCH = 4096
LONG_S = 20.0

Take = Callable[[Digests], object]


class Attack(NamedTuple):
    """A table, and digests chosen for it."""

    name: str
    make: Callable[[], Take]
    chosen: Digests


def main() -> int:
    """Print one line for each attack."""
    print(f"{'':32}{'random ns':>10}{'chosen ns':>12}{'ms in all':>11}  taken")
    for attack in attacks():
        others = [random_digests(round_, len(attack.chosen)) for round_ in range(ROUNDS)]
        random = min(measured(attack.make(), other)[0] for other in others) / len(attack.chosen)
        seconds, taken = min(measured(attack.make(), attack.chosen) for _ in range(2))
        print(
            f"{attack.name:32}{random * 1e9:10.1f}{seconds / taken * 1e9:12.1f}{seconds * 1e3:11.1f}"
            f"  {taken:,} of {len(attack.chosen):,}",
            flush=True,
        )
    return 0


def attacks() -> Iterator[Attack]:
    """Each table with the digests that are worst for it."""
    yield Attack("pending, equal low halves", pending, in_line(50_000, 1 << 32, 0))
    yield Attack("pending, a grid", pending, grid(316, 48, 48))
    exact = {"kind": "exact", "capacity": 300_000}
    yield Attack("exact, for one slot", adding(exact), for_one_slot(50_000))
    yield Attack("exact, behind one slot", adding(exact), for_one_slot(50_000, ascending=True))
    cuckoo = {"kind": "cuckoo", "capacity": 300_000, "error_rate": 1e-3}
    many: Any = filters.build(cuckoo)
    yield Attack("cuckoo, for 1,500 buckets", adding(cuckoo), for_few_buckets(many, 1500)[:50_000])
    dleft = {"kind": "dleft", "capacity": 600, "error_rate": 1e-4}
    few: Any = filters.build(dleft)
    yield Attack("d-left, for 3 buckets of 25", adding(dleft), for_few_of_each(few, 3))


def pending() -> Take:
    """What waits for its commit."""
    waiting = PendingDigests()
    return lambda digests: waiting.judge(digests, np.zeros(len(digests), dtype=np.bool_), 1 << 40)


def adding(config: dict[str, Any]) -> Callable[[], Take]:
    """A filter of this configuration, which nobody has added to."""

    def make() -> Take:
        made: Any = filters.build(config)
        return made.add_absent  # type: ignore[no-any-return]

    return make


def measured(take: Take, digests: Digests) -> tuple[float, int]:
    """Seconds of this thread's time, and how many digests were taken before one was refused, or it took too long."""
    start, taken, took_s = time.thread_time(), 0, 0.0
    for rows in (ROWS_A_BATCH, 1):  # of the batch that was refused, one after the other
        try:
            while taken < len(digests) and time.thread_time() - start <= LONG_S:
                take(digests[taken : taken + rows])
                taken = min(taken + rows, len(digests))
        except ConfigError:
            took_s = took_s or time.thread_time() - start
        else:
            break
    return took_s or time.thread_time() - start, taken


if __name__ == "__main__":
    sys.exit(main())
