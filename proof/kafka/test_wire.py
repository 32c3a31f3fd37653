"""More claims about the wire format: hostile bytes, many and large records, how long a call takes."""

import random
from collections.abc import Iterable, Iterator, Sequence

import cramjam
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.events import Column
from streamdedup.kafka.records import walk, write
from streamdedup.kafka.records.encoding import BatchEncoder
from streamdedup.kafka.records.headers import RawHeaders, appended
from streamdedup.kafka.records.wire import (
    HEAD_BYTES,
    DamagedBatchError,
    Records,
    decode,
    record_batches,
)
from tests.kafka.test_wire import (
    CODECS,
    GZIP,
    LZ4,
    NONE,
    NOW_MS,
    ROWS,
    ZSTD,
    Row,
    built,
    contents,
    encoded,
    ours,
    patched,
    read_back,
    rows_by_chance,
    rows_of,
    stamped,
    theirs,
    varint,
    with_crc,
    with_length,
)
from tests.watching import watched


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_batch_of_many_records(codec: int) -> None:
    """100,000 records, which several calls of the kernels walk, and write."""
    rows = [(i, NOW_MS + i % 7, b"%d" % i, b"", ()) for i in range(100_000)]
    records = decode(list(record_batches(built(rows, codec))))
    assert rows_of(records) == rows
    assert contents(read_back(encoded(records, bytes_max=900_000))) == contents(rows)


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_a_megabyte(codec: int) -> None:
    """Sizes of four bytes, also as varints."""
    noise = random.Random(1).randbytes(1 << 20)
    rows = [(0, NOW_MS, noise, None, ()), (1, NOW_MS, bytes(1 << 20), noise, (("h", noise),))]
    assert ours(built(rows, codec)) == rows


@given(
    st.lists(
        st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=70)),
        min_size=1,
        max_size=40,
    ),
    st.integers(HEAD_BYTES, 400),
)
@settings(deadline=None, max_examples=200)
def test_whatever_time_a_record_has_it_keeps(
    cells: list[tuple[int, bytes]], bytes_max: int
) -> None:
    """All of an int64 survives, and no batch is larger than allowed but one of a single record."""
    keys = [key for _time, key in cells]
    bodies = Column.of([bytes(varint(len(key))) + key + b"\x01\x00" for key in keys])
    encoder = BatchEncoder(codec=NONE, transactional=True, bytes_max=bytes_max)
    encoder.add(bodies, np.array([time_ms for time_ms, _key in cells], dtype=np.int64))
    batches = stamped(encoder.finish())
    read = [row for batch in batches for row in ours(bytes(batch.data))]
    assert [(time_ms, key) for _offset, time_ms, key, _value, _headers in read] == cells
    assert all(len(batch.data) <= bytes_max or batch.count == 1 for batch in batches)
    assert sum(batch.count for batch in batches) == len(cells)


FLIPS = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), min_size=1, max_size=4)


@given(FLIPS, st.sampled_from([ROWS, rows_by_chance(5, 20)]))
@example([(616, 128)], rows_by_chance(5, 20))
@settings(deadline=None, max_examples=400)
def test_hostile_records_are_refused_or_read_as_aiokafka_reads_them(
    flips: list[tuple[int, int]], rows: Sequence[Row]
) -> None:
    """Under a CRC that fits, any bytes are refused, or what we read is within them, and what aiokafka finds there.

    But aiokafka also returns records whose offsets do not ascend, which Java's consumer leaves out.
    """
    data = damaged(built(rows), flips)
    try:
        records = decode(list(record_batches(data)))
    except DamagedBatchError:
        return
    found = rows_of(records)
    try:
        expected = ascending(theirs(data))
    except Exception:
        return
    # They take a record's attributes, a byte, for a varint.
    assert found == expected or max(attributes(records)) > 127


def ascending(rows: Iterable[Row]) -> list[Row]:
    """Those with an offset above all before."""
    highest, kept = -1, []
    for row in rows:
        if row[0] > highest:
            highest = row[0]
            kept.append(row)
    return kept


def attributes(records: Records) -> Iterator[int]:
    """The attributes of each record of a batch that lies uncompressed in its answer."""
    at = HEAD_BYTES
    for end in (records.bodies.starts + records.bodies.sizes).tolist():
        while records.bodies.buffer[at] > 127:  # the size, of any length
            at += 1
        yield records.bodies.buffer[at + 1]
        at = end


@given(FLIPS, st.binary(min_size=12, max_size=40))
@settings(deadline=None, max_examples=200)
def test_what_follows_a_batch_does_not_matter(flips: list[tuple[int, int]], rest: bytes) -> None:
    """Whatever is damaged, the bytes behind a batch are not taken for its own."""
    data = damaged(built(ROWS), flips)
    results = []
    for tail in (bytes(40), rest, b"\xff" * 40):
        batch = next(record_batches(data + tail))
        try:
            results.append(rows_of(decode([batch])))
        except DamagedBatchError as error:
            results.append(str(error))  # type: ignore[arg-type]
    assert results[0] == results[1] == results[2]


def damaged(data: bytes, flips: Iterable[tuple[int, int]]) -> bytes:
    """`data` with some of the bytes of its records changed, and the CRC that fits."""
    made = bytearray(data)
    for place, by in flips:
        made[HEAD_BYTES + place % (len(data) - HEAD_BYTES)] ^= by
    return with_crc(made)


def damage_checked() -> None:
    """Read and write thousands of damaged batches: only DamagedBatchError is raised. For proof/test_bounds.py."""
    chance, refused = random.Random(6), 0
    sources = [built(ROWS), built(rows_by_chance(9, 12)), built([(0, NOW_MS, b"k", b"v", ())])]
    for _ in range(6000):
        flips = [
            (chance.randrange(1 << 16), chance.randrange(1, 256))
            for _ in range(chance.randint(1, 3))
        ]
        try:
            records = decode(list(record_batches(damaged(chance.choice(sources), flips))))
        except DamagedBatchError:
            refused += 1
        else:
            encoded(records, bytes_max=chance.randint(70, 200))
            sizes = records.bodies.starts + records.bodies.sizes - records.header_starts
            raw = RawHeaders(Column(records.bodies.buffer, records.header_starts, sizes))
            rows = np.arange(len(records))
            tails = [(("name", b"value"), ("", None))]
            numbers = {"offset": records.offsets}
            appended(records.bodies, raw.starts, rows, tails, rows * 0, numbers)
    assert 1000 < refused < 6000


def test_kernels_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many records and headers, they are worked on in calls of 10 ms at most."""
    calls: dict[str, list[float]] = {"walk": [], "emit": []}
    for (name, spent), room in zip(calls.items(), (walk, write), strict=True):
        monkeypatch.setattr(room, name, watched(getattr(room, name), spent))
    head = built([(0, NOW_MS, b"k", b"v", ())])[:HEAD_BYTES]
    for count, headers in ((300_000, 0), (10_000, 60)):
        tail = bytes(varint(headers)) + b"\x00\x01" * headers
        parts = []
        for offset in range(count):
            record = b"\x00\x00" + bytes(varint(offset)) + b"\x01\x01" + tail
            parts.append(bytes(varint(len(record))) + record)
        data = patched(with_length(head + b"".join(parts)), count=count, delta=count - 1)
        encoded(decode(list(record_batches(data))), bytes_max=1 << 26)
    for spent in calls.values():
        assert len(spent) >= 300_000 / (1 << 15)
        assert sorted(spent)[-2] < 0.01, spent  # the machine may have had other work once
    assert len(calls["walk"]) >= 300_000 / (1 << 15) + 600_000 / (1 << 16)


@pytest.mark.parametrize("codec", range(5))
def test_what_does_not_compress_is_not_made_larger(codec: int) -> None:
    """A batch is never larger than the limit: where a codec gains nothing, none is used."""
    chance = random.Random(codec)
    rows: list[Row] = [(n, NOW_MS, chance.randbytes(100), None, ()) for n in range(3_000)]
    batches = encoded(decode(list(record_batches(built(rows)))), codec=codec, bytes_max=100_000)
    assert max(len(batch.data) for batch in batches) <= 100_000
    assert contents(read_back(batches)) == contents(rows)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_levels_are_those_that_are_fast(codec: int) -> None:
    """What is compressed has about the size that level 1 gives, and not that of a higher one."""
    text = b"".join(b'{"user":%d,"page":"/p/%d"}' % (i * i, i % 97) for i in range(20_000))
    (batch,) = encoded(
        decode(list(record_batches(built([(0, NOW_MS, None, text, ())])))), codec=codec
    )
    fast, slow = (
        {
            GZIP: cramjam.gzip.compress,
            LZ4: cramjam.lz4.compress,
            ZSTD: cramjam.zstd.compress,
        }[codec](text, level)
        for level in (1, 6)
    )
    off_fast, off_slow = (abs(len(batch.data) - len(made)) for made in (fast, slow))
    assert 2 * off_fast < off_slow
