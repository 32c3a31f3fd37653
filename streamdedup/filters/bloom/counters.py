"""A table of counters of 4 bits, 16 a word: counted up and down where the probes of a digest stand; added, and counted.

A counter that has reached 15 is saturated, and stays so.
"""

import numpy as np

from streamdedup.filters.base import Mask
from streamdedup.filters.keyed import KEYS
from streamdedup.filters.memory import Counts, Words, word_pieces
from streamdedup.filters.probing import advance, ask, begin, position
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import Digests

NONZERO, SATURATED = 1, 2  # in `counts`, after the keys, of which there are at most NONZERO

_0, _1, _2, _4, _15 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(15)
_LOWEST_BITS = np.uint64(0x1111111111111111)  # of each counter
_EVEN_COUNTERS = np.uint64(0x0F0F0F0F0F0F0F0F)
_EVEN_CARRIES = np.uint64(0x1010101010101010)
AHEAD = 16  # rows whose counters are asked for before they are needed


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
    """Count each up: whether it was not there."""
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
    """Whether each is present."""
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
    """Count each down: whether it was there."""
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
    """As `add_rows`."""
    return _count_up(words, counters, hashes, double, np.uint64(a), np.uint64(b), counts)


@kernel
def contains_row(
    words: Words, counters: np.uint64, hashes: np.uint64, double: bool, a: int, b: int
) -> bool:
    """As `contains_rows`."""
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
    """As `remove_rows`."""
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
    """Whether a counter was 0 before."""
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
    """Whether it was present, and so counted down."""
    if not _present(words, counters, hashes, double, a, b):
        return False
    newly_zero = 0
    state, step = begin(a, b, counters, double)
    for _ in range(hashes):
        at = position(state, counters, double)
        shift = (at & _15) << _2
        word = words[at >> _4]
        count = word >> shift & _15
        # 0: a key that only looked present, and two of whose probes meet at a 1
        if _0 < count < _15:
            words[at >> _4] = word - (_1 << shift)
            newly_zero += count == _1
        state = advance(state, step, counters, double)
    if newly_zero > 0:
        counts[NONZERO] -= newly_zero
        counts[KEYS] = max(0, min(counts[KEYS] - 1, counts[NONZERO]))
    return True


def add_counts(words: Words, other: Words) -> None:
    """Add the counters of another table of this size, each at most 15."""
    for mine, theirs in zip(word_pieces(words), word_pieces(other), strict=True):
        mine[:] = _sums(mine, theirs)


def counters_in_use(words: Words) -> tuple[int, int]:
    """How many counters are not 0, and how many are saturated."""
    nonzero = saturated = 0
    for part in word_pieces(words):
        any_, all_ = part | part >> _1, part & part >> _1
        nonzero += int(np.bitwise_count((any_ | any_ >> _2) & _LOWEST_BITS).sum())
        saturated += int(np.bitwise_count((all_ & all_ >> _2) & _LOWEST_BITS).sum())
    return nonzero, saturated


def _sums(one: Words, other: Words) -> Words:
    """The counters of two tables added, each at most 15."""
    even = _even_sums(one & _EVEN_COUNTERS, other & _EVEN_COUNTERS)
    odd = _even_sums(one >> _4 & _EVEN_COUNTERS, other >> _4 & _EVEN_COUNTERS)
    return even | odd << _4


def _even_sums(one: Words, other: Words) -> Words:
    """As `_sums` where every second counter is 0, which leaves room for the carries."""
    sums = one + other
    carries = sums & _EVEN_CARRIES
    return (sums | carries - (carries >> _4)) & _EVEN_COUNTERS
