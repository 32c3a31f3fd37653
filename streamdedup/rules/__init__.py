"""From digests to verdicts."""

from collections import deque

import numpy as np

from streamdedup.filters.base import Addable, Windowed
from streamdedup.rules.duplicates import Duplicates, DuplicatesRule
from streamdedup.rules.window import DuplicatesWithin

__all__ = ["DuplicatesRule", "duplicates_rule", "warm_up"]


def duplicates_rule(seen: Addable | Windowed) -> DuplicatesRule:
    """The duplicates rule over `seen`, by what it can do."""
    return DuplicatesWithin(seen) if isinstance(seen, Windowed) else Duplicates(seen)


def warm_up(scratch: Addable | Windowed) -> None:
    """Compile, or load from the cache, the kernels of the rule over `scratch`, which is used up by it."""
    scratch.hash.warm_up()
    one, time = np.zeros((1, 2), dtype=np.uint64), np.zeros(1, dtype=np.int64)
    rule = duplicates_rule(scratch)
    for _ in range(2):  # with nothing that waits, and with something
        rule.judge(one, time, within_budget=True)
    for steps in (rule.admit(), rule.fold(one, time)):
        deque(steps, maxlen=0)
    if isinstance(scratch, Windowed):
        scratch.add_many(one, None if scratch.clock.by_count else time)
