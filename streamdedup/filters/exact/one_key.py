"""The methods of one key of an exact set, as builtins."""

from typing import Any

import numpy as np

from streamdedup.filters.exact import rows
from streamdedup.filters.exact.exact import Exact
from streamdedup.filters.one_key import builtins
from streamdedup.filters.stash import NEW, NOT_DONE, SEEN
from streamdedup.interpreter import Address, counts_in, word_in, words_in
from streamdedup.kernel import inlined

_TABLE, _WIDTH, _SLOTS, _COUNTS = 0, 2, 3, 4
_1 = np.uint64(1)


def _words(one: Exact) -> tuple[Any, ...]:
    return one._words, one._w, one._m, one._counts


@inlined
def _add(at: Address, a: np.uint64, b: np.uint64) -> int:
    width, first = word_in(at, _WIDTH), max(a, _1)
    home = rows.home(width, word_in(at, _SLOTS), first)
    said = rows._insert(words_in(at, _TABLE), width, home, first, b, counts_in(at, _COUNTS))
    if said == rows.NEW:
        return NEW
    return SEEN if said == rows.THERE else NOT_DONE


@inlined
def _contains(at: Address, a: np.uint64, b: np.uint64) -> bool:
    table, width, first = words_in(at, _TABLE), word_in(at, _WIDTH), max(a, _1)
    slot = rows._seek(table, width, rows.home(width, word_in(at, _SLOTS), first), first, b)
    return rows._is(table, width, slot, first, b)


@inlined
def _remove(at: Address, a: np.uint64, b: np.uint64) -> int:
    width, slots, first = word_in(at, _WIDTH), word_in(at, _SLOTS), max(a, _1)
    home, counts = rows.home(width, slots, first), counts_in(at, _COUNTS)
    gone = rows._take(words_in(at, _TABLE), width, slots, home, first, b, counts)
    return NEW if gone else SEEN


BUILTINS = {"exact": builtins("exact", _words, _contains, _add, _remove)}
