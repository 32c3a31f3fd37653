"""A real cluster, behind the seam of `kafka.base`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import aiokafka
import structlog

from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch, Fingerprint
from streamdedup.kafka import groups, log, offsets, topics
from streamdedup.kafka.base import Source, Writer
from streamdedup.kafka.client.connection import bootstrap, let_go, refusal
from streamdedup.kafka.client.patience import Patience, start_patiently
from streamdedup.kafka.client.protocol import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.records.records import EventConsumer
from streamdedup.kafka.sink import KafkaWriter
from streamdedup.kafka.source import KafkaSource
from streamdedup.kafka.topics import Topic, Topology

AWAY_S_MAX = 60.0  # for a command that somebody waits for, unless kafka.give_up_after_s is set

Opened = TypeVar("Opened")
told = structlog.get_logger(__name__)


class KafkaCluster:
    """A real cluster."""

    def __init__(self, options: KafkaOptions, client: Any, patience: Patience) -> None:
        self.patience = patience
        self._options, self._client = options, client
        columnar = _columnar() if options.record_path == "columns" else None
        self._make_consumer = columnar or EventConsumer

    def source(self, topic: str) -> Source:
        """As `Cluster.source`."""
        return KafkaSource(self._options, topic, self.patience, self._make_consumer)

    def writer(self, sink: SinkOptions, partition: int, *, exactly_once: bool) -> Writer:
        """As `Cluster.writer`."""
        return KafkaWriter(self._options, sink, partition, self.patience, exactly_once=exactly_once)

    async def describe(self, names: Sequence[str]) -> Topology:
        """As `Cluster.describe`."""
        return await topics.describe(self._client, names)

    async def changed(self, known: Topology) -> list[str]:
        """As `Cluster.changed`."""
        return await topics.changed(self._client, known)

    async def create_missing(
        self, sink: SinkOptions, source: Topic, known: Topology, retention_ms_min: int
    ) -> list[str]:
        """As `Cluster.create_missing`."""
        return await topics.create_missing(self._options, sink, source, known, retention_ms_min)

    async def tells_stable_offsets(self, group: str, topic: str) -> bool:
        """As `Cluster.tells_stable_offsets`."""
        return await offsets.tells_stable_offsets(self._client, group, topic)

    async def committed(
        self, group: str, topic: str, partition: int, *, stable: bool
    ) -> Committed | None:
        """As `Cluster.committed`."""
        return await offsets.committed(self._client, group, topic, partition, stable=stable)

    async def notes(self, group: str, topic: str, partitions: int) -> dict[int, Note]:
        """As `Cluster.notes`."""
        return await offsets.notes(self._client, group, topic, partitions)

    async def first_offset(self, topic: str, partition: int) -> int:
        """As `Cluster.first_offset`."""
        return await log.offset_at(self._client, topic, partition, EARLIEST, READ_UNCOMMITTED)

    async def first_offsets(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """As `Cluster.first_offsets`."""
        return await log.first_offsets(self._client, topic, partitions)

    async def batch_at(self, topic: str, partition: int, offset: int) -> Fingerprint | None:
        """As `Cluster.batch_at`."""
        return await log.batch_at(self._client, topic, partition, offset)

    async def end_offset(self, topic: str, partition: int) -> int:
        """As `Cluster.end_offset`."""
        return await log.offset_at(self._client, topic, partition, LATEST, READ_UNCOMMITTED)

    async def stable_offset(self, topic: str, partition: int) -> int:
        """As `Cluster.stable_offset`."""
        return await log.offset_at(self._client, topic, partition, LATEST, READ_COMMITTED)

    async def offset_of_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        """The first offset of an event from `time_ms` on, ms since 1970; None where there is none."""
        found = await log.offset_at(self._client, topic, partition, time_ms, READ_UNCOMMITTED)
        return found if found >= 0 else None

    async def members(self, group: str) -> int:
        """How many members the group has."""
        return await groups.members(self._client, group)

    async def move(self, group: str, topic: str, moved: Mapping[int, tuple[int, str]]) -> None:
        """Commit partition -> (offset, metadata), all or none; DeliveryError where the group has members."""
        await groups.move(self._client, group, topic, moved)

    def committed_events(
        self, topic: str, partition: int, start: int, end: int, *, stall_s: float
    ) -> AsyncGenerator[EventBatch]:
        """As `Cluster.committed_events`."""
        return log.committed_events(
            self._options,
            topic,
            partition,
            start,
            end,
            stall_s=stall_s,
            make_consumer=self._make_consumer,
        )


def _columnar() -> type[EventConsumer] | None:
    """The consumer that gives columns; None where the aiokafka that is installed is not known to it, which is told."""
    try:
        from streamdedup.kafka.client import columns  # whose classes are made of aiokafka's

        if (reason := columns.unfit()) is None:
            return columns.ColumnarConsumer
    except (ImportError, AttributeError) as error:
        reason = f"aiokafka {aiokafka.__version__}: {error}"
    told.warning(
        "record_path_objects",
        reason=reason,
        instead="every event is read as an object, which is slower",
        remedy="install an aiokafka that this version knows, or set kafka.record_path: objects",
    )
    return None


@asynccontextmanager
async def kafka_cluster(options: KafkaOptions) -> AsyncIterator[KafkaCluster]:
    """A connection to the cluster that `options` name; waits, patiently, until one is there."""
    patience = Patience(options.give_up_after_s)
    client = await start_patiently(lambda: bootstrap(options), "the cluster", patience)
    try:
        yield KafkaCluster(options, client, patience)
    finally:
        await let_go(client.close())


@asynccontextmanager
async def soon(
    connect: Callable[[KafkaOptions], AbstractAsyncContextManager[Opened]],
    options: KafkaOptions,
    unanswered: str,
) -> AsyncIterator[Opened]:
    """What `connect` opens, for a command: DeliveryError where no broker answers in the time that a person has.

    So is what happens within where the broker refuses us, or, as `unanswered` says, does not answer any more.
    """
    limit_s = options.give_up_after_s or AWAY_S_MAX
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(limit_s):
                opened = await stack.enter_async_context(
                    connect(options.model_copy(update={"give_up_after_s": None}))
                )
        except TimeoutError:
            raise DeliveryError(
                f"no broker answered at {options.bootstrap_servers} within {limit_s:g} s; look at the"
                " brokers and at kafka.bootstrap_servers and kafka.security_protocol, then try again"
            ) from None
        try:
            yield opened
        except TimeoutError:
            raise DeliveryError(unanswered) from None
        except Exception as error:
            if refused := refusal(error):
                raise refused from error
            raise
