"""A real Kafka cluster: implements the interface in `kafka.base`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import structlog
from aiokafka.errors import KafkaError

from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch, Fingerprint
from streamdedup.kafka import broker_settings, brokers, groups, log, offsets, topics
from streamdedup.kafka.base import AWAY_S_MAX, GroupWriter, Sources, Writer
from streamdedup.kafka.broker_clock import Stamp
from streamdedup.kafka.brokers import Broker
from streamdedup.kafka.client.closing import close_client
from streamdedup.kafka.client.connection import bootstrap, refusal
from streamdedup.kafka.client.patience import Patience, is_away, start_patiently
from streamdedup.kafka.client.protocol import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from streamdedup.kafka.group_sink import KafkaGroupWriter
from streamdedup.kafka.groups import InForce
from streamdedup.kafka.large import LargeBatches
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.partitions import LastWrite
from streamdedup.kafka.sink import KafkaWriter
from streamdedup.kafka.source import KafkaMember
from streamdedup.kafka.topics import READ, Changes, Topic, Topology, allows

SILENT_S_MAX = 10.0  # before a worker that connects says that no broker answers
UNANSWERED = "the broker does not answer; check it, and try again"

Opened = TypeVar("Opened")
logger = structlog.get_logger(__name__)


class KafkaCluster:
    """A real cluster. The methods' contracts are those of `kafka.base.Cluster`."""

    def __init__(self, options: KafkaOptions, client: Any, patience: Patience) -> None:
        self.patience, self.large = patience, LargeBatches()
        self._options, self._client = options, client

    def sources(
        self, topics: Collection[str], assignor: str, *, group: str | None = None
    ) -> Sources:
        """Return a new member of the group, which joins when it is started, under the assignor of that name."""
        return KafkaMember(self._options, topics, self.patience, assignor, group=group)

    def writer(self, sink: SinkOptions, partition: int, *, exactly_once: bool) -> Writer:
        """Return a new writer, which may write once it has fenced all others."""
        return KafkaWriter(self._options, sink, partition, self.patience, exactly_once=exactly_once)

    def group_writer(
        self, transactional_id: str, sink: SinkOptions, *, timeout_ms: int
    ) -> GroupWriter:
        """Return a new writer of any partition, which may write once it is started."""
        return KafkaGroupWriter(
            self._options, sink, transactional_id, self.patience, timeout_ms=timeout_ms
        )

    async def describe(self, names: Sequence[str]) -> Topology:
        """Return those topics of `names` that exist."""
        return await topics.describe(self._client, names)

    async def topic_names(self) -> list[str]:
        """Return the names of all topics that we may see."""
        return await topics.names(self._client)

    async def changed(self, known: Topology) -> Changes:
        """Return which topics are missing, or were deleted and created again, since `known`."""
        return await topics.changed(self._client, known)

    async def create(self, wanted: Collection[Topic]) -> list[str]:
        """Create these topics with their settings; return the names of those that did not exist."""
        return await topics.create(self._options, wanted)

    async def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, str]:
        """Delete the records below the offset `before` of each partition; return what failed, by partition."""
        return await log.delete_records(self._client, topic, before)

    async def may_join(self, group: str) -> bool:
        """Return whether we have the right Read on `group`; True if the broker does not report rights."""
        return allows(await groups.rights(self._client, group), READ)

    async def group_rights(self, group: str) -> int:
        """Return our rights on `group`, a bit for each; RIGHTS_UNKNOWN if the broker does not report rights."""
        return await groups.rights(self._client, group)

    async def brokers(self) -> Sequence[Broker]:
        """Return all brokers, those that do not answer among them."""
        return await brokers.brokers(self._client)

    async def checks_rights(self) -> bool | None:
        """Return whether the brokers check rights at all; None if that is not known."""
        return await brokers.checks_rights(self._client)

    async def may_see_transactions(self, transactional_id: str) -> bool:
        """Return whether we may see this transactional id."""
        return await brokers.may_see_transactions(self._client, transactional_id)

    async def supports_stable_offsets(self, group: str, topic: str) -> bool:
        """Return whether the brokers support stable OffsetFetch."""
        return await offsets.supports_stable_offsets(self._client, group, topic)

    async def committed_all(
        self, group: str, topic: str, partitions: Collection[int], *, stable: bool = True
    ) -> dict[int, Committed]:
        """Return the committed offsets of those `partitions` that have one, in one request."""
        return await offsets.committed_all(self._client, group, topic, partitions, stable=stable)

    async def topics_of(self, group: str) -> frozenset[str]:
        """Return the topics on which the group has committed offsets."""
        return await offsets.topics_of(self._client, group)

    async def groups_on(self, topic: str, besides: Collection[str]) -> frozenset[str] | None:
        """Return the groups, without those in `besides`, that have committed offsets on `topic`; None if not known."""
        return await groups.groups_on(self._client, topic, besides)

    async def middles(self, besides: Collection[str]) -> Mapping[str, str]:
        """Return the topics that groups, without those in `besides`, read as middle topics, each with its group."""
        return await groups.middles(self._client, besides)

    async def writers(self, output_id: str, besides: Collection[str]) -> frozenset[str]:
        """Return the groups, without those in `besides`, whose workers have written to the output of that id."""
        return await groups.writers(self._client, output_id, besides)

    async def notes(self, group: str, topic: str, partitions: int) -> dict[int, Note]:
        """Return the notes of the group's committed offsets, by partition, decided or not."""
        return await offsets.notes(self._client, group, topic, partitions)

    async def first_offset(self, topic: str, partition: int) -> int:
        """Return the offset at which the log starts."""
        return await log.offset_at(self._client, topic, partition, EARLIEST, READ_UNCOMMITTED)

    async def first_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """Return the offsets at which the logs start, of those partitions that answer at once."""
        return await log.offsets_at(self._client, topic, partitions, EARLIEST)

    async def end_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """Return the high watermarks of those partitions that answer at once."""
        return await log.offsets_at(self._client, topic, partitions, LATEST)

    async def stable_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """Return the last stable offsets of those partitions that answer at once."""
        return await log.offsets_at(self._client, topic, partitions, LATEST, READ_COMMITTED)

    async def is_old(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether the log holds `offset` in a format from before Kafka 0.11."""
        return await log.is_old(self._client, topic, partition, offset)

    async def batch_at(self, topic: str, partition: int, offset: int) -> Fingerprint | None:
        """Return the fingerprint of the record batch that contains `offset`; None if there is none."""
        return await log.batch_at(self._client, topic, partition, offset)

    async def producer_at(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the id of the producer that wrote the event at `offset`; None if the log does not hold it."""
        found = await self.batch_at(topic, partition, offset)
        return found.producer_id if found else None

    async def last_writes(self, topic: str, partition: int) -> Sequence[LastWrite] | None:
        """Return the last write of each producer with an id that wrote lately; None if the broker does not tell."""
        return await log.last_writes(self._client, topic, partition)

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the node id of the partition's leader, as far as it is known without asking."""
        return log.leader_of(self._client, topic, partition)

    async def stamp(self, topic: str, partition: int, start: int, end: int) -> Stamp | None:
        """Return the first stamp by the leader's own clock at offsets from `start` to `end` (exclusive)."""
        return await log.stamp(self._client, topic, partition, start, end)

    async def end_offset(self, topic: str, partition: int) -> int:
        """Return the high watermark: everything below it is replicated."""
        return await log.offset_at(self._client, topic, partition, LATEST, READ_UNCOMMITTED)

    async def stable_offset(self, topic: str, partition: int) -> int:
        """Return the last stable offset: everything below it is decided."""
        return await log.offset_at(self._client, topic, partition, LATEST, READ_COMMITTED)

    async def offset_of_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        """Return the offset of the first event from `time_ms` (ms since 1970) on; None if there is none."""
        found = await log.offset_at(self._client, topic, partition, time_ms, READ_UNCOMMITTED)
        return found if found >= 0 else None

    async def transaction_ms_max(self) -> int | None:
        """Return the longest time-out of a transaction, in ms, that all brokers accept; None if none reports it."""
        return await broker_settings.transaction_ms_max(self._client)

    async def in_force(self, group: str) -> InForce:
        """Return what the group goes by now: its assignor and its members."""
        return await groups.in_force(self._client, group)

    async def move(self, group: str, topic: str, moved: Mapping[int, tuple[int, str]]) -> None:
        """Commit offsets, partition -> (offset, metadata), all or none. DeliveryError if the group has members."""
        await groups.move(self._client, group, topic, moved)

    def committed_events(
        self, topic: str, partition: int, start: int, end: int, *, stall_s: float
    ) -> AsyncGenerator[EventBatch]:
        """Yield the events of committed transactions at offsets from `start` to `end` (exclusive)."""
        return log.committed_events(
            self._options,
            topic,
            partition,
            start,
            end,
            stall_s=stall_s,
            large=self.large,
        )


@asynccontextmanager
async def kafka_cluster(options: KafkaOptions) -> AsyncIterator[KafkaCluster]:
    """Open a connection to the cluster that `options` name; close it at the end of the context.

    This waits, with back-off, until a broker answers. DeliveryError after `kafka.give_up_after_s`, if that is set.
    """
    patience = Patience(options.give_up_after_s)
    client = await start_patiently(
        lambda: bootstrap(options), "the cluster", patience, silent_s_max=SILENT_S_MAX
    )
    try:
        yield KafkaCluster(options, client, patience)
    finally:
        await close_client(client)


@asynccontextmanager
async def soon(
    connect: Callable[[KafkaOptions], AbstractAsyncContextManager[Opened]],
    options: KafkaOptions,
    unanswered: str,
) -> AsyncIterator[Opened]:
    """Open what `connect` opens, for a command that a person waits for.

    Raise DeliveryError if no broker answers within AWAY_S_MAX, or `kafka.give_up_after_s` if that is shorter.
    Raise DeliveryError, too, if in the body of the context the broker refuses us or is away, or a time-out ends;
    `unanswered` is the message unless it refuses us.
    """
    limit_s = min(options.give_up_after_s or AWAY_S_MAX, AWAY_S_MAX)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(limit_s):
                opened = await stack.enter_async_context(
                    connect(options.model_copy(update={"give_up_after_s": None}))
                )
        except TimeoutError:
            raise DeliveryError(
                f"no broker answered at {options.bootstrap_servers} within {limit_s:g} s",
                remedy="look at the"
                " brokers, their advertised.listeners, kafka.bootstrap_servers and kafka.security_protocol, then try"
                " again",
            ) from None
        try:
            yield opened
        except Exception as error:
            failed = failure_of(error, unanswered)
            if failed is None or failed is error:
                raise
            raise failed from error


def failure_of(error: Exception, unanswered: str) -> DeliveryError | None:
    """Return what an error of the broker is to a person: a refusal, or `unanswered`; None if it is no such error."""
    if isinstance(error, DeliveryError):
        return error
    if isinstance(error, TimeoutError):
        return DeliveryError(unanswered)
    if refused := refusal(error):
        return refused
    is_of_broker = isinstance(error, KafkaError) and is_away(error)
    return DeliveryError(unanswered) if is_of_broker else None
