"""The kernels over keys in a window, in a batch or alone. They stop at a key that moves the current generation.

Besides the table, they take arrays: `fields` for the layout, `state` for time, `counts` for keys. Every further
argument would cost 40 ns when a single key is added.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdedup.filters.base import Mask, Times
from streamdedup.filters.digest_filter import KEYS
from streamdedup.filters.memory import Counts
from streamdedup.filters.packed_cells import NOWHERE
from streamdedup.filters.probes import high_word, partner
from streamdedup.filters.sizing import WINDOW_CELLS
from streamdedup.filters.stash import (
    COUNT,
    NEW,
    NOT_DONE,
    ROWS,
    SEEN,
    A,
    B,
    Rows,
    Used,
    stash_count,
    stash_put,
    stash_takes,
)
from streamdedup.filters.strain import COUNTS, STRAIN, STRAIN_MAX, charge, refuse, relieve
from streamdedup.filters.window.cells import (
    WindowLayout,
    fingerprint_of,
    first_free,
    free,
    generation_in,
    get,
    held_in,
    layout_at,
    put,
    tag_in,
    tag_of,
)
from streamdedup.filters.window.clock import (
    FRESH,
    NEVER,
    TAKEN,
    Clock,
    Generations,
    decided,
    moment,
)
from streamdedup.filters.window.rules import Rules
from streamdedup.filters.window.search import ask_for, make_room
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import Digests

State = npt.NDArray[np.int64]
# The elements of a state: the watermark, the current generation, then where the row leads that needs another one.
WATERMARK, CURRENT, REACHED, GENERATION = 0, 1, 2, 3
_RULES = 4  # from here on, the clock and what happens to late and to known keys
TAGS = COUNTS  # from this index on, `counts` has the number of keys of each tag
# How many buckets one call may search: a few ms, even if each is a cache miss.
SEARCHED_A_CALL = 1 << 15
ROWS_TOGETHER = 32
# A flag, besides those of `decided`: not added yet, because more than a free cell is needed.
LATER = 8

Place = tuple[np.uint64, np.uint64, np.uint64]
"""A digest's fingerprint and its two buckets."""

_100, _19, _1, _0 = np.uint64(100), np.uint64(19), np.uint64(1), np.uint64(0)


class Table(NamedTuple):
    """The arrays of a window. `stash` has rows of a fingerprint, the smaller bucket, and the tag plus one."""

    words: Words
    fields: Words
    stash: Rows
    used: Used
    queue: Words
    counts: Counts
    state: State


def state_of(rules: Rules, watermark: int, current: int) -> State:
    """The array that the kernels take besides the table."""
    parameters = *rules.clock, rules.late == "pass", rules.refresh
    return np.array([watermark, current, NEVER, 0, *parameters], dtype=np.int64)


@kernel
def add_rows(table: Table, digests: Digests, times: Times, start: int, fresh: Mask) -> int:
    """Judge and add rows, from `start` on. Returns the number of rows, or the first row that is not added.

    If that row is judged, but needs another generation first, the state holds the watermark to which the row leads
    (REACHED) and the row's generation (GENERATION). Otherwise REACHED is NEVER: the stash is full, the row is refused,
    or the call has searched so long that other threads should run.
    """
    state, (clock, late_passes, refresh) = table.state, _rules(table.state)
    layout, places = layout_at(table.fields, state[CURRENT]), _places()
    state[REACHED] = NEVER
    searched_in_all, rows = 0, digests.shape[0]
    for first in range(start, rows, ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, rows)
        _locate(table.words, layout, digests[first:stop], places)
        for row in range(first, stop):
            place = _place(places, row - first)
            time = moment(clock, state[WATERMARK], 0 if clock.by_count else times[row])
            cell, last = _found(table, layout, place)
            flags, ahead, reached, generation = decided(
                clock, state[WATERMARK], state[CURRENT], time, last, late_passes, refresh
            )
            fresh[row] = flags & FRESH != 0
            if state[WATERMARK] == NEVER or reached != state[CURRENT]:
                state[REACHED], state[GENERATION] = ahead, generation
                return row
            if flags & TAKEN:
                if searched_in_all > SEARCHED_A_CALL:
                    return row
                said, searched = _put(table, layout, place, cell, last, generation)
                if said == NOT_DONE:
                    return row
                searched_in_all += searched
            state[WATERMARK] = ahead
    return int(rows)


@kernel
def put_rows(table: Table, digests: Digests, generations: Generations, start: int) -> int:
    """Add rows to their generations, from `start` on. Returns the number of rows, or the first row that is not added.

    That is so if its generation is above the current one, or for one of the other reasons of `add_rows`. Generations
    that have left the window are skipped.
    """
    state = table.state
    layout, places = layout_at(table.fields, state[CURRENT]), _places()
    oldest = state[CURRENT] - np.int64(layout.generations) + 1
    searched_in_all, rows = 0, digests.shape[0]
    for first in range(start, rows, ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, rows)
        _locate(table.words, layout, digests[first:stop], places)
        for row in range(first, stop):
            if generations[row] > state[CURRENT] or searched_in_all > SEARCHED_A_CALL:
                return row
            if generations[row] < oldest:
                continue
            place = _place(places, row - first)
            cell, last = _found(table, layout, place)
            said, searched = _put(table, layout, place, cell, last, generations[row])
            if said == NOT_DONE:
                return row
            searched_in_all += searched
    return int(rows)


@kernel
def find_rows(table: Table, digests: Digests, found: Generations) -> None:
    """Write into `found` the generation in which each digest is, or NEVER."""
    layout, places = layout_at(table.fields, table.state[CURRENT]), _places()
    for first in range(0, digests.shape[0], ROWS_TOGETHER):
        stop = min(first + ROWS_TOGETHER, digests.shape[0])
        _locate(table.words, layout, digests[first:stop], places)
        for row in range(first, stop):
            found[row] = _found(table, layout, _place(places, row - first))[1]


@kernel
def add_row(
    words: Words, fields: Words, counts: Counts, state: State, a: int, b: int, time: int
) -> int:
    """Judge and add one key, while the stash is empty. Returns its flags, or LATER, and then nothing has changed."""
    clock, late_passes, refresh = _rules(state)
    layout, watermark = layout_at(fields, state[CURRENT]), state[WATERMARK]
    place = _place_of(np.uint64(a), np.uint64(b), layout)
    cell, last = _in_cells(words, layout, place)
    flags, ahead, reached, generation = decided(
        clock,
        watermark,
        state[CURRENT],
        moment(clock, watermark, time),
        last,
        late_passes,
        refresh,
    )
    if watermark == NEVER or reached != state[CURRENT]:
        return LATER
    if flags & TAKEN and not _fitted(words, layout, counts, place, cell, last, generation):
        return LATER
    state[WATERMARK] = ahead
    return flags


@kernel
def contains_row(words: Words, fields: Words, state: State, a: int, b: int) -> bool:
    """Whether a cell holds the digest. The stash is not searched."""
    layout = layout_at(fields, state[CURRENT])
    return bool(
        _in_cells(words, layout, _place_of(np.uint64(a), np.uint64(b), layout))[0] != NOWHERE
    )


@inlined
def _rules(state: State) -> tuple[Clock, bool, bool]:
    clock = Clock(state[_RULES], state[_RULES + 1], state[_RULES + 2], state[_RULES + 3] != 0)
    return clock, state[_RULES + 4] != 0, state[_RULES + 5] != 0


# --- the buckets of a row ---


@kernel
def _places() -> Words:
    """The memory into which `_locate` writes."""
    return np.empty((ROWS_TOGETHER, 3), np.uint64)


@inlined
def _locate(words: Words, layout: WindowLayout, digests: Digests, places: Words) -> None:
    """Write the place of each digest into `places`, and prefetch both of its buckets."""
    for row in range(digests.shape[0]):
        mark, one, other = _place_of(digests[row, 0], digests[row, 1], layout)
        places[row, 0], places[row, 1], places[row, 2] = mark, one, other
        ask_for(words, layout, one)
        ask_for(words, layout, other)


@inlined
def _place(places: Words, row: int) -> Place:
    return places[row, 0], places[row, 1], places[row, 2]


@inlined
def _place_of(a: np.uint64, b: np.uint64, layout: WindowLayout) -> Place:
    mark, one = fingerprint_of(b, layout), high_word(a, layout.buckets)
    return mark, one, partner(mark, one, layout.buckets)


# --- one row ---


@inlined
def _in_cells(words: Words, layout: WindowLayout, place: Place) -> tuple[np.uint64, int]:
    """The live cell of a row and its generation; NOWHERE and NEVER if there is none."""
    mark, one, other = place
    cell, last = held_in(words, layout, one, mark), NEVER
    if cell == NOWHERE:
        cell = held_in(words, layout, other, mark)
    if cell != NOWHERE:
        last = generation_in(get(words, layout, cell), layout)
    return cell, last


@inlined
def _found(table: Table, layout: WindowLayout, place: Place) -> tuple[np.uint64, int]:
    """`_in_cells`, and then in the stash, which has no cell."""
    cell, last = _in_cells(table.words, layout, place)
    if last == NEVER and table.used[ROWS] != 0:
        mark, one, other = place
        tag = stash_count(table.stash, mark, min(one, other))
        last = generation_in(tag - _1, layout) if tag != _0 else last
    return cell, last


@inlined
def _fitted(
    words: Words,
    layout: WindowLayout,
    counts: Counts,
    place: Place,
    cell: np.uint64,
    last: int,
    generation: int,
) -> bool:
    """Put a row into its own cell, if it has one, or into a free one. Returns False if there is none."""
    mark, one, other = place
    if cell != NOWHERE:
        if generation > last:
            put(words, layout, cell, mark << layout.tag_bits | tag_of(generation, layout))
            _moved(counts, layout, last, generation)
        return True
    # The choice of the emptier bucket delays the moment from which on searches are needed.
    emptier = one if free(words, layout, one) >= free(words, layout, other) else other
    spare = first_free(words, layout, emptier)
    if spare == NOWHERE:
        return False
    _overwrite(words, layout, counts, spare, get(words, layout, spare), mark, generation)
    relieve(counts)
    return True


@inlined
def _put(
    table: Table,
    layout: WindowLayout,
    place: Place,
    cell: np.uint64,
    last: int,
    generation: int,
) -> tuple[int, int]:
    """Put a row, found in `cell` and generation `last`, into a generation: into a cell, or into the stash.

    Returns SEEN or NEW, or NOT_DONE if the stash is full or the row is refused; and how many buckets were searched.
    """
    words, stash, counts = table.words, table.stash, table.counts
    mark, one, other = place
    if cell == NOWHERE and last != NEVER:
        if generation > last:
            stash_put(stash, table.used, mark, min(one, other), tag_of(generation, layout) + _1)
            _moved(counts, layout, last, generation)
        return SEEN, 0
    if _fitted(words, layout, counts, place, cell, last, generation):
        return SEEN if cell != NOWHERE else NEW, 0
    searched, held = 0, np.uint64(counts[KEYS])
    beyond = held > layout.capacity + layout.buckets // _19
    if held - np.uint64(table.used[ROWS]) < layout.searched:
        if not beyond and counts[STRAIN] > STRAIN_MAX:
            refuse(counts)
            return NOT_DONE, 0
        spare, old, searched = make_room(words, layout, table.queue, one, other)
        if spare != NOWHERE:
            _overwrite(words, layout, counts, spare, old, mark, generation)
            if not beyond:
                charge(counts, searched)
            return NEW, searched
    low = min(one, other)
    if not (
        stash_takes(stash, table.used, mark, low, _spare_rows(layout, counts), counts)
        and stash_put(stash, table.used, mark, low, tag_of(generation, layout) + _1)
    ):
        return NOT_DONE, searched
    _count(counts, layout, generation)
    if not beyond:
        charge(counts, searched)
    return NEW, searched


@inlined
def _spare_rows(layout: WindowLayout, counts: Counts) -> int:
    """How many rows the stash may have: 1 % of the capacity, and one for each key beyond it."""
    beyond = max(np.int64(0), counts[KEYS] - np.int64(layout.capacity))
    return int(np.int64(layout.capacity // _100) + beyond)


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


@kernel
def sweep(table: Table, start: int, stop: int, base: int) -> None:
    """Clear the cells of these buckets whose generation is no longer live.

    `base` is the generation that was current before: an age follows from a tag only up to there.
    """
    words, layout = table.words, layout_at(table.fields, base)
    oldest = table.state[CURRENT] - np.int64(layout.generations) + 1
    for at in range(start * WINDOW_CELLS, stop * WINDOW_CELLS):
        cell = np.uint64(at)
        content = get(words, layout, cell)
        if content != _0 and generation_in(content, layout) < oldest:
            put(words, layout, cell, _0)
            table.counts[TAGS + tag_in(content, layout)] -= 1


@kernel
def keep_rows(table: Table, rows: Rows, base: int) -> None:
    """Put those `rows` of a former stash into the stash whose generation is live; `base` is that of `sweep`."""
    layout = layout_at(table.fields, base)
    oldest = table.state[CURRENT] - np.int64(layout.generations) + 1
    for i in range(rows.shape[0]):
        number = rows[i, COUNT]
        if number == _0:
            continue
        if generation_in(number - _1, layout) >= oldest:
            stash_put(table.stash, table.used, rows[i, A], rows[i, B], number)
        else:
            table.counts[TAGS + tag_in(number - _1, layout)] -= 1


@kernel
def tally(table: Table, start: int, stop: int, age_max: int) -> bool:
    """Count the keys of each tag in these buckets. Returns False if a generation is older than `age_max`, or no key."""
    layout, right = layout_at(table.fields, table.state[CURRENT]), True
    for at in range(start * WINDOW_CELLS, stop * WINDOW_CELLS):
        content = get(table.words, layout, np.uint64(at))
        if content != _0:
            table.counts[TAGS + tag_in(content, layout)] += 1
            age = layout.current - generation_in(content, layout)
            right = bool(right and age <= age_max and content >> layout.tag_bits != _0)
    return right
