"""The consumer group's side: which partitions are ours, and their events.

The listener only notes an assignment and counts the epoch up; whoever reads compares epochs and drops what belongs to
an earlier one. `auto_offset_reset` is "none": where reading begins is decided by the shard alone.
"""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import IllegalStateError, NoOffsetForPartitionError
from aiokafka.structs import OffsetAndMetadata

from streamdedup.events import EventBatch
from streamdedup.kafka.connection import client_arguments, let_go, start_patiently
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.records import CHUNK_EVENTS, to_batch

FETCH_BYTES = 4 << 20  # a partition; one fetch then fills several chunks
NOWHERE = "-"  # no partition of ours: polling it only tells the group that we live


class Source:
    """One member of the group, reading one topic."""

    def __init__(self, options: KafkaOptions, topic: str) -> None:
        self._options, self._topic = options, topic
        self._consumer: Any = None
        self._listener = _Listener()

    @property
    def epoch(self) -> int:
        """Counts assignments and revocations."""
        return self._listener.epoch

    @property
    def assigned(self) -> frozenset[int]:
        """The partitions that are ours in this epoch."""
        return self._listener.partitions

    async def start(self) -> None:
        """Join the group."""
        self._consumer = await start_patiently(self._joined, "the consumer group")

    async def stop(self, within_s: float) -> bool:
        """Leave the group; False where the broker did not hear of it in time."""
        return self._consumer is None or await let_go(self._consumer.stop(), within_s)

    async def keep_alive(self, wait_s: float) -> None:
        """Tell the group that we live; raises what the group has against us."""
        nowhere = TopicPartition(NOWHERE, 0)
        await self._consumer.getmany(nowhere, timeout_ms=int(wait_s * 1000))

    def hold(self, partition: int) -> None:
        """Fetch nothing of `partition` until `go_to`."""
        self._consumer.pause(TopicPartition(self._topic, partition))

    def go_to(self, partition: int, offset: int) -> None:
        """Read on at `offset`."""
        where = TopicPartition(self._topic, partition)
        self._consumer.seek(where, offset)
        self._consumer.resume(where)

    async def read(self, partition: int, epoch: int, wait_s: float) -> EventBatch | None:
        """The next events of `partition`, at most CHUNK_EVENTS; None after `wait_s` or in another epoch."""
        where = TopicPartition(self._topic, partition)
        try:
            polled = await self._consumer.getmany(
                where, timeout_ms=max(1, int(wait_s * 1000)), max_records=CHUNK_EVENTS
            )
        except NoOffsetForPartitionError:  # said before our seek, delivered after it
            return None
        except IllegalStateError:
            await asyncio.sleep(0)
            return None
        if self.epoch != epoch:
            return None
        return to_batch(self._topic, partition, polled.get(where, []))

    async def commit(self, partition: int, offset: int, metadata: str) -> None:
        """Commit outside a transaction."""
        where = TopicPartition(self._topic, partition)
        await self._consumer.commit({where: OffsetAndMetadata(offset, metadata)})

    async def _joined(self) -> Any:  # noqa: ANN401 - aiokafka has no types
        defaults = {"max_partition_fetch_bytes": FETCH_BYTES, "rebalance_timeout_ms": 60_000}
        consumer = AIOKafkaConsumer(
            **{**defaults, **self._options.consumer, **client_arguments(self._options)},
            group_id=self._options.group_id,
            group_instance_id=self._options.group_instance_id,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",
            partition_assignment_strategy=(StickyPartitionAssignor,),
        )
        consumer.subscribe([self._topic], listener=self._listener)
        try:
            await consumer.start()
        except BaseException:
            await let_go(consumer.stop())
            raise
        return consumer


class _Listener(ConsumerRebalanceListener):
    """Notes; does no work, since no heartbeat is sent meanwhile and exceptions would be swallowed."""

    def __init__(self) -> None:
        self.epoch = 0
        self.partitions: frozenset[int] = frozenset()

    async def on_partitions_revoked(self, revoked: object) -> None:  # noqa: ARG002 - aiokafka's signature
        self.epoch += 1
        self.partitions = frozenset()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.epoch += 1
        self.partitions = frozenset(where.partition for where in assigned)
