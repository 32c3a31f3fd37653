"""Claims about what a topic would refuse or not keep, asked first: sizes to the byte, times to the ms."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from streamdedup.kafka.broker_clock import Span
from streamdedup.kafka.topics import FOREVER
from tests.broker.base import Broker
from tests.broker.needs import AHEAD
from tests.broker.topics import create_topic, unique_name
from tests.kafka.test_limits import HOUR_MS, events, limits, sent, stamped


@pytest.mark.broker
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_broker_draws_the_line_at_the_same_byte(broker: Broker, compression: str) -> None:
    """A real broker takes the largest record that we take, and refuses the one that we refuse."""
    topic = unique_name("limit")
    create_topic(broker.bootstrap_servers, topic, 1, max_message_bytes=2000)
    narrow = limits(compression, {"max.message.bytes": "2000"})
    noise = np.random.default_rng(6).bytes(3000)
    now_ms, sizes = int(time.time() * 1000), range(1500, 2000)
    batch = events(*((now_ms, b"k", noise[:size], [("h", b"v")]) for size in sizes))
    first_refused = narrow.fitting(batch).tolist().index(False)
    answers = [
        asyncio.run(
            offered(broker.bootstrap_servers, topic, sent(batch.take(np.array([row])), compression))
        )
        for row in (first_refused - 1, first_refused)
    ]
    assert answers == [None, MessageSizeTooLargeError]


@pytest.mark.broker
@pytest.mark.needs_broker(AHEAD)
@pytest.mark.parametrize("ahead_ms_max", [HOUR_MS, 2**63 - 1])
async def test_a_broker_draws_the_line_at_the_same_age(broker: Broker, ahead_ms_max: int) -> None:
    """A broker computes the distance in 64 bits, so what is further back than these hold is ahead for it."""
    topic, now_ms = unique_name("age"), int(time.time() * 1000)
    created = {"message_timestamp_after_max_ms": ahead_ms_max, "retention_ms": -1}
    create_topic(broker.bootstrap_servers, topic, 1, **created)
    farthest = now_ms - (2**63 - 1)
    times = [-FOREVER, -FOREVER - 1, farthest + HOUR_MS // 2, farthest - HOUR_MS // 2, -(2**63)]
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    await producer.start()
    refused = []
    try:
        for row, timestamp in enumerate(times):
            try:
                await producer.send_and_wait(topic, b"", timestamp_ms=timestamp)
            except KafkaError:
                refused.append(row)
    finally:
        await producer.stop()
    known = limits("none", {name.replace("_", "."): f"{ms}" for name, ms in created.items()})
    assert list(known.rejected(stamped(*times), Span.at(now_ms))) == refused
    assert refused == ([3, 4] if ahead_ms_max == HOUR_MS else [])


async def offered(bootstrap: str, topic: str, batch: Any) -> type[KafkaError] | None:
    """The error by which the broker refuses a record batch of ours, or None."""
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=1 << 20)
    await producer.start()
    try:
        batch.close()
        await (await producer.send_batch(batch, topic, partition=0))
    except KafkaError as error:
        return type(error)
    finally:
        await producer.stop()
    return None
