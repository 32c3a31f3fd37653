"""A cluster over a broker in memory: implements the interface in `kafka.base`."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import TypeVar

from aiokafka.errors import (
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)

from streamdedup.errors import ConfigError, DeliveryError
from streamdedup.events import EventBatch, Fingerprint
from streamdedup.kafka.base import Cluster, Connect, GroupWriter, Sources, Writer
from streamdedup.kafka.broker_clock import Stamp
from streamdedup.kafka.brokers import Broker
from streamdedup.kafka.client.patience import Patience, start_patiently
from streamdedup.kafka.groups import InForce
from streamdedup.kafka.large import LargeBatches
from streamdedup.kafka.log import TrimmedError
from streamdedup.kafka.offsets import (
    Committed,
    Note,
    UndecidedError,
    reads_middle,
    writes_to,
)
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.partitions import LastWrite
from streamdedup.kafka.records.records import CHUNK_EVENTS
from streamdedup.kafka.topics import (
    DELETE,
    READ,
    RIGHTS_UNKNOWN,
    Changes,
    Topic,
    Topology,
    allows,
    changes,
)
from streamdedup.testing.broker import MemoryBroker
from streamdedup.testing.log import Logged, batch_of_logged
from streamdedup.testing.source import MemoryMember
from streamdedup.testing.writer import MemoryGroupWriter, MemoryWriter

T = TypeVar("T")

RETRY_S = 0.05
NODE = 0  # the only broker's id


def connected_to(broker: MemoryBroker) -> Connect:
    """Return the argument `connect` of `Worker` that connects it to `broker` instead of a real cluster."""

    @asynccontextmanager
    async def connect(options: KafkaOptions) -> AsyncIterator[Cluster]:
        patience = Patience(options.give_up_after_s)
        cluster = MemoryCluster(broker, options, patience)
        await start_patiently(lambda: cluster.describe([]), "the cluster", patience)
        yield cluster

    return connect


class MemoryCluster:
    """A broker in memory, asked by a client outside of any group. See `kafka.base.Cluster`."""

    def __init__(self, broker: MemoryBroker, options: KafkaOptions, patience: Patience) -> None:
        self.patience, self.large = patience, LargeBatches()
        self._broker, self._options = broker, options
        self._connection = broker.network.connect()

    def sources(
        self, topics: Collection[str], assignor: str, *, group: str | None = None
    ) -> Sources:
        """Return a new member of the group, which joins when it is started, under the assignor of that name."""
        return MemoryMember(
            self._broker, self._options, topics, self.patience, assignor, group=group
        )

    def writer(self, sink: SinkOptions, partition: int, *, exactly_once: bool) -> Writer:
        """Return a new writer, which may write once it has fenced all others."""
        return MemoryWriter(
            self._broker,
            self._options,
            sink,
            partition,
            self.patience,
            exactly_once=exactly_once,
        )

    def group_writer(
        self,
        transactional_id: str,
        sink: SinkOptions,  # noqa: ARG002 - this broker compresses nothing
        *,
        timeout_ms: int,
    ) -> GroupWriter:
        """Return a new writer of any partition, which may write once it is started."""
        return MemoryGroupWriter(
            self._broker, self._options, transactional_id, self.patience, timeout_ms=timeout_ms
        )

    async def describe(self, names: Sequence[str]) -> Topology:
        """Return those topics of `names` that exist."""

        def act(_now: float) -> Topology:
            topics = self._broker.topics
            known = {name: topics[name].topic for name in names if name in topics}
            rights = self._broker.absent_rights
            absent = {name: rights[name] for name in names if name in rights.keys() - known.keys()}
            return Topology(self._broker.cluster_id, known, absent=absent)

        return await self._broker.request(self._connection, "metadata", act)

    async def topic_names(self) -> list[str]:
        """Return the names of all topics."""
        return await self._broker.request(
            self._connection, "metadata", lambda _: list(self._broker.topics)
        )

    async def changed(self, known: Topology) -> Changes:
        """Return which topics are missing, or were deleted and created again, since `known`."""
        now = await self.describe(list(known.topics))
        return changes(known, now.topics)

    async def create(self, topics: Collection[Topic]) -> list[str]:
        """Create the `topics` with their settings; return the names of those that did not exist."""
        for topic in topics:
            if topic.replicas > 1:
                raise ConfigError(
                    f"the topic {topic.name} could not be created: there is 1 broker; create it yourself"
                )

        def act(_now: float) -> list[str]:
            new = [topic for topic in topics if topic.name not in self._broker.topics]
            for topic in new:
                self._broker.create_topic(topic.name, topic.partitions, **topic.settings)
            return [topic.name for topic in new]

        return await self._broker.request(self._connection, "create_topics", act)

    async def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, str]:
        """Delete the records below the offset `before` of each partition; return what failed, by partition."""
        if min(before.values(), default=0) < 0:
            raise ValueError(f"{topic}: an offset below which records are deleted is negative")

        def delete(partition: int, offset: int) -> None:
            log = self._broker.log(topic, partition)
            if not self._broker.topics[topic].topic.may(DELETE):
                raise TopicAuthorizationFailedError
            if offset > log.end:
                raise OffsetOutOfRangeError
            log.trim(offset)

        def act(_now: float) -> dict[int, str]:
            failed = {}
            for partition, offset in before.items():
                try:
                    delete(partition, offset)
                except KafkaError as error:
                    failed[partition] = type(error).__name__
            return failed

        try:
            return await self._broker.request(self._connection, "delete_records", act)
        except KafkaError as error:
            return dict.fromkeys(before, type(error).__name__)

    async def may_join(self, group: str) -> bool:
        """Return whether we have the right Read on `group`."""
        return allows(await self.group_rights(group), READ)

    async def group_rights(self, group: str) -> int:
        """Return our rights on `group`."""
        return await self._ask(
            "describe_groups", lambda _: self._broker.group_rights.get(group, RIGHTS_UNKNOWN)
        )

    async def brokers(self) -> Sequence[Broker]:
        """Return what the broker in memory says of itself and, if a test wants so, of others."""
        return await self._ask("api_versions", lambda _: list(self._broker.brokers))

    async def checks_rights(self) -> bool | None:
        """Return whether it is said to check rights."""
        return await self._ask("describe_acls", lambda _: self._broker.checks_rights)

    async def may_see_transactions(self, transactional_id: str) -> bool:
        """Return whether this transactional id is not among those that a test hides."""
        return await self._ask(
            "find_coordinator", lambda _: transactional_id not in self._broker.hidden_transactions
        )

    async def transaction_ms_max(self) -> int | None:
        """Return None: this broker takes any time-out."""
        return None

    async def in_force(self, group: str) -> InForce:
        """Return what the group goes by now: its assignor and its members."""

        def act(_now: float) -> InForce:
            found = self._broker.group(group)
            return InForce(found.assignor, tuple(sorted(found.members)))

        return await self._ask("describe_groups", act)

    async def supports_stable_offsets(self, group: str, topic: str) -> bool:  # noqa: ARG002 - this broker does
        """Return True: this broker supports stable OffsetFetch."""
        return True

    async def committed_all(
        self, group: str, topic: str, partitions: Collection[int], *, stable: bool = True
    ) -> dict[int, Committed]:
        """Return the committed offsets of those `partitions` that have one, in one request."""

        def act(_now: float) -> dict[int, tuple[int, str]]:
            asked, transactions = self._broker.group(group), self._broker.transactions
            for partition in partitions if stable else ():
                if any(one.undecided(asked, topic, partition) for one in transactions.values()):
                    raise UndecidedError(f"the offset of {topic}/{partition} is undecided")
            return {p: asked.offsets[topic, p] for p in partitions if (topic, p) in asked.offsets}

        found = await self._ask("offset_fetch", act)
        return {p: Committed(offset, Note.decode(text)) for p, (offset, text) in found.items()}

    async def topics_of(self, group: str) -> frozenset[str]:
        """Return the topics on which the group has committed offsets."""

        def act(_now: float) -> frozenset[str]:
            return frozenset(topic for topic, _partition in self._broker.group(group).offsets)

        return await self._ask("offset_fetch", act)

    async def groups_on(self, topic: str, besides: Collection[str]) -> frozenset[str] | None:
        """Return the groups, without those in `besides`, that have committed offsets on `topic`; None if not known."""

        def act(_now: float) -> frozenset[str] | None:
            if not self._broker.lists_groups:
                return None
            return frozenset(
                name
                for name, group in self._broker.groups.items()
                if name not in besides and any(topic == on for on, _partition in group.offsets)
            )

        return await self._ask("list_groups", act)

    async def middles(self, besides: Collection[str]) -> Mapping[str, str]:
        """Return the topics that groups, without those in `besides`, read as middle topics, each with its group."""

        def act(_now: float) -> dict[str, str]:
            groups = self._broker.groups if self._broker.lists_groups else {}
            return {
                topic: name
                for name, group in groups.items()
                if name not in besides
                for (topic, _partition), (offset, text) in group.offsets.items()
                if reads_middle(Committed(offset, Note.decode(text)))
            }

        return await self._ask("list_groups", act)

    async def writers(self, output_id: str, besides: Collection[str]) -> frozenset[str]:
        """Return the groups, without those in `besides`, whose workers have written to the output of that id."""

        def act(_now: float) -> frozenset[str]:
            groups = self._broker.groups if self._broker.lists_groups else {}
            return frozenset(
                name
                for name, group in groups.items()
                for offset, text in group.offsets.values()
                if name not in besides
                and writes_to(Committed(offset, Note.decode(text)), output_id)
            )

        return await self._ask("list_groups", act)

    async def notes(self, group: str, topic: str, partitions: int) -> dict[int, Note]:
        """Return the notes of the group's committed offsets, by partition, decided or not."""

        def act(_now: float) -> dict[int, str]:
            offsets = self._broker.group(group).offsets
            return {p: offsets[topic, p][1] for p in range(partitions) if (topic, p) in offsets}

        found = await self._ask("offset_fetch", act)
        notes = {partition: Note.decode(text) for partition, text in found.items()}
        return {partition: note for partition, note in notes.items() if note is not None}

    async def move(self, group: str, topic: str, moved: Mapping[int, tuple[int, str]]) -> None:
        """Commit offsets, partition -> (offset, metadata). DeliveryError if the group has members."""

        def act(_now: float) -> None:
            found = self._broker.group(group)
            if found.members:
                raise DeliveryError(
                    f"the group {group} has members: stop all workers, and try again"
                )
            found.offsets.update({(topic, partition): at for partition, at in moved.items()})

        await self._ask("offset_commit", act)

    async def first_offset(self, topic: str, partition: int) -> int:
        """Return the offset at which the log starts."""
        return await self._ask("list_offsets", lambda _: self._broker.log(topic, partition).start)

    async def first_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """Return the offsets at which the logs of `partitions` start."""

        def act(_now: float) -> dict[int, int]:
            return {p: self._broker.log(topic, p).start for p in partitions}

        return await self._ask("list_offsets", act)

    async def end_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """Return the high watermarks of `partitions`."""

        def act(_now: float) -> dict[int, int]:
            return {p: self._broker.log(topic, p).end for p in partitions}

        return await self._ask("list_offsets", act)

    async def stable_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """Return the last stable offsets of `partitions`."""

        def act(_now: float) -> dict[int, int]:
            return {p: self._broker.log(topic, p).stable for p in partitions}

        return await self._ask("list_offsets", act)

    async def is_old(self, topic: str, partition: int, offset: int) -> bool:  # noqa: ARG002 - of no record
        """Return False: this broker keeps record bodies of today."""
        return False

    async def batch_at(self, topic: str, partition: int, offset: int) -> Fingerprint | None:
        """Return the fingerprint of the entry at `offset`; None if the log does not hold it."""
        return await self._ask(
            "fetch", lambda _: self._broker.log(topic, partition).batch_at(offset)
        )

    async def producer_at(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the id of the producer that wrote the event at `offset`; None if the log does not hold it."""
        return await self._ask(
            "fetch", lambda _: self._broker.log(topic, partition).producer_at(offset)
        )

    async def last_writes(self, topic: str, partition: int) -> Sequence[LastWrite] | None:
        """Return the last write of each producer with an id; None if the broker does not tell."""

        def act(_now: float) -> list[LastWrite] | None:
            known = self._broker.describes_producers
            return self._broker.log(topic, partition).last_writes() if known else None

        return await self._ask("describe_producers", act)

    def leader(self, topic: str, partition: int) -> int | None:  # noqa: ARG002 - there is one broker
        """Return the id of the only broker."""
        return NODE

    async def stamp(self, topic: str, partition: int, start: int, end: int) -> Stamp | None:
        """Return the first stamp by the broker's own clock at offsets from `start` to `end` (exclusive)."""

        def act(_now: float) -> tuple[int, int] | None:
            return self._broker.log(topic, partition).stamp(start, end)

        found = await self._ask("fetch", act)
        return None if found is None else Stamp(NODE, *found)

    async def end_offset(self, topic: str, partition: int) -> int:
        """Return the high watermark."""
        return await self._ask("list_offsets", lambda _: self._broker.log(topic, partition).end)

    async def offset_of_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        """Return the offset of the first entry from `time_ms` (ms since 1970) on; None if there is none."""
        return await self._ask(
            "list_offsets", lambda _: self._broker.log(topic, partition).offset_of_time(time_ms)
        )

    async def stable_offset(self, topic: str, partition: int) -> int:
        """Return the last stable offset: everything below it is decided."""
        return await self._ask("list_offsets", lambda _: self._broker.log(topic, partition).stable)

    async def committed_events(
        self, topic: str, partition: int, start: int, end: int, *, stall_s: float
    ) -> AsyncGenerator[EventBatch]:
        """Yield the events of committed transactions at offsets from `start` to `end` (exclusive)."""
        loop, position = asyncio.get_running_loop(), start
        moved_at = loop.time()
        chunk = min(CHUNK_EVENTS, self._broker.fetch_events_max)

        def act(_now: float) -> tuple[list[Logged], int]:
            log = self._broker.log(topic, partition)
            if position < log.start:
                raise TrimmedError(f"{topic}/{partition} no longer holds offset {position}")
            return log.read(position, chunk)

        while position < end:
            events, reached = await self._ask("fetch", act)
            if events := [event for event in events if event.offset < end]:
                yield batch_of_logged(topic, partition, events, reached)
            if reached > position:
                position, moved_at = reached, loop.time()
            elif loop.time() - moved_at > stall_s:
                raise TimeoutError(
                    f"{topic}/{partition}: nothing could be read at offset {position} for {stall_s:g} s"
                )
            else:
                await asyncio.sleep(RETRY_S)

    async def _ask(self, call: str, act: Callable[[float], T]) -> T:
        """Return the answer; repeat the request while the broker cannot answer. The caller sets a time-out."""
        while True:
            try:
                return await self._broker.request(self._connection, call, act)
            except KafkaError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(RETRY_S)
