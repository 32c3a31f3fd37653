"""What is done with the rows of a batch in a cuckoo table and its stash: add, look up, remove; and with one row alone.

The buckets of some rows are asked for before the first of them is worked on, so that their misses overlap.
"""

import numpy as np

from streamdedup.filters.base import Mask
from streamdedup.filters.cuckoo.buckets import (
    NOWHERE,
    Layout,
    find,
    fingerprint_of,
    held,
    layout_of,
    partner,
    put,
    spare_cell,
)
from streamdedup.filters.cuckoo.search import make_room
from streamdedup.filters.keyed import KEYS
from streamdedup.filters.memory import Counts, Words
from streamdedup.filters.probing import high_word
from streamdedup.filters.sizing import CUCKOO_CELLS
from streamdedup.filters.stash import (
    COPIES,
    NEW,
    NOT_DONE,
    ROWS,
    SEEN,
    Rows,
    Used,
    stash_add,
    stash_count,
    stash_remove,
)
from streamdedup.kernel import inlined, kernel, prefetch
from streamdedup.keys.hashing import Digests

TAKEN = 1  # in `counts`, after the keys: cells in use
SEARCHED_A_CALL = 1 << 15  # buckets, of a kernel: a few ms also where each is a cache miss
ROWS_TOGETHER = 32

Place = tuple[np.uint64, np.uint64, np.uint64]
"""The fingerprint of a digest, and its two buckets."""

_CELLS, _6, _1, _0 = np.uint64(CUCKOO_CELLS), np.uint64(6), np.uint64(1), np.uint64(0)


@kernel
def add_rows(
    words: Words,
    fields: Words,
    stash: Rows,
    used: Used,
    queue: Words,
    counts: Counts,
    digests: Digests,
    once: bool,
    fresh: Mask,
    start: int,
) -> int:
    """The row that is not done: the stash is full, or so much was searched that others should have their turn.

    With `once`, what is there gets no further copy.
    """
    layout, places = layout_of(fields), _places()
    searched_in_all = 0
    for first in range(start, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(words, layout, digests[first:stop], places)
        for i in range(first, stop):
            place, a, b = _place(places, i - first), digests[i, 0], digests[i, 1]
            said = NOT_DONE
            if used[ROWS] == 0:
                said = _added(words, layout, counts, place, once)
            if said == NOT_DONE:
                if searched_in_all > SEARCHED_A_CALL:
                    return i
                said, searched = _inserted(
                    words, layout, stash, used, queue, counts, place, a, b, once
                )
                searched_in_all += searched
            if said == NOT_DONE:
                return i
            fresh[i] = said == NEW
    return int(digests.shape[0])


@kernel
def contains_rows(words: Words, fields: Words, digests: Digests, present: Mask) -> None:
    """Whether each is in a cell."""
    layout, places = layout_of(fields), _places()
    for first in range(0, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(words, layout, digests[first:stop], places)
        for i in range(first, stop):
            present[i] = held(words, layout, *_place(places, i - first))


@kernel
def remove_rows(
    words: Words,
    fields: Words,
    stash: Rows,
    used: Used,
    counts: Counts,
    digests: Digests,
    gone: Mask,
) -> None:
    """Take one copy of each: what the stash has goes first."""
    layout, places = layout_of(fields), _places()
    for first in range(0, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(words, layout, digests[first:stop], places)
        for i in range(first, stop):
            place, a, b = _place(places, i - first), digests[i, 0], digests[i, 1]
            gone[i] = _taken(words, layout, stash, used, counts, place, a, b)


@kernel
def add_row(words: Words, fields: Words, counts: Counts, a: int, b: int) -> int:
    """SEEN or NEW, while the stash is empty; NOT_DONE where there is no free cell."""
    layout = layout_of(fields)
    return _added(words, layout, counts, _place_of(np.uint64(a), np.uint64(b), layout), False)


@kernel
def insert_row(
    words: Words,
    fields: Words,
    stash: Rows,
    used: Used,
    queue: Words,
    counts: Counts,
    a: int,
    b: int,
) -> int:
    """SEEN or NEW: as `add_rows`, with a stash that is not full."""
    layout, first, second = layout_of(fields), np.uint64(a), np.uint64(b)
    place = _place_of(first, second, layout)
    return _inserted(words, layout, stash, used, queue, counts, place, first, second, False)[0]


@kernel
def contains_row(words: Words, fields: Words, a: int, b: int) -> bool:
    """Whether it is in a cell."""
    layout = layout_of(fields)
    return held(words, layout, *_place_of(np.uint64(a), np.uint64(b), layout))


@kernel
def remove_row(
    words: Words, fields: Words, stash: Rows, used: Used, counts: Counts, a: int, b: int
) -> bool:
    """As `remove_rows`."""
    layout, first, second = layout_of(fields), np.uint64(a), np.uint64(b)
    place = _place_of(first, second, layout)
    return _taken(words, layout, stash, used, counts, place, first, second)


# --- where a row may be ---


@kernel
def _places() -> Words:
    """Where `_locate` writes."""
    return np.empty((ROWS_TOGETHER, 3), np.uint64)


@inlined
def _locate(words: Words, layout: Layout, digests: Digests, places: Words) -> None:
    """Find the places of each digest, and ask for both ends of their buckets, which may lie in two cache lines."""
    width = layout.bits * _CELLS
    for row in range(digests.shape[0]):
        mark, one, other = _place_of(digests[row, 0], digests[row, 1], layout)
        places[row, 0], places[row, 1], places[row, 2] = mark, one, other
        prefetch(words, (one * width) >> _6)
        prefetch(words, ((one + _1) * width) >> _6)
        prefetch(words, (other * width) >> _6)
        prefetch(words, ((other + _1) * width) >> _6)


@inlined
def _place(places: Words, row: int) -> Place:
    return places[row, 0], places[row, 1], places[row, 2]


@inlined
def _place_of(a: np.uint64, b: np.uint64, layout: Layout) -> Place:
    mark, one = fingerprint_of(b, layout), high_word(a, layout.buckets)
    return mark, one, partner(mark, one, layout)


# --- one row ---


@inlined
def _added(words: Words, layout: Layout, counts: Counts, place: Place, once: bool) -> int:
    """SEEN or NEW; NOT_DONE, and no change, where there is no free cell."""
    mark, one, other = place
    said = NOT_DONE
    cell = spare_cell(words, layout, one, other)
    if cell != NOWHERE:
        said = SEEN if held(words, layout, mark, one, other) else NEW
        if said == NEW or not once:
            put(words, layout, cell, mark)
            counts[TAKEN] += 1
            counts[KEYS] += said == NEW
    return said


@inlined
def _inserted(
    words: Words,
    layout: Layout,
    stash: Rows,
    used: Used,
    queue: Words,
    counts: Counts,
    place: Place,
    a: np.uint64,
    b: np.uint64,
    once: bool,
) -> tuple[int, int]:
    """SEEN or NEW, or NOT_DONE since the stash is full; and how many buckets were searched."""
    mark, one, other = place
    in_stash = used[ROWS] != 0 and stash_count(stash, a, b) != _0
    seen = in_stash or held(words, layout, mark, one, other)
    cell, searched = NOWHERE, 0
    done = seen and once
    if not (in_stash or done):  # where one copy is there, the next ones go there, too
        cell = spare_cell(words, layout, one, other)
        if cell == NOWHERE and np.uint64(counts[TAKEN]) < layout.searched:
            cell, searched = make_room(words, layout, queue, one, other)
    if done:
        pass
    elif cell != NOWHERE:
        put(words, layout, cell, mark)
        counts[TAKEN] += 1
    elif not stash_add(stash, used, a, b):
        return NOT_DONE, searched
    counts[KEYS] += not seen
    return SEEN if seen else NEW, searched


@inlined
def _taken(
    words: Words,
    layout: Layout,
    stash: Rows,
    used: Used,
    counts: Counts,
    place: Place,
    a: np.uint64,
    b: np.uint64,
) -> bool:
    """Whether one copy was there, and was removed."""
    mark, one, other = place
    taken = used[ROWS] != 0 and stash_remove(stash, used, a, b)
    if not taken:
        cell = find(words, layout, one, mark)
        if cell == NOWHERE:
            cell = find(words, layout, other, mark)
        taken = cell != NOWHERE
        if taken:
            put(words, layout, cell, _0)
            counts[TAKEN] -= 1
    left = held(words, layout, mark, one, other)
    if not left and used[ROWS] != 0:
        left = stash_count(stash, a, b) != _0
    # A key is new once and gone once; look-alikes may differ in that. Never more keys than additions.
    keys = counts[KEYS] - (taken and not left)
    counts[KEYS] = max(0, min(keys, counts[TAKEN] + used[COPIES]))
    return bool(taken)
