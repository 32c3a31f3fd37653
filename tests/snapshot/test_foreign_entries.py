"""What bears the name of a snapshot and is none: a FIFO, a directory, a socket, a link, a name beyond our counters."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from streamdedup.errors import SnapshotError
from streamdedup.snapshot.files import load
from streamdedup.snapshot.store import COUNTER_MAX
from streamdedup.testing.files import WatchedFs
from tests.snapshot.shelf import IDENTITY, Shelf, bloom

NEWEST = "0000000000000009"


class UnblockedFs(WatchedFs):
    """Fails where the system would wait for ever: if a FIFO is opened for reading and there is no writer."""

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        """Open a file, like `os.open`."""
        waits = not flags & (os.O_NONBLOCK | os.O_WRONLY | os.O_RDWR)
        follows = not flags & os.O_NOFOLLOW
        if waits and path.exists() and stat.S_ISFIFO(path.stat(follow_symlinks=follows).st_mode):
            pytest.fail(f"this would wait for ever for a writer of {path}")
        return super().open(path, flags, mode)


def directory(path: Path) -> None:
    """Make one that is not empty."""
    path.mkdir()
    (path / "something").touch()


def link(path: Path) -> None:
    """Make a link to a FIFO."""
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")


def bound(path: Path) -> None:
    """Make a socket that nobody listens at."""
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket has 107 bytes at most
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


FOREIGN = pytest.mark.parametrize(
    "make", [os.mkfifo, directory, link, bound], ids=["fifo", "directory", "link", "socket"]
)
Make = Callable[[Path], None]


@FOREIGN
def test_what_is_no_file_is_passed_over_by_a_load(tmp_path: Path, make: Make) -> None:
    """The generation before is loaded, and the refusal says why; nothing waits, nothing is set aside."""
    shelf = Shelf(tmp_path, fs=(fs := UnblockedFs()))
    foreign = shelf.save(bloom(), 1).with_name(f"{NEWEST}.snapshot")
    make(foreign)
    assert shelf.label() == 1
    (refusal,) = shelf.refusals
    assert refusal.path == foreign
    assert shelf.store.labels() == [1]
    assert os.path.lexists(foreign)
    assert not fs.open_fds


@FOREIGN
@pytest.mark.parametrize("suffix", ["tmp", "snapshot", "snapshot.broken"])
def test_what_is_no_file_makes_no_save_a_failure(tmp_path: Path, make: Make, suffix: str) -> None:
    """It is left where it is, and said; a new generation is saved, loaded, and in its turn removed."""
    shelf = Shelf(tmp_path, fs=UnblockedFs(), keep=2)
    foreign = shelf.save(bloom(), 1).with_name(f"{NEWEST}.{suffix}")
    make(foreign)
    for label in (2, 3, 4):
        saved = shelf.store.save(bloom(), label, lambda: 9, IDENTITY)
        assert saved.left is not None
        assert saved.left.path == foreign
        assert "no regular file" in saved.left.reason
    assert shelf.label() == 4
    assert shelf.store.labels() == [4, 3]
    assert os.path.lexists(foreign)


def file(path: Path) -> None:
    """Make a file that is none of ours."""
    path.write_bytes(b"someone else")


def test_what_is_none_of_ours_makes_no_shard_an_old_one(tmp_path: Path) -> None:
    """A name alone, which no save can have given, says nothing of the shard."""
    shelf = Shelf(tmp_path)
    shelf.store.path.mkdir(parents=True)
    (shelf.store.path / f"{20 * '9'}.snapshot").mkdir()
    assert not shelf.store.exists()


@pytest.mark.parametrize("suffix", ["tmp", "snapshot", "snapshot.broken"])
def test_no_generation_is_written_that_a_load_would_not_find(tmp_path: Path, suffix: str) -> None:
    """After the highest counter nothing is saved: that is an error by name, and the generations before stay."""
    shelf = Shelf(tmp_path, keep=1)
    newest = shelf.save(bloom(), 1)
    last = newest.with_name(f"{COUNTER_MAX:016d}.{suffix}")
    last.mkdir()
    with pytest.raises(SnapshotError, match=f"{last} has the highest counter .* remove it"):
        shelf.save(bloom(), 2)
    assert shelf.label() == 1
    last.rmdir()
    before = newest.with_name(f"{COUNTER_MAX - 1:016d}.{suffix}")
    before.mkdir()
    shelf.save(bloom(), 3)
    assert shelf.label() == 3


def test_what_is_no_file_counts_for_no_generation(tmp_path: Path) -> None:
    """With more of it than are kept, no snapshot is removed for it."""
    shelf = Shelf(tmp_path, keep=2)
    shelf.save(bloom(), 1)
    for number in (91, 92, 93):
        (shelf.store.path / f"{number:016d}.snapshot").mkdir()
    shelf.save(bloom(), 2)
    assert shelf.store.labels() == [2, 1]


def test_a_save_that_leaves_nothing_behind_says_nothing(shelf: Shelf) -> None:
    """Neither the first nor one that removes a generation."""
    for label in range(6):
        assert shelf.store.save(bloom(), label, lambda: 9, IDENTITY).left is None


@FOREIGN
def test_the_library_refuses_what_is_no_file(tmp_path: Path, make: Make) -> None:
    """At once, mapped or read; the message has the path."""
    path = tmp_path / "saved"
    make(path)
    for mmap in (False, True):
        with pytest.raises(SnapshotError, match=f"cannot .* {path}: "):
            load(path, mmap=mmap, fs=UnblockedFs())
