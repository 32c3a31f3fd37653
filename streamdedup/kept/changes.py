"""What a log has of the changes of a filter: which of them it needs, as which rows, and how they are made again.

A replay is exact: a change of a set is logged if it changed the set. What counts additions, or moves a window on, logs
each. So whatever is true of the filter when it is saved, the log leads from there to what it was.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamdedup.filters.base import Addable, Times
from streamdedup.kept.log import ADDED, CLEARED, REMOVED, Rows
from streamdedup.keys.hashing import Digests
from streamdedup.rules.duplicates import adder


class Timed(NamedTuple):
    """A key that waits to be logged, of a window by time, with its time in ms."""

    key: Any
    time: int


class Change(NamedTuple):
    """What waits to be logged beside single keys: what was done, with which rows, shape (n, words)."""

    what: int
    rows: Rows


class Changes:
    """Makes rows of the keys of `filter_`, and plays rows to it."""

    def __init__(self, filter_: Addable) -> None:
        one: Any = filter_
        in_window = hasattr(one, "clock")
        self.timed = in_window and not one.clock.by_count
        self.needs_all = in_window or getattr(one, "multiset", False)
        self._integers = hasattr(one, "range")
        self._signed = self._integers and one.range[0] < 0
        self.words = (1 if self._integers else 2) + self.timed
        self._digests = one.digests
        self._play: dict[int, Callable[..., object]] = {
            ADDED: one.add_many if self.needs_all else adder(one),
            REMOVED: getattr(one, "remove_many", _cannot),
            CLEARED: getattr(one, "clear", _cannot),
        }

    def of_keys(self, keys: Sequence[Any]) -> Rows:
        """The rows of keys that were added one by one; of a window by time, they are `Timed`."""
        if not self.timed:
            return self.of(self._digests(keys))
        times = np.array([each.time for each in keys], dtype=np.int64)
        return self.of(self._digests([each.key for each in keys]), times)

    def of(self, digests: Digests, times: Times | None = None) -> Rows:
        """The rows of `digests`, (n, 2), or of the integers of a range, (n,), each with its time if there are times."""
        rows = digests.astype(np.uint64, copy=False)
        rows = rows.reshape(len(rows), self.words - self.timed)
        if times is None:
            return rows
        return np.column_stack([rows, times.view(np.uint64)])

    def play(self, what: int, rows: Rows) -> None:
        """Do to the filter what was done. ValueError or FilterFullError: the log is of another filter."""
        play = self._play[what]
        if what == CLEARED:
            play()
        elif self.timed:
            play(rows[:, :-1], rows[:, -1].view(np.int64))
        elif self._integers:
            play(rows[:, 0].astype(np.int64) if self._signed else rows[:, 0])
        else:
            play(rows)


def _cannot(*_rows: object) -> None:
    raise ValueError("its log has changes that a filter of this kind cannot make")
