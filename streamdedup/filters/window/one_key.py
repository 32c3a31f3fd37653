"""The methods of one key of a window, as builtins."""

from typing import Any

import numpy as np

from streamdedup.events import NO_TIMESTAMP
from streamdedup.filters.one_key import builtins
from streamdedup.filters.places import place_of
from streamdedup.filters.stash import NEW, NOT_DONE, ROWS, SEEN
from streamdedup.filters.window import rows
from streamdedup.filters.window.cells import layout_at
from streamdedup.filters.window.clock import EARLIEST, FRESH, LATEST, NEVER
from streamdedup.filters.window.placing import CURRENT, Table, in_cells, in_stash
from streamdedup.filters.window.table import WindowTable
from streamdedup.filters.window.window import Window
from streamdedup.interpreter import Address, counts_in, pairs_in, triples_in, words_in
from streamdedup.kernel import inlined

_WORDS, _FIELDS, _STASH, _USED, _QUEUE, _COUNTS, _STATE = range(0, 14, 2)  # as in a `Table`
_0 = np.uint64(0)


def _words(one: Window | WindowTable) -> tuple[Any, ...]:
    """Those of a window, or of a stage of one that grows."""
    table = one._table if isinstance(one, Window) else one
    if table._due or table.waits:
        return ()
    return table._table


@inlined
def _table(at: Address) -> Table:
    return Table(
        words_in(at, _WORDS),
        words_in(at, _FIELDS),
        triples_in(at, _STASH),
        counts_in(at, _USED),
        pairs_in(at, _QUEUE),
        counts_in(at, _COUNTS),
        counts_in(at, _STATE),
    )


@inlined
def _contains(at: Address, a: np.uint64, b: np.uint64) -> bool:
    table = _table(at)
    layout = layout_at(table.fields, table.state[CURRENT])
    place = place_of(a, b, layout)
    found = in_cells(table.words, layout, place)
    if found == NEVER:
        found = in_stash(table, layout, place)
    return bool(found != NEVER)


@inlined
def _add(at: Address, a: np.uint64, b: np.uint64, time: int) -> int:
    """While the stash is empty."""
    table = _table(at)
    if table.used[ROWS] != 0:
        return NOT_DONE
    words, fields, queue = table.words, table.fields, table.queue
    first, second = int(np.int64(a)), int(np.int64(b))
    flags = rows.add_row(words, fields, queue, table.counts, table.state, first, second, time)
    if flags == rows.LATER:
        return NOT_DONE
    return NEW if flags & FRESH != 0 else SEEN


@inlined
def _timed(at: Address, count: Any, time: int, elsewhere: bool) -> int:
    """Whether so many arguments fit: a time by time, none by count. A key of another stage may stay there."""
    state = counts_in(at, _STATE)
    clock, _, refresh = rows.rules_in(state)
    if clock.by_count:
        return NEW if count == np.uint64(1) else NOT_DONE
    if count != np.uint64(2) or not EARLIEST <= time <= LATEST or time == NO_TIMESTAMP:
        return NOT_DONE
    if not elsewhere:
        return NEW
    return SEEN if not refresh and time // clock.slot <= state[CURRENT] else NOT_DONE


BUILTINS = {"window": builtins("window", _words, _contains, _add, timed=_timed)}
