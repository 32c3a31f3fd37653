"""The methods of one key of a bitmap by hash, as builtins. Those of a bitmap with a range take integers, in Python."""

from typing import Any

import numpy as np

from streamdedup.filters.bitmap.hashed import HashedBitmap
from streamdedup.filters.one_key import builtins
from streamdedup.filters.probes import begin, position
from streamdedup.filters.stash import NEW, SEEN
from streamdedup.interpreter import Address, counts_in, word_in, words_in
from streamdedup.kernel import inlined

_WORDS, _BITS, _DOUBLE, _COUNTS = 0, 2, 3, 4
_0, _1, _6, _63 = (np.uint64(number) for number in (0, 1, 6, 63))


def _words(one: HashedBitmap) -> tuple[Any, ...]:
    return one._words, one.bits, one._double, one._counts


@inlined
def _place(at: Address, a: np.uint64) -> np.uint64:
    bits, double = word_in(at, _BITS), word_in(at, _DOUBLE) != _0
    return position(begin(a, _0, bits, double)[0], bits, double)


@inlined
def _add(at: Address, a: np.uint64, _b: np.uint64) -> int:
    words, place = words_in(at, _WORDS), _place(at, a)
    word, bit = words[place >> _6], _1 << (place & _63)
    words[place >> _6] = word | bit
    new = word & bit == _0
    counts_in(at, _COUNTS)[0] += new
    return NEW if new else SEEN


@inlined
def _contains(at: Address, a: np.uint64, _b: np.uint64) -> bool:
    place = _place(at, a)
    return bool(words_in(at, _WORDS)[place >> _6] >> (place & _63) & _1 != _0)


BUILTINS = {"bitmap": builtins("bitmap", _words, _contains, _add)}
