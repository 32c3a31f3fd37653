"""One partition's log as it stands: its ends, and its committed events between two offsets."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    KafkaError,
    NoError,
    OffsetOutOfRangeError,
    StaleMetadata,
    for_code,
)

from streamdedup.errors import DeliveryError
from streamdedup.events import EventBatch
from streamdedup.kafka.connection import client_arguments, let_go
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocol import list_offsets
from streamdedup.kafka.records import CHUNK_EVENTS, to_batch

RETRY_S = 0.05


class TrimmedError(DeliveryError):
    """The log no longer holds an offset that is asked for."""


async def offset_at(
    client: Any,
    topic: str,
    partition: int,
    which: int,
    isolation: int,
) -> int:
    """The EARLIEST or LATEST offset; asked again while the leader moves. Bound it with a time-out."""
    where = TopicPartition(topic, partition)
    while True:
        leader = client.cluster.leader_for_partition(where)
        try:
            if leader in (None, -1):
                raise StaleMetadata
            response = await client.send(leader, list_offsets(topic, partition, which, isolation))
            _partition, code, _timestamp, offset = response.topics[0][1][0]
            error = for_code(code)
            if error is NoError:
                return int(offset)
            raise error
        except KafkaError as error:
            if not (error.retriable or error.invalid_metadata):
                raise
        await client.force_metadata_update()
        await asyncio.sleep(RETRY_S)


async def committed_events(
    options: KafkaOptions, topic: str, partition: int, start: int, end: int, *, stall_s: float
) -> AsyncGenerator[EventBatch]:
    """The events of committed transactions at offsets from `start` up to, without, `end`.

    Raises TrimmedError where `start` is gone, TimeoutError where nothing moves for `stall_s`.
    """
    if start >= end:
        return
    where = TopicPartition(topic, partition)
    consumer = AIOKafkaConsumer(
        **client_arguments(options),
        isolation_level="read_committed",
        auto_offset_reset="none",
        enable_auto_commit=False,
        max_partition_fetch_bytes=4 << 20,
    )
    try:
        await consumer.start()
        consumer.assign([where])
        consumer.seek(where, start)
        position, loop = start, asyncio.get_running_loop()
        moved_at = loop.time()
        while position < end:
            try:
                polled = await consumer.getmany(where, timeout_ms=200, max_records=CHUNK_EVENTS)
            except OffsetOutOfRangeError:
                raise TrimmedError(
                    f"{topic}/{partition} no longer holds offset {position}"
                ) from None
            reached = await consumer.position(where)
            if records := polled.get(where):
                batch = to_batch(topic, partition, records, reached)
                if below_end := int(batch.offsets.searchsorted(end)):
                    yield batch if below_end == len(batch) else batch.head(below_end)
            if reached > position:
                position, moved_at = reached, loop.time()
            elif loop.time() - moved_at > stall_s:
                raise TimeoutError(
                    f"{topic}/{partition}: nothing could be read at offset {position} for {stall_s:g} s"
                )
            await asyncio.sleep(0)  # what is prefetched comes without waiting
    finally:
        await let_go(consumer.stop())
