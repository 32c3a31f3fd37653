"""A watch for keys that appear in two partitions: each partition takes them for new, so no filter finds the duplicate.

The watch samples one in 4,096 of the digests that a worker's shards judge. The digest itself decides whether it is
sampled, so all shards sample the same keys. The sample is bounded; the oldest digests leave first.
"""

import numpy as np

from streamdedup.events import Verdict, Verdicts
from streamdedup.keys.hashing import Digests

SAMPLED = np.uint64(0xFFF)  # a digest is sampled if these bits of it, the low 12, are all zero
KEPT_MAX = 1 << 16


class Watch:
    """The watch, shared by all shards of a worker. It publishes only counts of sampled events, no key and no digest."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._partition_of: dict[bytes, int] = {}
        self.unseen = 0
        """How many sampled events passed although another partition had judged the same key before."""
        self.seen = 0
        """How many sampled events were found to be duplicates."""

    @property
    def unseen_share(self) -> float:
        """The estimated share of all duplicates that no filter can find; 0 if there are no duplicates."""
        duplicates = self.unseen + self.seen
        return self.unseen / duplicates if duplicates else 0.0

    def look(self, partition: int, digests: Digests, verdicts: Verdicts) -> None:
        """Count the sampled ones among the digests (n, 2) that `partition` judged, by their verdicts (n,)."""
        sampled = np.flatnonzero((digests[:, 0] & SAMPLED) == 0)
        said = verdicts[sampled]
        self.seen += int(np.count_nonzero(said == Verdict.DUPLICATE))
        for row in sampled[said == Verdict.PASS].tolist():
            self._passed(partition, digests[row].tobytes())

    def _passed(self, partition: int, digest: bytes) -> None:
        known = self._partition_of.pop(digest, partition)
        self.unseen += known != partition
        self._partition_of[digest] = partition
        if len(self._partition_of) > self._kept_max:
            del self._partition_of[next(iter(self._partition_of))]
