"""What a snapshot survives, and what is never taken for one."""

import errno
import fcntl
import io
import json
import os
import random
import struct
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup import filters
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.events import Fingerprint
from streamdedup.filters.base import Addable, Filter
from streamdedup.keys.hashing import Digests
from streamdedup.snapshot import Identity, Refusal, Snapshot, Store
from streamdedup.snapshot import format as snapshot_format
from streamdedup.snapshot.files import save
from streamdedup.snapshot.format import (
    CHUNK_BYTES,
    PAGE_BYTES,
    pieces,
)
from streamdedup.snapshot.header import (
    DamagedFileError,
    Header,
    Log,
)
from streamdedup.snapshot.read import (
    CopyingReader,
    MappedReader,
    SnapshotReader,
)
from streamdedup.testing.files import FailingFs, PowerFs, WatchedFs, restore

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


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """Make an empty store."""
    return Shelf(tmp_path / "snapshots")


def flip(path: Path, at: int) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


# What is saved comes back


def test_a_saved_filter_comes_back_bit_for_bit(tmp_path: Path) -> None:
    """Keys, counts, labels, size and time are those of the save."""
    shelf = Shelf(tmp_path, wall_clock=lambda: 1_700_000_000.25)
    saved_filter = bloom()
    saved = shelf.store.save(saved_filter, 40, lambda: 44, IDENTITY)
    loaded = shelf.load(end=44)
    assert loaded is not None
    assert table(loaded.filter) == table(saved_filter)
    assert loaded.filter.header() == saved_filter.header()
    assert (loaded.label, loaded.end_label, loaded.saved_at) == (40, 44, 1_700_000_000.25)
    assert (loaded.path, loaded.size_bytes) == (saved.path, saved.size_bytes)
    assert saved.size_bytes == saved.path.stat().st_size
    assert not shelf.refusals


FINGERPRINTS = [
    None,
    Fingerprint(offset=0, producer_id=-1, epoch=-1, crc=0, stamped_ms=-1),
    Fingerprint(
        offset=39,
        producer_id=(1 << 63) - 1,
        epoch=(1 << 15) - 1,
        crc=(1 << 32) - 1,
        stamped_ms=-(1 << 63),
    ),
]


@pytest.mark.parametrize("fingerprint", FINGERPRINTS, ids=["none", "least", "most"])
def test_a_fingerprint_comes_back(shelf: Shelf, fingerprint: Fingerprint | None) -> None:
    """With every number that Kafka's format allows, or none, as in the files of before there were any."""
    path = shelf.store.save(bloom(), 40, lambda: 40, IDENTITY, fingerprint=fingerprint).path
    loaded = shelf.load()
    assert loaded is not None
    assert (loaded.fingerprint, loaded.topic_id) == (fingerprint, IDENTITY.topic_id)
    assert ("fingerprint" in fields_of(path.read_bytes())[0]["log"]) == (fingerprint is not None)


def test_a_generation_is_passed_over_where_the_caller_says_so(shelf: Shelf) -> None:
    """The one before it is loaded, and nothing is said of it: the caller has its own reason."""
    old, new = shelf.save(bloom(), 5), shelf.save(bloom(), 6)
    refusals: list[Refusal] = []
    load = partial(shelf.store.load, IDENTITY, end=10, on_refusal=refusals.append)
    loaded = load(passing_over={new})
    assert loaded is not None
    assert (loaded.path, refusals) == (old, [])
    assert load(passing_over={new, old}) is None


def test_the_labels_of_what_could_be_used_are_told(shelf: Shelf) -> None:
    """Of one identity, and of those older than a generation."""
    for label in (5, 6, 7):
        path = shelf.save(bloom(), label)
    other = replace(IDENTITY, normalize="email")
    shelf.store.save(bloom(), 8, lambda: 8, other)
    assert shelf.store.labels() == [8, 7, 6]
    assert shelf.store.labels(IDENTITY) == [7, 6]
    assert shelf.store.labels(other) == [8]
    assert shelf.store.labels(IDENTITY, before=path) == [6]


SIZES = [(), (0,), (1,), (4096, 1), (CHUNK_BYTES,), (CHUNK_BYTES + 1, 0, 7), (3, 2 * CHUNK_BYTES)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_buffers_of_any_number_and_size_come_back(sizes: tuple[int, ...]) -> None:
    """No buffers, empty ones, and those that end at or just after a chunk's end are kept apart; read or mapped."""
    buffers = [np.random.default_rng(size).bytes(size) for size in sizes]
    data = file_of(*buffers)
    for header, found, end_label in (read(data), mapped(data), mapped(data, verify=False)):
        assert (found, end_label) == (buffers, 12)
        assert replace(header, buffer_sizes=()) == HEADER


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("header", [HEADER, replace(HEADER, log=None)], ids=["log", "no log"])
def test_the_bytes_are_those_of_the_page(sizes: tuple[int, ...], header: Header) -> None:
    """The layout that is documented, written down a second time here, is what is written."""
    buffers = [np.random.default_rng(size).bytes(size) for size in sizes]
    data = file_of(*buffers, header=header, end_label=12 if header.log else 0)
    assert data == by_the_page(fields_of(data)[0], buffers, fields_of(data)[1])


def test_buffers_stand_whole_on_page_borders() -> None:
    """So a map of the file holds each as it is in memory; what is read begins on a cache line, too."""
    buffers = [b"\1" * 5000, b"\2" * (CHUNK_BYTES + 5), b"\3"]
    data = file_of(*buffers)
    places = [data.index(buffer) for buffer in buffers]
    assert places == [4096, 4096 + 8192, 4096 + 8192 + CHUNK_BYTES + 4096]
    assert all(place % PAGE_BYTES == 0 for place in places)
    found = MappedReader(memoryview(data), verify=True).contents().buffers
    start = address(memoryview(data))
    assert [address(buffer) - start for buffer in found] == places
    assert all(buffer.readonly for buffer in found)
    stream = io.BytesIO(data)
    copied = CopyingReader(lambda view: assert_filled(stream, view), len(data)).contents().buffers
    assert [address(buffer) % 64 for buffer in copied] == [0, 0, 0]
    assert not any(buffer.readonly for buffer in copied)


def address(buffer: memoryview) -> int:
    """Tell where it begins in memory."""
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def assert_filled(stream: io.BytesIO, view: memoryview) -> None:
    """Read as much as is asked for."""
    assert stream.readinto(view) == len(view)


def test_a_library_file_has_no_log() -> None:
    """No identity, label or counter; its end label is 0, and nothing else is written or read."""
    header = replace(HEADER, log=None)
    data = file_of(b"table", header=header, end_label=0)
    found, buffers, end_label = read(data)
    assert (found.log, buffers, end_label) == (None, [b"table"], 0)
    with pytest.raises(SnapshotError, match="not the fold of a log"):
        found.of_log()
    with pytest.raises(SnapshotError, match="end label 1"):
        file_of(b"table", header=header, end_label=1)
    top, trailer = fields_of(data)
    with pytest.raises(DamagedFileError, match="'end_label'"):
        read(by_the_page(top, [b"table"], trailer | {"end_label": 1}))


def test_a_load_reads_in_pieces_and_copies_none_of_them(shelf: Shelf) -> None:
    """No call reads more than a chunk, so none is long, and the filter stands on the memory that was read into."""
    saved = bloom(capacity=1_000_000)
    shelf.save(saved, 1)
    read_to: list[tuple[int, int]] = []

    class NotingFs(WatchedFs):
        def readv(self, fd: int, buffers: list[memoryview], /) -> int:
            read_to.append((address(buffers[0]), len(buffers[0])))
            return super().readv(fd, buffers)

    loaded = Shelf(shelf.store.path.parents[2], fs=NotingFs()).load()
    assert loaded is not None
    (buffer,) = loaded.filter.buffers()
    assert len(buffer) > CHUNK_BYTES
    assert max(size for _, size in read_to) == CHUNK_BYTES
    assert (address(buffer), CHUNK_BYTES) in read_to
    assert address(buffer) % 64 == 0
    assert table(loaded.filter) == table(saved)


def test_calls_that_do_less_than_asked_are_repeated(tmp_path: Path) -> None:
    """A write or read may stop early, as near the end of a disk's space or after a signal."""

    class SmallFs(WatchedFs):
        def readv(self, fd: int, buffers: list[memoryview], /) -> int:
            return super().readv(fd, [buffers[0][:1000]])

        def write(self, fd: int, data: bytes | memoryview, /) -> int:
            return super().write(fd, memoryview(data)[:1000])

    shelf = Shelf(tmp_path, fs=SmallFs())
    saved = bloom()
    shelf.save(saved, 1)
    loaded = shelf.load()
    assert loaded is not None
    assert table(loaded.filter) == table(saved)


def test_the_newest_generation_is_taken(shelf: Shelf) -> None:
    """Of several good ones, the last saved."""
    for label in (5, 6, 7):
        shelf.save(bloom(seed=label), label)
    assert shelf.label() == 7
    assert shelf.store.labels() == [7, 6, 5]


def test_nothing_saved_is_nothing_loaded(shelf: Shelf) -> None:
    """A shard that was never saved has no snapshot, no label, and no complaint."""
    assert (shelf.label(), shelf.refusals) == (None, [])
    assert (shelf.store.exists(), shelf.store.labels()) == (False, [])


def test_a_damaged_snapshot_still_shows_that_the_shard_lived(shelf: Shelf) -> None:
    """What was set aside counts for `exists`, so that no shard is taken for newly born."""
    flip(shelf.save(bloom(), 1), 100)
    assert shelf.label() is None
    assert (shelf.store.exists(), shelf.store.labels()) == (True, [])


# A damaged byte is never trusted


@pytest.fixture(scope="module")
def file_of_64_kib() -> bytes:
    """Make a snapshot of random bytes."""
    return file_of(np.random.default_rng(1).bytes(40_000), np.random.default_rng(2).bytes(25_000))


@pytest.fixture(scope="module")
def file_of_16_kib() -> bytes:
    """Make a smaller one, for what is asked in several ways."""
    return file_of(np.random.default_rng(3).bytes(5000), np.random.default_rng(4).bytes(3))


ways = pytest.mark.parametrize("way", [read, mapped], ids=["read", "mapped"])
Way = Callable[[bytes | bytearray | memoryview], tuple[Header, list[bytes], int]]


def test_every_flipped_byte_is_found(file_of_64_kib: bytes) -> None:
    """Each byte of a 64 KiB file in turn, filler included; the error is the typed one, every time."""
    assert flips_that_pass(read, file_of_64_kib) == set()


def test_every_flipped_byte_of_a_map_is_found(file_of_16_kib: bytes) -> None:
    """As well as where the file is read."""
    assert flips_that_pass(mapped, file_of_16_kib) == set()


def flips_that_pass(way: Way, whole: bytes) -> set[int]:
    """Flip a bit of each byte in turn, and tell at which of them no SnapshotError is raised."""
    data, passed = bytearray(whole), set()
    for at in range(len(data)):
        data[at] ^= 1 << at % 8
        with suppress(SnapshotError):
            way(data)
            passed.add(at)
        data[at] ^= 1 << at % 8
    assert way(data) == way(whole)
    return passed


def test_a_map_that_is_not_verified_is_checked_but_for_its_table(file_of_16_kib: bytes) -> None:
    """Only bytes of the buffers and of their checksums may be other than written."""
    buffers = {*range(4096, 4096 + 5000), *range(12288, 12288 + 3)}
    sums = set(range(16384, 16384 + 2 * 4))
    assert flips_that_pass(partial(mapped, verify=False), file_of_16_kib) == buffers | sums


@ways
def test_random_flips_in_a_large_file_are_found(way: Way) -> None:
    """A thousand places in a file of three chunks."""
    data = bytearray(file_of(np.random.default_rng(1).bytes(2 * CHUNK_BYTES + 9)))
    chooser = random.Random(3)
    for _ in range(1000):
        at, change = chooser.randrange(len(data)), chooser.randrange(1, 256)
        data[at] ^= change
        with pytest.raises(SnapshotError):
            way(data)
        data[at] ^= change


@pytest.mark.parametrize(
    "way", [read, mapped, partial(mapped, verify=False)], ids=["read", "mapped", "not verified"]
)
def test_a_file_cut_at_any_length_is_found(file_of_16_kib: bytes, way: Way) -> None:
    """Each length from nothing to one byte short."""
    view = memoryview(file_of_16_kib)
    for length in range(len(view)):
        with pytest.raises(DamagedFileError):
            way(view[:length])


@ways
def test_bytes_after_the_end_are_found(file_of_64_kib: bytes, way: Way) -> None:
    """A file that was appended to is not the file that was written."""
    with pytest.raises(DamagedFileError, match="length"):
        way(file_of_64_kib + b"\0")


@ways
def test_filler_that_is_not_zero_is_found(way: Way) -> None:
    """After the header and after each buffer, though no checksum covers it."""
    top, trailer = fields_of(file_of(b"ours", b"theirs"))
    assert way(by_the_page(top, [b"ours", b"theirs"], trailer))[2] == 12
    for at in (4, 4095, 4096 + 6, 8191):
        with pytest.raises(DamagedFileError, match="filler"):
            way(by_the_page(top, [b"ours", b"theirs"], trailer, flipped=at))


@ways
def test_chunks_that_changed_places_are_found(way: Way) -> None:
    """Their checksums with them or not: a checksum holds for one place."""
    head, one, two, tail = parts_of(bytes(CHUNK_BYTES), b"\1" * CHUNK_BYTES)
    exchanged = tail[4:8] + tail[:4] + tail[8:]
    assert way(head + one + two + tail)[2] == 12
    for wrong in (two + one + tail, two + one + exchanged, one + two + exchanged):
        with pytest.raises(DamagedFileError, match="chunk 0 of 2"):
            way(head + wrong)


@ways
def test_a_chunk_or_trailer_of_another_generation_is_found(way: Way) -> None:
    """Both files are whole, and of the same length."""
    head, chunk, tail = parts_of(b"ours", end_label=12)
    other = replace(HEADER, log=replace(LOG, counter=2))
    _, other_chunk, other_tail = parts_of(b"mine", header=other, end_label=13)
    assert way(head + chunk + tail)[1] == [b"ours"]
    for wrong in (other_chunk + tail, other_chunk + other_tail[:4] + tail[4:]):
        with pytest.raises(DamagedFileError, match="chunk 0 of 1"):
            way(head + wrong)
    with pytest.raises(DamagedFileError, match="trailer"):
        way(head + chunk + tail[:4] + other_tail[4:])


@pytest.mark.parametrize("at", [0, 9, 13, 20, 4095, 5000, -400, -40, -9, -1])
def test_a_damaged_generation_is_set_aside_and_the_one_before_used(shelf: Shelf, at: int) -> None:
    """One refusal, naming the file; the next load does not meet it again."""
    shelf.save(bloom(seed=1), 1)
    damaged = shelf.save(bloom(seed=2), 2)
    flip(damaged, at)
    loaded = shelf.load()
    assert loaded is not None
    assert (loaded.label, table(loaded.filter)) == (1, table(bloom(seed=1)))
    assert [refusal.path for refusal in shelf.refusals] == [damaged]
    assert f"set aside as {damaged.name}.broken" in shelf.refusals[0].reason
    assert not damaged.exists()
    assert (shelf.label(), shelf.refusals) == (1, [])


def test_a_name_that_was_set_aside_is_not_given_again(shelf: Shelf) -> None:
    """Else a second damage would overwrite what may be looked into."""
    flip(shelf.save(bloom(), 1), 100)
    assert shelf.label() is None
    assert shelf.save(bloom(), 2).name == "0000000000000002.snapshot"


@pytest.mark.parametrize("keep", [0, 5, 100])
def test_a_cut_file_is_set_aside(shelf: Shelf, keep: int) -> None:
    """An empty file, too."""
    os.truncate(shelf.save(bloom(), 1), keep)
    assert shelf.label() is None
    assert "cut short" in shelf.refusals[0].reason


def test_a_file_that_is_cut_while_it_is_read_is_refused(shelf: Shelf) -> None:
    """Its length was right when it was opened."""
    path = shelf.save(bloom(capacity=1_000_000), 1)

    class CuttingFs(WatchedFs):
        def readv(self, fd: int, buffers: list[memoryview], /) -> int:
            if len(buffers[0]) == CHUNK_BYTES:
                os.truncate(path, 5000)
            return super().readv(fd, buffers)

    cut = Shelf(path.parents[3], fs=CuttingFs())
    assert cut.label() is None
    assert "while it was read" in cut.refusals[0].reason


HEADER_FIELDS, _ = fields_of(file_of())
FINGERPRINT_FIELDS = {"offset": 9, "producer_id": 7, "epoch": 0, "crc": 1, "stamped_ms": -1}
HOSTILE_FIELDS = [
    ("buffer_sizes", [1 << 62]),
    ("buffer_sizes", [1 << 80]),
    ("buffer_sizes", [10**9] * 5000),
    ("buffer_sizes", [-1, 1]),
    ("buffer_sizes", [True]),
    ("buffer_sizes", {"0": 1}),
    ("buffer_sizes", [1] * 10_000),
    ("log", []),
    ("log", {}),
    ("label", -1),
    ("label", 1 << 63),
    ("label", "1"),
    ("label", 1.0),
    ("label", True),
    ("counter", 0),
    ("identity", []),
    ("identity", {}),
    ("filter", None),
    ("saved_at", "today"),
    ("saved_at", float("nan")),
    ("writer", 1),
]


@pytest.mark.parametrize(("name", "value"), HOSTILE_FIELDS)
def test_a_hostile_header_with_a_right_checksum_takes_no_memory(name: str, value: Any) -> None:
    """The typed error, and less than a mebibyte."""
    of_log = {"log": HEADER_FIELDS["log"] | {name: value}} if name in HEADER_FIELDS["log"] else {}
    text = json.dumps(HEADER_FIELDS | (of_log or {name: value})).encode()
    why = f"'{name}'|'hash'|'identity'|cut short|not JSON"
    assert_refused_in_little_memory(forged(text, bytes(5000)), why)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offset", -1),
        ("offset", LOG.label),  # it is of a batch below the label
        ("offset", 1.0),
        ("producer_id", -2),
        ("producer_id", 1 << 63),
        ("epoch", -2),
        ("epoch", 1 << 15),
        ("crc", -1),
        ("crc", 1 << 32),
        ("crc", "0"),
        ("stamped_ms", 1 << 63),
        ("stamped_ms", None),
    ],
)
def test_a_fingerprint_out_of_range_is_refused(name: str, value: Any) -> None:
    """Each of its numbers has the bounds of Kafka's format."""
    hostile = HEADER_FIELDS["log"] | {"fingerprint": FINGERPRINT_FIELDS | {name: value}}
    with pytest.raises(DamagedFileError, match=f"'{name}'"):
        read(forged(json.dumps(HEADER_FIELDS | {"log": hostile}).encode()))


@pytest.mark.parametrize("value", [None, [], {}, 7], ids=str)
def test_a_fingerprint_that_is_none_is_refused(value: Any) -> None:
    """A file that has none has no such field."""
    hostile = HEADER_FIELDS["log"] | {"fingerprint": value}
    with pytest.raises(DamagedFileError, match=r"'fingerprint'|'offset'"):
        read(forged(json.dumps(HEADER_FIELDS | {"log": hostile}).encode()))


def test_a_header_that_does_not_say_whether_it_has_a_log_is_refused() -> None:
    """A field that was left out is no library's null."""
    text = json.dumps({name: HEADER_FIELDS[name] for name in HEADER_FIELDS if name != "log"})
    with pytest.raises(DamagedFileError, match="'log' is missing"):
        read(forged(text.encode()))


@pytest.mark.parametrize(
    "data",
    [
        forged(b"{}", length=0xFFFFFFFF),
        forged(b"[" + b" " * (3 << 20)),
        forged(b""),
        forged(b"[]"),
        forged(b"[" * 60_000),
        forged(b"9" * 60_000),
        forged(b'{"label": NaN}'),
        forged(b"\xff\xfe"),
        parts_of()[0] + b"\xff" * 20,
        parts_of()[0] + struct.pack("<I", 3 << 20) + bytes((3 << 20) + 12),
    ],
    ids=range(10),
)
def test_hostile_bytes_take_no_memory(data: bytes) -> None:
    """Lengths beyond the bound or the file, JSON that is deep, long or none."""
    assert_refused_in_little_memory(data)


def assert_refused_in_little_memory(data: bytes, why: str = ".") -> None:
    """Assert that reading raises DamagedError and allocates below a mebibyte."""
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFileError, match=why):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("end_label", 9),
        ("end_label", 1 << 63),
        ("end_label", None),
        ("filter", []),
        ("chunks", 2),
        ("payload_bytes", 5),
    ],
)
def test_a_hostile_trailer_with_a_right_checksum_is_refused(name: str, value: Any) -> None:
    """An end label below the label, totals that are not those of the header, other types."""
    top, trailer = fields_of(file_of(b"ours"))
    with pytest.raises(DamagedFileError, match=f"'{name}'|counts other"):
        read(by_the_page(top, [b"ours"], trailer | {name: value}))


def test_sizes_that_are_one_off_are_refused_with_all_checksums_right() -> None:
    """However the header and the trailer are changed to fit each other, the file's length does not."""
    buffers = [b"a" * 4096, b"b" * 5000]
    top, trailer = fields_of(file_of(*buffers))
    assert read(by_the_page(top, buffers, trailer))[1] == buffers
    for at, change in product((0, 1), (-4096, -1, 1, 4096)):
        sizes = list(top["buffer_sizes"])
        sizes[at] += change
        totals = {
            "payload_bytes": sum(sizes),
            "chunks": len([size for size in sizes if size]),
        }
        for other in (trailer, trailer | totals):
            with pytest.raises(DamagedFileError):
                read(by_the_page(top | {"buffer_sizes": sizes}, buffers, other))


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("name", ["label", "counter", "partition", "partitions", "length"])
def test_a_header_that_is_one_off_does_not_go_with_the_rest(name: str, change: int) -> None:
    """Its own checksum is right, but those of the chunks and of the trailer are not."""
    data = file_of(b"ours")
    top, _ = fields_of(data)
    for fields in (top["log"], top["log"]["identity"]):
        if name in fields:
            fields[name] += change
    text = as_text(top).encode()
    head = forged(text, length=len(text) + change if name == "length" else None)
    data = head + bytes(-len(head) % 4096) + data[4096:]
    for way in (read, mapped, partial(mapped, verify=False)):
        with pytest.raises(DamagedFileError):
            way(data)


def test_another_programs_file_is_none_of_ours() -> None:
    """Even where all but the magic would fit."""
    with pytest.raises(DamagedFileError, match="does not begin"):
        read(forged(json.dumps(HEADER_FIELDS).encode(), magic=b"SNAPPERS"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(deadline=None)  # how long an example takes is no claim
@given(st.dictionaries(st.sampled_from(sorted(HEADER_FIELDS)), JSON_VALUES), st.binary(max_size=99))
def test_any_header_is_read_or_refused(changes: dict[str, Any], body: bytes) -> None:
    """No other error than the typed one, whatever stands in the fields."""
    text = json.dumps(HEADER_FIELDS | changes).encode()
    with pytest.raises(SnapshotError):
        read(forged(text, body))


# A snapshot is for one log, one way to make keys, and never ahead


def differing(field: str, theirs: Any, ours: Any) -> dict[str, tuple[Any, Any]]:
    """The leaves of a field in which two identities differ, with both values."""
    if not isinstance(theirs, dict):
        return {field: (theirs, ours)}
    leaves = {name: (theirs.get(name), ours.get(name)) for name in {**theirs, **ours}}
    return {f"{field}.{name}": pair for name, pair in leaves.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("field", OTHERS)
def test_another_log_or_other_settings_are_refused_and_left(shelf: Shelf, field: str) -> None:
    """The refusal names the field and both values; the file stays, for whom it belongs to."""
    path = shelf.save(bloom(), 1)
    other = replace(IDENTITY, **{field: OTHERS[field]})
    assert shelf.load(identity=other) is None
    (refusal,) = shelf.refusals
    for name, (theirs, ours) in differing(field, getattr(IDENTITY, field), OTHERS[field]).items():
        assert f"{name} {as_text(theirs)} instead of {as_text(ours)}" in refusal.reason
    assert path.exists()
    assert shelf.label() == 1


def test_a_keyed_filter_comes_back_under_its_key_only(shelf: Shelf) -> None:
    """No file holds the key: it is given at the load, and another one, or none, is refused without being told."""
    key = b"sixteen secrets!"
    config = {"kind": "bloom", "capacity": 2000, "error_rate": 0.001, "hash": "siphash"}
    seen = filters.build({**config, "hash_key": key})
    seen.add("a key")
    identity = replace(IDENTITY, hash="siphash", hash_check=seen.hash.check)
    path = shelf.store.save(seen, 1, lambda: 1, identity).path
    assert key not in path.read_bytes()
    load = partial(shelf.store.load, identity, end=9, on_refusal=shelf.refusals.append)
    for wrong in (bytes(16), b""):
        assert load(hash_key=wrong) is None
        assert "its filter cannot be built" in shelf.refusals[-1].reason
        assert path.exists()
    assert len(shelf.refusals) == 2
    loaded = load(hash_key=key)
    assert loaded is not None
    assert "a key" in loaded.filter
    assert loaded.filter.hash == seen.hash


def as_text(value: object) -> str:
    """Compact JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize("field", ["cluster_id", "topic_id"])
def test_an_id_that_the_broker_does_not_tell_matches_any(shelf: Shelf, field: str) -> None:
    """Whether it was not told at the save or at the load."""
    nothing: dict[str, Any] = {field: None}
    untold = replace(IDENTITY, **nothing)
    shelf.save(bloom(), 1)
    assert shelf.load(identity=untold) is not None
    shelf.store.save(bloom(), 2, lambda: 2, untold)
    assert shelf.label() == 2


def test_generations_that_changed_names_are_refused(shelf: Shelf) -> None:
    """A file says itself which generation it is."""
    one, two = shelf.save(bloom(), 1), shelf.save(bloom(), 2)
    away = one.with_name("away")
    one.rename(away)
    two.rename(one)
    away.rename(two)
    assert shelf.label() is None
    assert ["renamed" in refusal.reason for refusal in shelf.refusals] == [True, True]
    assert one.exists()


@pytest.mark.parametrize(("label", "end_label"), [(51, 51), (50, 51)])
def test_what_is_ahead_of_the_output_is_refused_and_left(
    shelf: Shelf, label: int, end_label: int
) -> None:
    """The label or only the end label lies beyond the end: the generation before is used."""
    shelf.save(bloom(seed=1), 40, 50)
    ahead = shelf.save(bloom(seed=2), label, end_label)
    assert shelf.label(end=50) == 40
    (refusal,) = shelf.refusals
    assert refusal.path == ahead
    assert "up to offset 51 and the output ends at 50" in refusal.reason
    assert ahead.exists()


def test_a_file_of_a_later_version_is_refused_and_left(shelf: Shelf) -> None:
    """It is whole, so it is no damage: who goes back to the later version finds it again."""
    path = shelf.save(bloom(), 1)
    data = bytearray(path.read_bytes())
    data[8] = 2
    header_end = 16 + int.from_bytes(data[12:16], "little")
    data[header_end : header_end + 4] = struct.pack("<I", crc32c(bytes(data[:header_end])))
    path.write_bytes(data)
    assert shelf.label() is None
    assert "format version 2" in shelf.refusals[0].reason
    assert path.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "unheard of"},
        {"kind": None},
        {"capacity": "many"},
        {"capacity": None},
        {"capacity": 10**30},
        {"error_rate": 2},
        {"bits": 7},
    ],
    ids=str,
)
def test_a_filter_that_cannot_be_built_is_refused(shelf: Shelf, change: dict[str, Any]) -> None:
    """The bytes are right; the parts do not fit, or the kind is not known here."""
    shelf.save(bloom(), 1)
    log = replace(LOG, counter=2)
    header = replace(HEADER, log=log, filter=bloom().header() | change)
    (shelf.store.path / "0000000000000002.snapshot").write_bytes(
        file_of(table(bloom()), header=header)
    )
    assert shelf.label() == 1
    assert "cannot be built" in shelf.refusals[0].reason


def test_a_library_file_is_refused_and_left(shelf: Shelf) -> None:
    """It tells of no log, so it is no shard's, whatever its name."""
    path = shelf.save(bloom(), 1)
    save(bloom(), path)
    assert shelf.label() is None
    assert "a program saved, and not the fold of a log; left in place" in shelf.refusals[0].reason
    assert path.exists()
    assert shelf.store.labels() == []


# Saving fails, the disk fails, the power fails


@pytest.fixture(scope="module")
def two_filters() -> tuple[Filter, Filter]:
    """Make an old and a new state."""
    return bloom(seed=1), bloom(seed=2)


@pytest.mark.parametrize(
    "mode",
    [{}, {"for_good": True}, {"lost_answer": True}, {"for_good": True, "lost_answer": True}],
    ids=["once", "for good", "once, answer lost", "for good, answers lost"],
)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("first", [False, True], ids=["second save", "first save"])
def test_whichever_call_of_a_save_fails_the_old_or_the_new_is_loaded(
    tmp_path: Path,
    two_filters: tuple[Filter, Filter],
    mode: dict[str, bool],
    error: int,
    first: bool,
) -> None:
    """Each call in turn: a typed error, no file left open, and the next save is good."""
    old, new = two_filters
    tables = {1: table(old), 2: table(new)}
    for fail_at in range(1000):
        directory = tmp_path / str(fail_at)
        if not first:
            Shelf(directory).save(old, 1)
        fs = FailingFs(fail_at, error, **mode)
        failure = failure_of(lambda: Shelf(directory, fs=fs).save(new, 2))  # noqa: B023 - called now
        if not fs.failed:
            break
        assert not fs.open_fds
        if failure:
            assert str(directory) in failure
            assert errno.errorcode[error] in failure
        if fs.failed[0] == "fsync":
            assert failure
            assert "fsync" not in fs.calls[fail_at + 1 :]
        shelf = Shelf(directory)
        loaded = shelf.load()
        assert not shelf.refusals
        assert (loaded.label if loaded else None) in ({None, 2} if first else {1, 2})
        assert loaded is None or table(loaded.filter) == tables[loaded.label]
        assert failure or (loaded and loaded.label == 2)
        shelf.save(old, 3)
        assert shelf.label() == 3
        assert not list(directory.rglob("*.tmp"))
    assert fail_at > 20


def failure_of(act: Callable[[], object]) -> str | None:
    """Return the message of the SnapshotError that `act` raises, None where it raises none."""
    try:
        act()
    except SnapshotError as error:
        return str(error)
    return None


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_whichever_call_of_a_load_fails_no_wrong_state_is_loaded(
    shelf: Shelf, two_filters: tuple[Filter, Filter], for_good: bool
) -> None:
    """An older state, none, or the typed error; nothing whole is set aside."""
    old, new = two_filters
    tables = {1: table(old), 2: table(new)}
    shelf.save(old, 1)
    shelf.save(new, 2)
    for fail_at in range(1000):
        fs = FailingFs(fail_at, errno.EIO, for_good=for_good)
        failing = Shelf(shelf.store.path.parents[2], fs=fs)
        loaded: list[Snapshot | None] = []
        failure = failure_of(lambda: loaded.append(failing.load()))  # noqa: B023 - called now
        if not fs.failed:
            break
        assert not fs.open_fds
        assert all(table(found.filter) == tables[found.label] for found in loaded if found)
        assert failure or failing.refusals or fs.failed == ["close"]
        assert shelf.label() == 2
    assert fail_at > 8


@pytest.mark.parametrize("keep", [1, 3])
def test_power_may_fail_after_any_call_and_the_old_or_the_new_is_loaded(
    tmp_path: Path, two_filters: tuple[Filter, Filter], keep: int
) -> None:
    """With every subset of what was not synced; once a save has returned, only the new one."""
    tables = {label: table(filter_) for label, filter_ in enumerate(two_filters, 1)}
    fs = PowerFs()
    away = tmp_path / "before"
    away.mkdir()
    shelf = Shelf(away / "snapshots", fs=fs, keep=keep)
    begun, done = {}, {}
    for label, filter_ in enumerate(two_filters, 1):
        begun[label] = len(fs.log)
        shelf.save(filter_, label)
        done[label] = len(fs.log)
    seen: dict[Any, int | None] = {}
    for operations in range(len(fs.log) + 1):
        allowed = {label for label in tables if operations > begun[label]} | {None}
        durable = max((label for label in tables if operations >= done[label]), default=0)
        allowed = {label for label in allowed if (label or 0) >= durable}
        for state in fs.states_after(operations):
            if state not in seen:
                seen[state] = label_after_power_loss(state, away, tmp_path / str(len(seen)), tables)
            assert seen[state] in allowed, fs.log[:operations]
    assert set(seen.values()) == {None, 1, 2}


def label_after_power_loss(
    state: Any, away: Path, directory: Path, tables: dict[int, bytes]
) -> int | None:
    """Load from that state of the disk: the filter is the one saved, and nothing is damaged."""
    directory.mkdir()
    restore(state, away, directory)
    shelf = Shelf(directory / "snapshots")
    loaded = shelf.load()
    assert not shelf.refusals
    if loaded is None:
        return None
    assert table(loaded.filter) == tables[loaded.label]
    return loaded.label


def test_a_full_disk_is_named_with_its_remedy(tmp_path: Path) -> None:
    """The operator reads which file, why, and what to do."""
    (write,) = [at for at, call in enumerate(calls_of_a_save(tmp_path)) if call == "write"][:1]
    shelf = Shelf(tmp_path, fs=FailingFs(write, errno.ENOSPC))
    with pytest.raises(SnapshotError, match=r"\.tmp: No space left .*ENOSPC.*; free some space"):
        shelf.save(bloom(), 1)


def test_a_directory_that_may_not_be_written_is_named_with_its_remedy(tmp_path: Path) -> None:
    """For a directory of another user."""
    with pytest.raises(SnapshotError, match=f"EACCES.*user id {os.geteuid()}"):
        Shelf(tmp_path, fs=FailingFs(0, errno.EACCES)).save(bloom(), 1)


def calls_of_a_save(directory: Path) -> list[str]:
    """List the calls that one save makes."""
    fs = WatchedFs()
    Shelf(directory, fs=fs).save(bloom(), 1)
    return fs.calls


def test_an_error_while_the_end_label_is_asked_leaves_nothing(shelf: Shelf) -> None:
    """Whatever the caller's function raises comes through, and no file is left."""

    def fail() -> int:
        raise RuntimeError("the shard is gone")

    with pytest.raises(RuntimeError, match="the shard is gone"):
        shelf.store.save(bloom(), 1, fail, IDENTITY)
    assert [path.name for path in shelf.store.path.iterdir()] == ["lock"]


def test_an_end_label_below_the_label_is_not_written(shelf: Shelf) -> None:
    """It would be refused at each load."""
    with pytest.raises(SnapshotError, match="end label 4 is below the label 5"):
        shelf.save(bloom(), 5, 4)
    assert not shelf.store.exists()


def test_a_header_that_could_not_be_read_is_not_written(shelf: Shelf) -> None:
    """The bound that holds for reading holds for writing."""
    identity = replace(IDENTITY, key={"field": "x" * 70_000})
    with pytest.raises(SnapshotError, match=r"70.* bytes and the limit is 65536"):
        shelf.store.save(bloom(), 1, lambda: 1, identity)
    assert not shelf.store.exists()


# Additions go on while a snapshot is written


@pytest.mark.parametrize("keys", [0, 1000])
def test_what_is_written_is_what_was_summed(tmp_path: Path, keys: int) -> None:
    """Keys that come between a chunk's checksum and its write do not spoil it, and the last count is saved."""
    filter_ = bloom(keys=keys)
    before, counted = table(filter_), len(filter_)
    seeds = iter(range(100, 1000))

    class BusyFs(WatchedFs):
        def write(self, fd: int, data: bytes | memoryview, /) -> int:
            filter_.add_many(digests(20, next(seeds)))
            return super().write(fd, data)

    shelf = Shelf(tmp_path, fs=BusyFs())
    shelf.save(filter_, 1)
    loaded = shelf.load()
    assert loaded is not None
    assert not shelf.refusals
    assert counted < len(loaded.filter) < len(filter_)
    assert table(filter_) != before
    assert holds_all(loaded.filter, before)
    assert holds_all(filter_, table(loaded.filter))


def test_the_end_label_is_asked_after_the_last_chunk_was_copied() -> None:
    """What comes before the last copy may be in the file, what comes after asking is not."""
    live = bytearray(2 * CHUNK_BYTES)
    written: list[bytes] = []

    def closing() -> tuple[dict[str, Any], int]:
        assert len(written) == 3
        live[:] = b"\xff" * len(live)
        return {}, 12

    header = replace(HEADER, buffer_sizes=(len(live),))
    for piece in pieces(header, [memoryview(live)], closing):
        written.append(bytes(piece))
        live[-1] = len(written)
    _, (found,), _ = read(b"".join(written))
    assert (found[-1], found.count(0)) == (2, len(live) - 1)


def test_a_save_beside_a_thread_that_adds_holds_all_that_came_before(shelf: Shelf) -> None:
    """Several saves while another thread never stops adding; and nothing that was never added."""
    filter_ = bloom(keys=20_000, capacity=2_000_000)
    stop = threading.Event()

    def add() -> None:
        for seed in range(10, 1_000_000):
            filter_.add_many(digests(100, seed))
            if stop.is_set():
                return

    adder = threading.Thread(target=add)
    adder.start()
    try:
        saves = [(table(filter_), shelf.save(filter_, label)) for label in (1, 2, 3)]
    finally:
        stop.set()
        adder.join()
    for label, (before, path) in zip((3, 2, 1), reversed(saves), strict=True):
        loaded = shelf.load()
        assert loaded is not None
        assert (loaded.label, shelf.refusals) == (label, [])
        assert holds_all(loaded.filter, before)
        assert holds_all(filter_, table(loaded.filter))
        path.unlink()
    assert len(filter_) > 20_000


def holds_all(filter_: Filter, bits: bytes) -> bool:
    """Tell whether all bits that are set in `bits` are set in the filter."""
    wanted = np.frombuffer(bits, dtype=np.uint8)
    return not np.any(wanted & ~np.frombuffer(table(filter_), dtype=np.uint8))


# One writer, some generations, private files


@pytest.fixture
def held(shelf: Shelf) -> Iterator[Path]:
    """Have another process hold the lock."""
    shelf.save(bloom(), 1)
    lock = shelf.store.path / "lock"
    code = (
        "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); "
        "print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        yield lock
        holder.communicate(b"\n")


def test_a_lock_held_by_another_process_is_not_waited_for(shelf: Shelf, held: Path) -> None:
    """The save is refused, nothing is written; loading needs no lock."""
    before = sorted(held.parent.iterdir())
    with pytest.raises(SnapshotError, match=r"another process holds .*/lock"):
        shelf.save(bloom(), 2)
    assert sorted(held.parent.iterdir()) == before
    assert shelf.label() == 1


def test_the_lock_is_free_after_a_save(shelf: Shelf) -> None:
    """After a good one and after one that failed."""
    shelf.save(bloom(), 1)
    with pytest.raises(SnapshotError):
        shelf.save(bloom(), 2, 1)
    with (shelf.store.path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_dead_writers_temporary_file_is_removed(shelf: Shelf) -> None:
    """And its counter is not used again."""
    path = shelf.save(bloom(), 1)
    path.with_name("0000000000000007.tmp").write_bytes(b"half a snapsh")
    assert shelf.save(bloom(), 2).name == "0000000000000008.snapshot"
    assert not list(path.parent.glob("*.tmp"))


def test_a_half_written_file_is_no_snapshot(shelf: Shelf) -> None:
    """A shard that died in its first save may still be newly born."""
    shelf.store.path.mkdir(parents=True)
    (shelf.store.path / "0000000000000001.tmp").write_bytes(file_of())
    assert not shelf.store.exists()
    assert shelf.label() is None


def test_the_newest_generations_are_kept_and_the_older_removed(tmp_path: Path) -> None:
    """As many as `keep`."""
    shelf = Shelf(tmp_path, keep=2)
    for label in range(5):
        shelf.save(bloom(), label)
    assert shelf.store.labels() == [4, 3]
    assert sorted(path.name for path in shelf.store.path.iterdir()) == [
        "0000000000000004.snapshot",
        "0000000000000005.snapshot",
        "lock",
    ]


def test_what_was_set_aside_does_not_pile_up(tmp_path: Path) -> None:
    """The newest `keep` of it stay, to be looked into."""
    shelf = Shelf(tmp_path, keep=2)
    for label in range(5):
        flip(shelf.save(bloom(), label), 100)
        assert shelf.label() is None
    shelf.save(bloom(), 5)
    assert sorted(path.name for path in shelf.store.path.glob("*.broken")) == [
        "0000000000000004.snapshot.broken",
        "0000000000000005.snapshot.broken",
    ]


def test_keeping_no_generation_is_refused(tmp_path: Path) -> None:
    """The setting, its value, its bound."""
    with pytest.raises(ConfigError, match=r"snapshot\.keep is 0; it must be at least 1"):
        Shelf(tmp_path, keep=0)


def test_a_generation_pruned_by_another_process_is_no_error(tmp_path: Path) -> None:
    """It goes between the listing and the opening; what that process saved is found instead."""
    other = Shelf(tmp_path, keep=1)
    other.save(bloom(), 1)

    class PruningFs(WatchedFs):
        def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
            if "open" not in self.calls:
                other.save(bloom(), 2)
            return super().open(path, flags, mode)

    shelf = Shelf(tmp_path, fs=PruningFs())
    assert (shelf.label(), shelf.refusals) == (2, [])


def test_a_directory_that_was_deleted_is_made_again(shelf: Shelf) -> None:
    """Who deletes it asks for a fold, and the next save is as good as the first."""
    path = shelf.save(bloom(), 1)
    for file in path.parent.iterdir():
        file.unlink()
    for directory in list(path.parents)[:4]:
        directory.rmdir()
    shelf.save(bloom(), 2)
    assert shelf.label() == 2


def test_files_are_private(shelf: Shelf) -> None:
    """0600 and 0700, even where the umask would allow more."""
    umask = os.umask(0)
    try:
        path = shelf.save(bloom(), 1)
    finally:
        os.umask(umask)
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    assert {directory.stat().st_mode & 0o777 for directory in list(path.parents)[:4]} == {0o700}


GROUPS = [".", "..", "%2E", "%2E%2E", "a/b", "a%2Fb", "../../etc", "a b\n", "\0", "x" * 255]
GROUPS += ["x" * 256, "x" * 257, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 200, "\udcff", ""]


def test_any_group_name_makes_a_directory_of_its_own(tmp_path: Path) -> None:
    """Dots, slashes, control characters, and names longer than a file system takes."""
    for label, group in enumerate(GROUPS):
        store = Store(tmp_path, group=group, topic="unique", partition=3)
        assert not store.exists()
        store.save(bloom(), label, lambda: 100, IDENTITY)
        assert store.labels() == [label]
        assert store.path.resolve().parents[2] == tmp_path.resolve()
    assert len(list(tmp_path.iterdir())) == len(GROUPS)


def test_the_directory_reads_like_what_it_belongs_to(tmp_path: Path) -> None:
    """Ordinary names stay as they are."""
    store = Store(tmp_path, group="dedup-1", topic="pages.unique", partition=12)
    assert store.path == tmp_path / "dedup-1" / "pages.unique" / "12"
