"""A damaged byte is never trusted: flips, cuts, and hostile files with right checksums."""

import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import SnapshotError
from streamdedup.snapshot.format import (
    CHUNK_BYTES,
)
from streamdedup.snapshot.header import (
    DamagedFileError,
    Header,
)
from tests.rows import table
from tests.snapshot.shelf import (
    Shelf,
    bloom,
    by_the_page,
    fields_of,
    file_of,
    flip,
    forged,
    mapped,
    parts_of,
    read,
)
from tests.snapshot.shelf import (
    table as table_of,
)


@pytest.fixture(scope="module")
def file_of_16_kib() -> bytes:
    """Make a snapshot of random bytes."""
    return file_of(np.random.default_rng(3).bytes(5000), np.random.default_rng(4).bytes(3))


ways = pytest.mark.parametrize("way", [read, mapped], ids=["read", "mapped"])
Way = Callable[[bytes | bytearray | memoryview], tuple[Header, list[bytes], int]]


@ways
def test_flipped_bytes_are_found(file_of_16_kib: bytes, way: Way) -> None:
    """Each 13th byte in turn, filler included; the error is the typed one, every time."""
    assert flips_that_pass(way, file_of_16_kib, step=13) == set()


def flips_that_pass(way: Way, whole: bytes, step: int = 1) -> set[int]:
    """Flip a bit of each `step`th byte in turn, and tell at which of them no SnapshotError is raised."""
    data, passed = bytearray(whole), set()
    for at in range(0, len(data), step):
        data[at] ^= 1 << at % 8
        with suppress(SnapshotError):
            way(data)
            passed.add(at)
        data[at] ^= 1 << at % 8
    assert way(data) == way(whole)
    return passed


@ways
def test_bytes_after_the_end_are_found(file_of_16_kib: bytes, way: Way) -> None:
    """A file that was appended to is not the file that was written."""
    with pytest.raises(DamagedFileError, match="length"):
        way(file_of_16_kib + b"\0")


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


@pytest.mark.parametrize("at", [0, 9, 13, 20, 4095, 5000, -400, -40, -9, -1])
def test_a_damaged_generation_is_set_aside_and_the_one_before_used(shelf: Shelf, at: int) -> None:
    """One refusal, naming the file; the next load does not meet it again."""
    shelf.save(bloom(seed=1), 1)
    damaged = shelf.save(bloom(seed=2), 2)
    flip(damaged, at)
    loaded = shelf.load()
    assert loaded is not None
    assert (loaded.label, table_of(loaded.filter)) == (1, table_of(bloom(seed=1)))
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


HEADER_FIELDS, _ = fields_of(file_of())
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


@table(HOSTILE_FIELDS)
def test_a_hostile_header_with_a_right_checksum_takes_no_memory(row: tuple[str, Any]) -> None:
    """The typed error, and less than a mebibyte."""
    why = f"'{row[0]}'|'hash'|'identity'|cut short|not JSON"
    assert_refused_in_little_memory(with_field(*row), why)


def with_field(name: str, value: Any) -> bytes:
    """Make a file whose header has this value, in the part that is about a log unless it is a field of its own."""
    log = HEADER_FIELDS["log"]
    more = {name: value} if name in HEADER_FIELDS else {"log": log | {name: value}}
    return forged(json.dumps(HEADER_FIELDS | more).encode(), bytes(5000))


@pytest.mark.parametrize("value", [None, [], {}, 7], ids=str)
def test_a_fingerprint_that_is_none_is_refused(value: Any) -> None:
    """A file that has none has no such field."""
    with pytest.raises(DamagedFileError, match=r"'fingerprint'|'offset'"):
        read(with_field("fingerprint", value))


def test_a_header_that_does_not_say_whether_it_has_a_log_is_refused() -> None:
    """A field that was left out is no library's null."""
    text = json.dumps({name: HEADER_FIELDS[name] for name in HEADER_FIELDS if name != "log"})
    with pytest.raises(DamagedFileError, match="'log' is missing"):
        read(forged(text.encode()))


@table(
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
    ]
)
def test_hostile_bytes_take_no_memory(data: bytes) -> None:
    """Lengths beyond the bound or the file, JSON that is deep, long or none."""
    assert_refused_in_little_memory(data)


def assert_refused_in_little_memory(data: bytes, why: str = ".") -> None:
    """Assert that reading raises DamagedFileError and allocates below a mebibyte."""
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
