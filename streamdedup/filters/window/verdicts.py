"""Verdicts of a window before anything is added, from what it holds, what is pending, and the rows judged before.

Each row gets the verdict that `add_many` would give it, but nothing changes: the caller adds the keys later, or never.
For n rows and p pending ones this takes O(n + p) time.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamdedup.filters.base import Mask, Times
from streamdedup.filters.digest_filter import ROWS_A_CALL
from streamdedup.filters.window.clock import (
    FRESH,
    LATE,
    NEVER,
    TAKEN,
    Clock,
    Generations,
    Mark,
    bit_of,
    checked_times,
    decided,
    generation_of,
    live_bits,
    moment,
    watermark_or_none,
)
from streamdedup.filters.window.row_index import RowIndex, place, table_for
from streamdedup.kernel import Words, kernel
from streamdedup.keys.hashing import Digests, checked
from streamdedup.keys.multilinear import drawn_words, words_of


class PendingRows(NamedTuple):
    """Keys that were judged fresh, or were refreshed, but are not in the filter yet.

    Their `digests` have shape (p, 2), their `generations` (p,). `watermark` is the watermark after these rows. It is
    None if there was none before them and p is 0.
    """

    digests: Digests
    generations: Generations
    watermark: int | None


class WindowVerdicts(NamedTuple):
    """Verdicts, each of shape (n,), and the watermark after them."""

    fresh: Mask
    """The key passes, because it was absent. A late key passes only if `late` is "pass"."""
    late: Mask
    """The key is absent and older than the window: it must never be added."""
    generations: Generations
    """The generation of the key, if it is fresh and not late, or if it is refreshed."""
    watermark: int | None


NO_PENDING = PendingRows(np.empty((0, 2), dtype=np.uint64), np.empty(0, dtype=np.int64), None)


def judge(
    clock: Clock,
    watermark: int | None,
    masks: npt.NDArray[np.uint64],
    digests: Digests,
    times: Times | None,
    *,
    late_passes: bool,
    refresh: bool,
    pending: PendingRows = NO_PENDING,
) -> WindowVerdicts:
    """Judge `digests` as `Window.judge` describes.

    `masks` (n,) has, for each digest, the bits of the generations that hold it and are live at `watermark`.
    """
    rows, before = len(digests), len(pending.digests)
    moments = checked_times(clock, times, rows)
    together = checked(np.concatenate((pending.digests, digests)))
    generations = np.concatenate((pending.generations, np.zeros(rows, dtype=np.int64)))
    table, secret = table_for(len(together)), drawn_words()
    for start in range(0, before, ROWS_A_CALL):
        _enter(together, generations, table, secret, start, min(start + ROWS_A_CALL, before))
    held = NEVER if watermark is None else watermark
    mark = np.array(
        [held if pending.watermark is None else max(held, pending.watermark)], dtype=np.int64
    )
    judged = WindowVerdicts(
        np.zeros(rows, dtype=np.bool_), np.zeros(rows, dtype=np.bool_), generations, 0
    )
    for start in range(0, rows, ROWS_A_CALL):
        part = slice(start, start + ROWS_A_CALL)
        _judge(
            clock,
            held // clock.slot,
            late_passes,
            refresh,
            masks[part],
            moments[part],
            together,
            before + start,
            table,
            secret,
            generations,
            mark,
            judged.fresh[part],
            judged.late[part],
        )
    return judged._replace(generations=generations[before:], watermark=watermark_or_none(mark[0]))


_NONE = np.uint64(0)


@kernel
def _enter(
    digests: Digests,
    generations: Generations,
    table: RowIndex,
    secret: Words,
    start: int,
    stop: int,
) -> None:
    """Put pending rows into `table`. Of equal rows, the one with the newest generation stays."""
    words = words_of(secret)
    for row in range(start, stop):
        at = place(words, digests, table, row)
        if table[at] < 0 or generations[table[at]] < generations[row]:
            table[at] = row


@kernel
def _judge(
    clock: Clock,
    filled: int,
    late_passes: bool,
    refresh: bool,
    masks: npt.NDArray[np.uint64],
    times: Times,
    digests: Digests,
    first: int,
    table: RowIndex,
    secret: Words,
    generations: Generations,
    mark: Mark,
    fresh: Mask,
    late: Mask,
) -> None:
    watermark, words = mark[0], words_of(secret)
    current = watermark // clock.slot
    live = live_bits(clock, filled, current)
    for row in range(fresh.shape[0]):
        time = moment(clock, watermark, 0 if clock.by_count else times[row])
        reach = generation_of(clock, max(watermark, time), current)
        at = place(words, digests, table, first + row)
        last = generations[table[at]] if table[at] >= 0 else NEVER
        held = masks[row] & (live if reach == current else live_bits(clock, filled, reach))
        present = held != _NONE or last > reach - clock.generations
        newest = last == reach or held & bit_of(reach, clock.generations) != _NONE
        flags, watermark, reached, generation = decided(
            clock, watermark, current, time, present, newest, late_passes, refresh
        )
        fresh[row], late[row] = flags & FRESH != 0, flags & LATE != 0
        generations[first + row] = generation
        if flags & TAKEN and last < generation:
            table[at] = first + row
        if reached != current:
            current = reached
            live = live_bits(clock, filled, current)
    mark[0] = watermark
