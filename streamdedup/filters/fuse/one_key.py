"""`in` of a fuse filter for one key, as a builtin. It has no other method of one key."""

from typing import Any

import numpy as np

from streamdedup.filters.fuse import fuse
from streamdedup.filters.one_key import builtins
from streamdedup.interpreter import Address, parts_in, word_in, words_in
from streamdedup.kernel import inlined

_WORDS, _DIRECTORY, _BITS = 0, 2, 4


def _words(one: fuse.Fuse) -> tuple[Any, ...]:
    return one._words, one._directory, one._bits


@inlined
def _contains(at: Address, a: np.uint64, b: np.uint64) -> bool:
    bits = word_in(at, _BITS)
    return fuse._present(words_in(at, _WORDS), parts_in(at, _DIRECTORY), bits, a, b)


BUILTINS = {"fuse": builtins("fuse", _words, _contains)}
