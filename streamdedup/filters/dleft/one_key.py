"""The methods of one key of the d-left tables, as builtins."""

from typing import Any

import numpy as np

from streamdedup.filters.dleft import rows
from streamdedup.filters.dleft.dleft import DLeft
from streamdedup.filters.dleft.shape import layout_of
from streamdedup.filters.one_key import builtins
from streamdedup.filters.stash import NEW, NOT_DONE, ROWS, SEEN, stash_count
from streamdedup.interpreter import Address, counts_in, places_in, triples_in, word_in, words_in
from streamdedup.kernel import inlined

_WORDS, _FIELDS, _COUNTS, _USED, _STASH, _PLACES, _ONCE = range(0, 14, 2)
_0 = np.uint64(0)


def _words(one: DLeft) -> tuple[Any, ...]:
    table, once = one._table, not one.multiset
    stash = table.stash
    return (
        table.words,
        table._fields,
        table.counts,
        stash.used,
        stash.table,
        table.places,
        once,
    )


@inlined
def _ahead(at: Address, a: np.uint64, b: np.uint64) -> None:
    """Find the places of the digest, which the other rows read."""
    layout, places = layout_of(words_in(at, _FIELDS)), places_in(at, _PLACES)
    rows._permute(layout, a, b, places, 0)
    rows._prefetch(words_in(at, _WORDS), layout, places, 0)


@inlined
def _add(at: Address, _a: np.uint64, _b: np.uint64) -> int:
    """While the stash is empty, and if a cell is free."""
    words, counts, places = words_in(at, _WORDS), counts_in(at, _COUNTS), places_in(at, _PLACES)
    layout = layout_of(words_in(at, _FIELDS))
    if counts_in(at, _USED)[ROWS] != 0:
        return NOT_DONE
    known, counted = rows._counted(words, layout, places, 0, word_in(at, _ONCE) != _0)
    if not counted and not rows._placed(words, layout, places, 0, counts, known):
        return NOT_DONE
    return SEEN if known else NEW


@inlined
def _contains(at: Address, a: np.uint64, b: np.uint64) -> bool:
    layout, places = layout_of(words_in(at, _FIELDS)), places_in(at, _PLACES)
    found = rows._held(words_in(at, _WORDS), layout, places, 0)
    if not found and counts_in(at, _USED)[ROWS] != 0:
        found = stash_count(triples_in(at, _STASH), a, b) != _0
    return bool(found)


@inlined
def _remove(at: Address, _a: np.uint64, _b: np.uint64) -> int:
    """While the stash is empty."""
    if counts_in(at, _USED)[ROWS] != 0:
        return NOT_DONE
    layout, places = layout_of(words_in(at, _FIELDS)), places_in(at, _PLACES)
    gone = rows._taken(words_in(at, _WORDS), layout, places, 0, counts_in(at, _COUNTS))
    return NEW if gone else SEEN


BUILTINS = dict.fromkeys(
    ("dleft", "dlcbf"), builtins("dleft", _words, _contains, _add, _remove, ahead=_ahead)
)
