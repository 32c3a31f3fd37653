"""Keys that are in several partitions: of all emitted keys, if asked for, and else of a sample.

Each partition's filter takes such a key for new. All emitted keys are compared as one partition's are: sorted by digest
in bounded memory. A window by time may emit a key again after it has forgotten it, so there only those events are
doubled whose times are less than the window apart. A window by count knows no time, so it is not known which are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdedup.commands.audit.match import EXAMPLES_MAX, group_numbers, pieces
from streamdedup.commands.audit.rows import (
    EMITTED,
    OFFSET_BITS,
    ROW,
    TIMED_ROW,
    Rows,
    Sorter,
    unpacked,
)
from streamdedup.delivery.cross_partition import REMEDY, Evidence, Watch
from streamdedup.filters.base import Mask
from streamdedup.filters.window.clock import Clock
from streamdedup.units import counted


@dataclass(frozen=True, kw_only=True)
class Across:
    """What was found across partitions. `whole` says that all emitted keys were compared, and not only a sample.

    `keys` were compared, and `in_several` of these are in several partitions. `unseen_share` is the estimated share of
    all duplicates that passed for this reason. `doubled` counts the events whose key another partition had emitted, and
    `places` are the first of these, by partition and offset; `doubled` is None if it is not known.
    """

    whole: bool
    keys: int
    in_several: int
    unseen_share: float
    is_evident: bool
    doubled: int | None = None
    places: tuple[tuple[int, int], ...] = ()

    @property
    def text(self) -> str:
        """The findings in words."""
        which = "in the output" if self.whole else "of a sample"
        compared = f"{counted(self.keys, 'key')} {which}, of which {self.in_several:,} in several partitions"
        return f"{compared}: {self.evidence}; {REMEDY}" if self.evidence else compared

    @property
    def evidence(self) -> str | None:
        """That events of one key come in several partitions, in words; None if that was not seen."""
        return (
            Evidence(self.keys, self.in_several, self.unseen_share).text
            if self.is_evident
            else None
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON values; names are stable."""
        return {
            "compared": "all" if self.whole else "sample",
            "keys": self.keys,
            "keys_in_several_partitions": self.in_several,
            "share_of_duplicates": self.unseen_share,
            "evidence": self.is_evident,
            "doubled": self.doubled,
            "first": [{"partition": at, "offset": offset} for at, offset in self.places],
        }


def sampled(watch: Watch) -> Across:
    """Return what `watch` saw while the topics were read."""
    evidence = watch.evidence
    return Across(
        whole=False,
        keys=watch.kept,
        in_several=evidence.keys_in_several if evidence else 0,
        unseen_share=watch.unseen_share,
        is_evident=evidence is not None,
    )


class EmittedKeys:
    """Takes the emitted keys of one partition after the other, and compares them, in `size_bytes` of memory.

    The caller closes its `sorter`.
    """

    def __init__(self, clock: Clock | None, *, size_bytes: int) -> None:
        self._is_known = clock is None or not clock.by_count
        self._generations = clock.generations if clock and self._is_known else None
        self._by_time = self._generations is not None
        self.sorter = Sorter(timed=self._by_time, size_bytes=size_bytes)

    def add(self, partition: int, parts: Iterable[Rows]) -> None:
        """Take the sorted rows of a partition."""
        for part in parts:
            for rows in pieces([part]):
                emitted = rows[rows["kind"] == EMITTED]
                if not self._by_time:  # each key once
                    of = group_numbers(emitted)
                    emitted = emitted[np.flatnonzero(np.diff(of, prepend=-1))]
                self.sorter.add(self._placed(partition, emitted))

    def compared(self, watch: Watch) -> Across:
        """Return what was found. `watch` saw the same events, and those of the input."""
        keys = in_several = doubled = 0
        places = list[int]()
        for rows in pieces(self.sorter.parts()):
            of = group_numbers(rows)
            keys += int(of[-1]) + 1 if len(of) else 0
            if self._generations is not None:
                several, again = _within_a_window(rows, self._generations)
                in_several += several
            else:
                again = rows["count"] > 1
                in_several += int(np.count_nonzero(again))
            doubled += int(np.where(again, rows["count"] - self._firsts, 0).sum())
            places = sorted([*places, *np.sort(rows["last"][again])[:EXAMPLES_MAX].tolist()])
            del places[EXAMPLES_MAX:]
        return Across(
            whole=True,
            keys=keys,
            in_several=in_several,
            unseen_share=watch.unseen_share,
            is_evident=in_several > 0 or watch.evidence is not None,
            doubled=doubled if self._is_known else None,
            places=tuple(map(unpacked, places)) if self._is_known else (),
        )

    @property
    def _firsts(self) -> int:
        """How many of the events that a row stands for are the first ones of their key."""
        return 0 if self._by_time else 1

    def _placed(self, partition: int, emitted: Rows) -> Rows:
        made: Rows = np.zeros(len(emitted), dtype=TIMED_ROW if self._by_time else ROW)
        for name in ("high", "low", *(("generation",) if self._by_time else ())):
            made[name] = emitted[name]
        made["first"] = made["last"] = emitted["first"] | partition << OFFSET_BITS
        made["count"], made["kind"] = 1, EMITTED
        return made


def _within_a_window(rows: Rows, generations: int) -> tuple[int, Mask]:
    """Return how many keys are in several partitions, and which rows follow one of another within the window."""
    of, partition = group_numbers(rows), rows["first"] >> OFFSET_BITS
    several = len(np.unique(of[1:][(of[1:] == of[:-1]) & (partition[1:] != partition[:-1])]))
    order = np.lexsort((rows["first"], rows["generation"], of))
    of, partition, generation = of[order], partition[order], rows["generation"][order]
    begins = np.ones(len(rows), dtype=np.bool_)  # a run of rows of one key in one partition
    begins[1:] = (of[1:] != of[:-1]) | (partition[1:] != partition[:-1])
    before = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0)) - 1
    again = (before >= 0) & (of[before] == of)
    again &= generation[before] > generation - generations
    found = np.zeros(len(rows), dtype=np.bool_)
    found[order] = again
    return several, found
