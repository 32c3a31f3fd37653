"""Single changes to a list, exact: digest -> added or removed. They win over the list's file.

An `Overlay` never changes. `Changes` collects the messages of the control topic and makes overlays. The latest changes
are kept apart from the many older ones, and are merged into them now and then; so a change costs as little among many
as among few.

Changes come from the partitions of a topic. All that is known of a key in one partition is its last change there, or
nothing if that takes the change back: so compaction leaves what counts. If several partitions hold a change of one key,
as after the topic got more of them, the one with the latest timestamp is in force, and of equal ones that in the
partition with the highest number. So it does not matter in which order the partitions are read.

The reasons of the REASONS_MAX added keys that were read last are kept, too, for people: the headers of blocked events
have them. They decide nothing.
"""

import sys
from collections import OrderedDict
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from streamdedup.filters.base import Mask
from streamdedup.filters.exact.digest_map import EMPTY, DigestMap
from streamdedup.keys.hashing import Bytes, Digests

UNCHANGED, ADDED, REMOVED = 0, 1, 2
CHANGES_MAX = 10_000_000  # 260 MB, and another 520 MB while they are merged
MOVED_MAX = 1_000_000  # keys with changes in several partitions, of some 300 bytes each
LATEST_MAX = 16_384  # a thread sorts this many digests in 4 ms
REASONS_MAX = 16_384  # the same, and 10 MB
REASON_BYTES_MAX = 256  # of UTF-8
PARTITIONS_MAX = 1 << 12
# The number of a key in the maps: the timestamp (44 bits), the partition (12), and the change (8).
_PARTITION_AT, _STAMP_AT, _STAMP_MAX = 8, 20, (1 << 44) - 1


class Reasons(NamedTuple):
    """The reasons of changes: `numbers` has the number of each in `texts`, by digest. Number 0 is an empty text."""

    numbers: DigestMap = EMPTY
    texts: Sequence[str] = ("",)


NO_REASONS = Reasons()


class Overlay:
    """Which digests are ADDED or REMOVED. `latest` wins over `merged`. `reasons` are those of some added ones."""

    def __init__(
        self, merged: DigestMap = EMPTY, latest: DigestMap = EMPTY, reasons: Reasons = NO_REASONS
    ) -> None:
        self._merged, self._latest, self.reasons = merged, latest, reasons
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
        self._reasons = OrderedDict[
            bytes, str
        ]()  # of added keys, in the order in which they were read
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
        self,
        digests: Digests,
        changes: Sequence[int],
        stamps: Sequence[int],
        partition: int = 0,
        reasons: Sequence[str] = (),
    ) -> None:
        """Mark each of `digests` (n, 2), by `changes`, as ADDED or REMOVED; UNCHANGED takes back what was so marked.

        These are the next changes in `partition`, with `stamps` in ms since 1970, and with `reasons`, if any are given.
        Of equal digests the last one counts.
        """
        merged = self._merged.numbers(digests).tolist()
        each_reason = reasons or repeat("", len(changes))
        for key, change, stamp, reason, older in zip(
            map(bytes, digests), changes, stamps, each_reason, merged, strict=True
        ):
            own = _number(change, partition, stamp) if change else 0
            held, decided = self._latest.get(key, older), own
            if key in self._moved or (held and _partition_of(held) != partition):
                decided = self._decided(key, self._moved.pop(key, (held,)), own, partition)
            self._latest[key] = decided
            if decided == own:
                self._note(key, reason if change == ADDED else "")
            elif decided != held:  # an earlier change is in force again, whose reason is not kept
                self._note(key, "")
        self._overlay = None

    def _note(self, key: bytes, reason: str) -> None:
        """Keep the reason of the change of a key that is in force from now on."""
        self._reasons.pop(key, None)
        if reason:
            self._reasons[key] = sys.intern(_cut(reason))
            if len(self._reasons) > REASONS_MAX:
                self._reasons.popitem(last=False)

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

    def newest_ms(self, most: int) -> int:
        """Return the earliest timestamp among the `most` latest changes in force, ms since 1970. Blocking."""
        if self._latest:
            self.merge()
        stamps = self._merged.rows[:, 2] >> np.uint64(_STAMP_AT)
        if len(stamps) <= most:
            return 0
        return int(np.partition(stamps, len(stamps) - most)[len(stamps) - most])

    def decide(
        self, digests: Digests, changes: Sequence[int], stamps: Sequence[int], partition: int
    ) -> Mask:
        """Return which of these messages, as `apply` takes them, are in force now: (n,). Blocking, as `merge` is.

        Two messages about one key, of one time and to one effect, count as one: both are.
        """
        if self._latest:
            self.merge()
        own = [
            _number(change, partition, stamp) if change else 0
            for change, stamp in zip(changes, stamps, strict=True)
        ]
        numbers = np.array(own, dtype=np.uint64)
        return np.asarray((numbers > 0) & (numbers == self._merged.numbers(digests)))

    def overlay(self) -> Overlay:
        """Return all changes up to now. Blocking, for some milliseconds, or as `merge` does."""
        if self.ripe:
            self.merge()
        if self._overlay is None:
            latest = DigestMap.of(self._latest)
            self._overlay = Overlay(self._merged, latest, self._numbered_reasons())
        return self._overlay

    def _numbered_reasons(self) -> Reasons:
        if not self._reasons:
            return NO_REASONS
        texts = ["", *dict.fromkeys(self._reasons.values())]
        number_of = {text: number for number, text in enumerate(texts)}
        numbers = {key: number_of[reason] for key, reason in self._reasons.items()}
        return Reasons(DigestMap.of(numbers), texts)


def _number(change: int, partition: int, stamp: int) -> int:
    return min(max(stamp, 0), _STAMP_MAX) << _STAMP_AT | partition << _PARTITION_AT | change


def _cut(reason: str) -> str:
    return reason.encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore")


def _partition_of(number: int) -> int:
    return number >> _PARTITION_AT & PARTITIONS_MAX - 1


NO_CHANGES = Overlay()
