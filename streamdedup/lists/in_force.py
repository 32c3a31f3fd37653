"""The single changes of a control topic that are in force now, for people: where each stands, by whom, when and why.

The topic is read twice, up to the same offsets. The first time, all changes are applied, as a worker does; the second
time, the messages that decided are found. So memory is bounded: 26 bytes a change, and the newest changes in full.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from streamdedup.errors import DeliveryError, MalformedError
from streamdedup.events import EventBatch
from streamdedup.kafka.base import ANSWER_S_MAX, Cluster
from streamdedup.kafka.log import TrimmedError
from streamdedup.keys.hashing import Hash
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.lists.control import (
    Change,
    control_topic,
    op_of,
    plain_entries,
    read_change,
    refuse_too_many,
)
from streamdedup.lists.matching import Kind, kind_of
from streamdedup.lists.overlay import Changes

STALL_S_MAX = 60.0
ROWS_A_TURN = 64


class ChangeInForce(NamedTuple):
    """A message that decides about its `entry` now: at which place, when it was written (ms since 1970), by whom, why.

    `actor` and `reason` are empty if the message has none.
    """

    partition: int
    offset: int
    op: str
    kind: Kind
    actor: str
    time_ms: int
    reason: str
    entry: bytes


class ChangesInForce(NamedTuple):
    """How many changes are in force in `total`, and the `newest` of them, newest first.

    `malformed` messages change nothing. `hidden` has, by partition, the offset from which an open transaction hides
    all messages.
    """

    total: int
    malformed: int
    hidden: Mapping[int, int]
    newest: Sequence[ChangeInForce]


async def changes_in_force(
    cluster: Cluster,
    topic: str,
    normal: Normalizer | None,
    entries: Collection[bytes] | None,
    most: int,
) -> ChangesInForce:
    """Read the control topic `topic`; return the changes of `entries`, or of all if None, at most `most` in full.

    `entries` are record keys. ConfigError if the topic is not fit or holds too many changes. DeliveryError if it is
    trimmed meanwhile, TimeoutError if a broker does not answer.
    """
    try:
        return await _Reading(cluster, topic, normal, entries).run(most)
    except TrimmedError:
        raise DeliveryError(
            f"messages of {topic} were deleted while it was read; try again"
        ) from None


class _Reading:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        normal: Normalizer | None,
        entries: Collection[bytes] | None,
    ) -> None:
        self._cluster, self._topic, self._normal, self._entries = cluster, topic, normal, entries
        self._hash, self._changes = Hash.draw(), Changes()
        self._malformed = 0

    async def run(self, most: int) -> ChangesInForce:
        async with asyncio.timeout(ANSWER_S_MAX):
            found = await control_topic(self._cluster, self._topic)
        ranges, hidden = list[tuple[int, int]](), dict[int, int]()
        for partition in range(found.partitions):
            async with asyncio.timeout(ANSWER_S_MAX):
                first = await self._cluster.first_offset(self._topic, partition)
                end = await self._cluster.end_offset(self._topic, partition)
                stable = await self._cluster.stable_offset(self._topic, partition)
            ranges.append((first, stable))
            if stable < end:
                hidden[partition] = stable
        await self._apply(ranges)
        malformed, total = self._malformed, len(self._changes.overlay())
        return ChangesInForce(
            total, malformed, hidden, await self._newest(ranges, most) if total else []
        )

    async def _apply(self, ranges: Sequence[tuple[int, int]]) -> None:
        async with aclosing(self._parts(ranges)) as parts:
            async for part in parts:
                rows, changes = self._read(part)
                self._changes.apply(
                    self._hash.digests([change.keys[0] for change in changes]),
                    [change.change for change in changes],
                    part.timestamps[rows].tolist(),
                    part.partition,
                )
                if self._changes.ripe:
                    await asyncio.to_thread(self._changes.merge)
                    refuse_too_many(self._changes, self._topic)
        await asyncio.to_thread(self._changes.merge)

    async def _newest(self, ranges: Sequence[tuple[int, int]], most: int) -> list[ChangeInForce]:
        found, since_ms = dict[bytes, ChangeInForce](), self._changes.newest_ms(most)
        async with aclosing(self._parts(ranges)) as parts:
            async for part in parts:
                rows, changes = self._read(part, since_ms)
                decide = self._changes.decide(
                    self._hash.digests([change.keys[0] for change in changes]),
                    [change.change for change in changes],
                    part.timestamps[rows].tolist(),
                    part.partition,
                )
                for row, change in ((rows[at], changes[at]) for at in decide.nonzero()[0].tolist()):
                    entry = part.keys[row] or b""
                    found[entry] = self._full(part, row, change, entry)
                if len(found) > 2 * most:
                    found = {change.entry: change for change in _newest(found.values(), most)}
        return _newest(found.values(), most)

    def _full(self, part: EventBatch, row: int, change: Change, entry: bytes) -> ChangeInForce:
        return ChangeInForce(
            part.partition,
            int(part.offsets[row]),
            op_of(change),
            kind_of(entry, self._normal),
            change.actor,
            int(part.timestamps[row]),
            change.reason,
            entry,
        )

    def _read(self, part: EventBatch, since_ms: int = 0) -> tuple[list[int], list[Change]]:
        """Return the rows of the valid messages that are asked for, and what they change."""
        rows, changes = list[int](), list[Change]()
        plain = plain_entries(part.keys, self._normal)
        for row, stamp in enumerate(part.timestamps.tolist()):
            entry = part.keys[row]
            if max(stamp, 0) < since_ms or (
                self._entries is not None and entry not in self._entries
            ):
                continue
            try:
                normal = None if plain[row] else self._normal
                changes.append(read_change(entry, part.values[row], normal))
            except MalformedError:
                self._malformed += 1
            else:
                rows.append(row)
        return rows, changes

    async def _parts(self, ranges: Sequence[tuple[int, int]]) -> AsyncGenerator[EventBatch]:
        """Yield the messages of all partitions, few at a time, so that the loop has its turns."""
        for partition, (start, end) in enumerate(ranges):
            if start == end:
                continue
            reading = self._cluster.committed_events(
                self._topic, partition, start, end, stall_s=STALL_S_MAX
            )
            async with aclosing(reading) as batches:
                async for batch in batches:
                    for part in batch.parts(ROWS_A_TURN):
                        yield part
                        await asyncio.sleep(0)
                    del (
                        batch,
                        part,
                    )  # they would keep a large record batch in memory while the next is read


def _newest(changes: Collection[ChangeInForce], most: int) -> list[ChangeInForce]:
    by_time = sorted(changes, key=lambda one: (one.time_ms, one.partition, one.offset))
    return by_time[: -most - 1 : -1]
