"""Single changes to a list: exact, digest -> added or removed, and they win over what the list's file says.

An `Overlay` never changes; `Changes` collects what comes from the control topic, and gives the overlay of it. What came
last is kept apart from the many, in which it is put now and then: so a change costs as little among many as among few.
"""

import numpy as np

from streamdedup.filters.exact.digest_map import EMPTY, DigestMap
from streamdedup.keys.hashing import Bytes, Digests

UNCHANGED, ADDED, REMOVED = 0, 1, 2
CHANGES_MAX = 10_000_000  # 260 MB, and twice as much again while they are merged
LATEST_MAX = 16_384  # digests, which a thread puts in order in 4 ms


class Overlay:
    """What is ADDED or REMOVED, by digest: `latest` says, of what it does not know `merged`."""

    def __init__(self, merged: DigestMap = EMPTY, latest: DigestMap = EMPTY) -> None:
        self._merged, self._latest = merged, latest
        before = np.count_nonzero(merged.look_up(EMPTY, latest.rows[:, :2]))
        after = np.count_nonzero(latest.rows[:, 2])
        self._len = len(merged.rows) - int(before) + int(after)

    def __len__(self) -> int:
        return self._len

    def look_up(self, digests: Digests) -> Bytes:
        """ADDED, REMOVED or UNCHANGED, shape (n,), dtype uint8, of `digests` (n, 2)."""
        return self._latest.look_up(self._merged, digests)


class Changes:
    """The last change of each key; `latest_max` are kept apart at most."""

    def __init__(self, latest_max: int = LATEST_MAX) -> None:
        self._latest_max = latest_max
        self._merged = EMPTY
        self._latest: dict[bytes, int] = {}
        self._overlay: Overlay | None = NO_CHANGES

    def more_than(self, most: int) -> bool:
        """Whether more than `most` digests are changed."""
        held_max = len(self._merged.rows) + len(self._latest)
        return held_max > most and len(self.overlay()) > most

    def apply(self, digests: Digests, change: int) -> None:
        """ADDED or REMOVED for each of `digests` (n, 2) from now on; UNCHANGED: as the list's file says again.

        Blocking, now and then for as long as it takes to copy all of them.
        """
        self._latest |= dict.fromkeys(map(bytes, digests), change)
        self._overlay = None
        if len(self._latest) >= self._latest_max:
            self._merged = DigestMap.of(self._latest).merged_into(self._merged)
            self._latest = {}

    def overlay(self) -> Overlay:
        """All of them, as they are now. Blocking, for some milliseconds."""
        if self._overlay is None:
            self._overlay = Overlay(self._merged, DigestMap.of(self._latest))
        return self._overlay


NO_CHANGES = Overlay()
