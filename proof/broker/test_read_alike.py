"""What our consumer reads of a real broker as columns is what aiokafka's own reads as objects, also of copies."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from proof.kafka import framings
from streamdedup.events import EventBatch
from streamdedup.filters.base import Mask
from streamdedup.kafka.client.columns import CHUNK_EVENTS, ColumnarConsumer
from streamdedup.kafka.client.open_batches import ReadyBatch
from streamdedup.kafka.client.responses import Responses
from streamdedup.kafka.records import decoding
from streamdedup.kafka.records.codecs import CODECS, GZIP
from streamdedup.kafka.records.encoding import EncodedBatch
from streamdedup.kafka.records.wire import HEAD_BYTES
from tests.broker.base import DEADLINE_S, Broker, OwnedBroker
from tests.broker.process import ProcessBroker
from tests.broker.reading import (
    STAMPED_MS,
    Cells,
    Codec,
    Keep,
    Reader,
    of,
    producer,
    put,
    sample,
)
from tests.broker.topics import create_topic, read_all, unique_name
from tests.deployment import Deployment, keyed
from tests.local import Start


@pytest.mark.parametrize("codec", CODECS)
async def test_every_codec_is_read_alike(reader: Reader, codec: str) -> None:
    """Also from the middle of a record batch on, and of batches of one event and of hundreds."""
    topic, records = reader.topic(), sample(900)
    compression = None if codec == "none" else codec
    async with producer(reader.bootstrap, compression_type=compression) as sender:
        await put(sender, topic, records[:600])
        await put(sender, topic, records[600:], each=1)
    assert [event[1:] for event in await reader.same(topic)] == records
    assert [event[0] for event in await reader.same(topic, 333)] == list(range(333, 900))
    assert len(await reader.same(topic, 700)) == 200


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_append_time_is_the_brokers(reader: Reader, codec: Codec) -> None:
    """Every event of a batch has the time at which the broker took it; a copy keeps it."""
    topic = reader.topic(message_timestamp_type="LogAppendTime")
    compression = None if codec == "none" else codec
    async with producer(reader.bootstrap, compression_type=compression) as sender:
        await put(sender, topic, sample(50))
    found = await reader.same(topic)
    assert min(event.timestamp for event in found) > STAMPED_MS + 10_000_000
    output = await reader.copy(topic, all_of, codec, exactly_once=False)
    assert [event[1:] for event in await reader.same(output)] == [e[1:] for e in found]


async def test_a_large_record_and_many_small_ones(reader: Reader) -> None:
    """A megabyte alone in its batch; 100,000 events in one batch come in chunks, in their order."""
    topic = reader.topic(max_message_bytes=16_000_000)
    small: list[Cells] = [(STAMPED_MS, b"%d" % n, b"v", ()) for n in range(100_000)]
    large: list[Cells] = [(STAMPED_MS, b"key", random.Random(1).randbytes(1_000_000), ())]
    options = {"max_batch_size": 16_000_000, "max_request_size": 16_000_000}
    async with producer(reader.bootstrap, **options) as sender:
        await put(sender, topic, small)
        await put(sender, topic, large)
    chunks = await reader.batches(topic)
    assert max(map(len, chunks)) <= CHUNK_EVENTS
    assert [event[1:] for batch in chunks for event in of(batch)] == small + large
    assert len(await reader.same(topic, 99_000)) == 1_001


async def test_compaction_leaves_gaps(reader: Reader) -> None:
    """Offsets that are gone are skipped by both, at the start, within a batch and at its end."""
    topic = reader.topic(
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio="0.001",
        max_compaction_lag_ms=100,
    )
    async with producer(reader.bootstrap) as sender:
        for number in range(8):  # a segment ends with the time of its events
            stamped_ms = STAMPED_MS + 1_000 * number
            part: list[Cells] = [
                (stamped_ms, b"%d" % (n % 40) if n % 5 else b"%d %d" % (number, n), b"v", ())
                for n in range(50)
            ]
            await put(sender, topic, part)
    await compacted(reader, topic)
    found = await reader.same(topic)
    assert [event.offset for event in found] != list(range(found[0].offset, 400))
    for start in (0, 15, 351, 399):
        assert await reader.same(topic, start) == [e for e in found if e.offset >= start]


async def compacted(reader: Reader, topic: str) -> None:
    """Wait until so much of the topic is gone, and no more for a while."""
    async with asyncio.timeout(DEADLINE_S):
        before, unchanged = 400, 0
        while before > 200 or unchanged < 5:
            now = len(await reader.theirs(topic))
            before, unchanged = now, unchanged + 1 if now == before else 0
            await asyncio.sleep(0.4)


def all_of(batch: EventBatch) -> Mask:
    """Every event."""
    return np.ones(len(batch), dtype=np.bool_)


def a_tenth_of(batch: EventBatch) -> Mask:
    """One in ten."""
    return np.equal(batch.offsets % 10, 3)


@pytest.fixture
def _small_ones_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record batches are written as they are from 16 KiB on."""
    monkeypatch.setattr(decoding, "VERBATIM_BYTES_MIN", 16 << 10)


@pytest.mark.usefixtures("_small_ones_as_they_are")
@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly_once", "at_least_once"])
@pytest.mark.parametrize("keep", [all_of, a_tenth_of])
@pytest.mark.parametrize(
    ("source_codec", "codec"),
    [("none", "none"), ("lz4", "lz4"), ("lz4", "zstd"), ("none", "gzip"), ("zstd", "snappy")],
)
async def test_copies_are_what_was_copied(
    reader: Reader,
    keep: Keep,
    source_codec: str,
    codec: Codec,
    exactly_once: bool,
) -> None:
    """Byte for byte, headers and times too, whether a whole record batch survives or parts of it."""
    topic, records = reader.topic(), sample(2_000)
    compression = None if source_codec == "none" else source_codec
    # Several record batches a fetch; where the codecs are the same, each can be copied as it is.
    options = {"compression_type": compression, "max_batch_size": 100_000}
    async with producer(reader.bootstrap, **options) as sender:
        await put(sender, topic, records)
    wanted = [record for row, record in enumerate(records) if keep is all_of or row % 10 == 3]
    output = await reader.copy(topic, keep, codec, exactly_once=exactly_once)
    assert [event[1:] for event in await reader.same(output)] == wanted
    by_another = await asyncio.to_thread(read_all, reader.bootstrap, output)
    assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in by_another] == wanted


def feed_and_damage(deployment: Deployment, broker: ProcessBroker) -> None:
    """Feed 500 events in three goes, then change bytes of the second go on the broker's disk."""
    for numbers in (range(300), range(300, 400), range(400, 500)):
        deployment.feed(keyed(numbers, 1))
    [segment] = broker.data_directory.glob(f"{deployment.source}-0/*.log")
    with segment.open("r+b") as log:
        log.seek(log.read().index(b"user350"))
        log.write(b"USER")


async def test_damage_on_a_disk_is_skipped_up_to_the_next_sound_batch(
    private_broker: OwnedBroker, tmp_path: Path, start: Start
) -> None:
    """After it was fetched again; the worker goes on behind it, and the letter has the bytes of the batch."""
    if not isinstance(private_broker, ProcessBroker):
        pytest.skip("the data of a container are out of reach")
    deployment = Deployment(private_broker.bootstrap_servers, tmp_path, partitions=1).create()
    deployment.config["source"]["on_damaged"] = "skip"
    feed_and_damage(deployment, private_broker)
    async with start(deployment) as worker:
        await worker.committed(500)
    [line] = worker.lines("batch_skipped")
    first, last = line["first_offset"], line["last_offset"]
    assert 300 <= first <= 350 <= last < 400
    assert "CRC-32C" in line["reason"]
    readable = [*range(first), *range(last + 1, 500)]
    emitted = [record.value for record in read_all(deployment.bootstrap, deployment.sink)]
    assert emitted == [value for _, _, value, *_ in keyed(readable, 1)]


@pytest.mark.needs_broker("appends of records of negative size")
async def test_a_record_batch_that_is_not_read_is_skipped(
    broker: Broker, tmp_path: Path, start: Start
) -> None:
    """A broker appends it; another, framed in a rare way, is read as it is there.

    Kafka 4.4 appends no batch whose compressed data is damaged. It does append one with a record beyond its last
    offset, which has no place in the log that we could commit.
    """
    deployment = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    letters = f"{deployment.sink}-letters"
    create_topic(deployment.bootstrap, letters, 1)
    deployment.config["source"]["on_damaged"] = "skip"
    deployment.config["sink"]["dead_letter_topic"] = letters
    values = [value for _, _, value, *_ in keyed(range(30), 1)]
    deployment.feed(keyed(range(10), 1))
    keys = [key or b"" for _, key, *_ in keyed(range(20, 30), 1)]
    hidden = [
        framings.record(row, values[20 + row] or b"", key=framings.varint(len(key)) + key)
        for row, key in enumerate(keys)
    ]
    rare = framings.batch(framings.member(b"".join(hidden)) + b"garbage", GZIP, count=10, base=0)
    (damaged,) = (data for name, data in framings.all_framings() if name == "none/above-the-last")
    damaged = bytes(8) + damaged[8:]  # a producer's offsets begin at 0
    async with producer(broker.bootstrap_servers) as sender:
        for data, count in ((damaged, 3), (rare, 10)):
            ready = ReadyBatch(EncodedBatch(bytearray(data), count))
            await (await sender.send_batch(ready, deployment.source, partition=0))
    deployment.feed(keyed(range(10, 20), 1))
    async with start(deployment) as worker:
        await worker.committed(33)
    [line] = worker.lines("batch_skipped")
    assert (line["first_offset"], line["last_offset"]) == (10, 12)
    assert worker.lines("doubt") == []
    emitted = [record.value for record in read_all(deployment.bootstrap, deployment.sink)]
    assert emitted == [*values[:10], *values[20:], *values[10:20]]
    [letter] = read_all(deployment.bootstrap, letters)
    assert letter.value is not None
    assert letter.value[HEAD_BYTES:] == damaged[HEAD_BYTES:]


@pytest.mark.parametrize(
    ("module", "name"),
    [("aiokafka.consumer.fetcher", "PartitionRecords"), ("aiokafka.conn", "CloseReason")],
)
def test_an_aiokafka_that_lacks_what_our_classes_are_made_of_is_told(
    module: str, name: str, tmp_path: Path
) -> None:
    """Not by a traceback of an import, but by one error with the remedy, and status 2."""
    deployment = Deployment("127.0.0.1:1", tmp_path)
    program = (
        f"import sys, {module} as changed; del changed.{name}\n"
        "import aiokafka; aiokafka.__version__ = '0.15.0'\n"
        "from streamdedup.cli import main\n"
        f"sys.exit(main(['run', '-c', {str(deployment.write_config())!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "aiokafka 0.15.0 does not fit" in done.stderr
    assert "pip install 'aiokafka==0.14.*'" in done.stderr
    assert "Traceback" not in done.stderr


async def test_answers_are_read_in_one_piece(broker: Broker) -> None:
    """By each connection of the columnar consumer, and of no other."""
    topic = unique_name("in")
    create_topic(broker.bootstrap_servers, topic)
    read_so = {}
    for made in (ColumnarConsumer, AIOKafkaConsumer):
        consumer: Any = made(bootstrap_servers=broker.bootstrap_servers)
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await consumer.position(TopicPartition(topic, 0))
            connections = consumer._client._conns.values()
            protocols = [c._writer.transport.get_protocol() for c in connections]
            read_so[made] = {isinstance(protocol, Responses) for protocol in protocols}
        finally:
            await consumer.stop()
    assert read_so == {ColumnarConsumer: {True}, AIOKafkaConsumer: {False}}
