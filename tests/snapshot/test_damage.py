"""A damaged byte is never trusted: flips, cuts, and hostile files with right checksums."""

import json
import os
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
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
    parse_object,
)
from streamdedup.testing.files import WatchedFs
from tests.snapshot.shelf import (
    HEADER,
    LOG,
    Shelf,
    as_text,
    bloom,
    by_the_page,
    fields_of,
    file_of,
    flip,
    forged,
    mapped,
    parts_of,
    read,
    table,
)


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


_DIGEST = "0" * 16


@pytest.mark.parametrize(
    "value",
    [
        [],
        7,
        {"-1": _DIGEST},
        {"01": _DIGEST},
        {"x": _DIGEST},
        {"1": "0"},
        {"1": 7},
        {"1": "G" * 16},
    ],
    ids=str,
)
def test_schemas_that_are_no_ids_and_digests_are_refused(value: Any) -> None:
    """What is compared with a registry is what was written."""
    hostile = HEADER_FIELDS["log"] | {"schemas": value}
    text = json.dumps(HEADER_FIELDS | {"log": hostile}).encode()
    assert_refused_in_little_memory(forged(text, bytes(5000)), "'schemas'")


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


def test_how_deep_a_header_may_be_is_the_same_on_every_python() -> None:
    """A bracket in a string opens nothing, whatever is escaped in it, and a string without an end takes no time."""
    for inside in (b"0", rb'"[{\\"', rb'"\"[{"'):
        assert parse_object(bytearray(b'{"a":' * 63 + b"[" + inside + b"]" + b"}" * 63))
        with pytest.raises(DamagedFileError, match="deeper than 64"):
            parse_object(bytearray(b'{"a":' * 64 + b"[" + inside + b"]" + b"}" * 64))
    begun = time.process_time()
    with pytest.raises(DamagedFileError):
        parse_object(bytearray(rb'{"' + rb"\"" * 30_000))
    assert time.process_time() - begun < 1


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
