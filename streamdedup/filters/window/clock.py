"""Time in a window: the generation of a time, how the watermark moves, and which keys are late.

All of it follows from the times of the keys that were added, in their order: no clock is read. Times are ms since 1970.
By count, the time of a key is the number of keys added before it. Adding, judging and folding share the kernels.
"""

import operator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError
from streamdedup.filters.base import Times
from streamdedup.filters.digest_filter import ROWS_A_CALL
from streamdedup.kernel import inlined, kernel
from streamdedup.keys.hashing import named

Generations = npt.NDArray[np.int64]
Mark = npt.NDArray[np.int64]

GENERATIONS_MAX = 64
SPAN_MAX = 10**15  # the most for a slot or a jump, in ms: 31,700 years
TIME_MAX = 1 << 62  # times are limited to it, and to its negative, so that no sum overflows
EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_800_000  # years 1 to 9999, in ms since 1970
UNLIMITED = TIME_MAX - 1  # the `max_jump` of a clock without one
NEVER = -(1 << 63)  # in kernels, the watermark before the first key
UNTIMED: Times = np.empty(0, dtype=np.int64)  # the times of keys by count
UNTIMED.flags.writeable = False

_MISFIT = {
    True: "this window goes by count, so it takes no times; leave them out, or set filter.retention",
    False: "this window goes by time; give the time of each key, in ms since 1970, or leave filter.retention out",
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


def clipped(time: int) -> int:
    """`time`, limited to TIME_MAX in both directions, so that no sum overflows."""
    return max(-TIME_MAX, min(TIME_MAX, time))


def checked_time(clock: Clock, time: int | None) -> int:
    """The time of one key as the kernels take it.

    Raises ConfigError if it does not fit the clock, or is not an integer of ms within the years 1 to 9999.
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
    if not EARLIEST <= moment <= LATEST:
        raise _no_ms(moment)
    return moment


def given_times(clock: Clock, times: Times | None, rows: int) -> Times:
    """Check `times` as `checked_times` does, for a caller who may have taken another unit for ms.

    In addition, raises ConfigError if a time is beyond the years 1 to 9999.
    """
    moments = checked_times(clock, times, rows)
    for time in (moments.min(), moments.max()) if len(moments) else ():
        if not EARLIEST <= time <= LATEST:
            raise _no_ms(int(time))
    return moments


def _no_ms(time: int) -> ConfigError:
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


def folded(
    clock: Clock, watermark: int | None, times: Times | int
) -> tuple[Generations, int | None]:
    """Compute what `Window.folded` describes, beginning at `watermark`."""
    rows = times if isinstance(times, int) else len(times)
    moments = checked_times(clock, None if isinstance(times, int) else times, rows)
    generations = np.empty(rows, dtype=np.int64)
    mark = np.array([NEVER if watermark is None else watermark], dtype=np.int64)
    for start in range(0, rows, ROWS_A_CALL):
        part = slice(start, start + ROWS_A_CALL)
        _fold(clock, moments[part], mark, generations[part])
    return generations, watermark_or_none(mark[0])


def watermark_or_none(watermark: np.int64 | int) -> int | None:
    """The watermark as callers know it: None in place of NEVER."""
    return None if watermark == NEVER else int(watermark)


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
    reached = generation_of(clock, ahead, current)
    flags = (
        (FRESH if fresh else 0) | (LATE if late and not present else 0) | (TAKEN if taken else 0)
    )
    return flags, ahead, reached, min(own, reached)


@kernel
def _fold(clock: Clock, times: Times, mark: Mark, generations: Generations) -> None:
    watermark = mark[0]
    current = watermark // clock.slot
    for row in range(generations.shape[0]):
        time = moment(clock, watermark, 0 if clock.by_count else times[row])
        _, watermark, current, generations[row] = decided(
            clock, watermark, current, time, NEVER, False, False
        )
    mark[0] = watermark
