"""The methods of one key of a cuckoo filter, as builtins."""

from typing import Any

import numpy as np

from streamdedup.filters.cuckoo import rows
from streamdedup.filters.cuckoo.buckets import held, layout_of
from streamdedup.filters.cuckoo.cuckoo import Cuckoo
from streamdedup.filters.one_key import builtins
from streamdedup.filters.places import place_of
from streamdedup.filters.stash import NEW, NOT_DONE, ROWS, SEEN, has_room, stash_count
from streamdedup.interpreter import Address, counts_in, pairs_in, triples_in, word_in, words_in
from streamdedup.kernel import inlined

_WORDS, _FIELDS, _COUNTS, _USED, _STASH, _QUEUE, _ONCE = range(0, 14, 2)
_0 = np.uint64(0)


def _words(one: Cuckoo) -> tuple[Any, ...]:
    stash, once = one._stash, not one.multiset
    return one._words, one._fields, one._counts, stash.used, stash.table, one._queue, once


@inlined
def _add(at: Address, a: np.uint64, b: np.uint64) -> int:
    words, counts, used = words_in(at, _WORDS), counts_in(at, _COUNTS), counts_in(at, _USED)
    stash, once = triples_in(at, _STASH), word_in(at, _ONCE) != _0
    layout = layout_of(words_in(at, _FIELDS))
    place, said = place_of(a, b, layout), NOT_DONE
    if used[ROWS] == 0:
        said = rows._added(words, layout, counts, place, once)
    if said == NOT_DONE and has_room(stash, used):
        queue = pairs_in(at, _QUEUE)
        said = rows._inserted(words, layout, stash, used, queue, counts, place, a, b, once)[0]
    return said


@inlined
def _contains(at: Address, a: np.uint64, b: np.uint64) -> bool:
    layout = layout_of(words_in(at, _FIELDS))
    found = held(words_in(at, _WORDS), layout, *place_of(a, b, layout))
    if not found and counts_in(at, _USED)[ROWS] != 0:
        found = stash_count(triples_in(at, _STASH), a, b) != _0
    return bool(found)


@inlined
def _remove(at: Address, a: np.uint64, b: np.uint64) -> int:
    layout = layout_of(words_in(at, _FIELDS))
    words, stash, used = words_in(at, _WORDS), triples_in(at, _STASH), counts_in(at, _USED)
    place, counts = place_of(a, b, layout), counts_in(at, _COUNTS)
    return NEW if rows._taken(words, layout, stash, used, counts, place, a, b) else SEEN


BUILTINS = {"cuckoo": builtins("cuckoo", _words, _contains, _add, _remove)}
