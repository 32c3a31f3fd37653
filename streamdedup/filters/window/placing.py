"""Find the cell of a key in a window; and put a key there, into a free cell, one that a search frees, or the stash.

A key is in one place at most, in the newest generation to which it was put. Nothing is random, and nothing depends on a
batch: the same keys and generations, in the same order, give the same table.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdedup.filters.digest_filter import KEYS
from streamdedup.filters.memory import Counts
from streamdedup.filters.packed_cells import NOWHERE
from streamdedup.filters.places import ROWS_AHEAD, Place, place_at, turn_of
from streamdedup.filters.stash import (
    NEW,
    NOT_DONE,
    ROWS,
    SEEN,
    Rows,
    Used,
    stash_count,
    stash_put,
    stash_takes,
)
from streamdedup.filters.strain import COUNTS, STRAIN, STRAIN_MAX, charge, refuse, relieve
from streamdedup.filters.window.cells import (
    WindowLayout,
    first_cell,
    generation_in,
    get,
    held_in,
    look,
    put,
    tag_in,
    tag_of,
)
from streamdedup.filters.window.clock import NEVER
from streamdedup.filters.window.search import make_room, prefetch_around
from streamdedup.instructions import bits_set
from streamdedup.kernel import Words, inlined
from streamdedup.keys.hashing import Digests

TAGS = COUNTS  # from this index on, `counts` has the number of keys of each tag

State = npt.NDArray[np.int64]
# The elements of a state: the watermark, the current generation, then where the row leads that needs another one.
WATERMARK, CURRENT, REACHED, GENERATION = 0, 1, 2, 3

Spot = tuple[np.uint64, int, np.uint64]
"""The live cell of a digest and its generation, or NOWHERE and NEVER; and a free cell for it, or NOWHERE."""

_19, _1, _0 = np.uint64(19), np.uint64(1), np.uint64(0)


class Table(NamedTuple):
    """The arrays of a window. `stash` has rows of a fingerprint, the smaller bucket, and the tag plus one."""

    words: Words
    fields: Words
    stash: Rows
    used: Used
    queue: Words
    counts: Counts
    state: State


@inlined
def turn_to_add(
    words: Words, layout: WindowLayout, digests: Digests, row: int, places: Words
) -> Place:
    """The same as `turn_of`. Also prefetches what a search for the row ROWS_AHEAD / 2 later would look at first."""
    later = row + ROWS_AHEAD // 2
    if later < digests.shape[0]:
        _, one, other = place_at(places, later)
        prefetch_around(words, layout, one, other)
    return turn_of(words, layout, digests, row, places)


@inlined
def in_cells(words: Words, layout: WindowLayout, place: Place) -> int:
    """The generation of the live cell of a row; NEVER if there is none."""
    mark, one, other = place
    here, there = held_in(words, layout, one, mark), held_in(words, layout, other, mark)
    cell = _held(place, here, there)
    generation = generation_in(get(words, layout, cell), layout)
    return generation if (here | there) != _0 else NEVER


@inlined
def _held(place: Place, here: np.uint64, there: np.uint64) -> np.uint64:
    """The live cell of a row, of which `held_in` found a bit in one of its two buckets; any cell if in none.

    No branch: the processor would often guess it wrongly.
    """
    return first_cell(place[1] if here != _0 else place[2], here | there)


@inlined
def in_stash(table: Table, layout: WindowLayout, place: Place) -> int:
    """The generation of a row of the stash, or NEVER."""
    mark, one, other = place
    if table.used[ROWS] == 0:
        return NEVER
    number = stash_count(table.stash, mark, min(one, other))
    return generation_in(number - _1, layout) if number != _0 else NEVER


@inlined
def looked_up(words: Words, layout: WindowLayout, place: Place) -> Spot:
    """The live cell of a row and its generation, and the first free cell of the emptier of the two buckets.

    The choice of the emptier bucket delays the moment from which on searches are needed.
    """
    mark, one, other = place
    here, free_here = look(words, layout, one, mark)
    there, free_there = look(words, layout, other, mark)
    cell = _held(place, here, there)
    generation = generation_in(get(words, layout, cell), layout)
    found = (here | there) != _0
    in_one = bits_set(free_here) >= bits_set(free_there)
    spare = first_cell(one if in_one else other, free_here if in_one else free_there)
    return (
        cell if found else NOWHERE,
        generation if found else NEVER,
        spare if (free_here | free_there) != _0 else NOWHERE,
    )


@inlined
def fitted(
    words: Words, layout: WindowLayout, counts: Counts, mark: np.uint64, spot: Spot, generation: int
) -> bool:
    """Put a row into its own cell, if it has one, or into a free one. Returns False if there is none."""
    cell, last, spare = spot
    if cell != NOWHERE:
        if generation > last:
            put(words, layout, cell, mark << layout.tag_bits | tag_of(generation, layout))
            _moved(counts, layout, last, generation)
        return True
    if spare == NOWHERE:
        return False
    _overwrite(words, layout, counts, spare, get(words, layout, spare), mark, generation)
    relieve(counts)
    return True


@inlined
def put_key(
    table: Table, layout: WindowLayout, place: Place, spot: Spot, stashed: int, generation: int
) -> tuple[int, int]:
    """Put a row into a generation: into a cell, or into the stash, which has it in the generation `stashed`, or NEVER.

    Returns SEEN or NEW, or NOT_DONE if the stash is full or the row is refused; and how many buckets were searched.
    """
    words, stash, counts = table.words, table.stash, table.counts
    mark, one, other = place
    row = mark, min(one, other), tag_of(generation, layout) + _1
    if stashed != NEVER:
        if generation > stashed:
            stash_put(stash, table.used, *row)
            _moved(counts, layout, stashed, generation)
        return SEEN, 0
    if fitted(words, layout, counts, mark, spot, generation):
        return SEEN if spot[0] != NOWHERE else NEW, 0
    if refuses(layout, counts, table.used[ROWS]):
        refuse(counts)
        return NOT_DONE, 0
    is_in, searched = moved_in(
        words, layout, table.queue, counts, place, table.used[ROWS], generation
    )
    if is_in:
        return NEW, searched
    if not (
        stash_takes(stash, table.used, row[0], row[1], _beyond(layout, counts), counts)
        and stash_put(stash, table.used, *row)
    ):
        return NOT_DONE, searched
    if not _is_crowded(layout, counts):
        charge(counts, searched)
    _count(counts, layout, generation)
    return NEW, searched


@inlined
def refuses(layout: WindowLayout, counts: Counts, stash_rows: int) -> bool:
    """Whether a new key without a free cell is refused, since the keys before it took too long (`strain`).

    If too few cells are free for a search, `stash_takes` decides instead. `stash_rows` is how many keys the stash has.
    """
    return bool(
        _searches(layout, counts, stash_rows)
        and not _is_crowded(layout, counts)
        and counts[STRAIN] > STRAIN_MAX
    )


@inlined
def moved_in(
    words: Words,
    layout: WindowLayout,
    queue: Words,
    counts: Counts,
    place: Place,
    stash_rows: int,
    generation: int,
) -> tuple[bool, int]:
    """Put a new key into a cell that a search frees. Returns whether there was one, and how many buckets were searched.

    `stash_rows` is how many keys the stash has.
    """
    if not _searches(layout, counts, stash_rows):
        return False, 0
    mark, one, other = place
    cell, old, searched = make_room(words, layout, queue, one, other)
    if cell == NOWHERE:
        return False, searched
    if not _is_crowded(layout, counts):
        charge(counts, searched)
    _overwrite(words, layout, counts, cell, old, mark, generation)
    return True, searched


@inlined
def _searches(layout: WindowLayout, counts: Counts, stash_rows: int) -> bool:
    """Whether enough cells are free for a search."""
    return bool(np.uint64(counts[KEYS] - stash_rows) < layout.searched)


@inlined
def _is_crowded(layout: WindowLayout, counts: Counts) -> bool:
    """Whether there are so many keys that random ones take long, too. Then none is refused or charged.

    SEARCH_MAX still bounds each search.
    """
    return bool(np.uint64(counts[KEYS]) > layout.capacity + layout.buckets // _19)


@inlined
def _beyond(layout: WindowLayout, counts: Counts) -> int:
    """How many keys are beyond the capacity: as many rows of the stash as random keys may need."""
    return int(max(np.int64(0), counts[KEYS] - np.int64(layout.capacity)))


@inlined
def _overwrite(
    words: Words,
    layout: WindowLayout,
    counts: Counts,
    cell: np.uint64,
    old: np.uint64,
    mark: np.uint64,
    generation: int,
) -> None:
    """Put a new key into a cell. `old` is the content of the free cell that is gone: 0, or of a former generation."""
    if old != _0:
        counts[TAGS + tag_in(old, layout)] -= 1
    put(words, layout, cell, mark << layout.tag_bits | tag_of(generation, layout))
    _count(counts, layout, generation)


@inlined
def _count(counts: Counts, layout: WindowLayout, generation: int) -> None:
    counts[KEYS] += 1
    counts[TAGS + tag_in(tag_of(generation, layout), layout)] += 1


@inlined
def _moved(counts: Counts, layout: WindowLayout, last: int, generation: int) -> None:
    counts[TAGS + tag_in(tag_of(last, layout), layout)] -= 1
    counts[TAGS + tag_in(tag_of(generation, layout), layout)] += 1
