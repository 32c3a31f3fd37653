"""Java's consumer is the standard: what it reads of a record batch is read here, however that is framed.

`framings.json` has what Kafka's own code said; `framings.py` says how it was made.
"""

import json
import zlib
from types import SimpleNamespace
from typing import Any

import cramjam
import numpy as np
import pytest

from proof.kafka.framings import (
    BASE,
    FIXTURE,
    all_framings,
    batch,
    frame,
    member,
    record,
    xerial,
)
from streamdedup.events import Column, Damage
from streamdedup.kafka.records import framings
from streamdedup.kafka.records.codecs import (
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_BLOCKS_MAX,
    XERIAL_HEAD,
    ZSTD,
    AboveLimitError,
)
from streamdedup.kafka.records.decoding import first_of, origins
from streamdedup.kafka.records.framings import ZSTD_MAGIC
from streamdedup.kafka.records.headers import RawHeaders
from streamdedup.kafka.records.wire import DamagedBatchError, decode, record_batches
from tests.rows import table

ANSWERS: dict[str, Any] = {
    answer["name"]: answer for answer in json.loads(FIXTURE.read_text())["framings"]
}
ALL_THREE = ANSWERS["none"]["read"]
# Offsets ascend in a log, so a record at an offset of the next record batch has no place in it.
NO_PLACE = {"none/above-the-last", "lz4/above-the-last"}
# Java's consumer fails at these; all that the head of the batch counts is there.
LAXER = {
    "gzip/a-head-and-garbage-after",
    "gzip/a-member-cut-short-after",
    "gzip/a-second-member-with-wrong-crc",
    "lz4/two-frames",
    "lz4/an-empty-block",
    "lz4/blocks-linked",
    "lz4/skippable-before",
}


@table(ANSWERS)
def test_what_javas_consumer_reads_is_read(name: str) -> None:
    """All of it, and the same; what it does not read is refused, with the reason, or read whole."""
    answer = ANSWERS[name]
    data = bytes.fromhex(answer["batch"])
    if name in LAXER:
        assert answer["error"]
        assert rows(data) == ALL_THREE
    elif answer["error"] or name in NO_PLACE:
        with pytest.raises(
            DamagedBatchError, match=f"^the record batch at offset {BASE} is damaged: "
        ):
            rows(data)
    else:
        assert rows(data) == answer["read"]


@table(name for name, answer in ANSWERS.items() if not answer["error"] and name not in NO_PLACE)
def test_a_header_is_found_however_it_is_framed(name: str) -> None:
    """The kernel that looks for one header reads a record as it is read whole."""
    answer = ANSWERS[name]
    found = decode(list(record_batches(bytes.fromhex(answer["batch"]))))
    sizes = found.bodies.starts + found.bodies.sizes - found.header_starts
    headers = RawHeaders(Column(found.bodies.buffer, found.header_starts, sizes))
    values = [hexed(value) for value in headers.located("h")]
    assert values == [dict(row[4])["h"] for row in answer["read"]]


def rows(data: bytes) -> list[list[Any]]:
    """What we read, in the form of the answers."""
    found = decode(list(record_batches(data)))
    ends = found.bodies.starts + found.bodies.sizes
    headers = RawHeaders(
        Column(found.bodies.buffer, found.header_starts, ends - found.header_starts)
    )
    events = zip(
        found.offsets.tolist(),
        found.timestamps.tolist(),
        map(hexed, found.keys),
        map(hexed, found.values),
        [[[name, hexed(value)] for name, value in row] for row in headers],
        strict=True,
    )
    return list(map(list, events))


def hexed(cell: bytes | None) -> str | None:
    """As in the answers."""
    return None if cell is None else cell.hex()


@pytest.mark.parametrize(
    ("codec", "records", "reason"),
    [
        (GZIP, member(b"abc", wrong="crc"), "the checksum or the size at the end of its gzip data"),
        (GZIP, b"text", "its gzip data does not begin as gzip does"),
        (GZIP, member(b"abc")[:-9], "its gzip data ends too early"),
        (LZ4, b"text", "its lz4 data does not begin as a frame does"),
        (LZ4, frame([b"abc"])[:-1], "its lz4 data ends too early"),
        (SNAPPY, xerial(b"abc") + b"\0\0\0\x63", "a block of its snappy data claims 99 bytes"),
        (ZSTD, b"text", "a frame of its zstd data does not begin as one does"),
    ],
)
def test_what_is_wrong_is_named(codec: int, records: bytes, reason: str) -> None:
    """The codec and the fault, never a choice of several; its offsets are those of the head, which is checked."""
    bad = batch(records, codec, last=4)
    with pytest.raises(DamagedBatchError, match=reason) as raised:
        rows(batch(record(0), count=1, base=3) + bad)
    assert "above the limit" not in str(raised.value)
    found = raised.value.damage
    assert found is not None
    assert (found.first_offset, found.last_offset) == (BASE, BASE + 4)
    assert (bytes(found.raw), found.is_checked) == (bad, True)


LARGE = b"".join(record(number, b"%d" % number * 100_000) for number in range(6))


@pytest.mark.parametrize(
    ("codec", "regular", "more"),
    [
        (GZIP, member(LARGE), bytes(8)),
        (GZIP, member(LARGE), member(b"")[:12]),
        (LZ4, bytes(cramjam.lz4.compress(LARGE)), bytes(8)),
        (SNAPPY, xerial(LARGE), bytes(2)),
        (SNAPPY, xerial(LARGE), XERIAL_HEAD[:3]),
        (ZSTD, bytes(cramjam.zstd.compress(LARGE)), ZSTD_MAGIC),
    ],
)
def test_other_framings_are_read_in_a_thread_and_not_copied(
    codec: int, regular: bytes, more: bytes
) -> None:
    """Their events are written anew: not every client would read such a record batch in the output."""
    for records, is_regular in ((regular, True), (regular + more, False)):
        batches = list(record_batches(batch(records, codec, count=6)))
        assert bool(first_of(batches)) == is_regular
        found = decode(batches)
        assert len(found) == 6
        copied = origins(batches, found, np.cumsum(found.bodies.sizes))
        assert [origin[:2] for origin in copied] == ([(0, 6)] if is_regular else [])


def test_a_batch_with_records_left_out_is_not_copied() -> None:
    """It has more records than events; where each batch ends is known all the same."""
    three = [record(number, bytes(300_000)) for number in (0, 0, 2)]
    batches = [
        *record_batches(batch(b"".join(three)) + batch(LARGE, count=6, base=BASE + 3)),
    ]
    found = decode(batches)
    assert found.offsets.tolist() == [BASE, BASE + 2, *range(BASE + 3, BASE + 9)]
    assert found.counts.tolist() == [2, 6]
    (copied,) = origins(batches, found, np.cumsum(found.bodies.sizes))
    assert copied[:2] == (2, 8)


def test_many_blocks_of_snappy_are_read_in_a_thread() -> None:
    """Each costs time, however few bytes it has."""
    blocks = [record(0), *[b""] * XERIAL_BLOCKS_MAX]
    batches = list(record_batches(batch(xerial(*blocks), SNAPPY, count=1)))
    assert first_of(batches) == []
    assert len(decode(batches)) == 1


def test_many_members_of_gzip_take_no_more_than_their_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What lies beyond a member is not copied for each."""
    fed = []

    class Counting:
        def __init__(self, bits: int) -> None:
            self.inflate = zlib.decompressobj(bits)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inflate, name)

        def decompress(self, piece: bytes, size_max: int) -> bytes:
            fed.append(len(piece))
            return self.inflate.decompress(piece, size_max)

    counting = SimpleNamespace(**{**vars(zlib), "decompressobj": Counting})
    monkeypatch.setattr(framings, "zlib", counting)
    members = 5_000
    data = member(record(0)) + member(b"") * members
    assert framings.reread(GZIP, memoryview(data), 1 << 20) == record(0)
    assert sum(fed) <= (members + 2) * framings.INFLATE_BYTES_MIN


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_no_more_is_decompressed_than_allowed(codec: int) -> None:
    """Not by these readers either, and the limit is named."""
    data = bytes(1 << 20)
    packed = {
        GZIP: member(data[1:]) + member(b"x") + bytes(9),
        SNAPPY: xerial(data[1:], b"x") + bytes(1),
        LZ4: bytes(cramjam.lz4.compress(data)) + bytes(9),
        ZSTD: bytes(cramjam.zstd.compress(data)) + ZSTD_MAGIC,
    }[codec]
    view = memoryview(packed)
    assert len(framings.reread(codec, view, len(data))) == len(data)
    with pytest.raises(AboveLimitError, match=f"above the limit of {len(data) - 1} bytes"):
        framings.reread(codec, view, len(data) - 1)


# --- where damage ends ---


def damage_in(data: bytes) -> Damage | None:
    """Of the error that reading all of it raises."""
    with pytest.raises(DamagedBatchError) as raised:
        decode(list(record_batches(data)))
    return raised.value.damage


@pytest.mark.parametrize("at", [20, 26, 70])
def test_damage_that_the_checksum_finds_ends_at_the_next_sound_batch(at: int) -> None:
    """What its head says of its last offset may be wrong. Without a sound batch after it, its end is not known."""
    bad = bytearray(batch(record(0), count=1))
    bad[at] ^= 1
    after = batch(record(0), count=1, base=BASE + 9)
    found = damage_in(bytes(bad) + after)
    assert found is not None
    assert (found.first_offset, found.last_offset) == (BASE, BASE + 8)
    assert (bytes(found.raw), found.is_checked) == (bytes(bad), False)
    for unsound in (b"", after[:-1], after[:-1] + b"?", batch(record(0), count=1, base=BASE)):
        assert damage_in(bytes(bad) + unsound) is None


def test_the_answers_are_about_these_framings() -> None:
    """After a change of one, the other is made again."""
    assert list(ANSWERS) == [name for name, _ in all_framings()]
