"""The time of a window, followed along its output row by row: an independent reading of docs/windows.md.

A key's generation is that of its own time. A row's reach is the generation of the window's time, or of the row's own
time if that is greater. A key is known if one of its generations is less than `generations` below the reach.
"""

from collections.abc import Iterator

import numpy as np

from streamdedup.delivery.recipe import Recipe
from streamdedup.events import Integers
from streamdedup.filters.window.clock import UNLIMITED, Clock, clipped
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
    """Follows the events of one output partition, in their order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mark: int | None = None

    def follow(self, times: Integers) -> tuple[Integers, Integers]:
        """Return generation and reach of the next events that have a key. `times` are theirs, in ms since 1970."""
        if self._clock.by_count:
            return self._counted(len(times))
        if not len(times):
            return times, times
        moments = np.clip(times, -clipped(1 << 63), clipped(1 << 63))
        marks = np.fromiter(self._marks(moments.tolist()), np.int64, len(moments))
        before = np.concatenate((marks[:1], marks[:-1]))
        if self._mark is not None:
            before[0] = self._mark
        self._mark = int(marks[-1])
        slot = self._clock.slot
        reach = np.maximum(before, moments) // slot
        return np.minimum(moments // slot, marks // slot), reach

    def _marks(self, moments: list[int]) -> Iterator[int]:
        """Yield the window's time after each event: the greatest so far. An event moves it by at most `max_jump`."""
        mark, jump = self._mark, self._clock.max_jump
        for moment in moments:
            if mark is None:
                mark = moment
            elif moment > mark:
                mark = moment if jump == UNLIMITED else min(moment, mark + jump)
            yield mark

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
        marks = np.maximum.accumulate(np.concatenate(([self._mark], times)))
        self._mark = int(marks[-1])
        slot = self._clock.slot
        return np.asarray(times // slot <= marks[:-1] // slot - self._clock.generations)
