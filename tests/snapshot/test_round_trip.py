"""What is saved comes back: filters, labels, fingerprints, buffers of any size."""

import io
import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from streamdedup.errors import SnapshotError
from streamdedup.events import Fingerprint
from streamdedup.snapshot import Refusal
from streamdedup.snapshot.format import (
    CHUNK_BYTES,
    PAGE_BYTES,
)
from streamdedup.snapshot.header import (
    DamagedFileError,
    Header,
)
from streamdedup.snapshot.read import (
    CopyingReader,
    MappedReader,
)
from tests.rows import table
from tests.snapshot.shelf import (
    HEADER,
    IDENTITY,
    Shelf,
    bloom,
    by_the_page,
    fields_of,
    file_of,
    flip,
    mapped,
    read,
)
from tests.snapshot.shelf import (
    table as table_of,
)


def test_a_saved_filter_comes_back_bit_for_bit(tmp_path: Path) -> None:
    """Keys, counts, labels, size and time are those of the save."""
    shelf = Shelf(tmp_path, wall_clock=lambda: 1_700_000_000.25)
    saved_filter = bloom()
    saved = shelf.store.save(saved_filter, 40, lambda: 44, IDENTITY)
    loaded = shelf.load(end=44)
    assert loaded is not None
    assert table_of(loaded.filter) == table_of(saved_filter)
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


@table(itertools.product(SIZES, [HEADER, replace(HEADER, log=None)]))
def test_the_bytes_are_those_of_the_page(row: tuple[tuple[int, ...], Header]) -> None:
    """The layout that is documented, written down a second time here, is what is written."""
    sizes, header = row
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


def test_nothing_saved_is_nothing_loaded(shelf: Shelf) -> None:
    """A shard that was never saved has no snapshot, no label, and no complaint."""
    assert (shelf.label(), shelf.refusals) == (None, [])
    assert (shelf.store.exists(), shelf.store.labels()) == (False, [])


def test_a_damaged_snapshot_still_shows_that_the_shard_lived(shelf: Shelf) -> None:
    """What was set aside counts for `exists`, so that no shard is taken for newly born."""
    flip(shelf.save(bloom(), 1), 100)
    assert shelf.label() is None
    assert (shelf.store.exists(), shelf.store.labels()) == (True, [])
