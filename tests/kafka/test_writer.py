"""Claims about what a writer does with an event that is dear to copy and to compress."""

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from streamdedup.events import EventBatch
from streamdedup.kafka.client import open_batches
from streamdedup.kafka.client.open_batches import GZIP_LOOP_BYTES_MAX
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.records import encoding
from streamdedup.kafka.records.codecs import ZSTD, compress
from streamdedup.kafka.records.decoding import CHUNK_BYTES, LOOP_BYTES_MAX
from streamdedup.kafka.records.wire import HEAD_BYTES
from streamdedup.kafka.sink import KafkaWriter
from tests.broker.base import DEADLINE_S
from tests.delivery.bombs import body, record_batch
from tests.kafka.test_columns import fetched, waited
from tests.kafka.test_group_sink import Producer, values

TAKEN_BYTES_MAX = 900_000


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads in which records were compressed, each time."""
    used = []

    def noted(codec: int, data: memoryview) -> Any:
        used.append(threading.get_ident())
        return compress(codec, data)

    monkeypatch.setattr(encoding, "compress", noted)
    return used


async def _events(size: int) -> list[EventBatch]:
    """One event with a value of `size` bytes, and a small one, as they are read: a large one comes alone."""
    data = record_batch(0, [body(b"a" * size), body(b"small")], ZSTD)
    return await waited(fetched(data))


async def _copy(writer: KafkaWriter, *batches: EventBatch) -> None:
    for batch in batches:
        await writer.copy("out", batch, np.arange(len(batch)), TAKEN_BYTES_MAX)


def _writer(compression: Any = "zstd") -> tuple[KafkaWriter, Producer]:
    options = KafkaOptions(bootstrap_servers="localhost:9092", group_id="g")
    sink = SinkOptions(topic="out", compression=compression)
    writer, producer = KafkaWriter(options, sink, 0, Patience(None), exactly_once=True), Producer()
    writer._producer = producer
    return writer, producer


async def _finish(writer: KafkaWriter) -> None:
    for rest in writer._open.finish("out"):
        await writer._post("out", 0, rest)


@pytest.mark.parametrize("size", [100_000, LOOP_BYTES_MAX + 1, 20_000_000])
async def test_a_large_event_is_compressed_beside_the_loop(size: int, threads: list[int]) -> None:
    """One that takes long to copy and to compress is made in a thread; all others at once, in the loop."""
    events, (writer, producer) = await _events(size), _writer()
    threads.clear()
    await writer.begin()
    await _copy(writer, *events)
    await _finish(writer)
    assert values(producer.sent) == {("out", 0): [b"a" * size, b"small"]}
    here = [one == threading.get_ident() for one in threads]
    # The small event after the large one is compressed when the transaction ends.
    assert here == ([True] if size < LOOP_BYTES_MAX else [False, True])


@pytest.mark.parametrize(
    ("codec", "bytes_max"),
    [
        ("none", CHUNK_BYTES),
        *((codec, LOOP_BYTES_MAX) for codec in ("snappy", "lz4", "zstd")),
        ("gzip", GZIP_LOOP_BYTES_MAX),  # it takes 14 ms for what a turn of the loop reads
    ],
)
async def test_so_much_is_copied_in_a_turn(
    codec: str, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is more is copied, and compressed, in a thread."""
    begun = list[bool]()

    class Noted(encoding.BatchEncoder):
        def __init__(self, **options: Any) -> None:
            begun.append(threading.get_ident() == here)
            super().__init__(**options)

    here = threading.get_ident()
    monkeypatch.setattr(open_batches, "BatchEncoder", Noted)
    for size, in_the_loop in ((bytes_max - 1000, True), (bytes_max + 1000, False)):
        events, (writer, _producer) = await _events(size), _writer(codec)
        await writer.begin()
        begun.clear()
        await _copy(writer, events[0])
        assert begun == [in_the_loop]


async def test_what_a_dropped_writer_still_copies_is_never_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the writer is dropped while a thread copies, nothing of that is in its next transaction."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(encoding.BatchEncoder):
        def __init__(self, **options: Any) -> None:
            begun.set()
            assert go_on.wait(DEADLINE_S)
            super().__init__(**options)

    (large, small), (writer, producer) = await _events(CHUNK_BYTES + 1), _writer()
    monkeypatch.setattr(open_batches, "BatchEncoder", Slow)
    await writer.begin()
    copying = asyncio.create_task(_copy(writer, large))
    await asyncio.to_thread(begun.wait, DEADLINE_S)
    copying.cancel()
    await asyncio.wait([copying])
    await writer.begin()
    go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    await _copy(writer, small)
    await _finish(writer)
    assert values(producer.sent) == {("out", 0): [b"small"]}


async def test_a_large_record_is_compressed_when_it_is_added(threads: list[int]) -> None:
    """What is left to do at the end of a transaction is never large, and the room for it is given back."""
    events, _small = await _events(20_000_000)
    assert events.bodies is not None
    encoder = encoding.BatchEncoder(codec=ZSTD, transactional=True, bytes_max=TAKEN_BYTES_MAX)
    threads.clear()
    encoder.add(events.bodies.take(slice(0, 1)), events.timestamps[:1])
    assert len(threads) == 1
    assert encoder._room.nbytes <= HEAD_BYTES
    [made] = encoder.finish()
    assert made.count == 1
