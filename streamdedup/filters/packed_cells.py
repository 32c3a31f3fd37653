"""Numbers of any width, packed into an array of words, least bit first: bit x is bit x % 64 of word x // 64.

A number may begin at any bit. It is therefore read from two words, the one in which it begins and the next, and an
array has one more word at its end.
"""

import numpy as np

from streamdedup.kernel import Words, inlined

NOWHERE = ~np.uint64(0)  # no cell

_63, _6, _1 = np.uint64(63), np.uint64(6), np.uint64(1)


@inlined
def mask(bits: np.uint64) -> np.uint64:
    """A mask of the low `bits` bits, 0 to 63 of them."""
    return (_1 << bits) - _1


@inlined
def read(words: Words, at: np.uint64) -> np.uint64:
    """The 64 bits from bit `at` on. The second word is shifted in two steps, because a shift by 64 is undefined."""
    word, shift = at >> _6, at & _63
    return np.uint64((words[word] >> shift) | ((words[word + _1] << _1) << (_63 - shift)))


@inlined
def write(words: Words, at: np.uint64, bits: np.uint64, value: np.uint64) -> None:
    """Write the low `bits` bits of `value`, 0 to 63 of them, from bit `at` on."""
    word, shift, ones = at >> _6, at & _63, mask(bits)
    value &= ones
    words[word] = (words[word] & ~(ones << shift)) | (value << shift)
    ones, value = (ones >> _1) >> (_63 - shift), (value >> _1) >> (_63 - shift)
    words[word + _1] = (words[word + _1] & ~ones) | value
