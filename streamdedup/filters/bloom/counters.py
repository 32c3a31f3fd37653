"""A table of 4-bit counters, 16 in a word. The probes of a digest say which of them count up and down.

A counter that reaches 15 is saturated: it never changes again.
"""

import numpy as np

from streamdedup.filters.base import Mask
from streamdedup.filters.digest_filter import KEYS
from streamdedup.filters.memory import Counts, word_pieces
from streamdedup.filters.probes import advance, ask, begin, position
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import Digests

# Indexes in `counts`, which begins with the number of keys; that is at most the number at NONZERO.
NONZERO, SATURATED = 1, 2

_0, _1, _2, _4, _15 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(15)
_LOWEST_BITS = np.uint64(0x1111111111111111)  # the lowest bit of each counter
_EVEN_COUNTERS = np.uint64(0x0F0F0F0F0F0F0F0F)
_EVEN_CARRIES = np.uint64(0x1010101010101010)
AHEAD = 16  # rows between the prefetch of the counters of a digest and their use


@kernel
def add_rows(
    words: Words,
    counters: np.uint64,
    hashes: np.uint64,
    double: bool,
    counts: Counts,
    once: bool,
    digests: Digests,
    fresh: Mask,
) -> None:
    """Count each digest up. Write into `fresh` whether the digest was absent.

    With `once`, a digest that is present is not counted again.
    """
    rows = digests.shape[0]
    for i in range(min(rows, AHEAD)):
        ask(words, _4, counters, hashes, double, digests[i, 0], digests[i, 1])
    for i in range(rows):
        if i + AHEAD < rows:
            ask(words, _4, counters, hashes, double, digests[i + AHEAD, 0], digests[i + AHEAD, 1])
        a, b = digests[i, 0], digests[i, 1]
        known = once and _present(words, counters, hashes, double, a, b)
        fresh[i] = not known and _count_up(words, counters, hashes, double, a, b, counts)


@kernel
def contains_rows(
    words: Words,
    counters: np.uint64,
    hashes: np.uint64,
    double: bool,
    digests: Digests,
    present: Mask,
) -> None:
    """Write into `present` whether each digest is present."""
    for i in range(digests.shape[0]):
        present[i] = _present(words, counters, hashes, double, digests[i, 0], digests[i, 1])


@kernel
def remove_rows(
    words: Words,
    counters: np.uint64,
    hashes: np.uint64,
    double: bool,
    counts: Counts,
    digests: Digests,
    gone: Mask,
) -> None:
    """Count each digest down if it is present. Write into `gone` whether it was."""
    for i in range(digests.shape[0]):
        a, b = digests[i, 0], digests[i, 1]
        gone[i] = _count_down(words, counters, hashes, double, a, b, counts)


@kernel
def add_row(
    words: Words,
    counters: np.uint64,
    hashes: np.uint64,
    double: bool,
    a: int,
    b: int,
    counts: Counts,
) -> bool:
    """Count one digest up if it is absent. Return whether it was."""
    first, second = np.uint64(a), np.uint64(b)
    known = _present(words, counters, hashes, double, first, second)
    return not known and _count_up(words, counters, hashes, double, first, second, counts)


@kernel
def contains_row(
    words: Words, counters: np.uint64, hashes: np.uint64, double: bool, a: int, b: int
) -> bool:
    """Return whether one digest is present."""
    return _present(words, counters, hashes, double, np.uint64(a), np.uint64(b))


@kernel
def remove_row(
    words: Words,
    counters: np.uint64,
    hashes: np.uint64,
    double: bool,
    a: int,
    b: int,
    counts: Counts,
) -> bool:
    """Count one digest down if it is present. Return whether it was."""
    return _count_down(words, counters, hashes, double, np.uint64(a), np.uint64(b), counts)


@inlined
def _count_up(
    words: Words,
    counters: np.uint64,
    hashes: np.uint64,
    double: bool,
    a: np.uint64,
    b: np.uint64,
    counts: Counts,
) -> bool:
    """Count the counters of a digest up. Return whether one of them was 0."""
    newly_nonzero = newly_saturated = 0
    state, step = begin(a, b, counters, double)
    for _ in range(hashes):
        at = position(state, counters, double)
        shift = (at & _15) << _2
        word = words[at >> _4]
        count = word >> shift & _15
        if count != _15:
            words[at >> _4] = word + (_1 << shift)
            newly_nonzero += count == _0
            newly_saturated += count == _15 - _1
        state = advance(state, step, counters, double)
    counts[NONZERO] += newly_nonzero
    counts[SATURATED] += newly_saturated
    counts[KEYS] += newly_nonzero > 0
    return newly_nonzero > 0


@inlined
def _present(
    words: Words, counters: np.uint64, hashes: np.uint64, double: bool, a: np.uint64, b: np.uint64
) -> bool:
    state, step = begin(a, b, counters, double)
    for _ in range(hashes):
        at = position(state, counters, double)
        if words[at >> _4] >> ((at & _15) << _2) & _15 == _0:
            return False
        state = advance(state, step, counters, double)
    return True


@inlined
def _count_down(
    words: Words,
    counters: np.uint64,
    hashes: np.uint64,
    double: bool,
    a: np.uint64,
    b: np.uint64,
    counts: Counts,
) -> bool:
    """Count the counters of a digest down if it is present. Return whether it was."""
    if not _present(words, counters, hashes, double, a, b):
        return False
    newly_zero = 0
    state, step = begin(a, b, counters, double)
    for _ in range(hashes):
        at = position(state, counters, double)
        shift = (at & _15) << _2
        word = words[at >> _4]
        count = word >> shift & _15
        # The counter can be 0 here only if the key was a false positive: two of its probes met at a counter
        # of 1, which the first probe set to 0.
        if _0 < count < _15:
            words[at >> _4] = word - (_1 << shift)
            newly_zero += count == _1
        state = advance(state, step, counters, double)
    if newly_zero > 0:
        counts[NONZERO] -= newly_zero
        counts[KEYS] = max(0, min(counts[KEYS] - 1, counts[NONZERO]))
    return True


def add_counts(words: Words, other: Words) -> None:
    """Add the counters of `other`, a table of the same size. A sum above 15 becomes 15."""
    for mine, theirs in zip(word_pieces(words), word_pieces(other), strict=True):
        mine[:] = _sums(mine, theirs)


def counters_in_use(words: Words) -> tuple[int, int]:
    """Return how many counters are not 0, and how many are saturated."""
    nonzero = saturated = 0
    for part in word_pieces(words):
        any_, all_ = part | part >> _1, part & part >> _1
        nonzero += int(np.bitwise_count((any_ | any_ >> _2) & _LOWEST_BITS).sum())
        saturated += int(np.bitwise_count((all_ & all_ >> _2) & _LOWEST_BITS).sum())
    return nonzero, saturated


def _sums(one: Words, other: Words) -> Words:
    """Return the sums of the counters of two tables. A sum above 15 becomes 15."""
    even = _even_sums(one & _EVEN_COUNTERS, other & _EVEN_COUNTERS)
    odd = _even_sums(one >> _4 & _EVEN_COUNTERS, other >> _4 & _EVEN_COUNTERS)
    return even | odd << _4


def _even_sums(one: Words, other: Words) -> Words:
    """Return the sums of the even counters of two tables. A sum above 15 becomes 15.

    The caller has set the odd counters to 0, which leaves room for the carries.
    """
    sums = one + other
    carries = sums & _EVEN_CARRIES
    return (sums | carries - (carries >> _4)) & _EVEN_COUNTERS
