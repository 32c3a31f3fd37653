"""Keys of a window that wait for their commit: the queue of `pending`, in which each digest has its generation.

A key may wait twice, in generations that are as far apart as the window is long; the index leads to the later one.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from streamdedup.events import Verdict, Verdicts
from streamdedup.filters.base import Times
from streamdedup.filters.digest_filter import CAPACITY_MAX, ROWS_A_CALL
from streamdedup.filters.memory import Counts
from streamdedup.filters.window.clock import (
    FRESH,
    LATE,
    NEVER,
    TAKEN,
    Clock,
    Generations,
    checked_times,
    decided,
    moment,
    watermark_or_none,
)
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import Digests, checked
from streamdedup.keys.multilinear import words_of
from streamdedup.rules.pending import (
    AHEAD,
    COUNT,
    FIRST,
    ROWS_MIN,
    PendingDigests,
    PendingTable,
    begin,
    next_of,
    seek,
)

Now = npt.NDArray[np.int64]
WATERMARK, CURRENT, LIVE, LATE_ROWS = 0, 1, 2, 3  # the elements of `now`


class Held(NamedTuple):
    """What a window holds: its newest generation, the keys of each live one (G,), the oldest first, and a bound.

    No more than `most` keys may be live in it at once.
    """

    current: int
    loads: Counts
    most: int


class PendingKeys(PendingDigests):
    """The keys that wait, each once in a generation. `late` is how many rows of the last `judge_in_time` were late."""

    in_time = True

    def __init__(self, clock: Clock, rows: int = ROWS_MIN) -> None:
        self._clock = clock
        self.late = 0
        super().__init__(rows)

    @override
    def clear(self) -> None:
        """Remove all keys."""
        super().clear()
        # The keys that wait in each live generation g, at g mod G; and the newest of these generations.
        self._loads: Counts = np.zeros(self._clock.generations, dtype=np.int64)
        self._current = self._clock.before_all

    def judge_in_time(
        self,
        digests: Digests,
        times: Times | None,
        found: Generations,
        watermark: int | None,
        held: Held | None,
        *,
        late_passes: bool,
        refresh: bool,
    ) -> tuple[Verdicts, int | None]:
        """The verdicts, shape (m,), of the first m of `digests` (n, 2), and the watermark after them.

        `found` (n,) are the generations in which the window has them, and is changed; `watermark` is that of all that
        waits. Keys that pass wait from now on, and with `refresh` also known keys, once in each generation. m is less
        than n only if at row m more keys would be live than `held` permits; None permits any number.
        """
        digests, verdicts = checked(digests), np.empty(len(digests), dtype=np.uint8)
        moments = checked_times(self._clock, times, len(digests))
        self._make_room(len(digests))
        *older, newest = self._tables
        now, loads, most = self._begin(watermark, held)
        done = 0
        for start in range(0, len(digests), ROWS_A_CALL):
            part = slice(start, min(start + ROWS_A_CALL, len(digests)))
            for table in older:
                _find_later(table, digests[part], found[part])
            done += _judge(
                newest,
                self._clock,
                late_passes,
                refresh,
                most,
                digests[part],
                moments[part],
                found[part],
                loads,
                self._loads,
                now,
                verdicts[part],
            )
            if done < part.stop:
                break
        self._current, self.late = int(now[CURRENT]), int(now[LATE_ROWS])
        return verdicts[:done], watermark_or_none(now[WATERMARK])

    def room(self, watermark: int | None, held: Held) -> int:
        """How many more keys `held` permits, beside those that wait, at the watermark of all that waits."""
        now, _, most = self._begin(watermark, held)
        return most - int(now[LIVE])

    def first_in_time(self, rows: int) -> tuple[Digests, Generations]:
        """What `first` returns, and the generations of these digests."""
        digests, table = self.first(rows), self._tables[0]
        start = int(table.state[FIRST])
        return digests, table.generations[start : start + len(digests)]

    @override
    def drop(self, rows: int) -> None:
        """Remove the `rows` digests that have waited longest. One call of `first` must have returned all of them."""
        _, generations = self.first_in_time(rows)
        left = generations[generations > self._current - self._clock.generations]
        np.subtract.at(self._loads, left % self._clock.generations, 1)
        super().drop(rows)

    def _begin(self, watermark: int | None, held: Held | None) -> tuple[Now, Counts, int]:
        """The state for `_judge`, the window's keys of each live generation g, at g mod G, and the bound."""
        count, loads = self._clock.generations, np.zeros_like(self._loads)
        current = self._clock.before_all if watermark is None else self._clock.generation(watermark)
        if held is not None:
            generations = np.arange(held.current - count + 1, held.current + 1)
            live = generations > current - count
            loads[generations[live] % count] = held.loads[live]
        mark = NEVER if watermark is None else watermark
        live_keys = loads.sum() + self._loads.sum()
        now = np.array([mark, current, live_keys, 0], dtype=np.int64)
        return now, loads, CAPACITY_MAX if held is None else held.most


def warm_up(clock: Clock) -> None:
    """Compile, or load from the cache, the kernels of this module."""
    waiting, none = PendingKeys(clock, 1), np.full(1, NEVER)
    times = None if clock.by_count else np.zeros(1, dtype=np.int64)
    for word in range(2):  # the second digest needs another table
        digest = np.full((1, 2), word, dtype=np.uint64)
        waiting.judge_in_time(digest, times, none, None, None, late_passes=True, refresh=False)
    waiting.drop(1)


_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_PASS, _DUPLICATE = np.uint8(Verdict.PASS), np.uint8(Verdict.DUPLICATE)
_BLOCKED = np.uint8(Verdict.BLOCKED)


@kernel
def _find_later(table: PendingTable, digests: Digests, found: Generations) -> None:
    """Raise `found` to the generation of each digest that waits here in a later one."""
    words, tags = words_of(table.secret), np.empty(AHEAD, dtype=np.uint64)
    begin(words, table.slots, digests, tags)
    for i in range(digests.shape[0]):
        tag = next_of(words, table.slots, digests, tags, i)
        at = seek(table.slots, table.ring, tag, digests[i, 0], digests[i, 1])
        if table.slots[at] != _0:
            found[i] = max(found[i], table.generations[(table.slots[at] & _LOW) - _1])


@kernel
def _judge(
    table: PendingTable,
    clock: Clock,
    late_passes: bool,
    refresh: bool,
    most: int,
    digests: Digests,
    times: Times,
    found: Generations,
    loads: Counts,
    waiting: Counts,
    now: Now,
    verdicts: Verdicts,
) -> int:
    """Judge rows; what passes waits. Returns how many rows were judged before more than `most` keys were live.

    `loads` and `waiting` are the keys of each live generation in the window and in the queue.
    """
    slots, ring, state = table.slots, table.ring, table.state
    words, tags = words_of(table.secret), np.empty(AHEAD, dtype=np.uint64)
    begin(words, slots, digests, tags)
    for i in range(digests.shape[0]):
        tag = next_of(words, slots, digests, tags, i)
        a, b = digests[i, 0], digests[i, 1]
        at, last = seek(slots, ring, tag, a, b), found[i]
        if slots[at] != _0:
            last = max(last, table.generations[(slots[at] & _LOW) - _1])
        time = moment(clock, now[WATERMARK], 0 if clock.by_count else times[i])
        flags, ahead, reached, generation = decided(
            clock, now[WATERMARK], now[CURRENT], time, last, late_passes, refresh
        )
        waits = flags & TAKEN != 0 and last < generation
        moved = min(reached - now[CURRENT], clock.generations)
        if waits and now[LIVE] - _leaving(loads, waiting, now[CURRENT], moved) >= most:
            return i
        for step in range(moved):
            place = (now[CURRENT] + 1 + step) % clock.generations
            now[LIVE] -= loads[place] + waiting[place]
            loads[place], waiting[place] = 0, 0
        if waits:
            row = (state[FIRST] + state[COUNT]) & (np.uint64(ring.shape[0]) - _1)
            ring[row, 0], ring[row, 1], table.generations[row] = a, b, generation
            slots[at] = tag << _32 | (row + _1)
            state[COUNT] += _1
            waiting[generation % clock.generations] += 1
            now[LIVE] += 1
        now[WATERMARK], now[CURRENT] = ahead, reached
        now[LATE_ROWS] += flags & LATE != 0
        # A late event that does not pass is dropped: filter.late is `drop`.
        verdicts[i] = _PASS if flags & FRESH else _BLOCKED if flags & LATE else _DUPLICATE
    return int(digests.shape[0])


@inlined
def _leaving(loads: Counts, waiting: Counts, current: int, moved: int) -> int:
    """The keys of the generations that are no longer live once so many others follow the `current` one."""
    count, keys = loads.shape[0], 0
    for step in range(moved):
        place = (current + 1 + step) % count
        keys += loads[place] + waiting[place]
    return keys
