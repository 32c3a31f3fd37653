"""The kernels over keys in a window, in a batch or alone. They stop at a key that moves the current generation.

Besides the table, they take arrays: `fields` for the layout, `state` for time, `counts` for keys, `queue` for a
search. Every further argument would cost 40 ns when a single key is added.
"""

import numpy as np

from streamdedup.filters.base import Mask, Times
from streamdedup.filters.memory import Counts
from streamdedup.filters.places import place_of, places_from, turn_of
from streamdedup.filters.stash import NOT_DONE
from streamdedup.filters.window.cells import layout_at
from streamdedup.filters.window.clock import (
    FRESH,
    NEVER,
    TAKEN,
    Clock,
    Generations,
    decided,
    moment,
)
from streamdedup.filters.window.placing import (
    CURRENT,
    GENERATION,
    REACHED,
    WATERMARK,
    State,
    Table,
    fitted,
    in_cells,
    in_stash,
    looked_up,
    moved_in,
    put_key,
    refuses,
    turn_to_add,
)
from streamdedup.filters.window.rules import Rules
from streamdedup.kernel import Words, inlined, kernel
from streamdedup.keys.hashing import Digests

_RULES = 4  # from this element of a state on, the clock and what happens to late and to known keys
# How many buckets one call may search: a few ms, even if each is a cache miss.
SEARCHED_A_CALL = 1 << 15
# A flag, besides those of `decided`: not added yet. The key needs another generation or the stash, or is refused.
LATER = 8


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
    state, (clock, late_passes, refresh) = table.state, rules_in(table.state)
    layout = layout_at(table.fields, state[CURRENT])
    state[REACHED] = NEVER
    searched_in_all, rows = 0, digests.shape[0]
    places = places_from(table.words, layout, digests, start)
    for row in range(start, rows):
        place = turn_to_add(table.words, layout, digests, row, places)
        time = moment(clock, state[WATERMARK], 0 if clock.by_count else times[row])
        spot, stashed = looked_up(table.words, layout, place), in_stash(table, layout, place)
        last = max(spot[1], stashed)
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
            said, searched = put_key(table, layout, place, spot, stashed, generation)
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
    layout = layout_at(table.fields, state[CURRENT])
    oldest = state[CURRENT] - np.int64(layout.generations) + 1
    searched_in_all, rows = 0, digests.shape[0]
    places = places_from(table.words, layout, digests, start)
    for row in range(start, rows):
        place = turn_to_add(table.words, layout, digests, row, places)
        if generations[row] > state[CURRENT] or searched_in_all > SEARCHED_A_CALL:
            return row
        if generations[row] < oldest:
            continue
        spot, stashed = looked_up(table.words, layout, place), in_stash(table, layout, place)
        said, searched = put_key(table, layout, place, spot, stashed, generations[row])
        if said == NOT_DONE:
            return row
        searched_in_all += searched
    return int(rows)


@kernel
def find_rows(table: Table, digests: Digests, found: Generations) -> None:
    """Write into `found` the generation in which each digest is, or NEVER."""
    layout = layout_at(table.fields, table.state[CURRENT])
    places = places_from(table.words, layout, digests, 0)
    for row in range(digests.shape[0]):
        place = turn_of(table.words, layout, digests, row, places)
        found[row] = in_cells(table.words, layout, place)
        if found[row] == NEVER:
            found[row] = in_stash(table, layout, place)


@inlined
def add_row(
    words: Words,
    fields: Words,
    queue: Words,
    counts: Counts,
    state: State,
    a: int,
    b: int,
    time: int,
) -> int:
    """Judge and add one key, while the stash is empty: to its own cell, a free one, or one that a search frees.

    Returns its flags, or LATER, and then nothing has changed.
    """
    clock, late_passes, refresh = rules_in(state)
    layout, watermark = layout_at(fields, state[CURRENT]), state[WATERMARK]
    place = place_of(np.uint64(a), np.uint64(b), layout)
    spot = looked_up(words, layout, place)
    flags, ahead, reached, generation = decided(
        clock,
        watermark,
        state[CURRENT],
        moment(clock, watermark, time),
        spot[1],
        late_passes,
        refresh,
    )
    if watermark == NEVER or reached != state[CURRENT]:
        return LATER
    if flags & TAKEN and not fitted(words, layout, counts, place[0], spot, generation):
        if refuses(layout, counts, 0):
            return LATER
        if not moved_in(words, layout, queue, counts, place, 0, generation)[0]:
            return LATER
    state[WATERMARK] = ahead
    return flags


@kernel
def contains_row(words: Words, fields: Words, state: State, a: int, b: int) -> bool:
    """Whether a cell holds the digest. The stash is not searched."""
    layout = layout_at(fields, state[CURRENT])
    return bool(in_cells(words, layout, place_of(np.uint64(a), np.uint64(b), layout)) != NEVER)


@inlined
def rules_in(state: State) -> tuple[Clock, bool, bool]:
    """The clock of a state, whether late keys pass, and whether a key that is found is renewed."""
    clock = Clock(state[_RULES], state[_RULES + 1], state[_RULES + 2], state[_RULES + 3] != 0)
    return clock, state[_RULES + 4] != 0, state[_RULES + 5] != 0
