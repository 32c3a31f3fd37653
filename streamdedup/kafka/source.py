"""One member of the consumer group: which partitions are ours, and their events.

The listener only notes an assignment and increments the epoch. A reader compares epochs, and drops what belongs to an
earlier one. `auto_offset_reset` is "none": only the shard decides where reading begins.

A group whose members have another assignor refuses us (error 23), at the start, and also when we come back to it after
our session has ended. The member waits, because only an operator can settle that.

A consumer whose task ended (`client.tasks`) is replaced: `keep_alive` raises, and `start` joins with another one.

Events come through the seam in `columns`. Here, we rely on these private names of `AIOKafkaConsumer`: `_client`, and
`_coordinator`, None before it joins, with `member_id`, `generation`, `coordinator_id`, `request_rejoin`, and
`_pending_exception`, after which it joins again only once a poll has raised it.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from random import uniform
from typing import Any

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.errors import (
    CorruptRecordException,
    GroupCoordinatorNotAvailableError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    KafkaError,
    NoOffsetForPartitionError,
    RecordTooLargeError,
)
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.structs import OffsetAndMetadata
from typing_extensions import override

from streamdedup.errors import DeliveryError, StreamdedupError
from streamdedup.events import Damage, EventBatch
from streamdedup.kafka.base import Membership, Reach
from streamdedup.kafka.client.assignor import sticky_assignor
from streamdedup.kafka.client.closing import close_consumer, starting
from streamdedup.kafka.client.columns import ColumnarConsumer
from streamdedup.kafka.client.connection import client_arguments
from streamdedup.kafka.client.creation import never_creating
from streamdedup.kafka.client.patience import Patience, start_patiently
from streamdedup.kafka.client.tasks import (
    disregard_waiters,
    group_fault,
    how_it_ended,
    rejoin_after_error,
)
from streamdedup.kafka.old_format import OldRecordsError
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.partitions import InputPartition
from streamdedup.kafka.records.decoding import CHUNK_BYTES, PendingDecode
from streamdedup.kafka.records.records import CHUNK_EVENTS
from streamdedup.kafka.records.wire import DamagedBatchError, OldFormatError

# FETCH_BYTES of a partition come at once, and are decided together: the Python of a decision takes as long for few
# events as for many. An answer has ANSWER_BYTES, however many partitions it covers: it is decoded in one turn of the
# loop, and its bytes are in memory twice meanwhile.
FETCH_BYTES, ANSWER_BYTES = CHUNK_BYTES, 16 << 20
NOWHERE = TopicPartition("-", 0)  # not assigned to us: to poll it only keeps the membership alive
POLL_SLACK_S = 0.2  # beyond the time-out that a poll was given, before we end it ourselves
SESSION_TIMEOUT_MS = 10_000  # aiokafka's default
LOSSES_MAX = 3  # memberships that a static member may lose within one session time-out
REJOIN_S_MIN, REJOIN_S_MAX = 1.0, 5.0  # between two requests to join a group that refuses us
_GROUP = "the consumer group"
# aiokafka raises the second for a batch that is longer than what was fetched of it. A broker always returns the first
# batch whole, so both mean that the bytes are damaged.
_OF_WHAT_IS_THERE = (CorruptRecordException, RecordTooLargeError)


class ConsumerDiedError(StreamdedupError):
    """A task of aiokafka's ended.

    From then on the consumer fetches nothing, or is no longer in its group, and raises no error.
    """


class UnreadableError(StreamdedupError):
    """What was fetched cannot be parsed. It names only the type of a parser's error, which may quote a key.

    `damage` is what may be skipped; None if that is not known.
    """

    def __init__(self, message: str, damage: Damage | None = None) -> None:
        super().__init__(message)
        self.damage = damage


class KafkaMember:
    """One member of the group, which reads some topics."""

    def __init__(
        self,
        options: KafkaOptions,
        topics: Collection[str],
        patience: Patience,
        assignor: str,
        *,
        group: str | None = None,
    ) -> None:
        self._options, self._topics, self._patience = options, frozenset(topics), patience
        self._assignor = assignor
        self._group = group or options.group_id
        # The name under which it waits for brokers, one for each group of the process.
        self._waits_as = _GROUP if group is None else f"{_GROUP} {group}"
        self._consumer: Any = None
        self._listener = _Listener(options.group_instance_id)
        self._losses: deque[float] = deque(maxlen=LOSSES_MAX + 1)
        self._refused_since: float | None = None
        # Set while aiokafka waits for us to see its refusal.
        self._joins_again_at: float | None = None
        self._member_id = ""
        self._partitions = dict[str, int]()  # the most partitions that we saw each topic have
        self._assigned_of = dict[str, int]()  # those for which we last asked the group to rebalance

    @property
    def epoch(self) -> int:
        """The number of assignments and revocations so far."""
        return self._listener.epoch

    @property
    def assigned(self) -> frozenset[InputPartition] | None:
        """The partitions assigned to this member in this epoch; None while the group rebalances."""
        return self._listener.partitions

    def subscribe(self, topics: Collection[str]) -> None:
        """Read these topics from now on. The epoch ends, and the group assigns anew."""
        self._topics = frozenset(topics)
        if self._consumer is not None:
            self._listener.revoke()  # aiokafka forgets the assignment at once, and calls the listener later
            self._consumer.subscribe(sorted(self._topics), listener=self._listener)

    def assigned_of(self, topic: str) -> frozenset[int] | None:
        """Return the numbers of the partitions of `topic` that are assigned; None while the group rebalances."""
        by_topic = self._listener.by_topic
        return None if by_topic is None else by_topic.get(topic, frozenset())

    @property
    def membership(self) -> Membership | None:
        """The identity of this member in the group, as of `assigned`; None while the group rebalances."""
        return self._listener.membership

    @property
    def refused_since(self) -> float | None:
        """When the group began to refuse us, because its members have another assignor; None if it does not."""
        return self._refused_since

    async def start(self) -> None:
        """Join the group. This lasts until the members that have another assignor have left it.

        Called again, because a task of the consumer ended, it closes that one, and joins with another.
        """
        if self._consumer is not None:
            self._listener.revoke()
            await close_consumer(self._consumer)
        while True:
            try:
                await start_patiently(self._join, self._waits_as, self._patience)
            except InconsistentGroupProtocolError:
                self._note_refusal()
                await asyncio.sleep(uniform(REJOIN_S_MIN, REJOIN_S_MAX))  # noqa: S311 - jitter, not a secret
            else:
                break
        self._refused_since = None

    async def stop(self, within_s: float) -> bool:
        """Leave the group; return False if the broker did not learn of it within `within_s` seconds."""
        return self._consumer is None or await close_consumer(self._consumer, within_s)

    async def keep_alive(self, wait_s: float) -> None:
        """Stay a member for `wait_s` seconds; raise any error that the group has reported for this member.

        ConsumerDiedError if a task of aiokafka's ended. DeliveryError if another worker probably has our static name.
        """
        if ended := how_it_ended(self._consumer):
            raise ConsumerDiedError(ended)
        if self._is_refused():
            await asyncio.sleep(wait_s)
            return
        rejoin_after_error(self._consumer)
        with suppress(InconsistentGroupProtocolError):
            await self.poll(NOWHERE, wait_s)
        if self.assigned is not None:
            self._refused_since = None
        self._check_membership()
        self._look_at_topics()

    async def confirms(self, epoch: int) -> bool:
        """Ask the group's coordinator now; return whether the assignment of `epoch` still holds."""
        coordinator = self._consumer._coordinator
        if self.epoch != epoch or self.assigned is None:
            return False
        if coordinator.coordinator_id is None:
            raise GroupCoordinatorNotAvailableError
        request = HeartbeatRequest(
            coordinator.group_id, coordinator.generation, coordinator.member_id
        )
        response = await self._consumer._client.send(
            coordinator.coordinator_id, request, group=ConnectionGroup.COORDINATION
        )
        return bool(response.error_code == 0 and self.epoch == epoch)

    def grown(self, topic: str, partitions: int) -> None:
        """Note that `topic` has `partitions` partitions now; have the group assign the new ones, once."""
        if partitions > self._assigned_of.get(topic, 0):
            self._assigned_of[topic] = partitions
            self.assign_anew()

    def topics(self) -> dict[str, int]:
        """Return the topics that it reads, each with its number of partitions, as of the last metadata.

        None are known before `start`.
        """
        known = self._topics if self._consumer is not None else ()
        return {topic: len(self._consumer.partitions_for_topic(topic) or ()) for topic in known}

    def assign_anew(self) -> bool:
        """Have the group assign its partitions anew; return False if its leader does so by itself.

        A static member that comes back gets the assignment that it had, and a group of such members has no leader that
        compares it with the topics.
        """
        if self._options.group_instance_id is None:
            return False
        if (coordinator := self._consumer._coordinator) is not None:
            coordinator.request_rejoin()
        return True

    def hold(self, where: InputPartition) -> None:
        """Fetch nothing from a partition until `go_to` is called for it."""
        with suppress(IllegalStateError):  # it went to another member
            self._consumer.pause(TopicPartition(*where))

    def go_to(self, where: InputPartition, offset: int) -> None:
        """Continue to read a partition at `offset`."""
        self._consumer.seek(TopicPartition(*where), offset)
        self._consumer.resume(TopicPartition(*where))

    async def read(
        self, where: InputPartition, epoch: int, wait_s: float, events_max: int
    ) -> EventBatch | PendingDecode | None:
        """Return the next events of a partition, as `kafka.base.Sources` says."""
        if self.epoch != epoch:  # what waits to be raised concerns the group, and `keep_alive`
            return None
        try:
            batch = await self.poll(TopicPartition(*where), wait_s, events_max)
        except NoOffsetForPartitionError:  # raised for the time before our seek, delivered after it
            return None
        except (KafkaError, OSError) as error:
            if isinstance(error, _OF_WHAT_IS_THERE):
                raise UnreadableError(type(error).__name__) from error
            raise
        except OldFormatError as error:
            raise OldRecordsError(*where, error.offset) from None
        except DamagedBatchError as error:
            raise UnreadableError(str(error), error.damage) from error
        except Exception as error:
            raise UnreadableError(type(error).__name__) from error
        return batch if self.epoch == epoch else None

    def position(self, where: InputPartition) -> int:
        """Return the offset of the next read."""
        return int(self._consumer.reached(TopicPartition(*where)))

    def reach(self, where: InputPartition) -> Reach | None:
        """Return how far a partition is read; None if it is not assigned, or was not fetched yet."""
        at = TopicPartition(*where)
        try:
            stable, end = self._consumer.last_stable_offset(at), self._consumer.highwater(at)
            position = self.position(where)
        except (IllegalStateError, AssertionError, AttributeError):
            return None
        return None if stable is None or end is None else Reach(position, stable, end)

    async def commit(self, where: InputPartition, offset: int, metadata: str) -> None:
        """Commit an offset outside of a transaction."""
        committed = OffsetAndMetadata(offset, metadata)
        await self._consumer.commit({TopicPartition(*where): committed})

    async def poll(
        self, where: TopicPartition, wait_s: float, events_max: int = CHUNK_EVENTS
    ) -> EventBatch | PendingDecode | None:
        """Poll, with a time-out of our own: aiokafka ignores its own while the group rebalances."""
        try:
            async with asyncio.timeout(wait_s + POLL_SLACK_S):
                batch: EventBatch | PendingDecode | None = await self._consumer.next_batch(
                    where, max(1, int(wait_s * 1000)), events_max
                )
        except TimeoutError:
            return None
        except IllegalStateError:  # it went to another member
            await asyncio.sleep(0)
            return None
        return batch

    def _is_refused(self) -> bool:
        """Return whether the group has refused us, and it is too early to join it again."""
        refusal = self._consumer._coordinator._pending_exception
        if not isinstance(refusal, InconsistentGroupProtocolError):
            self._joins_again_at = None
            return False
        now = asyncio.get_running_loop().time()
        if self._joins_again_at is None:
            self._note_refusal()
            self._joins_again_at = now + uniform(REJOIN_S_MIN, REJOIN_S_MAX)  # noqa: S311 - jitter, not a secret
        if now < self._joins_again_at:
            return True
        self._joins_again_at = None
        return False

    def _note_refusal(self) -> None:
        if self._refused_since is None:
            self._refused_since = asyncio.get_running_loop().time()

    def _look_at_topics(self) -> None:
        for topic in self._topics:
            before = self._partitions.get(topic, 0)
            now = len(self._consumer.partitions_for_topic(topic) or ())
            self._partitions[topic] = max(before, now)
            if before and now > before:
                self.grown(topic, now)

    def _check_membership(self) -> None:
        """Note a new member id: each one means that the group had thrown us out."""
        member_id = self._consumer._coordinator.member_id
        if not member_id or member_id == self._member_id:
            return
        if self._member_id:
            self._lost()
        self._member_id = member_id

    def _lost(self) -> None:
        """Count a lost membership. DeliveryError if a static member loses it again and again.

        Then another worker has the same name.
        """
        now = asyncio.get_running_loop().time()
        self._losses.append(now)
        name, session_s = self._options.group_instance_id, self._session_s
        often = len(self._losses) > LOSSES_MAX and now - self._losses[0] <= session_s
        if name is not None and often:
            raise DeliveryError(
                f"thrown out of the group {len(self._losses)} times within {session_s:g} s: another worker probably"
                f" has the same kafka.group_instance_id, {name}",
                remedy="give each worker its own, or none",
            )

    @property
    def _session_s(self) -> float:
        return float(self._options.consumer.get("session_timeout_ms", SESSION_TIMEOUT_MS)) / 1000

    async def _join(self) -> None:
        defaults = {
            "max_partition_fetch_bytes": FETCH_BYTES,
            "fetch_max_bytes": ANSWER_BYTES,
            "rebalance_timeout_ms": 60_000,
        }
        consumer: Any = never_creating(
            ColumnarConsumer(
                **{**defaults, **self._options.consumer, **await client_arguments(self._options)},
                group_id=self._group,
                group_instance_id=self._options.group_instance_id,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="none",
                partition_assignment_strategy=(sticky_assignor(self._assignor),),
            )
        )
        self._consumer = self._listener.consumer = (
            consumer  # before the listener reports what is assigned
        )
        disregard_waiters(consumer)
        consumer.subscribe(sorted(self._topics), listener=self._listener)
        try:
            with starting():
                await consumer.start()
        except BaseException as error:
            fault = group_fault(consumer)
            await close_consumer(consumer)
            if isinstance(error, InconsistentGroupProtocolError):
                self._patience.back(self._waits_as)  # a broker has answered
            if fault is not None:
                raise fault from None
            # A bare KafkaError is an error code that aiokafka does not know.
            if type(error) is KafkaError and self._options.group_instance_id:
                self._lost()
                raise GroupCoordinatorNotAvailableError(str(error)) from error
            raise


class _Listener(ConsumerRebalanceListener):
    """Only notes assignments: no heartbeat is sent while it runs, and aiokafka swallows its exceptions."""

    def __init__(self, instance_id: str | None) -> None:
        self.epoch = 0
        self.partitions: frozenset[InputPartition] | None = None
        self.by_topic: dict[str, frozenset[int]] | None = None
        self.membership: Membership | None = None
        self.consumer: Any = None  # the one that calls
        self._instance_id = instance_id

    def revoke(self) -> None:
        """Note that nothing is assigned any more."""
        self.epoch += 1
        self.partitions = self.by_topic = self.membership = None

    @override
    async def on_partitions_revoked(self, revoked: object) -> None:
        self.revoke()

    @override
    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.epoch += 1
        self.partitions = frozenset(InputPartition(*where) for where in assigned)
        topics = {where.topic for where in assigned}
        self.by_topic = {
            topic: frozenset(p.number for p in self.partitions if p.topic == topic)
            for topic in topics
        }
        self.membership = self._member()

    def _member(self) -> Membership | None:
        """Return who we are in the generation that begins; None if the group has thrown us out of it already."""
        coordinator = self.consumer._coordinator
        if coordinator.generation < 0:
            return None
        return Membership(
            member_id=coordinator.member_id,
            generation=coordinator.generation,
            instance_id=self._instance_id,
        )
