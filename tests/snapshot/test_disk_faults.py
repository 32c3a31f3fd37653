"""Saving fails, the disk fails, the power fails: the old snapshot or the new one is loaded."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamdedup.errors import SnapshotError
from streamdedup.filters.base import Filter
from streamdedup.snapshot import Snapshot
from streamdedup.testing.files import FailingFs, PowerFs, restore
from tests.snapshot.shelf import IDENTITY, Shelf, bloom, table


@pytest.fixture(scope="module")
def two_filters() -> tuple[Filter, Filter]:
    """Make an old and a new state."""
    return bloom(seed=1), bloom(seed=2)


@pytest.mark.parametrize(
    "mode",
    [{}, {"for_good": True}, {"lost_answer": True}, {"for_good": True, "lost_answer": True}],
    ids=["once", "for good", "once, answer lost", "for good, answers lost"],
)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("first", [False, True], ids=["second save", "first save"])
def test_whichever_call_of_a_save_fails_the_old_or_the_new_is_loaded(
    tmp_path: Path,
    two_filters: tuple[Filter, Filter],
    mode: dict[str, bool],
    error: int,
    first: bool,
) -> None:
    """Each call in turn: a typed error, no file left open, and the next save is good."""
    old, new = two_filters
    tables = {1: table(old), 2: table(new)}
    for fail_at in range(1000):
        directory = tmp_path / str(fail_at)
        if not first:
            Shelf(directory).save(old, 1)
        fs = FailingFs(fail_at, error, **mode)
        failure = failure_of(lambda: Shelf(directory, fs=fs).save(new, 2))  # noqa: B023 - called now
        if not fs.failed:
            break
        assert not fs.open_fds
        if failure:
            assert str(directory) in failure
            assert errno.errorcode[error] in failure
        if fs.failed[0] == "fsync":
            assert failure
            assert "fsync" not in fs.calls[fail_at + 1 :]
        shelf = Shelf(directory)
        loaded = shelf.load()
        assert not shelf.refusals
        assert (loaded.label if loaded else None) in ({None, 2} if first else {1, 2})
        assert loaded is None or table(loaded.filter) == tables[loaded.label]
        assert failure or (loaded and loaded.label == 2)
        shelf.save(old, 3)
        assert shelf.label() == 3
        assert not list(directory.rglob("*.tmp"))
    assert fail_at > 20


def failure_of(act: Callable[[], object]) -> str | None:
    """Return the message of the SnapshotError that `act` raises, None where it raises none."""
    try:
        act()
    except SnapshotError as error:
        return str(error)
    return None


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_whichever_call_of_a_load_fails_no_wrong_state_is_loaded(
    shelf: Shelf, two_filters: tuple[Filter, Filter], for_good: bool
) -> None:
    """An older state, none, or the typed error; nothing whole is set aside."""
    old, new = two_filters
    tables = {1: table(old), 2: table(new)}
    shelf.save(old, 1)
    shelf.save(new, 2)
    for fail_at in range(1000):
        fs = FailingFs(fail_at, errno.EIO, for_good=for_good)
        failing = Shelf(shelf.store.path.parents[2], fs=fs)
        loaded: list[Snapshot | None] = []
        failure = failure_of(lambda: loaded.append(failing.load()))  # noqa: B023 - called now
        if not fs.failed:
            break
        assert not fs.open_fds
        assert all(table(found.filter) == tables[found.label] for found in loaded if found)
        assert failure or failing.refusals or fs.failed == ["close"]
        assert shelf.label() == 2
    assert fail_at > 8


@pytest.mark.parametrize("keep", [1, 3])
def test_power_may_fail_after_any_call_and_the_old_or_the_new_is_loaded(
    tmp_path: Path, two_filters: tuple[Filter, Filter], keep: int
) -> None:
    """With every subset of what was not synced; once a save has returned, only the new one."""
    tables = {label: table(filter_) for label, filter_ in enumerate(two_filters, 1)}
    fs = PowerFs()
    away = tmp_path / "before"
    away.mkdir()
    shelf = Shelf(away / "snapshots", fs=fs, keep=keep)
    begun, done = {}, {}
    for label, filter_ in enumerate(two_filters, 1):
        begun[label] = len(fs.log)
        shelf.save(filter_, label)
        done[label] = len(fs.log)
    seen: dict[Any, int | None] = {}
    for operations in range(len(fs.log) + 1):
        allowed = {label for label in tables if operations > begun[label]} | {None}
        durable = max((label for label in tables if operations >= done[label]), default=0)
        allowed = {label for label in allowed if (label or 0) >= durable}
        for state in fs.states_after(operations):
            if state not in seen:
                seen[state] = label_after_power_loss(state, away, tmp_path / str(len(seen)), tables)
            assert seen[state] in allowed, fs.log[:operations]
    assert set(seen.values()) == {None, 1, 2}


def label_after_power_loss(
    state: Any, away: Path, directory: Path, tables: dict[int, bytes]
) -> int | None:
    """Load from that state of the disk: the filter is the one saved, and nothing is damaged."""
    directory.mkdir()
    restore(state, away, directory)
    shelf = Shelf(directory / "snapshots")
    loaded = shelf.load()
    assert not shelf.refusals
    if loaded is None:
        return None
    assert table(loaded.filter) == tables[loaded.label]
    return loaded.label


def test_a_directory_that_may_not_be_written_is_named_with_its_remedy(tmp_path: Path) -> None:
    """For a directory of another user."""
    with pytest.raises(SnapshotError, match=f"EACCES.*user id {os.geteuid()}"):
        Shelf(tmp_path, fs=FailingFs(0, errno.EACCES)).save(bloom(), 1)


def test_an_error_while_the_end_label_is_asked_leaves_nothing(shelf: Shelf) -> None:
    """Whatever the caller's function raises comes through, and no file is left."""

    def fail() -> int:
        raise RuntimeError("the shard is gone")

    with pytest.raises(RuntimeError, match="the shard is gone"):
        shelf.store.save(bloom(), 1, fail, IDENTITY)
    assert [path.name for path in shelf.store.path.iterdir()] == ["lock"]


def test_an_end_label_below_the_label_is_not_written(shelf: Shelf) -> None:
    """It would be refused at each load."""
    with pytest.raises(SnapshotError, match="end label 4 is below the label 5"):
        shelf.save(bloom(), 5, 4)
    assert not shelf.store.exists()


def test_a_header_that_could_not_be_read_is_not_written(shelf: Shelf) -> None:
    """The bound that holds for reading holds for writing."""
    identity = replace(IDENTITY, key={"field": "x" * 70_000})
    with pytest.raises(SnapshotError, match=r"70.* bytes and the limit is 65536"):
        shelf.store.save(bloom(), 1, lambda: 1, identity)
    assert not shelf.store.exists()
