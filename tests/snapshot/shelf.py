"""What the tests of snapshots share: a header, small files made by hand, a shelf of generations."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from streamdedup import filters
from streamdedup.filters.base import Addable, Filter
from streamdedup.keys.hashing import Digests
from streamdedup.snapshot import Identity, Refusal, Snapshot, Store
from streamdedup.snapshot import format as snapshot_format
from streamdedup.snapshot.format import (
    pieces,
)
from streamdedup.snapshot.header import (
    Header,
    Log,
)
from streamdedup.snapshot.read import (
    CopyingReader,
    MappedReader,
    SnapshotReader,
)

IDENTITY = Identity(
    hash="murmur3",
    hash_check="5f1d",
    key={"from": "json", "field": "id"},
    normalize="none",
    filter={"kind": "bloom", "capacity": 2000, "error_rate": 0.001},
    topic="unique",
    partition=3,
    partitions=8,
    cluster_id="cluster-a",
    topic_id="topic-a",
    floor=5,
)
OTHERS: dict[str, Any] = {
    "hash": "xxh3",
    "hash_check": "0000",
    "key": {"from": "json", "field": "name"},
    "normalize": "email",
    "filter": {"kind": "bloom", "capacity": 2001, "error_rate": 0.001},
    "topic": "other",
    "partition": 4,
    "cluster_id": "cluster-b",
    "topic_id": "topic-b",
    "floor": 6,
}
LOG = Log(identity=IDENTITY, label=10, counter=1)
HEADER = Header(
    log=LOG,
    filter={"kind": "bloom"},
    buffer_sizes=(),
    saved_at=1.5,
    writer="a test",
)


def digests(count: int, seed: int) -> Digests:
    """Draw distinct digests for as many keys."""
    return np.random.default_rng(seed).integers(0, 1 << 64, size=(count, 2), dtype=np.uint64)


def bloom(keys: int = 1000, seed: int = 1, capacity: int = 2000) -> Addable:
    """Build a small filter, 4 KiB unless told, with some keys in it."""
    made = filters.build({"kind": "bloom", "capacity": capacity, "error_rate": 0.001})
    made.add_many(digests(keys, seed))
    return made


def table(filter_: Filter) -> bytes:
    """Join the bytes of all its buffers."""
    return b"".join(filter_.buffers())


def parts_of(*buffers: bytes, header: Header = HEADER, end_label: int = 12) -> list[bytes]:
    """Make a snapshot of these buffers: head, each chunk, checksums and trailer in one; the filler after each."""
    header = replace(header, buffer_sizes=tuple(len(buffer) for buffer in buffers))
    views = [memoryview(buffer) for buffer in buffers]
    return [bytes(part) for part in pieces(header, views, lambda: (header.filter, end_label))]


def file_of(*buffers: bytes, header: Header = HEADER, end_label: int = 12) -> bytes:
    """Make the same in one."""
    return b"".join(parts_of(*buffers, header=header, end_label=end_label))


def read(data: bytes | bytearray | memoryview) -> tuple[Header, list[bytes], int]:
    """Header, buffers and end label of a file with these bytes."""
    at = 0

    def read_into(view: memoryview) -> None:
        nonlocal at
        view[:] = data[at : at + len(view)]
        at += len(view)

    return result(CopyingReader(read_into, len(data)))


def mapped(
    data: bytes | bytearray | memoryview, *, verify: bool = True
) -> tuple[Header, list[bytes], int]:
    """Give the same of the file as a map."""
    return result(MappedReader(memoryview(data), verify=verify))


def result(reader: SnapshotReader) -> tuple[Header, list[bytes], int]:
    """Read to the end."""
    contents = reader.contents()
    return reader.header, [bytes(buffer) for buffer in contents.buffers], contents.end_label


def as_text(value: object) -> str:
    """Compact JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def by_the_page(
    header: Mapping[str, Any],
    buffers: Sequence[bytes],
    trailer: Mapping[str, Any],
    flipped: int | None = None,
) -> bytes:
    """Make a file as docs/snapshot-format.md draws it, all checksums right, whatever the JSON says.

    `flipped` counts bytes of the payload: that one is changed after the checksums are made.
    """
    text = as_text(header).encode()
    head = b"\x89SDSNAP\n" + struct.pack("<II", 1, len(text)) + text
    salt = struct.pack("<I", crc32c(head))
    chunks = [b[at : at + (1 << 20)] for b in buffers for at in range(0, len(b), 1 << 20)]
    sums = [crc32c(salt + struct.pack("<Q", number) + c) for number, c in enumerate(chunks)]
    payload = bytearray(b"".join(b + bytes(-len(b) % 4096) for b in buffers))
    if flipped is not None:
        payload[flipped] ^= 1
    text = as_text(trailer).encode()
    length = struct.pack("<I", len(text))
    closing = length + text + struct.pack("<I", crc32c(salt + length + text)) + b"\nPANSDS\x89"
    top = head + salt + bytes(-len(head + salt) % 4096)
    return top + payload + struct.pack(f"<{len(sums)}I", *sums) + closing


def fields_of(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give the JSON of the header and of the trailer."""
    length = int.from_bytes(data[12:16], "little")
    trailer = data[data.rindex(b'{"chunks":') : -12]
    return json.loads(data[16 : 16 + length]), json.loads(trailer)


def forged(
    text: bytes,
    body: bytes = b"",
    length: int | None = None,
    magic: bytes = snapshot_format.MAGIC,
) -> bytes:
    """Make a file whose header's checksum is right, whatever the header says."""
    length = len(text) if length is None else length
    head = magic + struct.pack("<II", 1, length) + text
    return head + struct.pack("<I", crc32c(head)) + body


class Shelf:
    """A store, and the refusals of its last load."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.store = Store(directory, group="group", topic="unique", partition=3, **settings)
        self.refusals: list[Refusal] = []

    def save(self, filter_: Filter, label: int, end_label: int | None = None) -> Path:
        """Save under IDENTITY; the end label is the label unless told."""
        end = label if end_label is None else end_label
        return self.store.save(filter_, label, lambda: end, IDENTITY).path

    def load(self, end: int = 1 << 40, identity: Identity = IDENTITY) -> Snapshot | None:
        """Load, and note the refusals."""
        self.refusals = []
        return self.store.load(identity, end=end, on_refusal=self.refusals.append)

    def label(self, end: int = 1 << 40) -> int | None:
        """Load, and tell the label, None for nothing."""
        loaded = self.load(end)
        return loaded.label if loaded else None


def flip(path: Path, at: int) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
