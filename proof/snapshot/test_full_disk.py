"""Full disks where something else holds what could be given up."""

from dataclasses import replace
from pathlib import Path

import pytest

from streamdedup.errors import SnapshotError
from streamdedup.snapshot import Store
from tests.snapshot.conftest import shelf as shelf  # noqa: PLC0414 - a fixture
from tests.snapshot.shelf import IDENTITY, Shelf, bloom
from tests.snapshot.test_full_disk import FullFs, files_in, saved
from tests.snapshot.test_generations import held as held  # noqa: PLC0414 - a fixture


@pytest.mark.parametrize("newest", ["another log", "a label ahead"])
def test_a_generation_that_would_be_refused_is_not_the_one_that_stays(
    tmp_path: Path, newest: str
) -> None:
    """After a change of settings that was taken back, or of an output that was cut, the one before is of use."""
    shelf = Shelf(tmp_path, keep=3, fs=FullFs(tmp_path, 3))
    for label in (1, 2):
        shelf.save(bloom(), label)
    ahead = newest == "a label ahead"
    identity = IDENTITY if ahead else replace(IDENTITY, normalize="email")
    shelf.store.save(bloom(), 9, lambda: 9, identity)
    assert saved(shelf, 4).given_up == 2
    assert shelf.store.labels() == [4, 2]


@pytest.mark.usefixtures("held")
def test_what_another_process_is_saving_is_not_given_up(shelf: Shelf) -> None:
    """Its directory is locked; ours fails, and says why."""
    root = shelf.store.path.parents[2]
    for label in (2, 3):
        copied = shelf.store.path / f"{label:016d}.snapshot"
        copied.write_bytes((shelf.store.path / f"{1:016d}.snapshot").read_bytes())
    before = files_in(shelf.store.path)
    ours = Store(root, group="group", topic="unique", partition=4, fs=FullFs(root, 1))
    with pytest.raises(SnapshotError, match="ENOSPC"):
        ours.save(bloom(), 4, lambda: 4, IDENTITY)
    assert files_in(shelf.store.path) == before
    assert not files_in(ours.path)
