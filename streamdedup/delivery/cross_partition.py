"""The watch for keys that come in two partitions: there each is new, and no filter can see the duplicate.

It keeps a sample of the digests that a worker's shards judge, one in 4,096 by the digest itself, so that all shards
sample the same keys; bounded, the oldest leave first.
"""

import numpy as np

from streamdedup.events import Verdict, Verdicts
from streamdedup.keys.hashing import Digests

SAMPLED = np.uint64(0xFFF)  # those whose low 12 bits are zero
KEPT_MAX = 1 << 16


class Watch:
    """One for all shards of a worker. No key and no digest leaves it, only counts of sampled events."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._partition_of: dict[bytes, int] = {}
        self.unseen = 0
        """Events that passed though another partition had the key before."""
        self.seen = 0
        """Events that were found to be duplicates."""

    @property
    def unseen_share(self) -> float:
        """The estimated share of all duplicates that cannot be seen; 0 where there is none."""
        duplicates = self.unseen + self.seen
        return self.unseen / duplicates if duplicates else 0.0

    def look(self, partition: int, digests: Digests, verdicts: Verdicts) -> None:
        """Take in what `partition` judged: digests (n, 2) and their verdicts (n,)."""
        for row in np.flatnonzero((digests[:, 0] & SAMPLED) == 0).tolist():
            if verdicts[row] == Verdict.DUPLICATE:
                self.seen += 1
            elif verdicts[row] == Verdict.PASS:
                self._passed(partition, digests[row].tobytes())

    def _passed(self, partition: int, digest: bytes) -> None:
        known = self._partition_of.pop(digest, partition)
        self.unseen += known != partition
        self._partition_of[digest] = partition
        if len(self._partition_of) > self._kept_max:
            del self._partition_of[next(iter(self._partition_of))]
