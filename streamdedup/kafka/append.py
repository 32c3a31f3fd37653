"""Records appended to a topic outside of any transaction, each acknowledged by all replicas in step."""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer

from streamdedup.kafka.client.connection import client_arguments, let_go
from streamdedup.kafka.options import KafkaOptions


async def append(
    options: KafkaOptions, topic: str, records: Sequence[tuple[bytes, bytes | None]]
) -> None:
    """Write (key, value) in their order, each to the partition that Kafka's own clients choose for its key.

    Bound it in time; on an error some of them may have been written.
    """
    producer = AIOKafkaProducer(**client_arguments(options), acks="all", enable_idempotence=True)
    try:
        await producer.start()
        sent = [await producer.send(topic, key=key, value=value) for key, value in records]
        await asyncio.gather(*sent)
    finally:
        await let_go(producer.stop())
