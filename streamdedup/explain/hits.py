"""The events of the output that have a wanted key, by key: a bounded number of them."""

from typing import NamedTuple

import numpy as np

from streamdedup.events import Column, EventBatch, Integers
from streamdedup.explain.wanted import Wanted

HITS_MAX = 1_000_000
HITS_A_KEY_MAX = 20

_HIT = np.dtype(
    [
        ("key", np.uint32),
        ("partition", np.uint32),
        ("offset", np.int64),
        ("time_ms", np.int64),
        ("generation", np.int64),
    ]
)
NO_GENERATION = np.iinfo(np.int64).min


class Hit(NamedTuple):
    """An event of the output with a wanted key: its place, and its time in ms since 1970 (-1: none).

    `generation` is that of its key in a window, NO_GENERATION if it was not followed.
    """

    partition: int
    offset: int
    time_ms: int
    generation: int


class Hits:
    """Keeps the first `HITS_A_KEY_MAX` events of each key, and `HITS_MAX` in all; `left_out` counts the others."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._parts: list[np.ndarray] = []
        self._counts = np.zeros(len(wanted), dtype=np.uint8)
        self._held = 0
        self.left_out = 0

    def add(
        self, batch: EventBatch, keys: Column, rows: Integers, generations: Integers | None = None
    ) -> Integers:
        """Look at the events of `rows` of a batch; return the places of the wanted keys among them.

        `generations` are those of `rows`.
        """
        found = self._wanted.find(keys, rows)
        if not len(found.rows):
            return found.keys
        made = np.empty(len(found.rows), _HIT)
        made["key"], made["partition"] = found.keys, batch.partition
        made["offset"], made["time_ms"] = batch.offsets[found.rows], batch.timestamps[found.rows]
        made["generation"] = NO_GENERATION
        if generations is not None:
            made["generation"] = generations[rows.searchsorted(found.rows)]
        self._keep(made)
        return found.keys

    def take(self, other: "Hits") -> None:
        """Add what another one holds."""
        for part in other._parts:
            self._keep(part)
        self.left_out += other.left_out

    def of(self, key: int) -> list[Hit]:
        """Return the events of a usable key, by its place, in the order of partition and offset."""
        same = int(self._wanted.first_of[key])
        found = [hit for part in self._parts for hit in part[part["key"] == same].tolist()]
        return sorted(Hit(*hit[1:]) for hit in found)

    def keys(self, partition: int | None = None) -> Integers:
        """Return the keys, each by the first of equal ones, that have an event (in that partition)."""
        parts = [
            part["key"] if partition is None else part["key"][part["partition"] == partition]
            for part in self._parts
        ]
        return np.unique(np.concatenate([np.zeros(0, np.uint32), *parts])).astype(np.int64)

    def by_key(self) -> dict[int, list[Hit]]:
        """Return all events by key, of which equal keys share the first."""
        found = dict[int, list[Hit]]()
        for part in self._parts:
            for hit in part.tolist():
                found.setdefault(hit[0], []).append(Hit(*hit[1:]))
        return found

    def _keep(self, made: np.ndarray) -> None:
        fits = self._counts[made["key"]] + _ranks(made["key"]) < HITS_A_KEY_MAX
        fits[np.cumsum(fits) > HITS_MAX - self._held] = False
        self.left_out += int(np.count_nonzero(~fits))
        kept = made[fits]
        np.add.at(self._counts, kept["key"], 1)
        np.minimum(self._counts, HITS_A_KEY_MAX, out=self._counts)
        self._held += len(kept)
        if len(kept):
            self._parts.append(kept)


def _ranks(keys: "np.typing.NDArray[np.uint32]") -> Integers:
    """Return how many equal keys stand before each, (n,)."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.arange(len(keys)) - np.repeat(starts, np.diff([*starts, len(keys)]))
    return ranks
