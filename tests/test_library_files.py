"""Filters of the library are saved to paths, to file objects and as bytes, and are the same when they are loaded."""

import errno
import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streamdedup
from streamdedup.errors import ConfigError, SnapshotError
from tests.filters.cases import HASH_KEY, state
from tests.library import WAYS, built, key_of
from tests.rows import every
from tests.test_library_content import Way, holding

FUSE = {"kind": "fuse", "keys": ["a", "b"], "error_rate": 0.01}
Save = Callable[[Any], Any]


def through_bytes(seen: Any) -> Any:
    """What other memory would get of it."""
    return type(seen).from_bytes(seen.to_bytes())


def through_a_file_object(seen: Any) -> Any:
    """What a file that cannot seek would hold."""
    file = Pipe()
    seen.save(file)
    return type(seen).load(file)


class Pipe:
    """A file object that takes and gives few bytes at a time, and keeps what it is given."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Take some of it."""
        self.pieces.append(data[:70_000])
        return len(self.pieces[-1])

    def read(self, size: int) -> bytes:
        """Give some of it."""
        if not self.pieces:
            return b""
        some, rest = self.pieces[0][:size], self.pieces[0][size:]
        self.pieces[:1] = [rest] if rest else []
        return some


class Full:
    """A file object on a disk that is full."""

    def write(self, _data: bytes) -> int:
        """Fail."""
        raise OSError(errno.ENOSPC, "No space left on device")

    read: Any = write


def test_what_was_saved_is_loaded() -> None:
    """Of every kind; and the filter goes on where it was."""

    def check(row: tuple[Any, Save]) -> None:
        seen, way = row
        other = way(seen)
        assert state(other) == state(seen)
        assert other == seen
        assert type(other) is type(seen)

    filters = [*(holding(way, range(500), 500) for way in WAYS), streamdedup.build(FUSE)]
    every(
        [(seen, way) for seen in filters for way in (through_bytes, through_a_file_object)], check
    )


def test_bytes_are_those_of_a_file(tmp_path: Path) -> None:
    """But for the time at which it was saved, and by whom; a method and a function do the same."""
    seen = holding(("cuckoo", {}), range(50_000), 60_000)
    seen.save(tmp_path / "one")
    streamdedup.save(seen, f"{tmp_path / 'other'}")
    assert (tmp_path / "one").stat().st_size == len(seen.to_bytes()) > 1 << 17
    for path in ("one", "other"):
        assert type(seen).load(tmp_path / path, mmap=True) == seen
        assert type(seen).from_bytes((tmp_path / path).read_bytes()) == seen


def test_filters_follow_one_another_in_a_file_object(tmp_path: Path) -> None:
    """Also in a compressed one: each is read to its end, and no further."""
    filters = [holding(way, range(100)) for way in WAYS]
    with gzip.open(tmp_path / "all", "wb") as file:
        for seen in filters:
            streamdedup.save(seen, file)
        file.write(b"the end")
    with gzip.open(tmp_path / "all", "rb") as file:
        for seen in filters:
            assert streamdedup.load(file) == seen
        assert file.read() == b"the end"


def test_a_secret_is_asked_for_as_of_a_file() -> None:
    """It is not among the bytes."""
    seen = built("bloom", 100, hash="siphash", hash_key=HASH_KEY)
    data = seen.to_bytes()
    assert HASH_KEY not in data
    assert type(seen).from_bytes(data, hash_key=HASH_KEY) == seen
    with pytest.raises(ConfigError, match="cannot use the bytes: its hash is siphash; give hash_"):
        type(seen).from_bytes(data)
    with pytest.raises(ConfigError, match="cannot use the file object: the hash_key is not the"):
        streamdedup.load(io.BytesIO(data), hash_key=bytes(16))


def damaged(data: bytes) -> list[bytes]:
    """The same bytes, cut short or changed, at their beginning, in the middle and at their end."""
    places = [0, 1, 20, len(data) // 2, len(data) - 9, len(data) - 1]
    flipped = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in places]
    return [*(data[:at] for at in places), *flipped]


def test_damaged_bytes_are_refused_by_their_name() -> None:
    """As a damaged file is; more bytes than those of a filter are no filter, unless a file object has them."""
    data = holding(("bloom", {}), range(9)).to_bytes()

    def check(bad: bytes) -> None:
        with pytest.raises(SnapshotError, match=r"cannot use the bytes: .*; "):
            type(built("bloom", 9)).from_bytes(bad)
        with pytest.raises(SnapshotError, match=r"cannot use the file object: .*; "):
            streamdedup.load(io.BytesIO(bad))

    every(damaged(data), check)
    with pytest.raises(SnapshotError, match="the bytes: its length"):
        type(built("bloom", 9)).from_bytes(data + b"x")


def test_a_file_object_that_fails_is_named() -> None:
    """What the system says, and what to do; one for text is the program's fault."""
    seen, closed = built("bloom", 9), io.BytesIO()
    closed.close()
    with pytest.raises(SnapshotError, match=r"cannot write the file object: No space .*; free"):
        seen.save(Full())
    with pytest.raises(SnapshotError, match="cannot read the file object: No space"):
        streamdedup.load(Full())
    with pytest.raises(SnapshotError, match=r"cannot write the file object: I/O .* closed file"):
        seen.save(closed)
    with pytest.raises(SnapshotError, match=r"cannot read the file object: I/O .* closed file"):
        streamdedup.load(closed)
    with pytest.raises(TypeError, match=r"cannot write the file object: it takes text; .*'wb'"):
        seen.save(io.StringIO())
    with pytest.raises(TypeError, match="cannot read the file object: it takes text"):
        streamdedup.load(io.StringIO())  # type: ignore[arg-type] # what is wrong


@pytest.mark.skipif(not hasattr(os, "set_blocking"), reason="pipes always block")
def test_a_pipe_that_takes_no_more_is_no_place_to_save_to() -> None:
    """A write that does not block returns None, and nothing was written."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with (
        os.fdopen(reading, "rb"),
        os.fdopen(writing, "wb", buffering=0) as pipe,
        pytest.raises(SnapshotError, match="cannot write the file object: it takes no more"),
    ):
        built("bloom", 1_000_000).save(pipe)


def test_a_file_object_that_writes_nothing_is_not_asked_forever() -> None:
    """It says so by 0, as those of `socket` and `os` may."""

    class Closed:
        def write(self, _data: bytes) -> int:
            return 0

    with pytest.raises(SnapshotError, match="cannot write the file object: it takes no more"):
        built("bloom", 9).save(Closed())


def test_what_only_a_file_has_is_refused_of_a_file_object() -> None:
    """Nothing can be mapped, or left unread."""
    file = io.BytesIO(built("bloom", 9).to_bytes())
    given: list[dict[str, Any]] = [{"mmap": True}, {"verify": False}]
    for options in given:
        with pytest.raises(ConfigError, match="need the path of a file, not a file object"):
            streamdedup.load(file, **options)
    assert streamdedup.load(file) == built("bloom", 9)


def test_a_class_loads_its_own_filters() -> None:
    """Another kind is named, and what loads it."""
    bloom, cuckoo = built("bloom", 9), built("cuckoo", 9)
    for load in (type(bloom).from_bytes, lambda data: type(bloom).load(io.BytesIO(data))):
        with pytest.raises(
            ConfigError, match=r"<Cuckoo 0 of 9 .* is no Bloom; .* streamdedup.load"
        ):
            load(cuckoo.to_bytes())
    with pytest.raises(TypeError, match="from_bytes takes bytes, not of type str"):
        type(bloom).from_bytes("bytes")


def test_a_loaded_filter_can_change() -> None:
    """The bytes that it was made of stay as they are."""

    def check(way: Way) -> None:
        seen = holding(way, range(9))
        data = bytearray(seen.to_bytes())
        before = bytes(data)
        loaded: Any = streamdedup.load(io.BytesIO(data))
        for one in (type(seen).from_bytes(data), loaded):
            one.clear()
            assert key_of(one, 1) not in one
        data[:] = bytes(len(data))
        assert type(seen).from_bytes(before) == seen

    every(WAYS, check)
