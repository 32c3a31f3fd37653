"""The rule by which the first stage keeps the partitions of the input together in event time. It does no I/O.

All times are in ms since 1970, all offsets those of the input.
"""

# Theory of operation
# ===================
#
# The *head* of a partition is the smallest time of its next batch that is not copied yet, and of the batch after it if
# that can be read already. Of a large record batch, which has to be decoded first, the time of the first event counts,
# which its head has. A head is never less than the head before, so one old event in a later batch, late by itself,
# takes no head back. But if all of a batch is older than the head before, then that came from a wrong time, and is
# dropped. So one event from the future holds its partition back only if nothing comes after it.
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
_UNKNOWN = -2  # in place of a head that is not published
_NEVER = np.iinfo(np.int64).max
NO_TIMES: Integers = np.empty(0, dtype=np.int64)


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


class Standings:
    """How far all partitions stand at one moment. `slowest` has the heads of those that hold others back, ascending."""

    def __init__(self, of: Mapping[InputPartition, Standing]) -> None:
        self.of = of
        self.slowest = sorted(
            (_UNKNOWN if standing.head is None else standing.head, partition)
            for partition, standing in of.items()
            if standing.holds
        )


def heads_of(timestamps: Integers, before: int | None, after: Integers) -> Integers:
    """Return, for each event of a batch (n,), the head that the partition has if that event is the next one.

    `before` is the partition's head before, None if there was none. `after` (m,) are the times of the events that
    follow the batch, as far as they are read. The heads ascend.
    """
    floor = NO_TIME if before is None else before
    given = np.concatenate((timestamps, after))
    if len(given) and 0 <= given.max() < floor:
        floor = NO_TIME
    times = np.where(given >= 0, given, _NEVER)
    lows = np.minimum.accumulate(times[::-1])[::-1][: len(timestamps)]
    timed = int(np.searchsorted(lows, _NEVER))
    # After the last time, events go with those before.
    lows[timed:] = lows[timed - 1] if timed else floor
    return np.maximum(lows, floor)


class Wait:
    """A batch of `partition`, whose events go on as the slower partitions do. `heads` (n,) are those of its events."""

    def __init__(self, partition: InputPartition, heads: Integers, max_skew_ms: int) -> None:
        self.partition, self._heads, self._max_skew_ms = partition, heads, max_skew_ms
        # How all partitions stood when this began to wait; None before.
        self._begun: Mapping[InputPartition, Standing] | None = None

    @property
    def head(self) -> int:
        """How far the partition stands in event time."""
        return int(self._heads[0])

    def passed(self, events: int) -> None:
        """Note that the first `events` went on; at least one must be left."""
        self._heads = self._heads[events:]
        self._begun = None

    def events(self, standings: Standings) -> int:
        """Return how many of the next events may be copied now, if the first one may."""
        slow = self._slower(standings, int(self._heads[-1]))
        if slow is None:
            return len(self._heads)
        head = standings.of[slow].head
        if head is None:
            return 0
        return int(np.searchsorted(self._heads, head + self._max_skew_ms, side="right"))

    def waits_for(self, standings: Standings) -> InputPartition | None:
        """Return the partition for which the next event must wait now; None if it may be copied.

        It is one without a published head, or else the slowest.
        """
        slow = self._slower(standings, self.head)
        if slow is not None and self._begun is None:
            self._begun = standings.of
        return slow

    def _slower(self, standings: Standings, head: int) -> InputPartition | None:
        """Return the slowest partition of which an event with this `head` is too far ahead."""
        for other, partition in standings.slowest:
            if head == NO_TIME or (other != _UNKNOWN and head - other <= self._max_skew_ms):
                return None  # nor is it too far ahead of those that follow
            if partition != self.partition and not self._awaited(partition, standings):
                return partition
        return None

    def _awaited(self, partition: InputPartition, standings: Standings) -> bool:
        """Whether a slower partition has copied what it held when this began to wait."""
        begun = self._begun.get(partition) if self._begun is not None else None
        return begun is not None and standings.of[partition].offset >= begun.end


def must_publish(partition: InputPartition, head: int, standings: Standings) -> bool:
    """Return whether a held `partition` must commit its `head`, so that nobody waits for an older one."""
    known = standings.of.get(partition)
    return known is None or known.head != head
