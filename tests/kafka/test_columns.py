"""What was fetched, as columns: positions, chunks, joined and damaged record batches; formats of before are refused."""

import asyncio
import random
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, MemoryRecords, PartitionRecords
from aiokafka.errors import CorruptRecordException, KafkaError, RecordTooLargeError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from crc32c import crc32c

from proof.kafka import framings
from streamdedup.events import EventBatch
from streamdedup.kafka.base import Source
from streamdedup.kafka.client.columns import (
    TOGETHER_MAX,
    ColumnarConsumer,
    RawRecords,
    _PartitionColumns,
)
from streamdedup.kafka.client.open_batches import OpenBatches
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.records import decoding
from streamdedup.kafka.records.decoding import CHUNK_BYTES, LOOP_BYTES_MAX, PendingDecode
from streamdedup.kafka.records.encoding import VERBATIM_BYTES_MIN
from streamdedup.kafka.records.wire import (
    HEAD_BYTES,
    MAGIC_AT,
    DamagedBatchError,
    OldFormatError,
    RecordBatch,
    Records,
    decode,
)
from streamdedup.kafka.source import KafkaMember, UnreadableError

HERE = TopicPartition("topic", 3)
STAMPED_MS = 1_750_000_000_000


def batch(base: int, keys: Sequence[bytes], codec: int = 0, size_max: int = 1 << 20) -> bytes:
    """A record batch, as a broker would give it from offset `base` on."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, size_max)
    for delta, key in enumerate(keys):
        assert builder.append(delta, STAMPED_MS + delta, key, b"value", [("name", key[:9])])
    made = builder.build()
    made[:8] = base.to_bytes(8, "big")
    return bytes(made)


def marker(base: int, producer_id: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction."""
    return transactional(batch(base, [b"\0\0\0" + bytes([commit])]), producer_id, control=True)


def transactional(data: bytes, producer_id: int, *, control: bool = False) -> bytes:
    """The record batch, as of a transaction of that producer."""
    made = bytearray(data)
    made[22] |= 0x30 if control else 0x10
    made[43:53] = producer_id.to_bytes(8, "big") + b"\0\0"
    return summed(made)


def summed(data: bytearray) -> bytes:
    """The record batch, its checksum right again."""
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def legacy(base: int, keys: Sequence[bytes], magic: int, codec: int = 0) -> bytes:
    """A message set of format 0 or 1."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number, key in enumerate(keys):
        builder.append(base + number, STAMPED_MS, key, b"value")
    made = builder.build()
    if codec:  # the message around all has the offset of the last
        made[:8] = (base + len(keys) - 1).to_bytes(8, "big")
    return bytes(made)


def fetched(data: bytes, start: int = 0, events_max: int = 1000) -> Any:
    """What came in answer to a fetch from `start` on."""
    arguments = (None, None, True, READ_COMMITTED)
    return _PartitionColumns(lambda _: events_max, HERE, RawRecords(data), [], start, *arguments)


def as_objects(data: bytes, start: int = 0) -> list[tuple[Any, ...]]:
    """The same, as aiokafka has it."""
    options = (None, None, True, READ_COMMITTED)
    found = PartitionRecords(HERE, MemoryRecords(data), [], start, *options)
    return [(r.offset, r.key, r.value, r.headers) for r in found]


def as_events(batches: Sequence[EventBatch]) -> list[tuple[Any, ...]]:
    """Offset, key, value and headers of each."""
    return [
        (int(b.offsets[row]), b.keys[row], b.values[row], tuple(b.headers[row]))
        for b in batches
        for row in range(len(b))
    ]


def of_before(magic: int, codec: int) -> tuple[bytes, int]:
    """A message set from before Kafka 0.11 that follows offset 1, and the offset that it begins with."""
    return legacy(2, [b"c", b"d"], magic, codec), 3 if codec else 2


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_formats_of_before_are_refused(magic: int, codec: int) -> None:
    """With the offset, after the events before them, whole or cut short; the position stays before them."""
    old, offset = of_before(magic, codec)
    for data in (old, old[:-1], old[: MAGIC_AT + 1], old + batch(4, [b"e"])):
        for before, events_max in (([], 1), ([b"a", b"b"], 1), ([b"a", b"b"], 1000)):
            records = fetched(batch(0, before) + data if before else data, events_max=events_max)
            assert records._records.has_next()
            found: list[EventBatch] = []
            with pytest.raises(OldFormatError, match=f"offset {offset} are of a format") as error:
                found.extend(records)
            assert [key for one in found for key in one.keys] == before
            assert error.value.offset == offset
            assert records.next_fetch_offset == len(before)


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_formats_of_before_are_no_damage(magic: int, codec: int) -> None:
    """Nothing says what could be skipped: not of them, nor of a damaged batch whose end only they would show."""
    old, offset = of_before(magic, codec)
    records = fetched(framings.batch(b"", count=1, base=1) + old, start=1)
    damaged = next(records)
    assert (damaged.damage.first_offset, damaged.damage.last_offset) == (1, 1)
    with pytest.raises(OldFormatError) as error:
        next(records)
    assert (error.value.offset, error.value.damage) == (offset, None)
    broken = bytearray(batch(1, [b"b"]))
    broken[-1] ^= 1
    with pytest.raises(DamagedBatchError, match="offset 1 is damaged") as unsure:
        next(fetched(bytes(broken) + old))
    assert unsure.value.damage is None


def test_small_batches_come_together_and_large_ones_in_chunks() -> None:
    """So that neither costs much an event, and no turn of the loop takes long."""
    ones = b"".join(batch(n, [b"%d" % n]) for n in range(TOGETHER_MAX + 10))
    found = list(fetched(ones))
    assert [len(one) for one in found] == [TOGETHER_MAX, 10]
    assert as_events(found) == as_objects(ones)
    assert not any(one.origins for one in found)
    large = batch(0, [b"%d" % n for n in range(25)])
    assert [len(one) for one in fetched(large, events_max=10)] == [10, 10, 5]


async def waited(records: Any) -> list[EventBatch]:
    """All that was fetched; large batches are waited for."""
    found = []
    for one in records:
        if isinstance(one, PendingDecode):
            await one.done()
        else:
            found.append(one)
    return found


async def test_large_events_come_few_at_a_time() -> None:
    """Each chunk has four megabytes at most, or one event."""
    data = batch(0, [bytes(1_200_000) for _ in range(10)] + [bytes(8_000_000)], size_max=32 << 20)
    found = await waited(fetched(data))
    assert as_events(found) == as_objects(data)
    assert [len(one) for one in found] == [3, 3, 3, 1, 1]


async def test_a_batch_that_decompresses_to_much_is_decoded_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a thread, once, also where whoever waits is cancelled; those before and behind it come as always."""
    threads = []

    def watched(batches: Sequence[RecordBatch]) -> Records:
        threads.append(threading.get_ident())
        return decode(batches)

    monkeypatch.setattr(decoding, "decode", watched)
    data = batch(0, [b"a"]) + bomb(1) + batch(3, [b"b"])
    records = fetched(data)
    first, large, same = (next(records) for _ in range(3))
    assert isinstance(large, PendingDecode)
    assert same is large
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await large.done()
    await large.done()
    found = [first, *records]
    assert as_events(found) == as_objects(data)
    assert [one.next_offset for one in found] == [1, 2, 3, 4]
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_what_was_decoded_is_gone_once_it_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the thread that decoded it gets no time to end its call."""
    decoded: list[weakref.ref[Any]] = []
    given, goes_on = Future.set_result, threading.Event()

    def watched(batches: Sequence[RecordBatch]) -> Records:
        records = decode(batches)
        decoded.append(weakref.ref(records.offsets))
        return records

    def slow(future: "Future[Any]", result: Any) -> None:
        given(future, result)
        del result
        goes_on.wait(10)

    monkeypatch.setattr(decoding, "decode", watched)
    monkeypatch.setattr(Future, "set_result", slow)
    large = next(fetched(bomb(1)))
    assert isinstance(large, PendingDecode)
    await large.done()
    assert decoded[0]() is not None
    large.drop(lambda: None)
    try:
        assert decoded[0]() is None
    finally:
        goes_on.set()


@pytest.mark.parametrize("codec", [0, 1, 4])
async def test_a_large_batch_is_read_beside_the_loop_compressed_or_not(codec: int) -> None:
    """Its size alone decides: walking records takes as long however they came."""
    most = LOOP_BYTES_MAX if codec else CHUNK_BYTES
    data = batch(0, [bytes(most)], codec, size_max=8 << 20)
    records = fetched(data)
    assert isinstance(next(records), PendingDecode)
    assert as_events(await waited(records)) == as_objects(data)


def bomb(base: int, size: int = 2 * LOOP_BYTES_MAX) -> bytes:
    """A few bytes that decompress to more than so many."""
    return batch(base, [b"key", bytes(size)], codec=4, size_max=1 << 30)


async def test_damage_in_a_large_batch_is_told() -> None:
    """By the thread, as it would be by the loop."""
    made = bytearray(bomb(7))
    made[57:61] = (9).to_bytes(4, "big")
    made[23:27] = (8).to_bytes(4, "big")
    records = fetched(summed(made))
    await next(records).done()
    told = next(records)
    assert len(told) == 0
    assert told.damage.reason.endswith("offset 7 is damaged: a record does not fit into it")
    assert (told.damage.first_offset, told.damage.last_offset) == (7, 15)
    assert list(records) == []
    assert records.next_fetch_offset == 16


async def test_what_follows_damage_is_read_without_another_fetch() -> None:
    """However many batches are damaged: each is told once, in its place, with the offset behind it."""
    data = b"".join(
        batch(2 * n, [b"%d" % n]) + framings.batch(b"", count=1, base=2 * n + 1) for n in range(50)
    )
    records = fetched(data)
    places: list[int] = []
    for one in records:
        if isinstance(one, PendingDecode):
            await one.done()
        elif one.damage is not None:
            assert records.next_fetch_offset == one.damage.last_offset + 1
            places.append(one.damage.first_offset)
        else:
            places += one.offsets.tolist()
    assert places == list(range(100))


def consumer_of(data: bytes, monkeypatch: pytest.MonkeyPatch) -> ColumnarConsumer:
    """A consumer that has fetched these bytes."""
    records = fetched(data)

    async def getmany(*_: object, **__: object) -> dict[TopicPartition, list[Any]]:
        return {HERE: [found]} if (found := next(records, None)) is not None else {}

    consumer = ColumnarConsumer.__new__(ColumnarConsumer)
    consumer._events_max = {}
    monkeypatch.setattr(consumer, "getmany", getmany)
    return consumer


async def test_a_consumer_raises_damage_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """`next_batch` gives what stands before it, raises, and gives what follows."""
    data = batch(0, [b"a"]) + framings.batch(b"", count=1, base=1) + batch(2, [b"c"])
    consumer = consumer_of(data, monkeypatch)
    before = await consumer.next_batch(HERE, 1)
    with pytest.raises(
        DamagedBatchError, match="offset 1 is damaged: 1 records in 0 bytes"
    ) as error:
        await consumer.next_batch(HERE, 1)
    after = await consumer.next_batch(HERE, 1)
    assert before is not None
    assert after is not None
    assert isinstance(before, EventBatch)
    assert isinstance(after, EventBatch)
    assert (before.keys[0], after.keys[0]) == (b"a", b"c")
    assert error.value.damage is not None


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_no_turn_decompresses_all_that_came_together(parts: int) -> None:
    """A hundred small batches grow to a part each of what one turn may decompress: it takes so many of them."""
    each = LOOP_BYTES_MAX // parts - 1000
    found = next(fetched(b"".join(bomb(2 * n, each) for n in range(100))))
    assert len(found) == 2 * parts
    assert found.keys[0] == b"key"
    assert len(found.keys.buffer) <= LOOP_BYTES_MAX


def test_a_turn_reads_more_that_is_not_compressed() -> None:
    """A compressed batch ends it sooner."""
    plain = [batch(n, [bytes(CHUNK_BYTES // 8 - 100)], size_max=1 << 23) for n in range(9)]
    assert [len(one) for one in fetched(b"".join(plain))] == [8, 1]
    packed = batch(5, [bytes(CHUNK_BYTES // 8 - 100)], codec=4, size_max=1 << 23)
    mixed = [*plain[:5], packed, *plain[6:]]
    assert len(next(fetched(b"".join(mixed)))) == 5


async def test_a_consumer_returns_a_large_batch_until_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who reads decides when; if it is dropped in between, it comes again, and goes on where the reader stands."""
    consumer = consumer_of(bomb(0) + batch(2, [b"c"]), monkeypatch)
    large, same = [await consumer.next_batch(HERE, 1) for _ in range(2)]
    assert isinstance(large, PendingDecode)
    assert same is large
    given_back: list[int] = []
    places: list[int] = []
    for dropped in range(2):
        await large.done()
        one = await consumer.next_batch(HERE, 1)
        assert isinstance(one, EventBatch)
        places.append(one.next_offset)
        large.drop(lambda: given_back.append(1))
        assert len(given_back) == dropped + 1
        if not dropped:
            assert await consumer.next_batch(HERE, 1) is large
    one = await consumer.next_batch(HERE, 1)
    assert isinstance(one, EventBatch)
    assert [*places, one.next_offset] == [1, 2, 3]
    assert await consumer.next_batch(HERE, 1) is None


async def test_a_large_batch_that_was_dropped_is_not_in_memory() -> None:
    """However far it was read, and although what was fetched is still held."""
    for pieces in (0, 1, 2):
        records = fetched(bomb(0) + batch(2, [b"c"]))
        large = next(records)
        await large.done()
        gone = weakref.ref(large._task.result().offsets)
        for _ in range(pieces):
            assert len(next(records)) == 1
        large.drop(lambda: None)
        async with asyncio.timeout(30):  # the thread has it for a moment longer
            while gone() is not None:
                await asyncio.sleep(0.01)


def test_markers_separate_nothing() -> None:
    """Small transactions come together; behind the last event are the markers that follow it."""
    parts = [
        transactional(batch(0, [b"a"]), 7) + marker(1, 7, commit=True),
        transactional(batch(2, [b"b", b"c"]), 7) + marker(4, 7, commit=True),
        batch(5, [b"d"]),
    ]
    data = b"".join(parts) + marker(6, 8, commit=False)
    records = fetched(data)
    [found] = records
    assert as_events([found]) == as_objects(data)
    assert found.next_offset == records.next_fetch_offset == 7
    singly = fetched(data, events_max=1)
    ends = [(one.next_offset, singly.next_fetch_offset) for one in singly]
    assert ends == [(end, end) for end in (2, 3, 5, 7)]


def test_what_is_hidden_gives_the_loop_its_turns() -> None:
    """A fetch of nothing but markers comes as empty chunks, each as long as others; the position goes on with them."""
    count = 2 * TOGETHER_MAX + 1
    records = fetched(b"".join(marker(n, 7, commit=True) for n in range(count)))
    assert [(len(one), one.next_offset) for one in records] == [
        (0, 0),
        (0, TOGETHER_MAX),
        (0, 2 * TOGETHER_MAX),
    ]
    assert records.next_fetch_offset == count


def large(base: int, seed: int = 0, codec: int = 1, size: int = VERBATIM_BYTES_MIN) -> bytes:
    """A record batch of 50 events that is large enough to be copied as it is, or as large as told."""
    chance = random.Random(seed)
    keys = [chance.randbytes(50) + bytes(size // 50 - 50) for _ in range(50)]
    return batch(base, keys, codec=codec, size_max=1 << 23)


def copied(found: EventBatch, rows: Any, codec: int = 1, size_max: int = 900_000) -> list[bytes]:
    """The record batches that are sent for the events of `rows`."""
    batches = OpenBatches(codec, transactional=False)
    sent = [*batches.copy("topic", found, rows, size_max), *batches.finish("topic")]
    return [bytes(one._build()) for one in sent]


def without_place(events: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """All of events but their offsets."""
    return [event[1:] for event in events]


def test_a_batch_is_copied_whole_where_it_fits_before_compression() -> None:
    """A broker may compress it otherwise, and then measure it."""
    keys = [bytes(100 + n % 7) for n in range(5_000)]
    [found] = fetched(batch(0, keys, codec=1, size_max=1 << 23), events_max=10**6)
    assert [origin[:2] for origin in found.origins] == [(0, 5_000)]
    size = len(found.origins[0].batch.raw)
    for size_max, whole in ((900_000, True), (300_000, False)):
        raw = copied(found, np.arange(len(found)), size_max=size_max)
        assert (len(raw) == 1) == whole
        assert (len(raw[0]) == size) == whole
        read = [event for one in raw for event in as_objects(one)]
        assert without_place(read) == without_place(as_events([found]))


def test_of_a_fetch_each_batch_that_survives_is_copied_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each by itself, of several that were read together; others are put together around them, in their order."""
    size = 100_000
    monkeypatch.setattr(decoding, "VERBATIM_BYTES_MIN", size)
    parts = [batch(0, [b"a", b"b"], codec=1), *(large(2 + 50 * n, n, size=size) for n in range(4))]
    data = b"".join([*parts, batch(202, [b"y", b"z"], codec=1)])
    [found] = fetched(data, events_max=8192)
    assert [origin[:2] for origin in found.origins] == [(2 + 50 * n, 52 + 50 * n) for n in range(4)]
    cases = {  # what does not survive -> what is sent, in records, and which of them as it is
        (): [(2, False), (50, True), (50, True), (50, True), (50, True), (2, False)],
        (52,): [(2, False), (50, True), (49, False), (50, True), (50, True), (2, False)],
        (0, 2, 51, 203): [(49, False), (50, True), (50, True), (50, True), (1, False)],
        tuple(range(60, 190)): [(2, False), (50, True), (8 + 14, False)],
    }
    records, events = {one[HEAD_BYTES:] for one in parts[1:]}, as_events([found])
    for dropped, sent in cases.items():
        rows = np.setdiff1d(np.arange(len(found)), dropped)
        raw = copied(found, rows)
        counts = [int.from_bytes(one[57:61], "big") for one in raw]
        whole = [one[HEAD_BYTES:] in records for one in raw]
        assert list(zip(counts, whole, strict=True)) == sent
        read = [event for one in raw for event in as_objects(one)]
        assert without_place(read) == without_place([events[row] for row in rows.tolist()])


def test_a_batch_of_another_codec_is_compressed_anew() -> None:
    """The output has the codec that its settings name."""
    by_gzip = large(0, codec=1)  # made once: gzip writes the time into its head
    [found] = fetched(by_gzip, events_max=8192)
    assert len(found.origins) == 1
    for codec in range(5):
        (raw,) = copied(found, np.arange(50), codec=codec)
        assert raw[22] & 7 in (codec, 0)
        assert (raw[HEAD_BYTES:] == by_gzip[HEAD_BYTES:]) == (codec == 1)


def test_the_batches_that_are_whole_are_known() -> None:
    """Not one of which a part alone is meant, nor one too small to be worth it, whatever it was compressed to."""
    first, second = large(0), large(50, seed=1)
    [both] = fetched(first + second, events_max=100)
    assert [bytes(origin.batch.raw) for origin in both.origins] == [first, second]
    assert [origin[:2] for origin in both.head(99).origins] == [(0, 50)]
    assert not both.head(49).origins
    [later] = fetched(first + second, 1, events_max=100)
    assert [origin[:2] for origin in later.origins] == [(49, 99)]
    assert [len(one.origins) for one in fetched(first + second, events_max=49)] == [0, 0, 0, 0]
    small = large(0, size=VERBATIM_BYTES_MIN - 2_000)
    assert [one.origins for one in fetched(small)] == [[]]


def test_a_chunk_ends_with_a_batch_where_one_ends_in_it() -> None:
    """So that what fits into chunks is not cut; one that is larger than any is."""
    data = b"".join(
        batch(2 * n, [bytes(400_000), bytes(400_000 + n)], codec=4, size_max=1 << 23)
        for n in range(3)
    )
    assert [len(one) for one in fetched(data)] == [4, 2]
    keys = [b"%0100d" % n for n in range(6_000)]
    data = b"".join(batch(n * len(keys), keys, size_max=1 << 23) for n in range(3))
    assert [(len(one), len(one.origins)) for one in fetched(data, events_max=8192)] == [
        (6_000, 1)
    ] * 3
    assert [len(one.origins) for one in fetched(data, events_max=4096)] == [0] * 6


def test_what_compaction_removed_at_the_end_is_behind_us() -> None:
    """The events that are left of a batch, or none, and its last offset: nothing of it is fetched again."""
    data = compacted(batch(10, [b"a", b"b"]), last_offset=19)
    records = fetched(data, 10)
    assert [one.next_offset for one in records] == [20]
    later = fetched(data, 15)
    assert list(later) == []
    assert later.next_fetch_offset == 20


def compacted(data: bytes, last_offset: int) -> bytes:
    """The record batch, as if records had stood in it up to `last_offset`."""
    made = bytearray(data)
    delta = last_offset - int.from_bytes(made[:8], "big")
    made[23:27] = delta.to_bytes(4, "big")
    return summed(made)


@pytest.mark.parametrize("events_max", [1, 1000])
def test_what_stands_before_damage_is_given(events_max: int) -> None:
    """Then the damage is told, and the position stays before it."""
    broken = bytearray(batch(4, [b"e", b"f"]))
    broken[-1] ^= 1
    data = batch(0, [b"a", b"b"]) + batch(2, [b"c", b"d"]) + bytes(broken)
    records = fetched(data, events_max=events_max)
    found: list[EventBatch] = []
    with pytest.raises(DamagedBatchError, match="offset 4 is damaged"):
        while True:
            found.append(next(records))
    assert [key for one in found for key in one.keys] == [b"a", b"b", b"c", b"d"]
    assert records.next_fetch_offset == 4


@pytest.mark.parametrize("size", [-1, -20, HEAD_BYTES - 1, 17, 5, 1])
def test_a_first_batch_that_is_not_whole_is_damaged(size: int) -> None:
    """A broker cuts only those behind it: its length is wrong, which no checksum covers. Nothing is skipped."""
    whole = batch(0, [b"a"])
    records = fetched(whole[:size])
    assert records._records.has_next()
    with pytest.raises(DamagedBatchError, match="offset 0 is damaged: its length is"):
        next(records)
    assert records.next_fetch_offset == 0
    assert not RawRecords(b"").has_next()
    assert as_events(list(fetched(whole + whole[:size]))) == as_objects(whole)


@pytest.mark.parametrize("error", [CorruptRecordException, RecordTooLargeError])
async def test_what_aiokafka_cannot_read_is_unreadable(error: type[KafkaError]) -> None:
    """Not one of the errors that pass by themselves: else it would be read again for ever."""

    class Consumer:
        async def next_batch(self, *_: object) -> None:
            raise error

    options = KafkaOptions(bootstrap_servers="localhost:1", group_id="group")
    member = KafkaMember(options, ["topic"], Patience(), "assignor")
    member._consumer = Consumer()
    source = Source(member, "topic")
    with pytest.raises(UnreadableError, match=error.__name__):
        await source.read(3, source.epoch, 0.1)


def test_headers_are_read_where_they_are_asked_for() -> None:
    """As a sequence: single ones, slices, from the end, and none beyond it; also of a part of a batch."""
    _, found = fetched(batch(0, [b"%d" % n for n in range(6)]), events_max=3)
    cells = [(("name", b"%d" % n),) for n in range(3, 6)]
    assert list(found.headers) == cells
    assert found.headers[-1] == cells[-1]
    assert list(found.headers[1:]) == cells[1:]
    assert list(found.headers[1:][:1]) == cells[1:2]
    with pytest.raises(IndexError):
        found.headers[3]
