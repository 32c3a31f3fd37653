"""Passes over the whole table of an exact set, a part at a time: the move to a larger table, and the check.

Fingerprints ascend, so each pass touches every word once, in the order of memory.
"""

import numpy as np

from streamdedup.filters.exact.rows import home
from streamdedup.kernel import Words, kernel

WORDS_A_CALL = 1 << 16  # words in one call of a kernel: half a MiB, 3 ms if its pages are new

FOUND, RUN, FIRST, SECOND = 0, 1, 2, 3  # indexes in the state of `_in_order`
_0, _1 = np.uint64(0), np.uint64(1)


def move(old: Words, grown: Words, width: int, slots: int) -> None:
    """Put the fingerprints of `old` into `grown`, an empty table of `slots` slots and a tail.

    With more slots, no fingerprint is further beyond the last slot than before, so the tail stays long
    enough.
    """
    free = 0
    for start in range(0, len(old), WORDS_A_CALL):
        part = old[start : start + WORDS_A_CALL]
        free = int(_move(part, grown, np.uint64(width), np.uint64(slots), np.uint64(free)))


def fingerprints_in(table: Words, width: int, slots: int) -> int:
    """Return how many fingerprints a table holds.

    Returns -1 if a fingerprint is not in its place, or if the last slot is not empty.
    """
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
    """Put a part of an old table into a grown one, from word `free` on. Return the `free` of the next part."""
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
    """Return whether the fingerprints of the words from `start` on ascend, each as near to its home as possible.

    A fingerprint may be beyond its home only if all words between the two are in use.
    """
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
