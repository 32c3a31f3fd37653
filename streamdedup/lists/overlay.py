"""Single changes to a list, exact: digest -> added or removed. They win over the list's file.

An `Overlay` never changes. `Changes` collects the messages of the control topic and makes overlays. The latest changes
are kept apart from the many older ones, and are merged into them now and then; so a change costs as little among many
as among few.
"""

from collections.abc import Sequence

import numpy as np

from streamdedup.filters.exact.digest_map import EMPTY, DigestMap
from streamdedup.keys.hashing import Bytes, Digests

UNCHANGED, ADDED, REMOVED = 0, 1, 2
CHANGES_MAX = 10_000_000  # 260 MB, and another 520 MB while they are merged
LATEST_MAX = 16_384  # a thread sorts this many digests in 4 ms


class Overlay:
    """Which digests are ADDED or REMOVED. `latest` wins over `merged`."""

    def __init__(self, merged: DigestMap = EMPTY, latest: DigestMap = EMPTY) -> None:
        self._merged, self._latest = merged, latest
        before = np.count_nonzero(merged.look_up(EMPTY, latest.rows[:, :2]))
        after = np.count_nonzero(latest.rows[:, 2])
        self._len = len(merged.rows) - int(before) + int(after)

    def __len__(self) -> int:
        return self._len

    def look_up(self, digests: Digests) -> Bytes:
        """Return ADDED, REMOVED or UNCHANGED for each of `digests` (n, 2): shape (n,), dtype uint8."""
        return self._latest.look_up(self._merged, digests)


class Changes:
    """The last change of each key; from `latest_max` on, those that are kept apart from the rest are `ripe`."""

    def __init__(self, latest_max: int = LATEST_MAX) -> None:
        self._latest_max = latest_max
        self._merged = EMPTY
        self._latest: dict[bytes, int] = {}
        self._overlay: Overlay | None = NO_CHANGES

    def more_than(self, most: int) -> bool:
        """Return whether more than `most` digests are changed."""
        held_max = len(self._merged.rows) + len(self._latest)
        return held_max > most and len(self.overlay()) > most

    def apply(self, digests: Digests, changes: Sequence[int]) -> None:
        """Mark each of `digests` (n, 2), by `changes`, as ADDED or REMOVED, or UNCHANGED: then the list's file decides.

        Of equal digests the last one counts.
        """
        self._latest |= zip(map(bytes, digests), changes, strict=True)
        self._overlay = None

    @property
    def ripe(self) -> bool:
        """Whether so many changes are kept apart that they should be merged."""
        return len(self._latest) >= self._latest_max

    def merge(self) -> None:
        """Merge the latest changes into the rest. Blocking, for as long as copying all changes takes."""
        self._merged = DigestMap.of(self._latest).merged_into(self._merged)
        self._latest, self._overlay = {}, None

    def overlay(self) -> Overlay:
        """Return all changes up to now. Blocking, for some milliseconds, or as `merge` does."""
        if self.ripe:
            self.merge()
        if self._overlay is None:
            self._overlay = Overlay(self._merged, DigestMap.of(self._latest))
        return self._overlay


NO_CHANGES = Overlay()
