"""What is done with the table of an exact set from end to end, a part at a time: moved to a larger one, and checked.

Fingerprints ascend, so both passes read and write every word once, in its order.
"""

import numpy as np

from streamdedup.filters.exact.rows import home
from streamdedup.filters.memory import Words
from streamdedup.kernel import kernel

WORDS_A_CALL = 1 << 16  # of a kernel: half a MiB, 3 ms where the pages are new

FOUND, RUN, FIRST, SECOND = 0, 1, 2, 3  # in the state of `_in_order`
_0, _1 = np.uint64(0), np.uint64(1)


def move(old: Words, grown: Words, width: int, slots: int) -> None:
    """Put what is in an old table into a larger one, of `slots` and a tail, that is empty.

    More slots never push anything further beyond the last than fewer do, so what fitted into a tail still does.
    """
    free = 0
    for start in range(0, len(old), WORDS_A_CALL):
        part = old[start : start + WORDS_A_CALL]
        free = int(_move(part, grown, np.uint64(width), np.uint64(slots), np.uint64(free)))


def fingerprints_in(table: Words, width: int, slots: int) -> int:
    """How many fingerprints a table holds; -1 where one is out of its place, or the last slot not empty."""
    state = np.zeros(4, dtype=np.uint64)
    for start in range(0, len(table), WORDS_A_CALL):
        part = table[start : start + WORDS_A_CALL]
        if not _in_order(part, np.uint64(start), np.uint64(width), np.uint64(slots), state):
            return -1
    return -1 if table[-width] else int(state[FOUND])


@kernel
def _move(
    old: Words, grown: Words, width: np.uint64, slots: np.uint64, free: np.uint64
) -> np.uint64:
    """Put part of an old table into a grown one, from `free` on; where the next part goes on."""
    for at in range(_0, np.uint64(old.shape[0]), width):
        if old[at] != _0:
            free = max(home(width, slots, old[at]), free)
            for i in range(width):
                grown[free + i] = old[at + i]
            free += width
    return free


@kernel
def _in_order(
    part: Words, start: np.uint64, width: np.uint64, slots: np.uint64, state: Words
) -> bool:
    """Whether the words from `start` on ascend, each as near to its home as those before it let it be."""
    for i in range(_0, np.uint64(part.shape[0]), width):
        at, a = start + i, part[i]
        b = part[i + _1] if width != _1 else _0
        if a == _0:
            state[RUN] = at + width
            if b != _0:
                return False
            continue
        own = home(width, slots, a)
        after = a > state[FIRST] or (a == state[FIRST] and b > state[SECOND])
        if not after or own > at or own < state[RUN]:
            return False
        state[FIRST], state[SECOND] = a, b
        state[FOUND] += _1
    return True
