"""Each byte of a snapshot, flipped; headers that no save writes."""

import os
import random
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamdedup.errors import SnapshotError
from streamdedup.snapshot.format import CHUNK_BYTES
from streamdedup.snapshot.header import DamagedFileError, parse_object
from streamdedup.testing.files import WatchedFs
from tests.snapshot.conftest import shelf as shelf  # noqa: PLC0414 - a fixture
from tests.snapshot.shelf import (
    HEADER,
    LOG,
    Shelf,
    as_text,
    bloom,
    fields_of,
    file_of,
    forged,
    mapped,
    parts_of,
    read,
)
from tests.snapshot.test_damage import (
    Way,
    assert_refused_in_little_memory,
    flips_that_pass,
    ways,
    with_field,
)
from tests.snapshot.test_damage import file_of_16_kib as file_of_16_kib  # noqa: PLC0414 - a fixture


@ways
def test_every_flipped_byte_is_found(file_of_16_kib: bytes, way: Way) -> None:
    """Each byte of a file in turn, filler included; the error is the typed one, every time."""
    assert flips_that_pass(way, file_of_16_kib) == set()


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


FINGERPRINT_FIELDS = {"offset": 9, "producer_id": 7, "epoch": 0, "crc": 1, "stamped_ms": -1}


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
    with pytest.raises(DamagedFileError, match=f"'{name}'"):
        read(with_field("fingerprint", FINGERPRINT_FIELDS | {name: value}))


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
    assert_refused_in_little_memory(with_field("schemas", value), "'schemas'")


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
