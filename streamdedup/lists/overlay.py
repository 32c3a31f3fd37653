"""Single changes to a list, exact: digest -> added or removed. They win over the list's file.

An `Overlay` never changes. `Changes` collects the messages of the control topic and makes overlays. The latest changes
are kept apart from the many older ones, and are merged into them now and then; so a change costs as little among many
as among few.

Changes come from the partitions of a topic. All that is known of a key in one partition is its last change there, or
nothing if that takes the change back: so compaction leaves what counts. If several partitions hold a change of one key,
as after the topic got more of them, the one with the latest timestamp is in force, and of equal ones that in the
partition with the highest number. So it does not matter in which order the partitions are read.
"""

from collections.abc import Sequence

import numpy as np

from streamdedup.filters.exact.digest_map import EMPTY, DigestMap
from streamdedup.keys.hashing import Bytes, Digests

UNCHANGED, ADDED, REMOVED = 0, 1, 2
CHANGES_MAX = 10_000_000  # 260 MB, and another 520 MB while they are merged
MOVED_MAX = 1_000_000  # keys with changes in several partitions, of some 300 bytes each
LATEST_MAX = 16_384  # a thread sorts this many digests in 4 ms
PARTITIONS_MAX = 1 << 12
# The number of a key in the maps: the timestamp (44 bits), the partition (12), and the change (8).
_PARTITION_AT, _STAMP_AT, _STAMP_MAX = 8, 20, (1 << 44) - 1


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
    """The change of each key that is in force; from `latest_max` on, those kept apart from the rest are `ripe`."""

    def __init__(self, latest_max: int = LATEST_MAX) -> None:
        self._latest_max = latest_max
        self._merged = EMPTY
        self._latest: dict[bytes, int] = {}
        # For keys with changes in several partitions, the numbers of all of them.
        self._moved: dict[bytes, tuple[int, ...]] = {}
        self._overlay: Overlay | None = NO_CHANGES

    def more_than(self, most: int) -> bool:
        """Return whether more than `most` digests are changed."""
        held_max = len(self._merged.rows) + len(self._latest)
        return held_max > most and len(self.overlay()) > most

    @property
    def moved(self) -> int:
        """How many keys have changes in several partitions."""
        return len(self._moved)

    def apply(
        self, digests: Digests, changes: Sequence[int], stamps: Sequence[int], partition: int = 0
    ) -> None:
        """Mark each of `digests` (n, 2), by `changes`, as ADDED or REMOVED; UNCHANGED takes back what was so marked.

        These are the next changes in `partition`, with `stamps` in ms since 1970. Of equal digests the last one counts.
        """
        merged = self._merged.numbers(digests).tolist()
        for key, change, stamp, older in zip(
            map(bytes, digests), changes, stamps, merged, strict=True
        ):
            own = _number(change, partition, stamp) if change else 0
            held = self._latest.get(key, older)
            if key in self._moved or (held and _partition_of(held) != partition):
                own = self._decided(key, self._moved.pop(key, (held,)), own, partition)
            self._latest[key] = own
        self._overlay = None

    def _decided(self, key: bytes, held: tuple[int, ...], own: int, partition: int) -> int:
        """Replace what `partition` holds of a key by `own`, 0 for nothing; return the number that is in force."""
        every = [number for number in held if _partition_of(number) != partition]
        every += [own] if own else []
        if len(every) > 1:
            self._moved[key] = tuple(every)
        return max(every, default=0)

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


def _number(change: int, partition: int, stamp: int) -> int:
    return min(max(stamp, 0), _STAMP_MAX) << _STAMP_AT | partition << _PARTITION_AT | change


def _partition_of(number: int) -> int:
    return number >> _PARTITION_AT & PARTITIONS_MAX - 1


NO_CHANGES = Overlay()
