"""A watch for keys that appear in two partitions: each partition takes them for new, so no filter finds the duplicate.

The watch samples one in 4,096 of the keys that a worker's shards judge. The key itself decides whether it is sampled,
so all shards sample the same keys. Each shard has a hash of its own, so the watch compares sampled keys by the digests
of a hash that they share. The sample is bounded; the oldest digests leave first.
"""

from streamdedup.events import Column, Verdict, Verdicts
from streamdedup.keys.hashing import MURMUR3, Hash
from streamdedup.keys.sampling import sampled

KEPT_MAX = 1 << 16
ROWS_MAX = 64  # sampled of a batch: more would be keys that somebody chose for it


class Watch:
    """The watch, shared by all shards of a worker. It publishes only counts of sampled events, no key and no digest.

    `hash` makes the digests by which it compares keys. It may be set until the first look.
    """

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self.hash: Hash = MURMUR3
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

    def look(self, partition: int, keys: Column, verdicts: Verdicts) -> None:
        """Count the sampled ones among the `keys` (n,) that `partition` judged, by their verdicts (n,)."""
        rows = sampled(keys, ROWS_MAX)
        if not len(rows):
            return
        digests = self.hash.of_column(keys.take(rows))
        for digest, verdict in zip(digests, verdicts[rows].tolist(), strict=True):
            if verdict == Verdict.DUPLICATE:
                self.seen += 1
            elif verdict == Verdict.PASS:
                self._passed(partition, digest.tobytes())

    def _passed(self, partition: int, digest: bytes) -> None:
        known = self._partition_of.pop(digest, partition)
        self.unseen += known != partition
        self._partition_of[digest] = partition
        if len(self._partition_of) > self._kept_max:
            del self._partition_of[next(iter(self._partition_of))]
