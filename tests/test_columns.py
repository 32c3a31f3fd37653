"""What was fetched, as columns: positions, chunks, joined and damaged record batches, formats of before."""

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, MemoryRecords, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from crc32c import crc32c

from streamdedup.events import EventBatch
from streamdedup.kafka.columns import TOGETHER_MAX, RawRecords, _PartitionColumns
from streamdedup.kafka.wire import DamagedError, RecordBatch

HERE = TopicPartition("topic", 3)
STAMPED_MS = 1_750_000_000_000


def batch(base: int, keys: Sequence[bytes], codec: int = 0) -> bytes:
    """A record batch, as a broker would give it from offset `base` on."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for delta, key in enumerate(keys):
        builder.append(delta, STAMPED_MS + delta, key, b"value", [("name", key)])
    made = builder.build()
    made[:8] = base.to_bytes(8, "big")
    return bytes(made)


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


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_formats_of_before_are_read_as_objects(magic: int, codec: int) -> None:
    """Message sets that were written before Kafka 0.11."""
    data = legacy(5, [b"a", b"b", b"c", b"d"], magic, codec)
    records = fetched(data, 6, events_max=2)
    found = list(records)
    assert as_events(found) == as_objects(data, 6)
    assert [len(one) for one in found] == [2, 1]
    assert [one.next_offset for one in found] == [8, 9]
    assert all(one.bodies is None for one in found)
    assert records.next_fetch_offset == 9


def test_small_batches_come_together_and_large_ones_in_chunks() -> None:
    """So that neither costs much an event, and no turn of the loop takes long."""
    ones = b"".join(batch(n, [b"%d" % n]) for n in range(TOGETHER_MAX + 10))
    found = list(fetched(ones))
    assert [len(one) for one in found] == [TOGETHER_MAX, 10]
    assert as_events(found) == as_objects(ones)
    assert all(one.origin is None for one in found)
    large = batch(0, [b"%d" % n for n in range(25)])
    assert [len(one) for one in fetched(large, events_max=10)] == [10, 10, 5]


def test_the_one_batch_that_all_are_of_is_known() -> None:
    """It can be written again as it is; not where a part of it is meant."""
    data = batch(0, [b"a", b"b", b"c"])
    [whole] = fetched(data)
    assert isinstance(whole.origin, RecordBatch)
    assert bytes(whole.origin.raw) == data
    assert whole.head(2).origin is None
    assert next(fetched(data, 1)).origin is None
    assert next(fetched(data, events_max=2)).origin is None


def test_the_position_is_behind_what_was_given() -> None:
    """Of a batch that comes in parts, behind each part."""
    records = fetched(batch(10, [b"a", b"b", b"c"]), 10, events_max=2)
    assert next(records).next_offset == records.next_fetch_offset == 12
    assert next(records).next_offset == records.next_fetch_offset == 13
    assert list(records) == []
    assert records.next_fetch_offset == 13


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
    made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize("events_max", [1, 1000])
def test_what_stands_before_damage_is_given(events_max: int) -> None:
    """Then the damage is told, and the position stays before it."""
    broken = bytearray(batch(4, [b"e", b"f"]))
    broken[-1] ^= 1
    data = batch(0, [b"a", b"b"]) + batch(2, [b"c", b"d"]) + bytes(broken)
    records = fetched(data, events_max=events_max)
    found: list[EventBatch] = []
    with pytest.raises(DamagedError, match="offset 4 is damaged"):
        while True:
            found.append(next(records))
    assert [key for one in found for key in one.keys] == [b"a", b"b", b"c", b"d"]
    assert records.next_fetch_offset == 4


def test_an_answer_that_is_cut_within_its_first_batch_is_told_from_an_empty_one() -> None:
    """Aiokafka asks for both, and raises where a batch is larger than a fetch."""
    whole = batch(0, [b"a"])
    for data, has_next in (
        (whole, True),
        (whole + b"rest", True),
        (whole[:-1], False),
        (b"", False),
    ):
        assert RawRecords(data).has_next() == MemoryRecords(data).has_next() == has_next
        assert RawRecords(data).size_in_bytes() == len(data)


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
