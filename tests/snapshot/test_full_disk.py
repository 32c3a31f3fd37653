"""A disk that is full of our own older generations: they are given up, down to one, and the new one is saved."""

import errno
import os
from pathlib import Path

import pytest
from typing_extensions import override

from streamdedup.errors import SnapshotError
from streamdedup.snapshot import Saved, Store
from streamdedup.testing.files import WatchedFs
from tests.snapshot.shelf import IDENTITY, Shelf, bloom, flip
from tests.snapshot.test_generations import held  # noqa: F401 - a fixture


class FullFs(WatchedFs):
    """A disk with room for `files` snapshots below `root`, and not for a byte of one more."""

    def __init__(self, root: Path, files: int, error: int = errno.ENOSPC) -> None:
        super().__init__()
        self._root, self._files, self._error = root, files, error

    @override
    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        if len(files_in(self._root)) > self._files:
            raise OSError(self._error, os.strerror(self._error))
        return super().write(fd, data)


def files_in(directory: Path) -> list[str]:
    """Name what is there, but the lock."""
    return sorted(
        path.name for path in directory.rglob("*") if path.is_file() and path.name != "lock"
    )


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT], ids=["disk", "quota"])
def test_older_generations_make_room_for_a_new_one(tmp_path: Path, error: int) -> None:
    """The newest of them stays until the new one is in place; what was given up is counted."""
    shelf = Shelf(tmp_path, keep=3, fs=FullFs(tmp_path, 3, error))
    for label in (1, 2, 3):
        assert saved(shelf, label).given_up == 0
    assert saved(shelf, 4).given_up == 2
    assert shelf.store.labels() == [4, 3]
    assert saved(shelf, 5).given_up == 0
    assert shelf.store.labels() == [5, 4, 3]
    assert shelf.label() == 5


def test_what_was_set_aside_goes_first_of_all(tmp_path: Path) -> None:
    """It is kept for people only, who may look into it as long as there is room."""
    shelf = Shelf(tmp_path, keep=3, fs=FullFs(tmp_path, 3))
    for label in (1, 2):
        flip(shelf.save(bloom(), label), 100)
        assert shelf.label() is None
    shelf.save(bloom(), 3)
    assert saved(shelf, 4).given_up == 2
    assert shelf.store.labels() == [4, 3]


def test_a_damaged_generation_is_not_the_one_that_stays(tmp_path: Path) -> None:
    """If the new one cannot be saved after all, the newest that is whole is still there."""
    shelf = Shelf(tmp_path, keep=3, fs=FullFs(tmp_path, 3))
    for label in (1, 2, 3):
        newest = shelf.save(bloom(), label)
    flip(newest, 100)
    assert saved(shelf, 4).given_up == 2
    assert shelf.store.labels() == [4, 2]


def test_other_partitions_make_room_too(tmp_path: Path) -> None:
    """Also those that this worker has no longer; the newest of each stays."""
    disk = FullFs(tmp_path, 6)
    others = [Shelf(tmp_path, keep=3, fs=disk) for _ in range(2)]
    for partition, shelf in enumerate(others, 7):
        shelf.store = Store(
            tmp_path, group="group", topic="unique", partition=partition, keep=3, fs=disk
        )
        for label in (1, 2, 3):
            shelf.save(bloom(), label)
    shelf = Shelf(tmp_path, keep=3, fs=disk)
    assert saved(shelf, 1).given_up == 4
    assert shelf.label() == 1
    assert [other.store.labels() for other in others] == [[3], [3]]
    assert [other.label() for other in others] == [3, 3]


def test_the_last_generation_is_never_given_up(tmp_path: Path) -> None:
    """If there is no room even then, the error says so, and what was there is loaded."""
    shelf = Shelf(tmp_path, keep=3, fs=FullFs(tmp_path, 1))
    shelf.save(bloom(), 1)
    for label in (2, 3):
        with pytest.raises(
            SnapshotError,
            match=r"\.tmp: No space .*ENOSPC.*; free some space there, or set snapsh",
        ):
            shelf.save(bloom(), label)
    assert files_in(shelf.store.path) == ["0000000000000001.snapshot"]
    assert shelf.label() == 1


def test_another_error_gives_up_nothing(tmp_path: Path) -> None:
    """A disk that fails is not helped by deleting what it still holds."""
    shelf = Shelf(tmp_path, keep=3, fs=FullFs(tmp_path, 3, errno.EIO))
    for label in (1, 2, 3):
        shelf.save(bloom(), label)
    with pytest.raises(SnapshotError, match="EIO"):
        shelf.save(bloom(), 4)
    assert shelf.store.labels() == [3, 2, 1]


def saved(shelf: Shelf, label: int) -> Saved:
    """Save, and return what the store says of it."""
    return shelf.store.save(bloom(), label, lambda: label, IDENTITY)
