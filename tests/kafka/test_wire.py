"""Claims about record batches as columns: read and written as aiokafka does it, and never past their ends.

aiokafka's own builder and parser are the oracle. A batch that is damaged has its CRC set right again, where a claim is
about what the CRC would have caught.
"""

import random
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c

from streamdedup.events import Column, Headers
from streamdedup.kafka.records import codecs
from streamdedup.kafka.records.encoding import BatchEncoder, EncodedBatch, verbatim
from streamdedup.kafka.records.wire import (
    HEAD_BYTES,
    RECORDS_MAX,
    DamagedBatchError,
    Records,
    columns_of,
    decode,
    is_abort,
    read_headers,
    record_batches,
    unpack,
)

NOW_MS = 1_700_000_000_000
NONE, GZIP, SNAPPY, LZ4, ZSTD = CODECS = range(5)
APPENDED, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 8, 16, 32, 64
BYTES_MAX = 1 << 20

Row = tuple[int, int, bytes | None, bytes | None, Headers]  # offset, timestamp, key, value, headers
ROWS: list[Row] = [
    (0, NOW_MS, b"key", b"value", ()),
    (1, NOW_MS - 70_000, None, b"", (("a", b"1"), ("a", None), ("größe", b""))),
    (2, NOW_MS + 1, b"", None, (("", b"x" * 200),)),
]


def rows_by_chance(seed: int, count: int, gap_max: int = 1) -> list[Row]:
    """Rows of all shapes: nulls, empty ones, sizes at each length of a varint, times out of order, headers."""
    chance, offset = random.Random(seed), -1
    rows: list[Row] = []
    for _ in range(count):
        offset += chance.randint(1, gap_max)
        sizes = [0, 1, 63, 64, 100, *([8191, 8192, 20_000] if chance.random() < 0.01 else [])]
        key, value = (
            None if chance.random() < 0.1 else chance.randbytes(chance.choice(sizes)) for _ in "kv"
        )
        time_ms = NOW_MS + chance.choice([offset, -offset, chance.randint(-(1 << 40), 1 << 40)])
        headers = [
            (chance.choice(["", "a", "größe", "n" * 70]), chance.choice([None, b"", b"x" * 150]))
            for _ in range(chance.choice([0, 0, 0, 1, 4]))
        ]
        rows.append((offset, time_ms, key, value, tuple(headers)))
    return rows


def built(
    rows: Iterable[Row], codec: int = NONE, *, base: int = 0, producer: tuple[int, int] = (-1, -1)
) -> bytes:
    """One batch of `rows`, as aiokafka writes it; their offsets count from `base`."""
    builder = DefaultRecordBatchBuilder(
        2, codec, 0, *producer, 0 if producer[0] >= 0 else -1, 1 << 30
    )
    for offset, time_ms, key, value, headers in rows:
        assert builder.append(offset, time_ms, key, value, list(headers))
    return patched(bytes(builder.build()), base=base)


def patched(batch: bytes, *, base: int = 0, **fields: int) -> bytes:
    """`batch` with other fields in its head, and the CRC that it takes."""
    formats = {
        "attributes": (21, ">h"),
        "delta": (23, ">i"),
        "last_ms": (35, ">q"),
        "count": (57, ">i"),
    }
    made = bytearray(batch)
    struct.pack_into(">q", made, 0, base)
    for name, number in fields.items():
        at, form = formats[name]
        struct.pack_into(form, made, at, number)
    return with_crc(made)


def with_crc(batch: bytes | bytearray) -> bytes:
    """`batch` with the CRC-32C that it takes."""
    return bytes(batch[:17]) + crc32c(batch[21:]).to_bytes(4, "big") + bytes(batch[21:])


def theirs(data: bytes) -> list[Row]:
    """What aiokafka reads in `data`."""
    batches = MemoryRecords(data)
    rows: list[Row] = []
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        rows += [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    return rows


def ours(data: bytes) -> list[Row]:
    """What we read in `data`."""
    return rows_of(decode(list(record_batches(data))))


def rows_of(records: Records) -> list[Row]:
    """The same rows as objects; what is outside of the buffer fails."""
    buffer = records.bodies.buffer
    for column in (records.keys, records.values, records.bodies):
        ends = column.starts + np.maximum(column.sizes, 0)
        assert len(column) == 0 or (column.starts.min() >= 0 and ends.max() <= len(buffer))
    ends = records.bodies.starts + records.bodies.sizes
    headers = [
        read_headers(buffer, start, end)
        for start, end in zip(records.header_starts.tolist(), ends.tolist(), strict=True)
    ]
    columns = (records.offsets.tolist(), records.timestamps.tolist(), records.keys, records.values)
    return list(zip(*columns, headers, strict=True))


def shifted(rows: Iterable[Row], base: int) -> list[Row]:
    """`rows` as they are read in a batch that begins at `base`."""
    return [(base + offset, *rest) for offset, *rest in rows]  # type: ignore[misc]


def encoded(
    records: Records, chosen: Any = slice(None), *, codec: int = NONE, bytes_max: int = BYTES_MAX
) -> list[EncodedBatch]:
    """Batches of the chosen records."""
    encoder = BatchEncoder(codec=codec, transactional=False, bytes_max=bytes_max)
    rows = np.arange(len(records))[chosen]
    encoder.add(records.bodies.take(rows), records.timestamps[rows])
    return stamped(encoder.finish())


def stamped(batches: Iterable[EncodedBatch]) -> list[EncodedBatch]:
    """The same batches, as a producer that is not idempotent sends them."""
    sent = list(batches)
    for batch in sent:
        batch.stamp(-1, -1, -1)
    return sent


def contents(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """All of rows but their offsets."""
    return [row[1:] for row in rows]


def read_back(batches: Iterable[EncodedBatch]) -> list[Row]:
    """What aiokafka reads in batches of ours."""
    return [row for batch in batches for row in theirs(bytes(batch.data))]


# --- reading ---


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_read_as_aiokafka_reads_them(codec: int) -> None:
    """Offsets, times, keys, values and headers are the same, whatever the codec, the shapes and the gaps."""
    data, base = b"", 5
    for seed, (count, gap_max) in enumerate([(1, 1), (300, 1), (2, 9), (200, 50), (3, 1)]):
        rows = rows_by_chance(seed, count, gap_max)
        data += built(rows, codec, base=base)
        base += rows[-1][0] + 1 + seed
    assert ours(data) == theirs(data)
    assert len(ours(data)) == 506


def test_the_head_is_read() -> None:
    """Each field of a head comes out, from a batch that a broker stored."""
    data = patched(
        built(ROWS, GZIP, producer=(77, 3)), base=1000, attributes=GZIP | TRANSACTIONAL, delta=9
    )
    (batch,) = record_batches(data)
    assert (batch.base_offset, batch.last_offset, batch.count) == (1000, 1009, 3)
    assert (batch.codec, batch.producer_id, batch.epoch) == (GZIP, 77, 3)
    assert (batch.first_ms, batch.last_ms) == (NOW_MS, NOW_MS + 1)
    assert (batch.is_transactional, batch.is_control, batch.is_appended) == (True, False, False)
    assert batch.raw == data


def test_times_count_from_the_base_also_where_that_is_the_delete_horizon() -> None:
    """The log cleaner moves the base, and the deltas with it. A record without a time, -1, has none."""
    data = patched(built(ROWS), attributes=DELETE_HORIZON)
    assert ours(data) == shifted(ROWS, 0)
    assert ours(built([(0, -1, b"k", b"v", ())])) == [(0, -1, b"k", b"v", ())]


def test_what_compaction_emptied_is_read() -> None:
    """A batch without records keeps its place and has no rows; nor has nothing at all."""
    empty = patched(built(ROWS)[:HEAD_BYTES], delta=2, count=0)
    empty = with_crc(empty[:8] + (HEAD_BYTES - 12).to_bytes(4, "big") + empty[12:])
    data = empty + built(ROWS, base=3)
    (first, _second) = record_batches(data)
    assert (first.count, first.last_offset) == (0, 2)
    assert ours(data) == shifted(ROWS, 3)
    assert ours(empty) == ours(b"") == []


@pytest.mark.parametrize(("kind", "aborts"), [(0, True), (1, False)])
def test_markers_are_told_apart(kind: int, aborts: bool) -> None:
    """The key of a control record says whether its transaction was aborted."""
    row = (0, NOW_MS, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 5), ())
    (batch,) = record_batches(patched(built([row]), attributes=CONTROL | TRANSACTIONAL))
    assert batch.is_control
    assert is_abort(batch) is aborts


def test_a_marker_that_is_none() -> None:
    """A control record without a type is damage; a control batch that was emptied tells of no abort."""
    (batch,) = record_batches(patched(built([(0, NOW_MS, b"\0\0\0", b"", ())]), attributes=CONTROL))
    with pytest.raises(DamagedBatchError, match="no type"):
        is_abort(batch)
    data = patched(built(ROWS)[:HEAD_BYTES], delta=2, count=0, attributes=CONTROL)
    (batch,) = record_batches(with_crc(data[:8] + (HEAD_BYTES - 12).to_bytes(4, "big") + data[12:]))
    assert not is_abort(batch)


def test_a_fetch_may_be_cut_anywhere() -> None:
    """Whole batches are read, a partial one at the end is not, nor is it an error."""
    first, second = built(ROWS), built(ROWS, ZSTD, base=3)
    for cut in range(len(second)):
        assert [batch.base_offset for batch in record_batches(first + second[:cut])] == [0]
    assert len(list(record_batches(first + second))) == 2


def test_what_is_not_compressed_is_not_copied() -> None:
    """Columns of uncompressed batches lie in the very response they came in."""
    data = built(ROWS) + built(ROWS, base=3)
    batches = list(record_batches(data))
    assert decode(batches).keys.buffer is data
    assert decode(batches[1:]).values.buffer is data
    assert rows_of(decode(batches[1:])) == shifted(ROWS, 3)


def test_batches_of_several_responses_and_codecs_are_read_as_one() -> None:
    """A topic may have each batch from another producer; batches that lie in different buffers are joined."""
    parts = [built(ROWS, codec, base=10 * at) for at, codec in enumerate([4, 0, 1, 2, 3, 0])]
    expected = [row for at in range(len(parts)) for row in shifted(ROWS, 10 * at)]
    assert rows_of(decode([batch for part in parts for batch in record_batches(part)])) == expected
    assert ours(b"".join(parts)) == theirs(b"".join(parts)) == expected


def test_a_name_that_is_no_text_is_read_all_the_same() -> None:
    """A header's name may be any bytes; what is no UTF-8 is replaced, as Java's clients do."""
    data = built([(0, NOW_MS, b"k", b"v", (("abc", b"x"),))])
    ((*_, headers),) = ours(with_crc(data.replace(b"abc", b"a\xffc")))
    assert headers == (("a\ufffdc", b"x"),)


# --- writing ---


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_written_is_read_by_aiokafka(codec: int) -> None:
    """Chosen records of several batches come out whole, in their order, at offsets without gaps."""
    rows = rows_by_chance(7, 500, 3)
    data = built(rows) + built(rows_by_chance(8, 300), LZ4, base=rows[-1][0] + 1)
    records, read = decode(list(record_batches(data))), theirs(data)
    chosen = np.flatnonzero(np.random.default_rng(1).random(len(records)) < 0.6)
    batches = encoded(records, chosen, codec=codec, bytes_max=20_000)
    assert len(batches) > 3
    assert contents(read_back(batches)) == contents(read[row] for row in chosen.tolist())
    for batch in batches:
        (head,) = record_batches(bytes(batch.data))
        assert (head.base_offset, head.last_offset, head.count) == (0, batch.count - 1, batch.count)
        assert (head.codec, head.producer_id, head.epoch) == (codec, -1, -1)
        times = [row[1] for row in theirs(bytes(batch.data))]
        assert (head.first_ms, head.last_ms) == (times[0], max(times))
        assert not (head.is_transactional or head.is_control or head.is_appended)
        assert [row[0] for row in theirs(bytes(batch.data))] == list(range(batch.count))
        assert bytes(batch.data[12:17]) == b"\xff\xff\xff\xff\x02"  # leader epoch, magic


def varint(number: int) -> Iterator[int]:
    """The bytes of a number that is not negative."""
    number <<= 1
    while number >= 0x80:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number


def test_a_batch_is_filled_to_the_last_byte() -> None:
    """Records whose batch is just as large as allowed stand in one; with a byte less they do not."""
    records = decode(list(record_batches(built(rows_by_chance(3, 100)))))
    (whole,) = encoded(records)
    (same,) = encoded(records, bytes_max=len(whole.data))
    assert same.data == whole.data
    first, second = encoded(records, bytes_max=len(whole.data) - 1)
    assert (first.count, second.count) == (99, 1)


def test_a_large_record_stands_alone() -> None:
    """One that passes the limit does not keep others from their batches, nor the limit from those that follow."""
    rows = [(i, NOW_MS, None, bytes(5000 if i == 2 else 100), ()) for i in range(5)]
    batches = encoded(decode(list(record_batches(built(rows)))), bytes_max=1000)
    assert [batch.count for batch in batches] == [2, 1, 2]
    assert contents(read_back(batches)) == contents(rows)
    assert [len(batch.data) > 1000 for batch in batches] == [False, True, False]


def test_batches_are_handed_over_once() -> None:
    """What is full can be had at once, the rest at the end, nothing twice; nothing makes no batch."""
    records = decode(list(record_batches(built(rows_by_chance(4, 100)))))
    encoder = BatchEncoder(codec=NONE, transactional=False, bytes_max=5000)
    assert encoder.full() == encoder.finish() == []
    early: list[EncodedBatch] = []
    for row in range(len(records)):
        encoder.add(records.bodies.take(np.array([row])), records.timestamps[row : row + 1])
        early += encoder.full()
    late = encoder.finish()
    assert (encoder.full(), encoder.finish(), len(late)) == ([], [], 1)
    assert [bytes(b.data) for b in stamped((*early, *late))] == [
        bytes(b.data) for b in encoded(records, bytes_max=5000)
    ]


def test_a_body_outside_of_its_buffer_is_refused() -> None:
    """Nothing is read that is not there."""
    for start, size in [(0, 5), (4, 1), (-1, 2), (0, -1), ((1 << 63) - 1, 4)]:
        column = Column(b"abcd", np.array([start]), np.array([size]))
        encoder = BatchEncoder(codec=NONE, transactional=False, bytes_max=1000)
        with pytest.raises(ValueError, match="row 0"):
            encoder.add(column, np.zeros(1, dtype=np.int64))


def test_a_stamp_makes_a_batch_idempotent() -> None:
    """Producer id, epoch and sequence are written, once more if asked, and the CRC follows."""
    for batch in (
        *encoded(decode(list(record_batches(built(ROWS)))), codec=ZSTD),
        whole(built(ROWS)),
    ):
        for producer_id, epoch, sequence in [(1 << 40, 7, 12), (3, 0, (1 << 31) - 1)]:
            batch.stamp(producer_id, epoch, sequence)
            (head,) = record_batches(bytes(batch.data))
            assert (head.producer_id, head.epoch) == (producer_id, epoch)
            assert struct.unpack_from(">i", batch.data, 53) == (sequence,)
            assert contents(theirs(bytes(batch.data))) == contents(ROWS)


def whole(data: bytes, *, transactional: bool = False) -> EncodedBatch:
    """The one batch in `data`, verbatim."""
    (batch,) = record_batches(data)
    same = verbatim(batch, transactional=transactional)
    assert same is not None
    same.stamp(-1, -1, -1)
    return same


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_a_whole_batch_is_sent_as_it_is(codec: int, transactional: bool) -> None:
    """Its records are not touched, its head is as if a producer had written it, as part of a transaction or not."""
    attributes = codec | TRANSACTIONAL | DELETE_HORIZON
    stored = bytearray(patched(built(ROWS, codec, producer=(5, 6)), base=99, attributes=attributes))
    stored[12:16] = b"\0\0\0\x07"  # the leader's epoch
    batch = whole(bytes(stored), transactional=transactional)
    builder = DefaultRecordBatchBuilder(2, codec, int(transactional), -1, -1, -1, 1 << 20)
    for row in ROWS:
        builder.append(*row[:4], list(row[4]))
    expected = bytearray(builder.build())
    expected[12:16] = b"\xff\xff\xff\xff"  # aiokafka leaves 0, Java's clients -1
    assert (bytes(batch.data), batch.count) == (bytes(expected), 3)
    assert theirs(bytes(batch.data)) == ROWS


def test_what_only_a_broker_may_write_is_not_sent_as_it_is() -> None:
    """Gaps, the broker's times and markers: such a batch is no producer's."""
    for data in (
        built([ROWS[0], ROWS[2]]),
        patched(built(ROWS), delta=3),
        patched(built(ROWS), attributes=APPENDED),
        patched(built(ROWS[:1]), attributes=CONTROL),
    ):
        (batch,) = record_batches(data)
        assert verbatim(batch, transactional=False) is None


# --- codecs ---


@pytest.mark.parametrize(
    "value", [bytes(1 << 20), random.Random(4).randbytes(1 << 20)], ids=["bomb", "noise"]
)
@pytest.mark.parametrize("codec", CODECS[1:])
def test_no_more_is_decompressed_than_allowed(codec: int, value: bytes) -> None:
    """What decompresses to more than allowed is refused, if few bytes or many; what is just as large is not."""
    row = (0, NOW_MS, None, value, ())
    data, size = built([row], codec), len(built([row])) - HEAD_BYTES
    (batch,) = record_batches(data)
    assert rows_of(columns_of([unpack(batch, size)])) == [row]
    with pytest.raises(
        DamagedBatchError, match=f"at offset 0 .* above the limit of {size - 1} bytes decompressed"
    ):
        unpack(batch, size - 1)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_named(codec: int) -> None:
    """Codecs that the format has room for, and nobody has defined."""
    with pytest.raises(DamagedBatchError, match=f"at offset 4 .* codec {codec} is unknown"):
        list(record_batches(patched(built(ROWS), base=4, attributes=codec)))
    with pytest.raises(codecs.CodecError, match=f"codec {codec}"):
        codecs.decompress(codec, memoryview(b""))


def with_length(batch: bytes) -> bytes:
    """`batch` with the length that it has, and the CRC."""
    return with_crc(batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:])


# --- damage ---


@pytest.mark.parametrize("codec", CODECS)
def test_any_damaged_byte_is_found(codec: int) -> None:
    """Each bit is under the CRC but those of the base offset, the length and the leader's epoch.

    Of these the second makes the batch one that does not fit or is partial, and the third is of no consequence.
    """
    data = built(ROWS, codec, base=1 << 20)
    for place in range(8, len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            try:
                found = ours(bytes(damaged))
            except DamagedBatchError as error:
                assert "at offset 1048576 " in str(error)
            else:
                assert found == (shifted(ROWS, 1 << 20) if 12 <= place < 16 else [])


def test_batches_stand_in_their_order() -> None:
    """The base offset is under no CRC: one that is not above the batch before is found, and so is a negative one."""
    for base in (2, 0, -5):
        with pytest.raises(DamagedBatchError, match=f"at offset {base} "):
            list(record_batches(built(ROWS) + built(ROWS, base=base)))
    assert len(ours(built(ROWS) + built(ROWS, base=3))) == 6


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: built(ROWS)[:16] + b"\x01" + built(ROWS)[17:], "a format from before Kafka 0.11"),
        (lambda: built(ROWS)[:16] + b"\x03" + built(ROWS)[17:], "format is 3"),
        (lambda: built(ROWS)[:8] + bytes(4) + built(ROWS)[12:], "length is 0"),
        (lambda: built(ROWS)[:8] + b"\xff" * 4 + built(ROWS)[12:], "length is -1"),
        (lambda: built(ROWS)[:-1] + b"\x55", "CRC-32C"),
        (lambda: patched(built(ROWS), count=2), "it contains more"),
        (lambda: patched(built(ROWS), count=4, delta=3), "does not fit"),
        (lambda: patched(built(ROWS), count=0), "0 records in"),
        (lambda: patched(built(ROWS, ZSTD), count=0), "0 records in"),
        (lambda: patched(built(ROWS), count=-1), "-1 records"),
        (lambda: patched(built(ROWS), delta=-1), "3 records up to offset delta -1"),
        (lambda: patched(built(ROWS), delta=1), "3 records up to offset delta 1"),
        (lambda: patched(built(ROWS), count=1 << 20, delta=(1 << 31) - 1), "1048576 records in"),
        (lambda: patched(built(ROWS, ZSTD), count=RECORDS_MAX, delta=(1 << 31) - 1), "records in"),
        (
            lambda: patched(built(ROWS), count=RECORDS_MAX + 1, delta=(1 << 31) - 1),
            "2097153 records are above the limit of 2097152",
        ),
        (lambda: patched(built([ROWS[0], (5, *ROWS[1][1:])]), delta=4), "offset above its last"),
        (lambda: with_length(built(ROWS) + b"\x00"), "it contains more"),
        (lambda: with_length(built(ROWS)[:-1]), "does not fit"),
    ],
)
def test_what_is_wrong_is_said(make: Callable[[], bytes], reason: str) -> None:
    """A batch that contradicts itself is refused for the reason, before memory is taken for what it claims."""
    with pytest.raises(DamagedBatchError, match=reason):
        ours(make())


RECORD = (
    b"\x00\x00\x00" + b"\x02k" + b"\x02v" + b"\x00"
)  # attributes, deltas, key, value, no headers


@pytest.mark.parametrize(
    "record",
    [
        b"\x00\x00\x00" + b"\x40k" + b"\x02v" + b"\x00",  # of 32 bytes
        b"\x00\x00\x00" + b"\x02k" + b"\x02v",  # less
        b"\x00\x00\x00" + b"\x82\x80\x80\x80\x80\x00k" + b"\x02v" + b"\x00",  # a size of six bytes
        b"\x00" + b"\x80" * 10 + b"\x00\x00" + b"\x02k" + b"\x02v" + b"\x00",  # a time of eleven
        b"\x00\x00\x00" + b"\xfe\xff\xff\xff\x7fk" + b"\x02v" + b"\x00",  # 16 GiB
        b"",
    ],
)
def test_a_record_that_contradicts_itself_is_refused(record: bytes) -> None:
    """Sizes of things that are not there, varints that are too long: each under a CRC that fits."""
    head = built([(0, NOW_MS, b"k", b"v", ())])[:HEAD_BYTES]
    good = with_length(head + bytes(varint(len(RECORD))) + RECORD)
    assert ours(good) == [(0, NOW_MS, b"k", b"v", ())]
    with pytest.raises(DamagedBatchError, match=r"does not fit|1 records in"):
        ours(with_length(head + bytes(varint(len(record))) + record))
