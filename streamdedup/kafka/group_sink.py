"""The writer of any partition for what one member of a group has read, fenced by the group's generation (KIP-447).

The next reader of an input partition fetches its offset by a stable OffsetFetch, after the assignment. The group
returns the offset only once every transaction on it has ended, and takes none of an earlier generation from then on. So
a copy and its offset are committed by one owner of the partition, or not at all.

As in `sink`, the outcome is in doubt after any exception, time-out or replaced connection: start again, and ask.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from typing_extensions import override

from streamdedup.events import EventBatch, Integers
from streamdedup.kafka.base import Membership
from streamdedup.kafka.client.fenced_offsets import FencedOffsets
from streamdedup.kafka.client.marking import end_empty
from streamdedup.kafka.client.open_batches import OpenBatches
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.sink import DoubtError, RefusedError, TransactionalProducer


class StaleGenerationError(DoubtError):
    """The group takes no offsets of this member in its generation: the partitions may have another owner by now.

    Nothing of the transaction is committed, and it is still open.
    """

    def __init__(self, group: str, membership: Membership, reason: str) -> None:
        super().__init__(
            f"the group {group} takes no offsets of generation {membership.generation}: {reason}"
        )
        self.reason = reason


class KafkaGroupWriter(TransactionalProducer):
    """Writes any partition of any topic, one transaction at a time; the contract is that of `base.GroupWriter`."""

    def __init__(
        self,
        options: KafkaOptions,
        sink: SinkOptions,
        transactional_id: str,
        patience: Patience,
        *,
        timeout_ms: int,
    ) -> None:
        limited = {**options.producer, "transaction_timeout_ms": timeout_ms}
        options = options.model_copy(update={"producer": limited})
        super().__init__(options, sink, patience, exactly_once=True)
        self._transactional_id = transactional_id
        self._offsets: FencedOffsets | None = None
        self._open: dict[int, OpenBatches] = {}
        # Copied in the loop since the last time that a thread did it.
        self._loop_bytes = 0

    @property
    @override
    def transactional_id(self) -> str:
        """The name of the fence: a process that starts under it fences the one before."""
        return self._transactional_id

    async def start(self) -> None:
        """Fence every earlier writer with this transactional id, and end the transaction that it left open."""
        await self.drop()
        self._producer = await self._started(transactional_id=self._transactional_id)
        self._offsets = FencedOffsets(self._producer, self._transactional_id)

    async def mark_again(
        self, partitions: Mapping[str, Collection[int]], group: str, *, commit: bool
    ) -> None:
        """End an empty transaction with that outcome, in `partitions`, by topic, and in the group's offsets."""
        await end_empty(self._producer, self._transactional_id, partitions, group, commit=commit)

    async def copy(
        self, topic: str, partition: int, batch: EventBatch, rows: Integers, bytes_max: int
    ) -> None:
        """Append the events of `rows` (ascending) of `batch` to `partition` of `topic`, byte for byte.

        Record batches have at most `bytes_max` bytes; full ones are sent at once.
        What would hold up the event loop is copied and compressed in a thread, also if it comes in many small calls.
        """
        open_batches = self._of(partition)
        copying = open_batches.copy(topic, batch, rows, self._size_max(bytes_max))
        self._loop_bytes += int(batch.bodies.sizes[rows].sum())
        takes_long = self._loop_bytes > open_batches.loop_bytes_max
        if takes_long:
            self._loop_bytes = 0
        # If this is cancelled, the thread goes on, and only with these open batches: `drop` puts others in their place.
        made = await asyncio.to_thread(list, copying) if takes_long else copying
        for full in made:
            await self._post(topic, partition, full)

    async def settle(self) -> None:
        """Wait until the broker has acknowledged every record.

        Raise RefusedError if a record is at fault, and nothing else is. Any other error is doubt, and comes before it.
        """
        # Little of each partition is compressed now, but of all together more than the loop may wait for.
        for topic, partition, rest in await asyncio.to_thread(_rests, self._open):
            await self._post(topic, partition, rest)
        self._check_connections()
        acknowledged = [self._acknowledged(topic, future) for topic, future, _ in self._sent]
        errors = [
            error
            for error in await asyncio.gather(*acknowledged, return_exceptions=True)
            if isinstance(error, BaseException)
        ]
        for error in sorted(errors, key=lambda error: isinstance(error, RefusedError)):
            raise error

    async def commit(
        self,
        group: str,
        offsets: Mapping[InputPartition, tuple[int, str]],
        membership: Membership,
    ) -> None:
        """Commit what was sent together with the group's offsets, and end the transaction.

        Raise StaleGenerationError, with the transaction still open, if `membership` is not of the current generation.
        """
        if self._offsets is None:
            raise DoubtError("the writer was dropped, or has not started yet")
        self._check_connections()
        member = (membership.generation, membership.member_id, membership.instance_id)
        reason = await self._offsets.add(group, member, offsets)
        self._check_connections()
        if reason is not None:
            raise StaleGenerationError(group, membership, reason)
        await self._producer.commit_transaction()
        self._check_connections()

    @override
    async def drop(self) -> None:
        """Release the producer without flushing: it may be fenced or stuck."""
        self._offsets = None
        await super().drop()

    def _of(self, partition: int) -> OpenBatches:
        if partition not in self._open:
            self._open[partition] = self._new_open()
        return self._open[partition]

    @override
    def _forget(self) -> None:
        super()._forget()
        self._open = {}


def _rests(open_batches: Mapping[int, OpenBatches]) -> list[tuple[str, int, Any]]:
    """Return what was not sent yet, closed and compressed: topic, partition, record batch."""
    rests = [
        (topic, partition, rest)
        for partition, its in open_batches.items()
        for topic in its.topics
        for rest in its.finish(topic)
    ]
    for _topic, _partition, rest in rests:
        rest.close()
    return rests
