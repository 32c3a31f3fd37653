"""A record of a few kB that holds millions of headers, on a real broker: what becomes of it, and of its neighbors."""

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from streamdedup.kafka.client.open_batches import ReadyBatch
from streamdedup.kafka.records.codecs import ZSTD
from streamdedup.kafka.records.encoding import EncodedBatch
from tests.broker.base import Broker
from tests.broker.topics import read_all
from tests.delivery.bombs import bomb, record_batch
from tests.deployment import Deployment, keyed
from tests.local import run_to_the_end

pytestmark = pytest.mark.broker

BOMBS = 3
HEADERS = 3_000_000


async def _throw(bootstrap: str, topic: str) -> None:
    """Put the bombs into partition 0."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        for _ in range(BOMBS):
            data = bytearray(record_batch(0, [bomb(HEADERS)], ZSTD))
            assert len(data) < 4_000
            made = ReadyBatch(EncodedBatch(data, 1))
            await (await producer.send_batch(made, topic, partition=0))
    finally:
        await producer.stop()


def test_a_header_bomb_holds_up_no_other_partition(broker: Broker, tmp_path: Path) -> None:
    """Each becomes a dead letter without its headers; the events of both partitions pass, and the session lasts."""
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=2).create()
    letters = deployment.create_side_topic("dead_letter_topic")
    deployment.feed([(0, b"before", b"v", [], None)])
    asyncio.run(_throw(deployment.bootstrap, deployment.source))
    deployment.feed([(0, b"after", b"v", [], None)])
    deployment.feed(
        [(1, key, value, headers, ms) for _, key, value, headers, ms in keyed(range(99))]
    )
    worker = run_to_the_end(deployment)
    emitted = [record.key for record in read_all(deployment.bootstrap, deployment.sink)]
    assert sorted(key or b"" for key in emitted) == sorted(
        [b"before", b"after", *(key or b"" for _, key, *_ in keyed(range(99)))]
    )
    told = [dict(record.headers) for record in read_all(deployment.bootstrap, letters)]
    assert [one["streamdedup.offset"] for one in told] == [b"1", b"2", b"3"]
    assert {one["streamdedup.reason"] for one in told} == {b"above source.headers_max"}
    assert {one["streamdedup.cut"] for one in told} == {b"headers"}
    [stopped] = worker.lines("stopped")
    assert stopped["rejected"] == BOMBS
    assert not worker.lines("doubt")
