"""One writer, some generations, private files."""

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.snapshot import Store
from streamdedup.testing.files import WatchedFs
from tests.snapshot.shelf import IDENTITY, Shelf, bloom, file_of, flip


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


@pytest.mark.usefixtures("no_umask")
def test_files_are_private(shelf: Shelf) -> None:
    """0600 and 0700, even where the umask would allow more."""
    path = shelf.save(bloom(), 1)
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
