"""The time of a window, followed along its output row by row: an independent reading of docs/windows.md.

A key's generation is that of its own time. A row's reach is the generation of the window's time, or of the row's own
time if that is greater. A key is known if one of its generations is less than `generations` below the reach.

An event without a time has that of the window. Before the first time its generation is a number above all others, in
place of which a reader sets that of the first event with a time (`WindowTime.generations`).
"""

from collections.abc import Iterator

import numpy as np

from streamdedup.delivery.recipe import Recipe
from streamdedup.events import NO_TIMESTAMP, Integers
from streamdedup.filters.window.clock import NEVER, UNDATED, UNLIMITED, Clock, clipped
from streamdedup.filters.window.rules import rules_for


def clock_of(recipe: Recipe) -> Clock | None:
    """Return the clock of the windows that a worker of this recipe has; None if its filter does not forget."""
    options = recipe.settings.filter
    if options.kind != "window":
        return None
    return rules_for(
        recipe.shard_capacity,
        options.retention,
        options.generations,
        options.late,
        options.refresh,
        options.max_jump,
    ).clock


class WindowTime:
    """Follows the events of one output partition, in their order. `untimed` counts those without a time.

    If rows of several partitions are sorted together, their `number` differs.
    """

    def __init__(self, clock: Clock, number: int = 0) -> None:
        self._clock, self._undated = clock, UNDATED + number
        self._mark: int | None = None
        self.untimed = 0
        self.generations: dict[int, int] = {}
        """The generation of the events before the first time, by the number in its place, once it is known."""

    @property
    def generation(self) -> int | None:
        """The current generation; None before the first time."""
        return None if self._mark is None else self._mark // self._clock.slot

    def follow(self, times: Integers) -> tuple[Integers, Integers]:
        """Return generation and reach of the next events that have a key. `times` are theirs, in ms since 1970."""
        if self._clock.by_count:
            return self._counted(len(times))
        if not len(times):
            return times, times
        moments = np.clip(times, -clipped(1 << 63), clipped(1 << 63))
        marks = np.fromiter(self._marks(moments.tolist()), np.int64, len(moments))
        before = np.concatenate(([NEVER if self._mark is None else self._mark], marks[:-1]))
        self._mark = None if marks[-1] == NEVER else int(marks[-1])
        slot, timeless = self._clock.slot, times == NO_TIMESTAMP
        self.untimed += int(np.count_nonzero(timeless))
        moments[timeless] = before[timeless]
        reach, own = np.maximum(before, moments) // slot, np.minimum(moments, marks) // slot
        undated = marks == NEVER
        if before[0] == NEVER and not undated.all():
            self.generations[self._undated] = int(own[undated.argmin()])
        own[undated], reach[undated] = self._undated, -UNDATED
        return own, reach

    def _marks(self, moments: list[int]) -> Iterator[int]:
        """Yield the window's time after each event: the greatest so far. An event moves it by at most `max_jump`."""
        mark, jump = self._mark, self._clock.max_jump
        for moment in moments:
            if moment == NO_TIMESTAMP:
                pass
            elif mark is None:
                mark = moment
            elif moment > mark:
                mark = moment if jump == UNLIMITED else min(moment, mark + jump)
            yield NEVER if mark is None else mark

    def _counted(self, rows: int) -> tuple[Integers, Integers]:
        start = 0 if self._mark is None else self._mark + 1
        generations = np.arange(start, start + rows, dtype=np.int64) // self._clock.slot
        if rows:
            self._mark = start + rows - 1
        return generations, generations


class Latest:
    """The greatest time of the input so far. An event that is a whole window older may have been late."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._mark = clock, -clipped(1 << 63)

    def may_be_late(self, times: Integers) -> "np.typing.NDArray[np.bool_]":
        """Return which of the next events, in their order, may have come after their window."""
        if self._clock.by_count or not len(times):
            return np.zeros(len(times), dtype=np.bool_)
        timed = times != NO_TIMESTAMP
        moments = np.where(timed, times, -clipped(1 << 63))
        marks = np.maximum.accumulate(np.concatenate(([self._mark], moments)))
        self._mark = int(marks[-1])
        slot = self._clock.slot
        late = moments // slot <= marks[:-1] // slot - self._clock.generations
        return np.asarray(late & timed)
