"""The rule by which the first stage keeps the partitions of the input together in event time. It does no I/O.

All times are in ms since 1970, all offsets those of the input.
"""

# Theory of operation
# ===================
#
# The *head* of a partition is the smallest time of its next batch that is not copied yet: at most the present, and
# never less than the partition's head before. So one event far in the future moves no head past the present, and one
# old event in a later batch, late by itself, takes no head back.
#
# A member publishes the head of a partition in the note of each commit. It may be older than the real one, never newer.
# A partition goes on if its head is at most `max_skew` ahead of the published head of every other partition that has
# unread events. A partition without a published head (a new group, an older note, moved offsets) holds back all others.
#
# Something always goes on. A partition that is held publishes its head, in a commit of the same offset. So in the end
# every partition with unread events has published its real head, and the one with the smallest is ahead of none. A
# batch without any time takes the last head, or NO_TIME if there is none, which is never held and holds nobody. Offsets
# that hold no events are passed by a commit without events, and then the partition is at its end. The end is the high
# watermark: events of an open transaction count as unread, until that has been open for `delivery.open_transaction_s`.
# From then on the end is the last stable offset, so that a transaction that hangs does not stop the whole input.
#
# A batch of a sparse partition may cover weeks. It is cut at the first event from which on every event is too far
# ahead; the rest waits, with a head of its own. An event that is ahead by itself, with others after it that are not,
# does not cut it.
#
# A wait ends, whatever the times are. A partition waits for another one until the other has copied what it held when
# the wait began: by then the other has been at its end once, as it would be on a topic without a backlog. So neither a
# wrong clock nor a crafted timestamp holds a partition back for longer than the backlog of the others.

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from streamdedup.events import Integers
from streamdedup.kafka.partitions import InputPartition

NO_TIME = -1
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Standing:
    """What the group's notes and the log show about one partition. `head` is None if none is published."""

    offset: int
    end: int
    head: int | None

    @property
    def holds(self) -> bool:
        """Whether it can hold others back: it has unread events, and they may have times."""
        return self.offset < self.end and self.head != NO_TIME


def heads_of(timestamps: Integers, before: int | None, now_ms: int) -> Integers:
    """Return, for each event of a batch (n,), the head that the partition has if that event is the next one.

    `before` is the partition's head before, None if there was none. The heads ascend.
    """
    floor = NO_TIME if before is None else before
    times = np.where(timestamps >= 0, np.minimum(timestamps, now_ms), _NEVER)
    lows = np.minimum.accumulate(times[::-1])[::-1]
    timed = int(np.searchsorted(lows, _NEVER))
    # After the last time, events go with those before.
    lows[timed:] = lows[timed - 1] if timed else floor
    return np.maximum(lows, floor)


class Wait:
    """A batch of `partition`, whose events go on as the slower partitions do. `heads` (n,) are those of its events."""

    def __init__(self, partition: InputPartition, heads: Integers, max_skew_ms: int) -> None:
        self.partition, self._heads, self._max_skew_ms = partition, heads, max_skew_ms
        # The ends of others, as they were when this began to wait for them.
        self._until: dict[InputPartition, int] = {}

    @property
    def head(self) -> int:
        """How far the partition stands in event time."""
        return int(self._heads[0])

    def passed(self, events: int) -> None:
        """Note that the first `events` went on; at least one must be left."""
        self._heads = self._heads[events:]
        self._until = {}

    def events(self, standings: Mapping[InputPartition, Standing]) -> int:
        """Return how many of the next events may be copied now."""
        slow = [
            s for p, s in self._slower(standings, int(self._heads[-1])) if not self._awaited(p, s)
        ]
        if not slow:
            return len(self._heads)
        if any(s.head is None for s in slow):
            return 0
        most = min(s.head for s in slow if s.head is not None) + self._max_skew_ms
        return int(np.searchsorted(self._heads, most, side="right"))

    def waits_for(self, standings: Mapping[InputPartition, Standing]) -> tuple[InputPartition, ...]:
        """Return the partitions for which the next event must wait now; empty if it may be copied.

        First those without a published head, then the slowest.
        """
        slow = dict(self._slower(standings, self.head))
        for partition, standing in slow.items():
            self._until.setdefault(partition, standing.end)
        return tuple(p for p, standing in slow.items() if not self._awaited(p, standing))

    def _awaited(self, partition: InputPartition, standing: Standing) -> bool:
        """Whether a slower partition has copied what it held when this began to wait for it."""
        return standing.offset >= self._until.get(partition, _NEVER)

    def _slower(
        self, standings: Mapping[InputPartition, Standing], head: int
    ) -> list[tuple[InputPartition, Standing]]:
        """Return those of which an event with this `head` is too far ahead, the slowest first."""
        if head == NO_TIME:
            return []
        slow = [
            (partition, other)
            for partition, other in standings.items()
            if partition != self.partition
            and other.holds
            and (other.head is None or head - other.head > self._max_skew_ms)
        ]
        return sorted(slow, key=lambda found: -1 if found[1].head is None else found[1].head)


def must_publish(
    partition: InputPartition, head: int, standings: Mapping[InputPartition, Standing]
) -> bool:
    """Return whether a held `partition` must commit its `head`, so that nobody waits for an older one."""
    known = standings.get(partition)
    return known is None or known.head != head
