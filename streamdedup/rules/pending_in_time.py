"""Keys of a window that wait for their commit: the queue of `pending`, in which each digest has its generation.

A key may wait twice, in generations that are as far apart as the window is long; the index leads to the later one. Keys
that are undated (`filters.window.clock`) when they are judged keep this generation in the queue, so that they are put
as a fold puts them. Once the first timed event is judged, they are looked up and counted in its generation.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from streamdedup.events import NO_TIMESTAMP, Verdict, Verdicts
from streamdedup.filters.base import Times
from streamdedup.filters.digest_filter import CAPACITY_MAX, ROWS_A_CALL
from streamdedup.filters.memory import Counts
from streamdedup.filters.window.clock import (
    FRESH,
    LATE,
    NEVER,
    TAKEN,
    UNDATED,
    Clock,
    Generations,
    Marks,
    checked_times,
    decided,
    in_kernels,
    moment,
    or_none,
    untimed_after,
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
# The elements of `now`: the marks, the newest generation, the live keys and the late rows; the generation of undated
# keys, or UNDATED; how many the window and the queue have; and how many waited here when it got known, or -1.
WATERMARK, UNTIMED, CURRENT, LIVE, LATE_ROWS, DATED, HELD, WAITING, DATED_AT = range(9)


class Loads(NamedTuple):
    """What a window holds: its newest generation, the keys of each live one (G,), the oldest first, and a bound.

    No more than `most` keys may be live in it at once, with the `undated` ones.
    """

    current: int
    loads: Counts
    most: int
    undated: int


class PendingKeys(PendingDigests):
    """The keys that wait, each once in a generation.

    `late` is how many rows of the last `judge_in_time` were late. If that call judged the first timed event, `dated` is
    how many keys waited before it, and the generation to which undated keys move.
    """

    in_time = True

    def __init__(self, clock: Clock, rows: int = ROWS_MIN) -> None:
        self._clock = clock
        self.late = 0
        self.dated: tuple[int, int] | None = None
        super().__init__(rows)

    @override
    def clear(self) -> None:
        """Remove all keys."""
        super().clear()
        # The keys that wait in each live generation g, at g mod G; and the newest of these generations.
        self._loads: Counts = np.zeros(self._clock.generations, dtype=np.int64)
        self._current = self._clock.before_all
        # What UNDATED means by now, and how many of the keys are undated.
        self._dated, self._undated = UNDATED, 0

    def judge_in_time(
        self,
        digests: Digests,
        times: Times | None,
        found: Generations,
        marks: Marks,
        held: Loads | None,
        *,
        late_passes: bool,
        refresh: bool,
    ) -> tuple[Verdicts, Marks]:
        """The verdicts, shape (m,), of the first m of `digests` (n, 2), and the marks after them.

        `times` are those of the events, NO_TIMESTAMP for an event that has none. `found` (n,) are the generations in
        which the window has them, and is changed; `marks` are those of all that waits. Keys that pass wait from now on,
        and with `refresh` also known keys, once in each generation. m is less than n only if at row m more keys would
        be live than `held` permits; None permits any number.
        """
        digests, verdicts = checked(digests), np.empty(len(digests), dtype=np.uint8)
        moments = checked_times(self._clock, times, len(digests))
        self._make_room(len(digests))
        *older, newest = self._tables
        waited = sum(table.waiting for table in older)
        now, loads, most = self._begin(marks, held)
        done = 0
        for start in range(0, len(digests), ROWS_A_CALL):
            part = slice(start, min(start + ROWS_A_CALL, len(digests)))
            for table in older:
                _find_later(table, digests[part], found[part], now[DATED])
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
        self._current, self._undated = int(now[CURRENT]), int(now[WAITING])
        self.late, self._dated, self.dated = int(now[LATE_ROWS]), int(now[DATED]), None
        if now[DATED_AT] >= 0:
            self.dated = waited + int(now[DATED_AT]), self._dated
        return verdicts[:done], Marks(or_none(now[WATERMARK]), or_none(now[UNTIMED]))

    def room(self, marks: Marks, held: Loads) -> int:
        """How many more keys `held` permits, beside those that wait, at the marks of all that waits."""
        now, _, most = self._begin(marks, held)
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
        own = np.where(generations == UNDATED, self._dated, generations)
        self._undated -= int(np.count_nonzero(own == UNDATED))
        left = own[(own > self._current - self._clock.generations) & (own != UNDATED)]
        np.subtract.at(self._loads, left % self._clock.generations, 1)
        super().drop(rows)

    def _begin(self, marks: Marks, held: Loads | None) -> tuple[Now, Counts, int]:
        """The state for `_judge`, the window's keys of each live generation g, at g mod G, and the bound."""
        clock, loads, undated = self._clock, np.zeros_like(self._loads), 0
        count, watermark = clock.generations, marks.watermark
        current = clock.before_all if watermark is None else clock.generation(watermark)
        if held is not None:
            generations = np.arange(held.current - count + 1, held.current + 1)
            live = generations > current - count
            loads[generations[live] % count] = held.loads[live]
            if self._dated == UNDATED:
                undated = held.undated
            elif self._dated > current - count:
                loads[self._dated % count] += held.undated
        live_keys = loads.sum() + self._loads.sum() + undated + self._undated
        of_marks = map(in_kernels, marks)
        now = [*of_marks, current, live_keys, 0, self._dated, undated, self._undated, -1]
        most = CAPACITY_MAX if held is None else held.most
        return np.array(now, dtype=np.int64), loads, most


def warm_up(clock: Clock) -> None:
    """Compile, or load from the cache, the kernels of this module."""
    waiting, none, never = PendingKeys(clock, 1), np.full(1, NEVER), Marks(None, None)
    times = None if clock.by_count else np.zeros(1, dtype=np.int64)
    for word in range(2):  # the second digest needs another table
        digest = np.full((1, 2), word, dtype=np.uint64)
        waiting.judge_in_time(digest, times, none, never, None, late_passes=True, refresh=False)
    waiting.drop(1)


_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_PASS, _DUPLICATE = np.uint8(Verdict.PASS), np.uint8(Verdict.DUPLICATE)
_BLOCKED = np.uint8(Verdict.BLOCKED)


@kernel
def _find_later(table: PendingTable, digests: Digests, found: Generations, dated: int) -> None:
    """Raise `found` to the generation of each digest that waits here in a later one; UNDATED means `dated`."""
    words, tags = words_of(table.secret), np.empty(AHEAD, dtype=np.uint64)
    begin(words, table.slots, digests, tags)
    for i in range(digests.shape[0]):
        tag = next_of(words, table.slots, digests, tags, i)
        at = seek(table.slots, table.ring, tag, digests[i, 0], digests[i, 1])
        if table.slots[at] != _0:
            waits = table.generations[(table.slots[at] & _LOW) - _1]
            found[i] = _later(found[i], waits, dated)


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
            last = _later(last, table.generations[(slots[at] & _LOW) - _1], now[DATED])
        elif last == UNDATED:
            last = now[DATED]
        time = moment(clock, now[WATERMARK], 0 if clock.by_count else times[i])
        untimed = not clock.by_count and time == NO_TIMESTAMP
        flags, ahead, reached, generation = (
            _decided_untimed(clock, now, last, late_passes, refresh)
            if untimed
            else decided(clock, now[WATERMARK], now[CURRENT], time, last, late_passes, refresh)
        )
        waits = flags & TAKEN != 0 and last < generation
        moved = min(reached - now[CURRENT], clock.generations)
        if waits and now[LIVE] - _leaving(loads, waiting, now[CURRENT], moved) >= most:
            return i
        for step in range(moved):
            place = (now[CURRENT] + 1 + step) % clock.generations
            now[LIVE] -= loads[place] + waiting[place]
            loads[place], waiting[place] = 0, 0
        if not untimed and flags & (FRESH | TAKEN) != 0:
            if now[UNTIMED] == NEVER and not clock.by_count:
                now[DATED], now[DATED_AT] = generation, np.int64(state[COUNT])
                _date(clock, loads, waiting, now, generation > reached - clock.generations)
            now[UNTIMED] = untimed_after(clock, now[UNTIMED], now[WATERMARK], ahead, time)
        if waits:
            row = (state[FIRST] + state[COUNT]) & (np.uint64(ring.shape[0]) - _1)
            ring[row, 0], ring[row, 1], table.generations[row] = a, b, generation
            slots[at] = tag << _32 | (row + _1)
            state[COUNT] += _1
            if generation == UNDATED:
                now[WAITING] += 1
            else:
                waiting[generation % clock.generations] += 1
            now[LIVE] += 1
        now[WATERMARK], now[CURRENT] = ahead, reached
        now[LATE_ROWS] += flags & LATE != 0
        # A late event that does not pass is dropped: filter.late is `drop`.
        verdicts[i] = _PASS if flags & FRESH else _BLOCKED if flags & LATE else _DUPLICATE
    return int(digests.shape[0])


@inlined
def _later(one: int, other: int, dated: int) -> int:
    """The later of two generations, of which UNDATED means `dated`."""
    return max(dated if one == UNDATED else one, dated if other == UNDATED else other)


@inlined
def _decided_untimed(
    clock: Clock, now: Now, last: int, late_passes: bool, refresh: bool
) -> tuple[int, int, int, int]:
    """What `decided` returns, of a key without a time."""
    if now[UNTIMED] == NEVER:
        is_new = last <= now[CURRENT] - clock.generations
        return FRESH | TAKEN if is_new else 0, now[WATERMARK], now[CURRENT], UNDATED
    flags, ahead, reached, generation = decided(
        clock, now[WATERMARK], now[CURRENT], now[UNTIMED], last, late_passes, refresh
    )
    # If it is late, all timed events since a gap were. Then it passes, and is not remembered.
    return FRESH if flags & LATE != 0 else flags, ahead, reached, generation


@inlined
def _date(clock: Clock, loads: Counts, waiting: Counts, now: Now, live: bool) -> None:
    """Count all undated keys in their generation, if that is `live`; else no more."""
    if live:
        place = now[DATED] % clock.generations
        loads[place] += now[HELD]
        waiting[place] += now[WAITING]
    else:
        now[LIVE] -= now[HELD] + now[WAITING]
    now[HELD], now[WAITING] = 0, 0


@inlined
def _leaving(loads: Counts, waiting: Counts, current: int, moved: int) -> int:
    """The keys of the generations that are no longer live once so many others follow the `current` one."""
    count, keys = loads.shape[0], 0
    for step in range(moved):
        place = (current + 1 + step) % count
        keys += loads[place] + waiting[place]
    return keys
