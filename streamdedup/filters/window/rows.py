"""The kernels over keys in a window, in a batch or alone: they judge, and add as long as no rotation is needed.

What a kernel reads and returns, besides cells and counts, is in one array, the state: every further argument would cost
40 ns when a single key is added.
"""

import numpy as np
import numpy.typing as npt

from streamdedup.filters.base import Mask, Times
from streamdedup.filters.memory import Counts
from streamdedup.filters.window.clock import (
    FRESH,
    NEVER,
    TAKEN,
    Clock,
    bit_of,
    decided,
    generation_of,
    live_bits,
    moment,
)
from streamdedup.filters.window.ring import AHEAD, Cells, Sizes, ask_for, found_in, set_in
from streamdedup.filters.window.rules import Rules
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import Digests

State = npt.NDArray[np.int64]
WATERMARK, REACHED, GENERATION = 0, 1, 2  # the first elements of a state; rules and sizes follow
# A flag, besides those of `decided`: not added yet, because a new generation must begin first.
TURNS = 8

_0 = np.uint64(0)


def state_of(rules: Rules, sizes: Sizes, watermark: int | np.int64) -> State:
    """The array that the kernels take besides cells and counts."""
    parameters = *rules.clock, rules.late == "pass", rules.refresh
    return np.array([watermark, NEVER, 0, *parameters, *sizes], dtype=np.int64)


@kernel
def add_rows(
    cells: Cells,
    counts: Counts,
    state: State,
    digests: Digests,
    times: Times,
    start: int,
    fresh: Mask,
) -> int:
    """Judge and add rows, from `start` on. Returns the number of rows, or the first row that is not added.

    That row is judged, but needs a rotation first. The state then holds the watermark to which the row leads (REACHED)
    and the row's generation (GENERATION).
    """
    clock, sizes = _clock(state), _sizes(state)
    watermark = state[WATERMARK]
    current = watermark // clock.slot
    home, rows = current % clock.generations, digests.shape[0]
    for row in range(start, min(start + AHEAD, rows)):
        ask_for(cells, sizes, digests[row, 0], digests[row, 1])
    row, stays = start, True
    while row < rows and stays:
        if row + AHEAD < rows:
            ask_for(cells, sizes, digests[row + AHEAD, 0], digests[row + AHEAD, 1])
        a, b = digests[row, 0], digests[row, 1]
        time = moment(clock, watermark, 0 if clock.by_count else times[row])
        flags, ahead, reached, generation = _judged(
            cells, sizes, state, clock, watermark, current, time, a, b
        )
        fresh[row] = flags & FRESH != 0
        stays = watermark != NEVER and reached == current
        if not stays:
            state[REACHED], state[GENERATION] = ahead, generation
        else:
            watermark = ahead
            if flags & TAKEN:
                place = home if generation == current else generation % clock.generations
                set_in(cells, sizes, counts, place, a, b)
            row += 1
    state[WATERMARK] = watermark
    return row


@kernel
def add_row(cells: Cells, counts: Counts, state: State, a: int, b: int, time: int) -> int:
    """Judge and add one key. Returns its flags, with TURNS if it is not added yet."""
    clock, sizes = _clock(state), _sizes(state)
    x, y, watermark = np.uint64(a), np.uint64(b), state[WATERMARK]
    current = watermark // clock.slot
    flags, ahead, reached, generation = _judged(
        cells, sizes, state, clock, watermark, current, moment(clock, watermark, time), x, y
    )
    if watermark == NEVER or reached != current:
        state[REACHED], state[GENERATION] = ahead, generation
        return flags | TURNS
    state[WATERMARK] = ahead
    if flags & TAKEN:
        set_in(cells, sizes, counts, generation % clock.generations, x, y)
    return flags


@kernel
def contains_row(cells: Cells, state: State, a: int, b: int) -> bool:
    """Whether a live generation holds the digest."""
    return bool(found_in(cells, _sizes(state), np.uint64(a), np.uint64(b)) != _0)


@inlined
def _clock(state: State) -> Clock:
    return Clock(state[3], state[4], state[5], state[6] != 0)


@inlined
def _sizes(state: State) -> Sizes:
    return Sizes(np.uint64(state[9]), np.uint64(state[10]), state[11] != 0)


@inlined
def _judged(
    cells: Cells,
    sizes: Sizes,
    state: State,
    clock: Clock,
    watermark: int,
    current: int,
    time: int,
    a: np.uint64,
    b: np.uint64,
) -> tuple[int, int, int, int]:
    """Judge a digest: `decided`, with what the cells hold."""
    late_passes, refresh = state[7] != 0, state[8] != 0
    reach = generation_of(clock, max(watermark, time), current)
    found = found_in(cells, sizes, a, b)
    if found != _0 and reach != current:
        found &= live_bits(clock, current, reach)
    newest = found & bit_of(reach, clock.generations) != _0
    return decided(clock, watermark, current, time, found != _0, newest, late_passes, refresh)
