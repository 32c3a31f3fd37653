"""Numbers of any width in an array of words, packed to the bit, least bit first: bit x is bit x % 64 of word x // 64.

One may begin at any bit, and is read out of that word and the next: behind the last one there is a word more.
"""

import numpy as np

from streamdedup.filters.memory import Words
from streamdedup.kernel import inlined

_63, _6, _1 = np.uint64(63), np.uint64(6), np.uint64(1)


@inlined
def mask(bits: np.uint64) -> np.uint64:
    """The low `bits` bits, 0 to 63."""
    return (_1 << bits) - _1


@inlined
def read(words: Words, at: np.uint64) -> np.uint64:
    """64 bits from bit `at` on. Shifted twice, because a shift by 64 is undefined."""
    word, shift = at >> _6, at & _63
    return np.uint64((words[word] >> shift) | ((words[word + _1] << _1) << (_63 - shift)))


@inlined
def write(words: Words, at: np.uint64, bits: np.uint64, value: np.uint64) -> None:
    """The low `bits` bits of `value`, 0 to 63, from bit `at` on."""
    word, shift, ones = at >> _6, at & _63, mask(bits)
    value &= ones
    words[word] = (words[word] & ~(ones << shift)) | (value << shift)
    ones, value = (ones >> _1) >> (_63 - shift), (value >> _1) >> (_63 - shift)
    words[word + _1] = (words[word + _1] & ~ones) | value


@inlined
def lanes_set(tops: np.uint64, ones: np.uint64, bits: np.uint64, lanes: np.uint64) -> np.uint64:
    """How many lanes of `bits` bits have their highest bit in `tops`: the product adds them up in the last lane."""
    return (((tops >> (bits - _1)) * ones) >> (bits * (lanes - _1))) & mask(bits)
