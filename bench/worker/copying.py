"""A plain copy of a topic through aiokafka's objects: it judges nothing and has no transactions.

What one would write by hand: poll, append to batches, send, commit.
"""

import asyncio
import signal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.worker.asked import asked, tell_assigned

POLLED_MAX = 20_000
BATCH_BYTES = 900_000
FETCH_BYTES = 4 << 20


async def main() -> None:
    """Copy until SIGTERM."""
    job, stop = asked(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    consumer.subscribe([job.source])
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks="all",
        max_batch_size=BATCH_BYTES,
        compression_type=None if job.compression == "none" else job.compression,
    )
    await asyncio.gather(consumer.start(), producer.start())
    while not consumer.assignment():
        await asyncio.sleep(0.01)
    tell_assigned(partition for _, partition in consumer.assignment())
    while not stop.is_set():
        sends = []
        polled = await consumer.getmany(timeout_ms=100, max_records=POLLED_MAX)
        for where, records in polled.items():
            batch = producer.create_batch()
            for record in records:
                event = {"timestamp": record.timestamp, "key": record.key, "value": record.value}
                if batch.append(**event, headers=list(record.headers)) is None:
                    sends.append(
                        await producer.send_batch(batch, job.sink, partition=where.partition)
                    )
                    batch = producer.create_batch()
                    batch.append(**event, headers=list(record.headers))
            sends.append(await producer.send_batch(batch, job.sink, partition=where.partition))
        if polled:
            await asyncio.gather(*sends)
            await consumer.commit()
    await consumer.stop()
    await producer.stop()


if __name__ == "__main__":
    asyncio.run(main())
