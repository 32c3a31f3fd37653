"""A filter of the library watches its capacity: beyond it, the filter warns once, or stops, as `on_full` says."""

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, cast

import numpy as np
from typing_extensions import override

from streamdedup.errors import FilterFullError, FilterFullWarning
from streamdedup.filters.base import Filter, Growing, Times
from streamdedup.filters.digest_filter import one_row
from streamdedup.filters.kinds import GROWABLE
from streamdedup.keys.hashing import Digests
from streamdedup.library.locked import UNWATCHED, Locked, Method, both_alone

WARN, STOP, WARNED = "warn", "stop", "warned"
PACKAGE = f"{Path(__file__).parents[1]}"


class Watched(Locked):
    """What a filter has more if it watches its capacity."""

    _on_full: str  # WARN until it has warned, then WARNED; or STOP
    _on_full_at_first: str

    def _make_sure(self, rows: int, new: Callable[[int], bool]) -> None:
        """Before `rows` keys are added: raise FilterFullError, or warn, if too many of them are new.

        `new` returns whether those that are new fit into the room that it is given.
        """
        room = self._count_room()
        if rows <= room or new(room):
            return
        if self._on_full == STOP:
            raise _full(cast("Filter", self))
        self._warn()

    @override
    def _count_room(self) -> int:
        one: Any = self
        room: int = UNWATCHED
        if self._on_full != WARNED:
            room = one.room() if hasattr(one, "room") else one.capacity - len(one)
        self._room_left = max(0, room)
        return room

    def _warn(self) -> None:
        self._on_full, self._room_left = WARNED, UNWATCHED
        one = cast("Filter", self)
        text = (
            f"{_fullness(one)}; from here on it errs more often than its error_rate, {one.error_rate:g}, or takes more"
            f" memory; build it {_remedy(one)}"
        )
        warnings.warn(text, FilterFullWarning, stacklevel=_level_of_caller())


def adding_one(add: Method) -> Method:
    """Return `add` of one key, which then watches the capacity."""

    @wraps(add)
    def add_one(self: Any, key: Any, /) -> bool:
        if self._room_left < 1:
            self._make_sure(1, lambda room: room > 0 or key in self)
        new: bool = add(self, key)
        self._room_left -= new
        return new

    return add_one


def adding_timed(add: Method) -> Method:
    """Return `add` of a window, which then watches the capacity."""

    @wraps(add)
    def add_timed(self: Any, key: Any, /, time: int | None = None) -> bool:
        if self._room_left < 1:
            self._make_sure(1, lambda room: _fit(self, one_row(*self.hash.signed(key)), room, time))
        new: bool = add(self, key, time)
        self._room_left -= new
        return new

    return add_timed


def adding_many(add_many: Method) -> Method:
    """Return `add_many`, or `add_absent`, which then watches the capacity."""

    @wraps(add_many)
    def adding(self: Any, digests: Any, *times: Any, **named: Any) -> Any:
        with self._alone():
            rows = len(digests) if isinstance(digests, Sequence | np.ndarray) else 0
            if self._room_left < rows:
                self._make_sure(rows, lambda room: _fit(self, digests, room, *times, **named))
            room = self._room_left
            self._room_left = 0  # until it returns: it may add some, and raise
            fresh = add_many(self, digests, *times, **named)
            self._room_left = room - int(np.count_nonzero(fresh))
        return fresh

    return adding


def uniting(unite: Method) -> Method:
    """Return `|=`, which then holds both locks and watches the capacity."""

    @wraps(unite)
    def united(self: Any, other: Any) -> Any:
        with both_alone(self, other):
            if self._on_full == STOP:
                trial = self.__copy__()
                unite(trial, other)
                if len(trial) > self.capacity:
                    raise _full(self)
            unite(self, other)
            self._room_left = 0
            if self._on_full == WARN and len(self) > self.capacity:
                self._warn()
        return self

    return united


def meeting(meet: Method) -> Method:
    """Return `&=`, which then holds both locks."""

    @wraps(meet)
    def met(self: Any, other: Any) -> Any:
        with both_alone(self, other):
            meet(self, other)
            self._room_left = 0
        return self

    return met


def _fit(one: Any, digests: Digests, room: int, times: Times | int | None = None) -> bool:
    """Whether those of `digests` that are absent fit into the room; in a window, as time goes on with them.

    `one` is a filter of keys, of integers, or a window.
    """
    absent = np.flatnonzero(~one.contains_many(digests))
    _, first = np.unique(np.asarray(digests)[absent], axis=0, return_index=True)
    if times is None:  # which a window by time refuses itself
        return len(first) <= room or hasattr(one, "clock")
    from streamdedup.filters.window.clock import checked_time, given_times

    new, clock = absent[np.sort(first)], one.clock
    if not isinstance(times, np.ndarray):
        times = np.array([checked_time(clock, times)], dtype=np.int64)
    generations, _ = one.folded(given_times(clock, times, len(digests))[new])
    current, held, most = one.loads()
    reached = np.maximum.accumulate(np.maximum(generations, current))
    left = np.append(np.cumsum(held[::-1])[::-1], 0)  # once so many generations are forgotten
    rows = len(new)
    leaves = np.maximum(np.searchsorted(reached, generations + clock.generations), np.arange(rows))
    live = np.cumsum(1 - np.bincount(leaves, minlength=rows + 1)[:rows])
    return bool(np.all(left[np.minimum(reached - current, len(held))] + live <= most))


def _full(one: Filter) -> FilterFullError:
    return FilterFullError(f"{_fullness(one)}; nothing was added; build it {_remedy(one)}")


def _fullness(one: Filter) -> str:
    name = one.stages if isinstance(one, Growing) else f"kind {one.kind}"
    return (
        f"a filter of {name} is full: it holds {len(one):,} keys, and more are new than its capacity of"
        f" {one.capacity:,} has room for"
    )


def _remedy(one: Filter) -> str:
    if isinstance(one, Growing):
        return "with a greater max_size"
    grows = ", or with on_full: grow" if one.kind in GROWABLE else ""
    return f"with a greater capacity{grows}"


def _level_of_caller() -> int:
    """How many calls of this package lead here; a builtin among them counts for none."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
