"""What `streamdedup.save` and `streamdedup.load` promise to a program."""

import errno
import os
import re
from pathlib import Path
from typing import Any, assert_type, cast

import numpy as np
import pytest

import streamdedup
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.filters import kinds
from streamdedup.filters.base import Addable
from streamdedup.snapshot import files
from streamdedup.testing.files import FailingFs
from tests.filters.cases import ALL, HASH_KEY, Case, random_digests, state
from tests.rows import every
from tests.snapshot.shelf import bloom, digests, table

both_ways = pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name a file that is not there."""
    return tmp_path / "list.filter"


# What is saved comes back


def test_a_saved_filter_comes_back(path: Path) -> None:
    """Of every kind: the same to the bit, and the same answers, verified or not.

    What was read is a copy, which takes keys, unless it is a list, and leaves the file alone. What is mapped refuses
    them, with what to do instead.
    """

    def check(case: Case) -> None:
        saved = case.holding(300, 400)
        streamdedup.save(saved, path)
        before, hash_key = path.read_bytes(), case.options.get("hash_key", b"")
        ways: list[dict[str, bool]] = [{}, {"mmap": True}, {"mmap": True, "verify": False}]
        read, mapped, _ = all_ = [
            streamdedup.load(path, hash_key=hash_key, **options) for options in ways
        ]
        asked = np.concatenate([random_digests(9, 300), digests(5000, 2)])
        for loaded in all_:
            assert state(loaded) == state(saved)
            assert loaded.contains_many(asked).tolist() == saved.contains_many(asked).tolist()
        if isinstance(read, Addable) and isinstance(mapped, Addable):
            assert read.add("more")
            for change in (lambda: mapped.add("more"), lambda: mapped.add_many(digests(3, 1))):
                with pytest.raises(ConfigError, match="load it without mmap"):
                    change()
            assert ("more" in read, "more" in mapped) == (True, False)
            assert state(mapped) == state(saved)
        assert path.read_bytes() == before

    every(ALL, check)


def test_a_mapped_filter_stands_on_the_file(path: Path) -> None:
    """Its table is the file's pages, with no copy: it begins on a page's border of a map of this very file."""
    streamdedup.save(bloom(), path)
    loaded = streamdedup.load(path, mmap=True)
    (buffer,) = loaded.buffers()
    start = int(np.frombuffer(buffer, np.uint8).ctypes.data)
    assert start % 4096 == 0
    maps = Path("/proc/self/maps")
    if maps.exists():  # on Linux it tells what is mapped where
        spans = re.findall(rf"^(\w+)-(\w+) r--s .* {re.escape(str(path))}$", maps.read_text(), re.M)
        assert any(int(low, 16) <= start < int(high, 16) for low, high in spans)


def test_a_path_may_be_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute, or from the working directory."""
    streamdedup.save(bloom(), str(path))
    assert state(streamdedup.load(str(path))) == state(bloom())
    monkeypatch.chdir(path.parent)
    streamdedup.save(bloom(seed=2), "list.filter")
    assert state(streamdedup.load(path)) == state(bloom(seed=2))


# Keys of hashes


def siphash(path: Path) -> None:
    """Save a filter of a keyed hash."""
    config = {"kind": "bloom", "capacity": 1000, "error_rate": 1e-6, "hash": "siphash"}
    made = streamdedup.build({**config, "hash_key": HASH_KEY})
    made.add("there")
    streamdedup.save(made, path)


@both_ways
def test_a_keyed_filter_comes_back_with_its_key(path: Path, mmap: bool) -> None:
    """The key is in no file; with it, all is as it was."""
    siphash(path)
    assert HASH_KEY not in path.read_bytes()
    assert HASH_KEY.hex() not in path.read_bytes().decode("latin-1")
    loaded = streamdedup.load(path, mmap=mmap, hash_key=HASH_KEY)
    assert "there" in loaded
    assert "absent" not in loaded


@both_ways
@pytest.mark.parametrize(
    ("key", "said"),
    [
        (b"", "its hash is siphash; give hash_key, the 16 bytes it was built with"),
        (b"short", "siphash takes 16 bytes"),
        (bytes(16), "the hash_key is not the one with which it was built"),
    ],
    ids=["none", "short", "another"],
)
def test_a_keyed_filter_does_not_come_back_without(
    path: Path, mmap: bool, key: bytes, said: str
) -> None:
    """No key, or a wrong one, is the caller's mistake, and told before the table is read."""
    siphash(path)
    with pytest.raises(ConfigError, match=f"cannot use {re.escape(str(path))}: .*{said}"):
        streamdedup.load(path, mmap=mmap, hash_key=key)


def test_a_key_for_a_filter_that_has_none_is_refused(path: Path) -> None:
    """It would else seem to protect."""
    streamdedup.save(bloom(), path)
    with pytest.raises(ConfigError, match="its hash, murmur3, has no hash_key: leave it out"):
        streamdedup.load(path, hash_key=HASH_KEY)


# A damaged byte is never trusted


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Give the bytes of a small file."""
    path = tmp_path_factory.mktemp("whole") / "file"
    streamdedup.save(bloom(keys=100, capacity=200), path)
    return path.read_bytes()


def test_what_is_not_verified_is_not_read(path: Path) -> None:
    """A damaged table is found unless it is asked not to look; all else is checked."""
    streamdedup.save(bloom(), path)
    data = bytearray(path.read_bytes())
    data[4096 + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match="chunk 0 of 1 is damaged"):
        streamdedup.load(path, mmap=True)
    assert table(streamdedup.load(path, mmap=True, verify=False)) != table(bloom())
    with pytest.raises(ConfigError, match="verify=False needs mmap=True"):
        streamdedup.load(path, verify=False)
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match="header is damaged"):
        streamdedup.load(path, mmap=True, verify=False)


# Errors name the path and the remedy


def is_refused(path: Path, said: str, **options: Any) -> None:
    """Assert that loading says the path and `said`, in that order."""
    with pytest.raises(SnapshotError, match=f"{re.escape(str(path))}.*{said}"):
        streamdedup.load(path, **options)


@both_ways
def test_what_is_no_file_of_ours_is_named_with_its_remedy(path: Path, mmap: bool) -> None:
    """Missing, a directory, empty, foreign, cut, of a later version."""
    is_refused(path, "No such file.*ENOENT.*path is right", mmap=mmap)
    is_refused(path.parent, "", mmap=mmap)
    path.touch()
    is_refused(path, "cut short.*build and save it again", mmap=mmap)
    path.write_bytes(b"%PDF-1.7\n" * 1000)
    is_refused(path, "does not begin like a snapshot; name a file that `save`", mmap=mmap)
    streamdedup.save(bloom(), path)
    os.truncate(path, 5000)
    is_refused(path, "cut short", mmap=mmap)


def test_a_filter_that_cannot_be_built_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a later streamdedup has kinds that this one has not."""
    streamdedup.save(bloom(), path)
    monkeypatch.setattr(kinds, "KINDS", {})
    is_refused(path, "cannot be built .*'bloom' is unknown")


def test_a_directory_is_not_written_over(tmp_path: Path) -> None:
    """It is told before anything is written."""
    with pytest.raises(SnapshotError, match=f"{re.escape(str(tmp_path))}: it is a directory"):
        streamdedup.save(bloom(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    """None is made: it may be a mistake."""
    path = tmp_path / "nowhere" / "file"
    with pytest.raises(SnapshotError, match=f"cannot write {path}: there is no .*nowhere; make it"):
        streamdedup.save(bloom(), path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "\ud83e", "y" * 300 + "/file", "fifo"])
def test_a_name_that_no_file_can_have_is_our_error(name: str, tmp_path: Path) -> None:
    """To save and to load; and nothing is written. The same holds for a file that is not regular."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SnapshotError, match=r"cannot (use|write) .*; (write|see|name) "):
        streamdedup.save(bloom(), tmp_path / name)
    for mmap in (False, True):
        with pytest.raises(SnapshotError, match=r"cannot (use|read) .*; (write|see|name) "):
            streamdedup.load(tmp_path / name, mmap=mmap)
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


def test_what_is_no_filter_is_not_saved(path: Path) -> None:
    """Nor is the path, where the two were exchanged."""
    for wrong in ({"a"}, "file", streamdedup.ClassicBloom(8)):
        with pytest.raises(TypeError, match="save takes a filter, as `build` makes it, not"):
            streamdedup.save(cast("Any", wrong), path)
    assert not path.exists()


def test_a_full_disk_is_named_with_its_remedy(path: Path) -> None:
    """Which file, why, and what to do."""
    with pytest.raises(
        SnapshotError, match=r"\.tmp: No space left.*free some space there, or save"
    ):
        files.save(bloom(), path, fs=FailingFs(1, errno.ENOSPC))


# Replaced whole or not at all


@pytest.mark.usefixtures("no_umask")
def test_a_file_is_private(path: Path) -> None:
    """0600, also where the umask would allow more, or the file before was open to all."""
    path.touch(0o666)
    streamdedup.save(bloom(), path)
    assert path.stat().st_mode & 0o777 == 0o600


# The package


def test_the_package_has_types_for_programs(path: Path) -> None:
    """The type checker, which `make check` runs over this, knows what the three functions take and give."""
    made = streamdedup.build({"kind": "bloom", "capacity": 10})
    assert_type(made.add("key"), bool)
    streamdedup.save(made, path)
    assert_type(streamdedup.load(path, mmap=True, verify=False).error_rate, float)
    with pytest.raises(TypeError):
        streamdedup.save(made, b"path")  # type: ignore[arg-type] # as the claim is: it is an error
    with pytest.raises(TypeError):
        streamdedup.load(path, True)  # type: ignore[call-arg] # the same
