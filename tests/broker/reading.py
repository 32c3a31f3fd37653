"""Reads and copies topics as columns, on a real broker; and reads them by aiokafka's own consumer, the oracle."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from streamdedup.delivery.fence import wait_decided
from streamdedup.events import EventBatch
from streamdedup.filters.base import Mask
from streamdedup.kafka.cluster import KafkaCluster, kafka_cluster
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from tests.broker.base import DEADLINE_S, Broker
from tests.broker.topics import create_topic, unique_name

STAMPED_MS = 1_750_000_000_000
BYTES_MAX = 900_000
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Keep = Callable[[EventBatch], Mask]
Header = tuple[str, bytes | None]
Cells = tuple[int, bytes | None, bytes | None, tuple[Header, ...]]


class Event(NamedTuple):
    """One event, as a reader has it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def sample(count: int, seed: int = 1) -> list[Cells]:
    """Events of all forms: nulls, empty bytes, headers, times out of order, sizes around those of a varint's bytes."""
    chance = random.Random(seed)
    made: list[Cells] = []
    for number in range(count):
        key = None if number % 11 == 0 else chance.randbytes(chance.choice((0, 1, 24, 63, 64, 65)))
        value = chance.randbytes(chance.choice((0, 1, 62, 63, 64, 70, 300)))
        headers: list[Header] = [
            (f"näme{n % 2}", None if n == 1 else chance.randbytes(40 * n))
            for n in range(0 if number % 7 else number % 4)
        ]
        stamped_ms = STAMPED_MS + number + chance.randrange(-5000, 5000)
        made.append((stamped_ms, key, None if number % 13 == 0 else value, tuple(headers)))
    return made


@asynccontextmanager
async def producer(bootstrap: str, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A plain one; it ends with the context."""
    made = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", **options)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def put(
    sender: AIOKafkaProducer, topic: str, records: Sequence[Cells], each: int = 10**9
) -> None:
    """Append `records`, at most `each` to a record batch."""
    at = 0
    while at < len(records):
        batch = sender.create_batch()
        end = at
        while end < min(at + each, len(records)):
            stamped_ms, key, value, headers = records[end]
            cells = {"timestamp": stamped_ms, "key": key, "value": value, "headers": list(headers)}
            if batch.append(**cells) is None:
                break
            end += 1
        batch.close()
        await (await sender.send_batch(batch, topic, partition=0))
        at = end


class Reader:
    """Reads a topic, by our consumer and by aiokafka's."""

    def __init__(self, bootstrap: str, cluster: KafkaCluster) -> None:
        self.bootstrap, self._cluster = bootstrap, cluster

    def topic(self, **config: str | int) -> str:
        """A new one, of one partition."""
        name = unique_name("paths")
        create_topic(self.bootstrap, name, 1, **config)
        return name

    async def batches(self, topic: str, start: int = 0) -> list[EventBatch]:
        """The committed events from `start` on, by our consumer."""
        end = await self._end(topic)
        found = self._cluster.committed_events(topic, 0, start, end, stall_s=DEADLINE_S)
        return [batch async for batch in found]

    async def theirs(self, topic: str, start: int = 0) -> list[Event]:
        """The committed events from `start` on, by aiokafka's own consumer."""
        where, end, found = TopicPartition(topic, 0), await self._end(topic), list[Event]()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="none",
        )
        await consumer.start()
        try:
            consumer.assign([where])
            consumer.seek(where, start)
            async with asyncio.timeout(DEADLINE_S):
                while await consumer.position(where) < end:
                    records = await consumer.getmany(where, timeout_ms=100)
                    found += [
                        Event(r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                        for r in records.get(where, ())
                    ]
        finally:
            await consumer.stop()
        return found

    async def same(self, topic: str, start: int = 0) -> list[Event]:
        """What both consumers agree on."""
        ours = [event for batch in await self.batches(topic, start) for event in of(batch)]
        assert ours == await self.theirs(topic, start)
        return ours

    async def _end(self, topic: str) -> int:
        return await self._cluster.end_offset(topic, 0)

    async def copy(
        self,
        source: str,
        keep: Keep,
        codec: Codec,
        *,
        exactly_once: bool,
    ) -> str:
        """The topic that the kept events of `source` were copied to."""
        output = self.topic()
        sink = SinkOptions(topic=output, compression=codec)
        writer = self._cluster.writer(sink, 0, exactly_once=exactly_once)
        await writer.fence()
        await writer.begin()
        for batch in await self.batches(source):
            await writer.copy(output, batch, np.flatnonzero(keep(batch)), BYTES_MAX)
        await writer.settle(0)
        if exactly_once:
            await writer.commit(source, 1, "", "group")
            await wait_decided(self._cluster, output, 0, await self._end(output), DEADLINE_S)
        await writer.drop()
        return output


def of(batch: EventBatch) -> Iterator[Event]:
    """The events of `batch`."""
    times, offsets = batch.timestamps.tolist(), batch.offsets.tolist()
    for row, (offset, stamped_ms) in enumerate(zip(offsets, times, strict=True)):
        headers = tuple(batch.headers[row])
        yield Event(offset, stamped_ms, batch.keys[row], batch.values[row], headers)


@pytest.fixture
async def reader(broker: Broker) -> AsyncIterator[Reader]:
    """Connected."""
    servers = broker.bootstrap_servers
    options = KafkaOptions(bootstrap_servers=servers, group_id="group")
    async with kafka_cluster(options) as cluster:
        yield Reader(servers, cluster)
