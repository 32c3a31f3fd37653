"""Record batches framed in every way that we could think of, and what Kafka's own code makes of each.

`java/Framings.java` gives the answers: whether a broker would append the batch, and what Java's consumer reads in it.
`framings.json` keeps the batches and the answers, with the versions of Kafka's client and of Java. After a change here,
`python -m proof.kafka.framings` writes it again; that takes a JDK and the jars of that version.
"""

import json
import os
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
from crc32c import crc32c

from streamdedup.kafka.records.codecs import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    XERIAL_HEAD,
    XERIAL_MAGIC,
    ZSTD,
)
from streamdedup.kafka.records.framings import lz4_head
from streamdedup.kafka.records.wire import HEAD
from tests.broker.jars import jars_of
from tests.broker.versions import Kafka

FIXTURE = Path(__file__).with_name("framings.json")
PROGRAM = Path(__file__).with_name("java") / "Framings.java"
KAFKA = Kafka("4.1.0")
MAIN = "org.apache.kafka.clients.consumer.internals.Framings"

BASE, NOW_MS = 7, 1_700_000_000_000
GARBAGE = bytes(range(101, 229))
GZIP_HEAD = b"\x1f\x8b\x08\x00" + bytes(6)
MEMBER_FLAGS = {"text": 1, "header-crc": 2, "extra": 4, "name": 8, "comment": 16, "reserved": 0xE0}


def varint(number: int, size: int = 1, *, zigzag: bool = True, above: int = 0) -> bytes:
    """Encode a varint in at least `size` bytes. `above` is written to the bits of its last byte, from bit 4 on."""
    left = (number << 1 ^ number >> 63) & (1 << 64) - 1 if zigzag else number
    parts: list[int] = []
    while left or len(parts) < size:
        parts.append(left & 127)
        left >>= 7
    parts[-1] |= above << 4
    return bytes([part | 128 for part in parts[:-1]] + parts[-1:])


def record(number: int, text: bytes = b"value", **other: bytes) -> bytes:
    """Encode the record of offset delta `number`; `other` has fields as they are to be written instead."""
    fields = {
        "attributes": b"\0",
        "time": varint(number),
        "delta": varint(number),
        "key": varint(3) + b"key",
        "value": varint(len(text)) + text,
        "headers": varint(1) + varint(1) + b"h" + varint(2) + b"of",
    }
    body = b"".join({**fields, **other}.values())
    return varint(len(body)) + body


def batch(
    records: bytes,
    codec: int = NONE,
    *,
    count: int = 3,
    last: int | None = None,
    flags: int = 0,
    base: int = BASE,
) -> bytes:
    """Make a record batch of records that are encoded, and compressed, already."""
    last = count - 1 if last is None else last
    head = [base, HEAD.size - 12 + len(records), 0, 2, 0, codec | flags, last, NOW_MS, NOW_MS + 2]
    made = HEAD.pack(*head, -1, -1, -1, count) + records
    return made[:17] + struct.pack(">I", crc32c(made[21:])) + made[21:]


def member(data: bytes, *flags: str, wrong: str = "", level: int = 6) -> bytes:
    """Make a member of gzip; `wrong` is the field of its end that has another value than it should."""
    deflate = zlib.compressobj(level, zlib.DEFLATED, -15)
    head = bytearray(GZIP_HEAD)
    head[3] = sum(MEMBER_FLAGS[flag] for flag in flags)
    head += b"\x03\0abc" if "extra" in flags else b""
    head += b"name\0" if "name" in flags else b""
    head += b"comment\0" if "comment" in flags else b""
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF) if "header-crc" in flags else b""
    end = [zlib.crc32(data) ^ (wrong == "crc"), len(data) + (wrong == "size")]
    return bytes(head) + deflate.compress(data) + deflate.flush() + struct.pack("<II", *end)


def frame(
    blocks: list[bytes],
    *,
    flags: int = 0,
    plain: bool = False,
    content: int | None = None,
    checksums: bytes = b"",
    end: bytes = bytes(4),
    content_end: bytes = b"",
) -> bytes:
    """Make a frame of lz4, of blocks of at most 64 KiB that are independent unless `flags` say otherwise."""
    size = b"" if content is None else struct.pack("<Q", content)
    made = lz4_head(0x60 + flags + (0x08 if size else 0), 0x40, size)
    for block in blocks:
        packed = block if plain else bytes(cramjam.lz4.compress_block(block, store_size=False))
        made += struct.pack("<I", len(packed) | plain << 31) + packed + checksums
    return made + end + content_end


def xerial(*blocks: bytes, head: bytes = XERIAL_HEAD) -> bytes:
    """Make a stream of xerial's snappy-java."""
    packed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return head + b"".join(struct.pack(">i", len(block)) + block for block in packed)


def head_of_xerial(version: int, compatible: int) -> bytes:
    """Make the head of such a stream."""
    return XERIAL_MAGIC + struct.pack(">ii", version, compatible)


def all_framings() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each batch."""
    three = b"".join(map(record, range(3)))
    parts = three[:30], three[30:]
    after = {
        "a-zero": bytes(1),
        "two-zeros": bytes(2),
        "four-zeros": bytes(4),
        "eight-zeros": bytes(8),
        "many-zeros": bytes(100),
        "a-byte": GARBAGE[:1],
        "garbage": GARBAGE[:8],
        "much-garbage": GARBAGE[:100],
    }
    whole = {
        "gzip": (GZIP, member(three)),
        "lz4": (LZ4, frame([three])),
        "snappy": (SNAPPY, xerial(three)),
        "snappy-without-a-frame": (SNAPPY, bytes(cramjam.snappy.compress_raw(three))),
        "zstd": (ZSTD, bytes(cramjam.zstd.compress(three, 1))),
        "none": (NONE, three),
    }
    for name, (codec, packed) in whole.items():
        yield name, batch(packed, codec)
        yield f"{name}/cut-short", batch(packed[:-1], codec)
        yield f"{name}/cut-to-half", batch(packed[: len(packed) // 2], codec)
        yield f"{name}/no-bytes", batch(b"", codec)
        for what, more in after.items():
            yield f"{name}/then-{what}", batch(packed + more, codec)
    for name, packed in _gzip(three, *parts):
        yield f"gzip/{name}", batch(packed, GZIP)
    for name, packed in _lz4(three, *parts):
        yield f"lz4/{name}", batch(packed, LZ4)
    for name, packed in _snappy(three, *parts):
        yield f"snappy/{name}", batch(packed, SNAPPY)
    for name, packed in _zstd(three, *parts):
        yield f"zstd/{name}", batch(packed, ZSTD)
    yield from _records(three)


def _gzip(three: bytes, first: bytes, second: bytes) -> Iterator[tuple[str, bytes]]:
    yield "two-members", member(first) + member(second)
    yield "three-members", member(first) + member(b"") + member(second)
    yield "an-empty-member-after", member(three) + member(b"")
    yield "an-empty-member-before", member(b"") + member(three)
    yield "two-members-then-garbage", member(first) + member(second) + GARBAGE
    yield "a-head-after", member(three) + GZIP_HEAD
    yield "a-head-and-garbage-after", member(three) + GZIP_HEAD + GARBAGE
    yield "a-member-cut-short-after", member(three) + member(three)[:-1]
    yield "a-member-of-other-records-after", member(three) + member(three)
    yield "zeros-between-members", member(first) + bytes(2) + member(second)
    for flag in MEMBER_FLAGS:
        yield f"flag-{flag}", member(three, flag)
    yield "all-flags", member(three, *MEMBER_FLAGS)
    yield "stored", member(three, level=0)
    yield "wrong-crc", member(three, wrong="crc")
    yield "wrong-size", member(three, wrong="size")
    yield "wrong-method", member(three).replace(b"\x1f\x8b\x08", b"\x1f\x8b\x07", 1)
    yield "zlib", zlib.compress(three)
    yield "a-second-member-with-wrong-crc", member(three) + member(b"", wrong="crc")


def _lz4(three: bytes, first: bytes, second: bytes) -> Iterator[tuple[str, bytes]]:
    yield "two-blocks", frame([first, second])
    yield "two-frames", frame([first]) + frame([second])
    yield "an-empty-frame-after", frame([three]) + frame([])
    yield "no-end", frame([three], end=b"")
    yield "half-an-end", frame([three], end=bytes(2))
    yield "an-end-of-a-plain-block", frame([three], end=b"\0\0\0\x80")
    yield "plain-blocks", frame([first, second], plain=True)
    yield "an-empty-block", frame([first, b"", second])
    yield "content-size", frame([three], content=len(three))
    yield "wrong-content-size", frame([three], content=len(three) + 1)
    yield "wrong-content-checksum", frame([three], flags=0x04, content_end=bytes(4))
    yield "no-content-checksum", frame([three], flags=0x04)
    yield "wrong-block-checksum", frame([three], flags=0x10, checksums=bytes(4))
    yield "blocks-linked", frame([first, second], flags=-0x20)
    yield "dictionary", frame([three], flags=0x01)
    yield "reserved", frame([three], flags=0x02)
    yield "version-2", frame([three], flags=0x40)
    yield "wrong-head-checksum", frame([three])[:6] + b"\0" + frame([three])[7:]
    yield "skippable-before", b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip" + frame([three])
    yield "a-block-above-its-maximum", frame([three + bytes(1 << 16)])
    yield "wrong-block-size-code", lz4_head(0x60, 0x30) + frame([three])[7:]
    yield "high-bit-of-block-size-code", lz4_head(0x60, 0xC0) + frame([three])[7:]
    packing = cramjam.lz4.Compressor(1, content_checksum=True, block_linked=False)
    packing.compress(three)
    checked = bytes(packing.finish())
    yield "right-content-checksum", checked
    yield "right-content-checksum-then-garbage", checked + GARBAGE


def _snappy(three: bytes, first: bytes, second: bytes) -> Iterator[tuple[str, bytes]]:
    yield "two-blocks", xerial(first, second)
    yield "two-streams", xerial(first) + xerial(second)
    yield "an-empty-stream-after", xerial(three) + XERIAL_HEAD
    yield "half-a-head-after", xerial(three) + XERIAL_HEAD[:9]
    yield "an-empty-block", xerial(first, b"", second)
    yield "a-block-without-bytes", xerial(first) + bytes(4) + xerial(second, head=b"")
    yield "version-2", xerial(three, head=head_of_xerial(2, 1))
    yield "compatible-0", xerial(three, head=head_of_xerial(1, 0))
    yield "compatible-2", xerial(three, head=head_of_xerial(2, 2))
    yield "compatible-0-after", xerial(first) + xerial(second, head=head_of_xerial(1, 0))
    yield "another-magic-after", xerial(three) + XERIAL_MAGIC[:4] + bytes(12)
    yield "another-magic-then-blocks", xerial(first) + XERIAL_MAGIC[:4] + bytes(12) + xerial(second)
    yield "negative-size-after", xerial(three) + b"\xff\xff\xff\xff"
    yield "a-block-cut-short-after", xerial(three) + struct.pack(">i", 9) + b"short"
    yield "no-block", XERIAL_HEAD
    yield "half-a-head", XERIAL_HEAD[:12]
    yield "damaged", xerial(three)[:-3] + b"\xff\xff\xff"


def _zstd(three: bytes, first: bytes, second: bytes) -> Iterator[tuple[str, bytes]]:
    pack = partial(cramjam.zstd.compress, level=1)
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip"

    def plain(*blocks: bytes, last: bool = True) -> bytes:
        heads = [len(block) << 3 | (last and block is blocks[-1]) for block in blocks]
        parts = (
            head.to_bytes(3, "little") + block for head, block in zip(heads, blocks, strict=True)
        )
        return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(parts)

    whole, half, rest = (bytes(pack(data)) for data in (three, first, second))
    yield "two-frames", half + rest
    yield "an-empty-frame-after", whole + bytes(pack(b""))
    yield "skippable-before", skippable + whole
    yield "skippable-after", whole + skippable
    yield "skippable-between", half + skippable + rest
    yield "half-a-frame-after", whole + whole[: len(whole) // 2]
    yield "a-magic-after", whole + whole[:4]
    yield "damaged", whole[:-3] + b"\xff\xff\xff"
    yield "plain-blocks", plain(first, second)
    yield "no-last-block", plain(first, second, last=False)
    yield "no-last-block-after", plain(first) + plain(second, last=False)
    yield "empty-blocks", plain(b"", first, b"", second)
    yield "skippable-then-garbage", whole + skippable + GARBAGE
    yield "half-a-skippable-after", whole + skippable[:-1]


def _records(three: bytes) -> Iterator[tuple[str, bytes]]:
    def deltas(*numbers: int) -> bytes:
        return b"".join(
            record(number, b"%d-%d" % (at, number)) for at, number in enumerate(numbers)
        )

    for name, codec, pack in (("none", NONE, bytes), ("lz4", LZ4, lambda data: frame([data]))):
        yield f"{name}/same-delta", batch(pack(deltas(0, 0, 2)), codec)
        yield f"{name}/same-delta-at-the-end", batch(pack(deltas(0, 1, 1)), codec, last=2)
        yield f"{name}/two-records-of-one-delta", batch(pack(deltas(0, 0)), codec, count=2)
        yield f"{name}/all-of-one-delta", batch(pack(deltas(2, 2, 2)), codec)
        yield f"{name}/descending", batch(pack(deltas(2, 1, 0)), codec)
        yield f"{name}/back-and-on", batch(pack(deltas(1, 0, 2)), codec)
        yield f"{name}/negative-delta", batch(pack(deltas(-1, 1, 2)), codec)
        yield f"{name}/above-the-last", batch(pack(deltas(0, 1, 5)), codec)
        yield f"{name}/gaps", batch(pack(deltas(0, 3, 5)), codec, last=5)
        yield f"{name}/fewer-than-counted", batch(pack(deltas(0, 1)), codec)
        yield f"{name}/more-than-counted", batch(pack(deltas(0, 1, 2, 3)), codec)
        yield f"{name}/key-size-minus-2", batch(pack(record(0, key=varint(-2))), codec, count=1)
        yield f"{name}/value-size-minus-9", batch(pack(record(0, value=varint(-9))), codec, count=1)
        least = varint(-(1 << 31))
        yield f"{name}/least-key-size", batch(pack(record(0, key=least)), codec, count=1)
        for what, headers in _HEADERS.items():
            yield f"{name}/{what}", batch(pack(record(0, headers=headers)), codec, count=1)
        long = {"delta": varint(0, 5), "key": varint(3, 5) + b"key", "time": varint(0, 10)}
        yield f"{name}/long-varints", batch(pack(record(0, **long)), codec, count=1)
        too_long = {"delta": varint(0, 6)}
        yield f"{name}/too-long-a-varint", batch(pack(record(0, **too_long)), codec, count=1)
        above = {"delta": varint(0, 5, above=5), "key": varint(3, 5, above=7) + b"key"}
        yield f"{name}/varints-above-32-bits", batch(pack(record(0, **above)), codec, count=1)
        far = {"time": varint(1, 10, above=3)}
        yield f"{name}/time-above-64-bits", batch(pack(record(0, **far)), codec, count=1)
        body = record(0)[1:]
        size = varint(len(body), 5, above=3)
        yield f"{name}/size-above-32-bits", batch(pack(size + body), codec, count=1)
        used = record(0, attributes=b"\xff")
        yield f"{name}/attributes-of-a-record", batch(pack(used), codec, count=1)
        yield (
            f"{name}/bytes-in-a-record",
            batch(pack(varint(len(body) + 1) + body + b"\0"), codec, count=1),
        )
        yield f"{name}/negative-record", batch(pack(varint(-1) + body), codec, count=1)
        yield f"{name}/append-time", batch(pack(three), codec, flags=8)
        yield f"{name}/unused-flags", batch(pack(three), codec, flags=0x7F00)
        yield f"{name}/minus-1-records", batch(pack(three), codec, count=-1, last=2)
    yield "codec-5", batch(three, 5)
    yield "codec-7", batch(three, 7)


_HEADERS = {
    "header-value-minus-2": varint(1) + varint(1) + b"h" + varint(-2),
    "header-name-minus-1": varint(1) + varint(-1) + varint(0),
    "minus-1-headers": varint(-1),
    "more-headers-than-bytes": varint(1 << 20),
    "headers-above-32-bits": varint(1, 5, above=3)
    + varint(1, 5, above=3)
    + b"h"
    + varint(-1, 5, above=3),
}


def asked(batches: dict[str, bytes]) -> list[dict[str, Any]]:
    """Have Kafka's own code read `batches`: the versions, and then an answer for each."""
    path = os.pathsep.join(map(str, jars_of(KAFKA.lock)))
    with tempfile.TemporaryDirectory() as classes:
        compiled = ["javac", "--release", "17", "-cp", path, "-d", classes, str(PROGRAM)]
        subprocess.run(compiled, check=True)
        done = subprocess.run(
            ["java", "-cp", os.pathsep.join((classes, path)), MAIN],
            input="".join(f"{name} {data.hex()}\n" for name, data in batches.items()),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Write the fixture."""
    batches = dict(all_framings())
    versions, *answers = asked(batches)
    rows = [{**answer, "batch": batches[answer["name"]].hex()} for answer in answers]
    lines = ",\n".join(map(json.dumps, rows))
    FIXTURE.write_text(f'{{"versions": {json.dumps(versions)}, "framings": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
