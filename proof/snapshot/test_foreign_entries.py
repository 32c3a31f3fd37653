"""What cannot be removed beside snapshots."""

import os
from pathlib import Path

import pytest

from streamdedup.testing.files import WatchedFs
from tests.snapshot.shelf import IDENTITY, Shelf, bloom
from tests.snapshot.test_foreign_entries import NEWEST, Make, directory, file


def test_an_old_generation_that_cannot_be_removed_makes_no_save_a_failure(tmp_path: Path) -> None:
    """Nor does a temporary file: the new generation is there, and what stays is named with the reason."""

    class KeepingFs(WatchedFs):
        def unlink(self, path: Path) -> None:
            raise PermissionError(1, "Operation not permitted", path)

    for suffix in ("tmp", "snapshot"):
        shelf = Shelf(tmp_path / suffix, fs=KeepingFs(), keep=1)
        first = shelf.save(bloom(), 1)
        stays = first if suffix == "snapshot" else first.with_name(f"{NEWEST}.tmp")
        stays.touch()
        saved = shelf.store.save(bloom(), 2, lambda: 2, IDENTITY)
        assert saved.left is not None
        assert saved.left.reason == "it cannot be removed: Operation not permitted (EPERM)"
        assert saved.left.path in ((stays, first) if suffix == "tmp" else (stays,))
        assert shelf.label() == 2


BEYOND = pytest.mark.parametrize(
    "counter", ["1" + 15 * "0", 16 * "9", "2026112710443000", 17 * "0", 20 * "9", 21 * "9"]
)


@BEYOND
@pytest.mark.parametrize("make", [file, directory])
@pytest.mark.parametrize("suffix", ["tmp", "snapshot", "snapshot.broken"])
def test_a_counter_beyond_all_that_are_given_is_none_of_ours(
    tmp_path: Path, make: Make, suffix: str, counter: str
) -> None:
    """It moves no counter, so each generation is found, loaded and removed in its turn; it stays, and is reported."""
    shelf = Shelf(tmp_path, keep=2)
    first = shelf.save(bloom(), 1)
    foreign = first.with_name(f"{counter}.{suffix}")
    make(foreign)
    for label in (2, 3, 4):
        saved = shelf.store.save(bloom(), label, lambda: 9, IDENTITY)
        assert saved.path.name == f"{label:016d}.snapshot"
        assert shelf.label() == label
        assert not shelf.refusals
        assert saved.left is not None
        assert saved.left.path == foreign
        assert "none of ours" in saved.left.reason
    assert shelf.store.labels() == [4, 3]
    assert os.path.lexists(foreign)
