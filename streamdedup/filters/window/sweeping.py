"""Sweep what has left a window, so that its tags can come back; and count what a saved one holds."""

import numpy as np

from streamdedup.filters.sizing import WINDOW_CELLS
from streamdedup.filters.stash import COUNT, A, B, Rows, stash_put
from streamdedup.filters.window.cells import generation_in, get, layout_at, put, tag_in, tag_of
from streamdedup.filters.window.clock import Generations
from streamdedup.filters.window.placing import CURRENT, TAGS, Table
from streamdedup.kernel import kernel

_1, _0 = np.uint64(1), np.uint64(0)


def tags_of_rows(table: Table, tags: int) -> Generations:
    """The tag, below `tags`, of each row in use of a saved stash. Raises ValueError if no window can have one."""
    layout = layout_at(table.fields, table.state[CURRENT])
    rows = table.stash[table.stash[:, COUNT] != _0]
    found: Generations = rows[:, COUNT].astype(np.int64) - 1
    ages = (table.state[CURRENT] - found) & tags - 1
    if (
        (rows[:, A] == _0).any()
        or (rows[:, A] >> (layout.bits - layout.tag_bits)).any()
        or (rows[:, B] >= layout.buckets).any()
        or (found >= tags).any()
        or (ages >= np.int64(layout.generations)).any()
    ):
        raise ValueError("a row of the stash is not one that a window can have")
    return found


@kernel
def sweep(table: Table, start: int, stop: int, base: int, moved: int, to: int) -> None:
    """Clear the cells of these buckets whose generation is no longer live. Those of `moved` move `to` another before.

    `base` is the generation that was current before: an age follows from a tag only up to there.
    """
    words, layout = table.words, layout_at(table.fields, base)
    oldest = table.state[CURRENT] - np.int64(layout.generations) + 1
    for at in range(start * WINDOW_CELLS, stop * WINDOW_CELLS):
        cell = np.uint64(at)
        content = get(words, layout, cell)
        if content == _0:
            continue
        generation = generation_in(content, layout)
        if generation == moved and to >= oldest:
            put(
                words,
                layout,
                cell,
                content >> layout.tag_bits << layout.tag_bits | tag_of(to, layout),
            )
        elif generation == moved or generation < oldest:
            put(words, layout, cell, _0)
            table.counts[TAGS + tag_in(content, layout)] -= 1


@kernel
def keep_rows(table: Table, rows: Rows, base: int, moved: int, to: int) -> None:
    """Put those `rows` of a former stash into the stash whose generation is live; the others are those of `sweep`."""
    layout = layout_at(table.fields, base)
    oldest = table.state[CURRENT] - np.int64(layout.generations) + 1
    for i in range(rows.shape[0]):
        number = rows[i, COUNT]
        if number == _0:
            continue
        generation = generation_in(number - _1, layout)
        if generation == moved and to >= oldest:
            stash_put(table.stash, table.used, rows[i, A], rows[i, B], tag_of(to, layout) + _1)
        elif generation != moved and generation >= oldest:
            stash_put(table.stash, table.used, rows[i, A], rows[i, B], number)
        else:
            table.counts[TAGS + tag_in(number - _1, layout)] -= 1
        rows[i, COUNT] = _0  # done, if an interrupt has the caller call again


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
