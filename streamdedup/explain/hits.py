"""The events of the output that have a wanted key, by key: a bounded number of them."""

from typing import NamedTuple

import numpy as np

from streamdedup.events import Column, EventBatch, Integers
from streamdedup.explain.wanted import Found, Wanted

HITS_MAX = 1_000_000
NEWEST_MAX = 250_000  # to give up old ones takes five times the memory of what is held
HITS_A_KEY_MAX = 20
CROWDED_MIN = 1 << 14

_HIT = np.dtype(
    [("key", np.uint32), ("partition", np.uint32), ("offset", np.int64), ("time_ms", np.int64)]
)


class Hit(NamedTuple):
    """An event of the output with a wanted key: its place, and its time in ms since 1970 (-1: none)."""

    partition: int
    offset: int
    time_ms: int


class Hits:
    """Keeps the first `HITS_A_KEY_MAX` events of each key, and `HITS_MAX` in all; `left_out` counts the others.

    With `newest`, for filters that forget, it keeps the last events of each key, and `NEWEST_MAX` in all. `seen` says
    of each usable key, by the first of equal ones, whether it has an event, kept or not.
    """

    def __init__(self, wanted: Wanted, *, newest: bool = False) -> None:
        self._wanted, self._newest = wanted, newest
        self._crowded = CROWDED_MIN  # so many are held, with `newest`, before old ones are given up
        self.seen = np.zeros(len(wanted), dtype=np.bool_)
        self._held = bytearray()
        self._counts = np.zeros(len(wanted), dtype=np.uint8)
        self._sorted: np.ndarray | None = None  # what is held, by key, partition and offset
        self._keys = np.zeros(0, dtype=np.uint32)  # of the same
        self.left_out = 0

    def add(self, batch: EventBatch, keys: Column, rows: Integers) -> Found:
        """Keep the events of `rows` of a batch that have a wanted key; return which these are."""
        found = self._wanted.find(keys, rows)
        if not len(found.rows):
            return found
        made = np.empty(len(found.rows), _HIT)
        made["key"], made["partition"] = found.keys, batch.partition
        made["offset"], made["time_ms"] = batch.offsets[found.rows], batch.timestamps[found.rows]
        self._keep(made)
        return found

    def take(self, other: "Hits") -> None:
        """Add what another one holds."""
        self._keep(other._all)
        self.left_out += other.left_out
        self.seen |= other.seen

    def of(self, key: int) -> list[Hit]:
        """Return the events of a usable key, by its place, in the order of partition and offset."""
        if self._sorted is None:
            self._give_up()
            held = self._all
            self._sorted = held[np.lexsort((held["offset"], held["partition"], held["key"]))]
            self._keys = np.ascontiguousarray(self._sorted["key"])
        same = self._wanted.first_of[key]
        start, stop = (int(self._keys.searchsorted(same, side)) for side in ("left", "right"))
        return [Hit(*hit[1:]) for hit in self._sorted[start:stop].tolist()]

    @property
    def _all(self) -> np.ndarray:
        return np.frombuffer(bytes(self._held), _HIT) if len(self._held) else np.empty(0, _HIT)

    def _keep(self, made: np.ndarray) -> None:
        self.seen[made["key"]] = True
        if self._newest:
            self._sorted = None
            self._held += made.tobytes()
            if len(self._held) // _HIT.itemsize > self._crowded:
                self._give_up()
            return
        fits = self._counts[made["key"]] + _ranks(made["key"]) < HITS_A_KEY_MAX
        fits[np.cumsum(fits) > HITS_MAX - len(self._held) // _HIT.itemsize] = False
        self.left_out += int(np.count_nonzero(~fits))
        kept = made[fits]
        np.add.at(self._counts, kept["key"], 1)
        if len(kept):
            self._sorted = None
            self._held += kept.tobytes()

    def _give_up(self) -> None:
        """Keep the last events of each key alone."""
        if not self._newest:
            return
        held = self._all
        order = np.lexsort((-held["offset"], held["key"]))  # the last of each key first
        ranks = _ranks(held["key"][order])
        kept = order[np.argsort(ranks, kind="stable")[: np.count_nonzero(ranks < HITS_A_KEY_MAX)]]
        kept = kept[:NEWEST_MAX]
        self.left_out += len(held) - len(kept)
        self._held = bytearray(held[kept].tobytes())
        self._crowded = max(CROWDED_MIN, len(kept) * 3 // 2)  # so this is done seldom


def _ranks(keys: "np.typing.NDArray[np.uint32]") -> Integers:
    """Return how many equal keys stand before each, (n,)."""
    if not len(keys):
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.arange(len(keys)) - np.repeat(starts, np.diff([*starts, len(keys)]))
    return ranks
