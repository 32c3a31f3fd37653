"""A watch for keys that come in several partitions: each takes them for new, so no filter finds the duplicate.

The watch samples the keys that a worker's shards judge: all of them at first, and a smaller share the more keys there
are, in bounded memory and time (`keys/sampling.py`). Each shard has a hash of its own, so the watch compares keys by
the digests of a hash that they share. It looks at the record keys, too: they are why a producer takes a partition.
"""

from dataclasses import dataclass

import numpy as np

from streamdedup.events import Column, Verdict, Verdicts
from streamdedup.keys.hashing import MURMUR3, Hash
from streamdedup.keys.options import KeyOptions
from streamdedup.keys.sampling import AGAIN, ELSEWHERE, KEPT_MAX, Places, Sample

REMEDY = (
    "set source.repartition, with a new kafka.group_id and a new output, or have the producer choose the partition by"
    " the key alone (docs/partitioning.md)"
)
GROWN_MUCH = 0.1  # of the share of all duplicates
SHOWN_MIN = 0.001  # the least share that has a digit in a text
SUSPICIOUS = 0.01  # the share of events without a record key that cannot be a few odd ones


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence that keys came in several partitions: `keys` were compared, and `keys_in_several` of them did.

    `unseen_share` is the estimated share of all duplicates that pass for this reason.
    """

    keys: int
    keys_in_several: int
    unseen_share: float

    def has_grown_since(self, unseen_share: float) -> bool:
        """Return whether the share has at least doubled, or is `GROWN_MUCH` more, since it was `unseen_share`."""
        grown = self.unseen_share - unseen_share
        return grown > 0 and grown >= min(unseen_share, GROWN_MUCH)

    @property
    def text(self) -> str:
        """The evidence in words."""
        little = self.unseen_share < SHOWN_MIN
        share = f"less than {SHOWN_MIN:.1%}" if little else f"about {self.unseen_share:.1%}"
        return f"events of one key come in several partitions, and {share} of all duplicates pass for that reason"


class Watch:
    """The watch, shared by all shards of a worker. It publishes only counts, no key and no digest.

    `hash` makes the digests by which it compares keys. It may be set until the first look.
    """

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self.hash: Hash = MURMUR3
        self._sample = Sample(kept_max)
        self.unseen = 0
        """How many sampled events passed although another partition, and not theirs, had their key before."""
        self.seen = 0
        """How many sampled events were found to be duplicates."""
        self._sampled = 0
        self._unseen_of_all = self._seen_of_all = self._known_in_several = 0

    @property
    def unseen_share(self) -> float:
        """The estimated share of all duplicates that no filter can find; 0 if there are no duplicates."""
        duplicates = self._unseen_of_all + self._seen_of_all
        return self._unseen_of_all / duplicates if duplicates else 0.0

    @property
    def kept(self) -> int:
        """The number of keys in the sample."""
        return self._sample.kept

    @property
    def in_several_share(self) -> float:
        """The share of the sampled keys that came in several partitions; 0 if there are no keys."""
        return self._sample.in_several / max(1, self._sample.kept)

    @property
    def evidence(self) -> Evidence | None:
        """What is known of keys in several partitions; None if no key was seen in two."""
        if not self._known_in_several:
            return None
        return Evidence(self._sample.kept, self._sample.in_several, self.unseen_share)

    @property
    def suspicion(self) -> str | None:
        """Why partitions were perhaps not chosen by the key; None if the record keys raise no doubt."""
        return suspicion(self._sampled, self._sample.without_record_key, self._sample.under_several)

    def look(
        self,
        partition: int,
        keys: Column,
        verdicts: Verdicts,
        record_keys: Column | None = None,
    ) -> None:
        """Look at the sampled ones among the `keys` (n,) that `partition` judged, and at their verdicts (n,).

        `record_keys` (n,) are those of the same events, unless they are the keys.
        """
        looked = self._sample.look(partition, keys, verdicts, record_keys, self.hash)
        if not len(looked.rows):
            return
        duplicates = verdicts[looked.rows] == Verdict.DUPLICATE
        elsewhere = looked.places == ELSEWHERE
        self._sampled += len(looked.rows)
        self._count(
            int(np.count_nonzero(elsewhere & ~duplicates)),
            int(np.count_nonzero(duplicates)),
            int(np.count_nonzero(elsewhere)),
        )

    def read(self, partition: int, keys: Column) -> None:
        """Look at `keys` of input events, none of which is null, in their order, as if each partition judged them."""
        places = self._places(partition, keys)
        elsewhere = int(np.count_nonzero(places == ELSEWHERE))
        self._count(elsewhere, int(np.count_nonzero(places == AGAIN)), elsewhere)

    def read_emitted(self, partition: int, keys: Column) -> None:
        """Look at `keys` of output events, none of which is null, whose input events are read before, or are gone."""
        elsewhere = int(np.count_nonzero(self._places(partition, keys) == ELSEWHERE))
        self._count(elsewhere, 0, elsewhere)

    def _places(self, partition: int, keys: Column) -> Places:
        """Return what was known before of the sampled `keys`, on which nobody has given a verdict."""
        passing = np.full(len(keys), Verdict.PASS, dtype=np.uint8)
        return self._sample.look(partition, keys, passing, None, self.hash).places

    def _count(self, unseen: int, seen: int, in_several: int) -> None:
        stands_for = 1 << self._sample.halvings
        self.unseen += unseen
        self.seen += seen
        self._unseen_of_all += unseen * stands_for
        self._seen_of_all += seen * stands_for
        self._known_in_several += in_several


def suspicion(events: int, without_record_key: int, keys_under_several: int) -> str | None:
    """Return why partitions were perhaps not chosen by the key, by what was found among `events`; None if nothing."""
    if without_record_key and without_record_key >= SUSPICIOUS * events:
        # Some of those counted before may have left the sample since.
        share = min(1.0, without_record_key / max(1, events))
        return f"{share:.0%} of the events have no record key, by which producers usually choose the partition"
    if keys_under_several:
        return "events of one key have different record keys, by which producers usually choose the partition"
    return None


def record_keys_matter(key: KeyOptions, partitions: int) -> bool:
    """Return whether record keys may lead events of one `key` to several of `partitions`."""
    return partitions > 1 and (key.from_, key.normalize) != ("key", "none")
