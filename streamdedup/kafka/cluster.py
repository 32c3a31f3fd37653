"""A real cluster, behind the seam of `kafka.base`."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from streamdedup.events import EventBatch
from streamdedup.kafka import log, offsets, topics
from streamdedup.kafka.base import Cluster, Source, Writer
from streamdedup.kafka.connection import bootstrap, let_go
from streamdedup.kafka.offsets import Committed, Note
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.patience import Patience, start_patiently
from streamdedup.kafka.protocol import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from streamdedup.kafka.sink import KafkaWriter
from streamdedup.kafka.source import KafkaSource
from streamdedup.kafka.topics import Topic, Topology


class KafkaCluster:
    """A real cluster."""

    def __init__(self, options: KafkaOptions, client: Any, patience: Patience) -> None:
        self.patience = patience
        self._options, self._client = options, client

    def source(self, topic: str) -> Source:
        """As `Cluster.source`."""
        return KafkaSource(self._options, topic, self.patience)

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

    async def end_offset(self, topic: str, partition: int) -> int:
        """As `Cluster.end_offset`."""
        return await log.offset_at(self._client, topic, partition, LATEST, READ_UNCOMMITTED)

    async def stable_offset(self, topic: str, partition: int) -> int:
        """As `Cluster.stable_offset`."""
        return await log.offset_at(self._client, topic, partition, LATEST, READ_COMMITTED)

    def committed_events(
        self, topic: str, partition: int, start: int, end: int, *, stall_s: float
    ) -> AsyncGenerator[EventBatch]:
        """As `Cluster.committed_events`."""
        return log.committed_events(self._options, topic, partition, start, end, stall_s=stall_s)


@asynccontextmanager
async def kafka_cluster(options: KafkaOptions) -> AsyncIterator[Cluster]:
    """A connection to the cluster that `options` name; waits, patiently, until one is there."""
    patience = Patience(options.give_up_after_s)
    client = await start_patiently(lambda: bootstrap(options), "the cluster", patience)
    try:
        yield KafkaCluster(options, client, patience)
    finally:
        await let_go(client.close())
