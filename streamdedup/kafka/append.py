"""Append records to a topic outside of any transaction. All in-sync replicas acknowledge each record."""

import asyncio
from collections.abc import Collection, Sequence

from aiokafka import AIOKafkaProducer

from streamdedup.kafka.client.closing import close_producer, let_go, starting
from streamdedup.kafka.client.connection import client_arguments
from streamdedup.kafka.client.creation import never_creating
from streamdedup.kafka.options import KafkaOptions


async def append(
    options: KafkaOptions,
    topic: str,
    records: Sequence[tuple[bytes, bytes | None]],
    partitions: Collection[int | None] = (None,),
) -> None:
    """Write `records`, (key, value) each, in their order, to each of `partitions`.

    None is the partition that Kafka's own clients choose for the key. This may wait for a broker without end, so the
    caller sets a time-out. After an error, some of the records may have been written.
    """
    producer = never_creating(
        AIOKafkaProducer(**await client_arguments(options), acks="all", enable_idempotence=True)
    )
    try:
        with starting():
            await producer.start()
        sent = [
            await producer.send(topic, key=key, value=value, partition=partition)
            for key, value in records
            for partition in partitions
        ]
        await asyncio.gather(*sent)
    finally:
        if not await let_go(producer.stop()):
            await close_producer(producer)
