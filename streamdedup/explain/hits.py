"""The events of the output that have a wanted key, by key: a bounded number of them."""

from typing import NamedTuple

import numpy as np

from streamdedup.events import Column, EventBatch, Integers
from streamdedup.explain.wanted import Found, Wanted

HITS_MAX = 1_000_000
HITS_A_KEY_MAX = 20

_HIT = np.dtype(
    [("key", np.uint32), ("partition", np.uint32), ("offset", np.int64), ("time_ms", np.int64)]
)


class Hit(NamedTuple):
    """An event of the output with a wanted key: its place, and its time in ms since 1970 (-1: none)."""

    partition: int
    offset: int
    time_ms: int


class Hits:
    """Keeps the first `HITS_A_KEY_MAX` events of each key, and `HITS_MAX` in all; `left_out` counts the others."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
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

    def of(self, key: int) -> list[Hit]:
        """Return the events of a usable key, by its place, in the order of partition and offset."""
        if self._sorted is None:
            held = self._all
            self._sorted = held[np.lexsort((held["offset"], held["partition"], held["key"]))]
            self._keys = np.ascontiguousarray(self._sorted["key"])
        same = self._wanted.first_of[key]
        start, stop = (int(self._keys.searchsorted(same, side)) for side in ("left", "right"))
        return [Hit(*hit[1:]) for hit in self._sorted[start:stop].tolist()]

    def keys(self, partition: int | None = None) -> Integers:
        """Return the keys, each by the first of equal ones, that have an event (in that partition)."""
        held = self._all
        its = held if partition is None else held[held["partition"] == partition]
        return its["key"].astype(np.int64)

    @property
    def _all(self) -> np.ndarray:
        return np.frombuffer(bytes(self._held), _HIT) if len(self._held) else np.empty(0, _HIT)

    def _keep(self, made: np.ndarray) -> None:
        fits = self._counts[made["key"]] + _ranks(made["key"]) < HITS_A_KEY_MAX
        fits[np.cumsum(fits) > HITS_MAX - len(self._held) // _HIT.itemsize] = False
        self.left_out += int(np.count_nonzero(~fits))
        kept = made[fits]
        np.add.at(self._counts, kept["key"], 1)
        if len(kept):
            self._sorted = None
            self._held += kept.tobytes()


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
