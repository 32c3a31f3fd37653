"""Record batches of events, format v2, made by the column: a topic of millions of events is filled in seconds.

All events of a topic are of one size, so the records of a batch are the rows of a matrix, but for the length of the
offset's delta, one byte up to 63 and two after that. Written against https://kafka.apache.org/documentation/#recordbatch.
"""

import struct
import time
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from crc32c import crc32c

from bench.samples import DIGITS, digits
from bench.worker.events import (
    KEY,
    NUMBER_IN_KEY,
    NUMBER_IN_VALUE,
    POSITION_IN_VALUE,
    Bytes,
    Form,
    Integers,
    Part,
)

# Of a batch, before compression: between a client's default and the broker's most.
BYTES_MAX = 128 << 10
EVENTS_MAX = 8191  # deltas of two bytes
ONE_BYTE = 64  # deltas below it
LZ4_LEVEL = 1

HEAD = struct.Struct(">qiib")
CHECKED = struct.Struct(">hiqqqhii")
CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, bytes),
    "gzip": (1, gzip_encode),
    "snappy": (2, snappy_encode),
    "lz4": (3, lambda records: lz4_encode(records, LZ4_LEVEL)),
    "zstd": (4, zstd_encode),
}


def events_max(form: Form) -> int:
    """How many events of this form a batch has at most."""
    return max(1, min(EVENTS_MAX, BYTES_MAX // form.size))


def of_part(form: Form, part: Part, codec: str) -> Iterator[tuple[int, bytes]]:
    """Batch by batch: the offset at which it belongs, and its bytes."""
    step = events_max(form)
    for at in range(0, len(part.numbers), step):
        yield at, encode(form, part.numbers[at : at + step], at, codec)


def encode(form: Form, numbers: Integers, offset: int, codec: str = "none") -> bytes:
    """One batch of at most `EVENTS_MAX` events, of these keys, which is to stand at `offset`; stamped now."""
    positions = offset + np.arange(len(numbers))
    split = min(ONE_BYTE, len(numbers))
    blocks = [_rows(form, numbers[:split], positions[:split], 0)]
    if len(numbers) > split:
        blocks.append(_rows(form, numbers[split:], positions[split:], split))
    attributes, compress = CODECS[codec]
    records = compress(b"".join(block.tobytes() for block in blocks))
    stamped, count = int(time.time() * 1000), len(numbers)
    checked = CHECKED.pack(attributes, count - 1, stamped, stamped, -1, -1, -1, count) + records
    return HEAD.pack(0, 9 + len(checked), -1, 2) + struct.pack(">I", crc32c(checked)) + checked


def varint(number: int) -> bytes:
    """A number of 0 or more as Kafka writes it: zigzag, seven bits a byte."""
    rest, written = number << 1, bytearray()
    while rest >= 0x80:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


@cache
def _row(form: Form, delta_bytes: int) -> tuple[Bytes, int, int]:
    """A record with zeros for digits; where in it the offset's delta begins, and where the value does."""
    before = varint(len(KEY)) + KEY + varint(len(form.value))
    body = bytes(2 + delta_bytes) + before + form.value + varint(0)
    length = varint(len(body))
    delta_at = len(length) + 2  # behind attributes and the timestamp's delta
    row = np.frombuffer(length + body, dtype=np.uint8)
    return row, delta_at, delta_at + delta_bytes + len(before)


def _rows(form: Form, numbers: Integers, positions: Integers, first_delta: int) -> Bytes:
    row, delta_at, value_at = _row(form, 1 if first_delta < ONE_BYTE else 2)
    rows = np.tile(row, (len(numbers), 1))
    zigzag = (first_delta + np.arange(len(numbers))) << 1
    if first_delta < ONE_BYTE:
        rows[:, delta_at] = zigzag
    else:
        rows[:, delta_at], rows[:, delta_at + 1] = zigzag & 0x7F | 0x80, zigzag >> 7
    key_at = value_at - len(varint(len(form.value))) - len(KEY)
    for at, written in (
        (key_at + NUMBER_IN_KEY, digits(numbers)),
        (value_at + NUMBER_IN_VALUE, digits(numbers)),
        (value_at + POSITION_IN_VALUE, digits(positions)),
    ):
        rows[:, at : at + DIGITS] = written
    return rows
