"""Large record batches on a real broker: how many are in memory, decompressed, at the same time."""

import asyncio
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from streamdedup.kafka.client.open_batches import ReadyBatch
from streamdedup.kafka.records import decoding, wire
from streamdedup.kafka.records.codecs import ZSTD
from streamdedup.kafka.records.encoding import EncodedBatch
from tests.broker.base import Broker
from tests.broker.topics import read_all
from tests.delivery.bombs import body, record_batch
from tests.deployment import Deployment
from tests.local import Start

PARTITIONS, BATCHES, EVENTS = 6, 4, 40
PLACES = 2


def _value(partition: int, number: int) -> bytes:
    return b'{"id":"%d-%d"%b}' % (partition, number, b" " * 100_000)


async def _throw(bootstrap: str, topic: str) -> None:
    """Put large record batches into all partitions, each with a small one after it."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        for partition in range(PARTITIONS):
            for at in range(BATCHES):
                first = at * (EVENTS + 1)
                for numbers in (range(first, first + EVENTS), [first + EVENTS]):
                    bodies = [body(_value(partition, number)) for number in numbers]
                    data = bytearray(record_batch(0, bodies, ZSTD))
                    made = ReadyBatch(EncodedBatch(data, len(bodies)))
                    await (await producer.send_batch(made, topic, partition=partition))
    finally:
        await producer.stop()


class Live:
    """How many decoded record batches are in memory, as long as anything of them is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = self.decoded = 0
        self._lock = threading.Lock()

        def counted(batches: Any) -> Any:
            records = wire.decode(batches)
            with self._lock:
                self.now, self.decoded = self.now + 1, self.decoded + 1
                self.most = max(self.most, self.now)
            weakref.finalize(records.offsets, self._gone)
            return records

        monkeypatch.setattr(decoding, "decode", counted)

    def _gone(self) -> None:
        with self._lock:
            self.now -= 1


async def _fed(broker: Broker, directory: Path) -> Deployment:
    deployment = Deployment(broker.bootstrap_servers, directory, partitions=PARTITIONS)
    deployment.config["key"] = {"from": "json", "field": "id"}
    deployment.create()
    await _throw(deployment.bootstrap, deployment.source)
    return deployment


async def _assert_each_once(deployment: Deployment) -> None:
    wanted = [_value(p, n) for p in range(PARTITIONS) for n in range(BATCHES * (EVENTS + 1))]
    read = await asyncio.to_thread(read_all, deployment.bootstrap, deployment.sink)
    assert sorted(record.value or b"" for record in read) == sorted(wanted)


async def test_two_large_batches_are_in_memory_over_all_partitions(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until they are committed; all events are emitted once."""
    deployment, live = await _fed(broker, tmp_path), Live(monkeypatch)
    async with start(deployment) as worker:
        await worker.live()
        await worker.caught_up()
        assert live.now == 0  # also where there is nothing to read any more
    assert not worker.lines("doubt")
    assert live.decoded == PARTITIONS * BATCHES
    assert live.most <= PLACES
    await _assert_each_once(deployment)


async def test_two_large_batches_are_in_memory_while_outputs_are_folded(
    broker: Broker, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside partitions that are live already."""
    deployment = await _fed(broker, tmp_path)
    await _throw(deployment.bootstrap, deployment.sink)
    live = Live(monkeypatch)
    async with start(deployment) as worker:
        await worker.live()
        await worker.caught_up()
        assert live.now == 0
    assert sum(line["events"] for line in worker.lines("output_folded")) == worker.tally.consumed
    assert live.decoded == 2 * PARTITIONS * BATCHES
    assert live.most <= PLACES
    await _assert_each_once(deployment)
