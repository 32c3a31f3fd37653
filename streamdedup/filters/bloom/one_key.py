"""The methods of one key of the Bloom filters, as builtins."""

from typing import Any

import numpy as np

from streamdedup.filters.bloom import blocked, bloom, counters, counting
from streamdedup.filters.bloom.bloom import BITS_SET
from streamdedup.filters.digest_filter import KEYS
from streamdedup.filters.one_key import builtins
from streamdedup.filters.stash import NEW, SEEN
from streamdedup.interpreter import Address, counts_in, word_in, words_in
from streamdedup.kernel import inlined

_0 = np.uint64(0)

# --- bloom, and counting, whose words begin in the same way ---

_WORDS, _SIZE, _HASHES, _DOUBLE, _COUNTS, _ONCE = 0, 2, 3, 4, 5, 7


def _bloom_words(one: bloom.Bloom | counting.Counting) -> tuple[Any, ...]:
    return one._words, one._m, one._k, one._double, one._counts


@inlined
def _bloom_add(at: Address, a: np.uint64, b: np.uint64) -> int:
    words, counts, double = words_in(at, _WORDS), counts_in(at, _COUNTS), word_in(at, _DOUBLE) != _0
    new = bloom._insert(words, word_in(at, _SIZE), word_in(at, _HASHES), double, a, b)
    counts[KEYS] += new > _0
    counts[BITS_SET] += np.int64(new)
    return NEW if new > _0 else SEEN


@inlined
def _bloom_contains(at: Address, a: np.uint64, b: np.uint64) -> bool:
    words, double = words_in(at, _WORDS), word_in(at, _DOUBLE) != _0
    return bloom._present(words, word_in(at, _SIZE), word_in(at, _HASHES), double, a, b)


# --- counting ---


def _counting_words(one: counting.Counting) -> tuple[Any, ...]:
    return *_bloom_words(one), not one.multiset


@inlined
def _counting_add(at: Address, a: np.uint64, b: np.uint64) -> int:
    words, size, hashes = words_in(at, _WORDS), word_in(at, _SIZE), word_in(at, _HASHES)
    double, once = word_in(at, _DOUBLE) != _0, word_in(at, _ONCE) != _0
    if once and counters._present(words, size, hashes, double, a, b):
        return SEEN
    new = counters._count_up(words, size, hashes, double, a, b, counts_in(at, _COUNTS))
    return NEW if new else SEEN


@inlined
def _counting_contains(at: Address, a: np.uint64, b: np.uint64) -> bool:
    words, double = words_in(at, _WORDS), word_in(at, _DOUBLE) != _0
    return counters._present(words, word_in(at, _SIZE), word_in(at, _HASHES), double, a, b)


@inlined
def _counting_remove(at: Address, a: np.uint64, b: np.uint64) -> int:
    words, size, hashes = words_in(at, _WORDS), word_in(at, _SIZE), word_in(at, _HASHES)
    double, counts = word_in(at, _DOUBLE) != _0, counts_in(at, _COUNTS)
    return NEW if counters._count_down(words, size, hashes, double, a, b, counts) else SEEN


# --- blocked ---

_BLOCKED_COUNTS = 4


def _blocked_words(one: blocked.BlockedBloom) -> tuple[Any, ...]:
    return one._words, one._m, one._k, one._counts


@inlined
def _blocked_add(at: Address, a: np.uint64, b: np.uint64) -> int:
    counts, base = counts_in(at, _BLOCKED_COUNTS), blocked._base(word_in(at, _SIZE), a)
    new = blocked._insert(words_in(at, _WORDS), base, word_in(at, _HASHES), a, b, counts)
    counts[KEYS] += new
    return NEW if new else SEEN


@inlined
def _blocked_contains(at: Address, a: np.uint64, b: np.uint64) -> bool:
    base = blocked._base(word_in(at, _SIZE), a)
    return blocked._present(words_in(at, _WORDS), base, word_in(at, _HASHES), a, b)


BUILTINS = {
    "bloom": builtins("bloom", _bloom_words, _bloom_contains, _bloom_add),
    "blocked": builtins("blocked", _blocked_words, _blocked_contains, _blocked_add),
    "counting": builtins(
        "counting", _counting_words, _counting_contains, _counting_add, _counting_remove
    ),
}
