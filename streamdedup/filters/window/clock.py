"""Time in a window: the generation of a time, how the watermark moves, and which keys are late.

All of it follows from the times of the keys that were added, in their order: no clock is read. Times are ms since 1970.
By count, the time of a key is the number of keys added before it. Adding, judging and folding share the kernels.

A key of an event without a time (*untimed*) follows these rules, in a run and in a fold alike:

- Its time is the greatest time of the timed events that were emitted before it, as `max_jump` limits it. So it never
  moves the watermark, and is never late.
- After a gap in the output the watermark comes from a note, so it may be later than these events were. Then the
  watermark decides only what is late; an untimed key has the greatest time of the timed events since the gap. From
  there `max_jump` counts, too: what it limited must not be remembered for longer than before.
- Before the first of them a key is *undated*: it counts, is found, and is saved. At the row of that event all undated
  keys move to its generation. If it is late, they are forgotten.
"""

import operator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError
from streamdedup.events import NO_TIMESTAMP
from streamdedup.filters.base import Times
from streamdedup.filters.digest_filter import ROWS_A_CALL
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.encoding import named

Generations = npt.NDArray[np.int64]
Mark = npt.NDArray[np.int64]

GENERATIONS_MAX = 64
SPAN_MAX = 10**15  # the most for a slot or a jump, in ms: 31,700 years
TIME_MAX = 1 << 62  # times are limited to it, and to its negative, so that no sum overflows
EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_800_000  # years 1 to 9999, in ms since 1970
UNLIMITED = TIME_MAX - 1  # the `max_jump` of a clock without one
NEVER = -(1 << 63)  # in kernels, the watermark before the first key
ANCIENT_MS = 946_684_800_000  # the year 2000: an event with a time before it has probably got that by mistake
UNDATED = TIME_MAX + 1  # the generation of keys that wait for a first time; above all others
UNTIMED: Times = np.empty(0, dtype=np.int64)  # the times of keys by count
UNTIMED.flags.writeable = False

_MISFIT = {
    True: "this window goes by count, so it takes no times; leave them out, or set filter.retention",
    False: "this window goes by time; give the time of each key, in ms since 1970: f.add(key, time) or"
    " f.add_many(keys, times), since update takes none; or leave filter.retention out",
}


class Clock(NamedTuple):
    """`slot`: the width of a generation, in ms or keys; `generations`: how many are live; `max_jump`: in ms.

    The live generations are the newest ones, up to that of the watermark. The watermark is the greatest time of the
    keys that were added; one key moves it by at most `max_jump`.
    """

    slot: int
    generations: int
    max_jump: int
    by_count: bool

    @property
    def before_all(self) -> int:
        """A generation that is below that of every time: the current one before the first key."""
        return -TIME_MAX // self.slot - 1

    def generation(self, time: int) -> int:
        """floor(time / slot), for times before 1970 as well."""
        return clipped(time) // self.slot


class Marks(NamedTuple):
    """The watermark, and the time of untimed keys: None before the first timed key, or the first one since a gap."""

    watermark: int | None
    untimed: int | None


class Followed(NamedTuple):
    """The generations (n,) of keys that are all added, and the marks after them.

    If `dated` is not None, it is the first timed row, and its generation: all rows before it are UNDATED, as are the
    undated keys of the window, and all of them move to that generation before this row is added.
    """

    generations: Generations
    marks: Marks
    dated: tuple[int, int] | None


def clipped(time: int) -> int:
    """`time`, limited to TIME_MAX in both directions, so that no sum overflows."""
    return max(-TIME_MAX, min(TIME_MAX, time))


def checked_time(clock: Clock, time: int | None) -> int:
    """The time of one key as the kernels take it.

    Raises ConfigError if it does not fit the clock, is not an integer of ms within the years 1 to 9999, or is -1.
    """
    if (time is None) is not clock.by_count:
        raise ConfigError(_MISFIT[clock.by_count])
    try:
        moment = 0 if time is None else operator.index(time)
    except TypeError:
        raise ConfigError(
            f"a time is an integer of ms since 1970, not {named(time)}; for a datetime, give int(time.timestamp() *"
            " 1000)"
        ) from None
    if time == NO_TIMESTAMP or not EARLIEST <= moment <= LATEST:
        raise _no_time(moment)
    return moment


def given_times(clock: Clock, times: Times | None, rows: int) -> Times:
    """Check `times` as `checked_times` does, for a caller who may have taken another unit for ms.

    In addition, raises ConfigError if a time is beyond the years 1 to 9999, or is -1.
    """
    moments = checked_times(clock, times, rows)
    for time in (moments.min(), moments.max()) if len(moments) else ():
        if not EARLIEST <= time <= LATEST:
            raise _no_time(int(time))
        if time < 0 and np.any(moments == NO_TIMESTAMP):
            raise _no_time(NO_TIMESTAMP)
    return moments


def _no_time(time: int) -> ConfigError:
    if time == NO_TIMESTAMP:
        return ConfigError(
            f"a time of {time} is how Kafka says that an event has no timestamp, and not a time; give such a key the"
            " greatest time so far, which is the filter's watermark, or leave it out"
        )
    return ConfigError(
        f"a time of {time} is not ms since 1970: it lies outside of the years 1 to 9999; divide ns by 1,000,000,"
        " microseconds by 1,000"
    )


def checked_times(clock: Clock, times: Times | None, rows: int) -> Times:
    """`times` as the kernels take them, limited to TIME_MAX in both directions.

    Raises ConfigError if they do not fit the clock, or are not the times of `rows` keys.
    """
    if (times is None) is not clock.by_count:
        raise ConfigError(_MISFIT[clock.by_count])
    if times is None:
        return UNTIMED
    if not isinstance(times, np.ndarray):
        found, remedy = named(times), "give np.array(times, dtype=np.int64)"
    elif times.dtype.kind == "M":
        found, remedy = f"{times.dtype}", 'give times.astype("datetime64[ms]").astype(np.int64)'
    else:
        found, remedy = f"{times.dtype}, shape {times.shape}", "give one for each key"
    if not isinstance(times, np.ndarray) or times.dtype != np.int64 or times.shape != (rows,):
        raise ConfigError(
            f"times are int64 in ms since 1970, shape ({rows},), not {found}; {remedy}"
        )
    made = np.clip(np.ascontiguousarray(times), -TIME_MAX, TIME_MAX)
    made.flags.writeable = False
    return made


def followed(clock: Clock, marks: Marks, times: Times | int, no_time: int = NEVER) -> Followed:
    """Follow keys that are all added, from `marks` on. By count, `times` is their number; `no_time` is that of untimed.

    A late key gets a generation that is no longer live.
    """
    rows = times if isinstance(times, int) else len(times)
    moments = checked_times(clock, None if isinstance(times, int) else times, rows)
    generations = np.empty(rows, dtype=np.int64)
    now = np.array([*map(in_kernels, marks), -1], dtype=np.int64)
    dated = None
    for start in range(0, rows, ROWS_A_CALL):
        part = slice(start, start + ROWS_A_CALL)
        _follow(clock, moments[part], no_time, now, generations[part])
        if dated is None and now[2] >= 0:
            dated = start + int(now[2]), int(generations[start + now[2]])
    return Followed(generations, Marks(or_none(now[0]), or_none(now[1])), dated)


def untimed_and_ancient(times: Times) -> tuple[int, int]:
    """How many of these timestamps of events (n,) are none, and how many others lie before the year 2000."""
    ancient = times[times < ANCIENT_MS]
    untimed = int(np.count_nonzero(ancient == NO_TIMESTAMP))
    return untimed, len(ancient) - untimed


def in_kernels(time: int | None) -> int:
    """A watermark as kernels know it: NEVER in place of None."""
    return NEVER if time is None else time


def or_none(time: np.int64 | int) -> int | None:
    """A watermark as callers know it: None in place of NEVER."""
    return None if time == NEVER else int(time)


FRESH, LATE, TAKEN = 1, 2, 4  # flags of a verdict


@inlined
def moment(clock: Clock, watermark: int, time: int) -> int:
    """The time of a key: its own, or by count the one after the watermark."""
    counted = 0 if watermark == NEVER else watermark + 1
    return counted if clock.by_count else time


@inlined
def advanced(clock: Clock, watermark: int, time: int) -> int:
    """The watermark after a key with this time was added."""
    moved = max(watermark, min(time, watermark + clock.max_jump))
    return time if watermark == NEVER else moved


@inlined
def generation_of(clock: Clock, time: int, near: int) -> int:
    """floor(time / slot), for negative times as well.

    If the result is `near`, which it nearly always is, this does without the division, which takes long. The difference
    may overflow if `near` is the generation of NEVER; it is then below 0 or above any slot.
    """
    beyond = time - near * clock.slot
    return near if 0 <= beyond < clock.slot else time // clock.slot


@inlined
def decided(
    clock: Clock,
    watermark: int,
    current: int,
    time: int,
    last: int,
    late_passes: bool,
    refresh: bool,
) -> tuple[int, int, int, int]:
    """The flags of a key at its time, the watermark after it, the generation of that, and the key's own generation.

    `last` is the newest generation that holds the key, or NEVER. The key is present if that one is live at the key's
    own time, or at the watermark if that is later. So a key is new again once its window has passed, even if no other
    key came in that time. By count, a key of the current generation is not renewed, because only other keys let time
    pass.
    """
    own = generation_of(clock, time, current)
    reach = max(own, current)
    present = last > reach - clock.generations
    late = watermark != NEVER and own <= current - clock.generations
    renews = refresh and not (clock.by_count and last == reach)
    taken = not late and (renews or not present)
    fresh = not present and (late_passes or not late)
    ahead = advanced(clock, watermark, time) if taken else watermark
    reached = generation_of(clock, ahead, current) if taken else current
    flags = (
        (FRESH if fresh else 0) | (LATE if late and not present else 0) | (TAKEN if taken else 0)
    )
    return flags, ahead, reached, min(own, reached)


@inlined
def untimed_after(clock: Clock, untimed: int, before: int, ahead: int, time: int) -> int:
    """The time of untimed keys after an event with `time` was emitted, which moved the watermark from `before` on.

    `ahead` is the watermark after it. Without a gap, the time of untimed keys is the watermark.
    """
    return ahead if untimed == before else min(ahead, advanced(clock, untimed, time))


@kernel
def _follow(clock: Clock, times: Times, no_time: int, now: Mark, generations: Generations) -> None:
    """Follow rows. `now` has the watermark, the time of untimed keys, and the row from which on there is one, or -1."""
    watermark, untimed, now[2] = now[0], now[1], -1
    current = watermark // clock.slot
    for row in range(generations.shape[0]):
        time = moment(clock, watermark, 0 if clock.by_count else times[row])
        if time == no_time and not clock.by_count:
            generations[row] = UNDATED if untimed == NEVER else untimed // clock.slot
            continue
        _, ahead, current, own = decided(clock, watermark, current, time, NEVER, False, False)
        if untimed == NEVER and not clock.by_count:
            now[2] = row
        untimed = untimed_after(clock, untimed, watermark, ahead, time)
        watermark = ahead
        # After a gap the watermark is later than it was: `max_jump` limited the key to a time near `untimed`.
        generations[row] = own if untimed == ahead else min(own, untimed // clock.slot)
    now[0], now[1] = watermark, untimed
