"""Add, look up and remove the rows of a batch, or one row alone, in a cuckoo table and its stash."""

import numpy as np

from streamdedup.filters.base import Mask
from streamdedup.filters.cuckoo.buckets import (
    CuckooLayout,
    find,
    held,
    layout_of,
    put,
    spare_cell,
)
from streamdedup.filters.cuckoo.search import SEARCH_MAX, make_room
from streamdedup.filters.digest_filter import KEYS
from streamdedup.filters.memory import Counts
from streamdedup.filters.packed_cells import NOWHERE
from streamdedup.filters.places import Place, place_of, places_from, turn_of
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
    stash_takes,
)
from streamdedup.filters.strain import STRAIN, STRAIN_HALF, STRAIN_MAX, charge, owe, refuse, relieve
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import Digests

TAKEN = 1  # index in `counts` of the number of cells in use, after that of the keys
# How many buckets one call may search: a few ms, even if each is a cache miss.
SEARCHED_A_CALL = 1 << 15
# The buckets of a short search. It takes what a key pays in: three times as much as a random one takes at capacity.
SEARCH_SHORT = 47

_19, _1, _0 = (np.uint64(number) for number in (19, 1, 0))


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
    """Add rows from `start` on. Write into `fresh` whether each was absent. Return the first row that is not done.

    It stops before the last row if the next one is refused, if the stash is full, or if it has searched so many
    buckets that the caller should let other threads run. With `once`, a digest that is present gets no further
    copy.
    """
    layout = layout_of(fields)
    searched_in_all = 0
    places = places_from(words, layout, digests, start)
    for i in range(start, digests.shape[0]):
        place, a, b = turn_of(words, layout, digests, i, places), digests[i, 0], digests[i, 1]
        said = NOT_DONE
        if used[ROWS] == 0:
            said = _added(words, layout, counts, place, once)
        if said == NOT_DONE:
            if searched_in_all > SEARCHED_A_CALL:
                return i
            said, searched = _inserted(words, layout, stash, used, queue, counts, place, a, b, once)
            searched_in_all += searched
        if said == NOT_DONE:
            return i
        fresh[i] = said == NEW
    return int(digests.shape[0])


@kernel
def contains_rows(words: Words, fields: Words, digests: Digests, present: Mask) -> None:
    """Write into `present` whether each digest is in a cell. The stash is not searched."""
    layout = layout_of(fields)
    places = places_from(words, layout, digests, 0)
    for i in range(digests.shape[0]):
        present[i] = held(words, layout, *turn_of(words, layout, digests, i, places))


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
    """Remove one copy of each digest, from the stash first. Write into `gone` whether there was one."""
    layout = layout_of(fields)
    places = places_from(words, layout, digests, 0)
    for i in range(digests.shape[0]):
        place, a, b = turn_of(words, layout, digests, i, places), digests[i, 0], digests[i, 1]
        gone[i] = _taken(words, layout, stash, used, counts, place, a, b)


@kernel
def add_row(words: Words, fields: Words, counts: Counts, a: int, b: int) -> int:
    """Add one digest, if it is absent, while the stash is empty. Return SEEN or NEW.

    Returns NOT_DONE, and changes nothing, if no cell is free.
    """
    layout = layout_of(fields)
    return _added(words, layout, counts, place_of(np.uint64(a), np.uint64(b), layout), True)


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
    """Add one digest, if it is absent, as `add_rows` does. Return SEEN or NEW; or NOT_DONE if that is not done."""
    layout, first, second = layout_of(fields), np.uint64(a), np.uint64(b)
    place = place_of(first, second, layout)
    return _inserted(words, layout, stash, used, queue, counts, place, first, second, True)[0]


@kernel
def contains_row(words: Words, fields: Words, a: int, b: int) -> bool:
    """Return whether one digest is in a cell. The stash is not searched."""
    layout = layout_of(fields)
    return held(words, layout, *place_of(np.uint64(a), np.uint64(b), layout))


@kernel
def remove_row(
    words: Words, fields: Words, stash: Rows, used: Used, counts: Counts, a: int, b: int
) -> bool:
    """Remove one copy of one digest, from the stash first. Return whether there was one."""
    layout, first, second = layout_of(fields), np.uint64(a), np.uint64(b)
    place = place_of(first, second, layout)
    return _taken(words, layout, stash, used, counts, place, first, second)


# --- one row ---


@inlined
def _added(words: Words, layout: CuckooLayout, counts: Counts, place: Place, once: bool) -> int:
    """Add a row if a cell is free. Return SEEN or NEW; or NOT_DONE, without any change, if none is."""
    mark, one, other = place
    said = NOT_DONE
    cell = spare_cell(words, layout, one, other)
    if cell != NOWHERE:
        said = SEEN if held(words, layout, mark, one, other) else NEW
        if said == NEW or not once:
            put(words, layout, cell, mark)
            counts[TAKEN] += 1
            counts[KEYS] += said == NEW
        if said == NEW:
            relieve(counts)
    return said


@inlined
def _inserted(
    words: Words,
    layout: CuckooLayout,
    stash: Rows,
    used: Used,
    queue: Words,
    counts: Counts,
    place: Place,
    a: np.uint64,
    b: np.uint64,
    once: bool,
) -> tuple[int, int]:
    """Add a row: into a free cell, into a cell that is freed by moving others, or into the stash.

    Return SEEN or NEW, or NOT_DONE if the stash is full or the row is refused; and how many buckets were
    searched.
    """
    mark, one, other = place
    in_stash = used[ROWS] != 0 and stash_count(stash, a, b) != _0
    seen = in_stash or held(words, layout, mark, one, other)
    cell, searched = NOWHERE, 0
    done = seen and once
    # Beyond the capacity, and among copies, random keys take long, too: none is refused, but searches are short.
    held_now = counts[TAKEN] + used[COPIES]
    beyond = np.uint64(held_now) > layout.capacity + layout.buckets // _19
    lenient = seen or beyond or held_now > counts[KEYS]
    if not (in_stash or done):  # the stash gets all further copies of a digest that it holds
        cell = spare_cell(words, layout, one, other)
        if cell == NOWHERE and np.uint64(counts[TAKEN]) < layout.searched:
            if not lenient and counts[STRAIN] > STRAIN_MAX:
                refuse(counts)
                return NOT_DONE, searched
            short = beyond or (lenient and counts[STRAIN] > STRAIN_HALF)
            most = SEARCH_SHORT if short else SEARCH_MAX
            cell, searched = make_room(words, layout, queue, one, other, most)
    if done:
        pass
    elif cell != NOWHERE:
        put(words, layout, cell, mark)
        counts[TAKEN] += 1
    elif not (
        (in_stash or stash_takes(stash, used, a, b, _needed(layout, used, counts), counts))
        and stash_add(stash, used, a, b)
    ):
        return NOT_DONE, searched
    counts[KEYS] += not seen
    if not lenient:
        charge(counts, searched + 1)
    elif not (beyond or done):
        owe(counts, searched + 1)
    return SEEN if seen else NEW, searched


@inlined
def _needed(layout: CuckooLayout, used: Used, counts: Counts) -> int:
    """Return how many rows of the stash random keys may need: one for each key beyond capacity.

    Copies take cells from keys that come later, so with copies there is no bound.
    """
    held_now = counts[TAKEN] + used[COPIES]
    beyond = max(np.int64(0), counts[KEYS] - np.int64(layout.capacity))
    return int(held_now if held_now > counts[KEYS] else beyond)


@inlined
def _taken(
    words: Words,
    layout: CuckooLayout,
    stash: Rows,
    used: Used,
    counts: Counts,
    place: Place,
    a: np.uint64,
    b: np.uint64,
) -> bool:
    """Remove one copy of a row. Return whether there was one."""
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
    # A key counts as new once and as gone once. Keys with equal fingerprints and buckets may blur that, so
    # the number of keys is kept between 0 and the number of additions.
    keys = counts[KEYS] - (taken and not left)
    counts[KEYS] = max(0, min(keys, counts[TAKEN] + used[COPIES]))
    return bool(taken)
