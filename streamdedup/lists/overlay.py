"""Single changes to a list: exact, digest -> added or removed, and they win over what the list's file says.

An `Overlay` never changes; `Changes` collects what comes from the control topic, and gives the overlay of it.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from streamdedup.keys.hashing import Digests

ADDED, REMOVED, UNCHANGED = 1, -1, 0
CHANGES_MAX = 10_000_000  # some 1.5 GB; a list that changes so much is better built again

Told = npt.NDArray[np.int8]


class Overlay:
    """What is ADDED or REMOVED, by digest."""

    def __init__(self, changes: Mapping[bytes, int]) -> None:
        """Of 16 bytes each, as `Hash.digests` has them in memory, little-endian."""
        digests = np.frombuffer(b"".join(changes), dtype="<u8").reshape(-1, 2)
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        self._digests = digests[order]
        self._changes: Told = np.fromiter(changes.values(), np.int8, len(changes))[order]
        self._run = _longest_run(self._digests[:, 0])

    def __len__(self) -> int:
        return len(self._changes)

    def look_up(self, digests: Digests) -> Told:
        """ADDED, REMOVED or UNCHANGED, shape (n,), of `digests` (n, 2)."""
        told: Told = np.zeros(len(digests), dtype=np.int8)
        if not len(self):
            return told
        at = np.searchsorted(self._digests[:, 0], digests[:, 0])
        for step in range(self._run):
            rows = np.minimum(at + step, len(self) - 1)
            same = (self._digests[rows] == digests).all(axis=1)
            told[same] = self._changes[rows[same]]
        return told


class Changes:
    """The last change of each key."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, int] = {}
        self._overlay: Overlay | None = NO_CHANGES

    def __len__(self) -> int:
        return len(self._by_digest)

    def apply(self, digests: Digests, change: int) -> None:
        """ADDED or REMOVED for each of `digests` (n, 2) from now on; UNCHANGED: as the list's file says again."""
        for digest in digests:
            if change == UNCHANGED:
                self._by_digest.pop(digest.tobytes(), None)
            else:
                self._by_digest[digest.tobytes()] = change
        self._overlay = None

    def overlay(self) -> Overlay:
        """All of them, as they are now."""
        if self._overlay is None:
            self._overlay = Overlay(self._by_digest)
        return self._overlay


def _longest_run(ascending: npt.NDArray[np.uint64]) -> int:
    """How many equal numbers stand side by side, at most: one, but for hashes that somebody made so."""
    if not len(ascending):
        return 0
    starts = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1]))
    return int(np.diff(np.append(starts, len(ascending))).max())


NO_CHANGES = Overlay({})
