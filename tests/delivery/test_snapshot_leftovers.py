"""What a shard reports of its saves: what stays, is given up, or is locked by another makes none a failure."""

import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from streamdedup import filters
from streamdedup.delivery.snapshots import ShardSnapshots
from streamdedup.metrics.counts import ShardMeters
from streamdedup.settings import load
from streamdedup.testing.files import WatchedFs
from tests.delivery.deciding import folded
from tests.delivery.test_retention import CONFIG
from tests.delivery.test_windowed_shard import column, shard_of
from tests.snapshot.shelf import IDENTITY
from tests.snapshot.test_full_disk import FullFs


class _Saves:
    """The saves of one shard in `directory`, and the lines of each."""

    def __init__(self, directory: Path, fs: Any = os, keep: int = 1) -> None:
        path = directory / "dedup.yaml"
        path.write_text(f"{CONFIG}snapshot: {{directory: {directory}, keep: {keep}}}\n")
        self.meters = ShardMeters()
        self.snapshots = ShardSnapshots(
            load(path, environ={}), 0, structlog.get_logger(), self.meters, fs
        )
        self.directory = self.snapshots._store.path
        self._shard = shard_of(filters.build({"kind": "bloom", "capacity": 10, "error_rate": 0.1}))
        for _ in folded(self._shard, *column((b"key", 0)), 5):
            pass

    async def __call__(self) -> list[Any]:
        """Save once more, and return the lines."""
        with capture_logs() as logs:
            await self.snapshots.save(self._shard, IDENTITY, again=True)
        return logs


@pytest.mark.parametrize("suffix", ["snapshot", "tmp", "snapshot.broken"])
@pytest.mark.parametrize("counter", [f"{9:016d}", 20 * "9"])
async def test_a_directory_with_a_snapshots_name_is_said_once(
    tmp_path: Path, suffix: str, counter: str
) -> None:
    """Each save counts as saved; the line comes again only if it was gone meanwhile."""
    saves = _Saves(tmp_path)
    foreign = saves.directory / f"{counter}.{suffix}"
    lines: list[Any] = []
    for action in (None, foreign.mkdir, None, None, foreign.rmdir, foreign.mkdir, None):
        if action:
            action()
        lines.append([(line["event"], line.get("path")) for line in await saves()])
    saved, left = ("snapshot_saved", None), ("snapshot_leftover", str(foreign))
    assert lines == [[saved], [saved, left], [saved], [saved], [saved], [saved, left], [saved]]
    assert (saves.meters.snapshots_saved, saves.meters.snapshots_failed) == (7, 0)


async def test_a_save_whose_older_generation_cannot_be_removed_is_saved(tmp_path: Path) -> None:
    """It is counted as what it is; the line names what stays."""

    class KeepingFs(WatchedFs):
        def unlink(self, path: Path) -> None:  # noqa: ARG002 - the signature is that of `os`
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    saves = _Saves(tmp_path, KeepingFs())
    await saves()
    first, left = await saves()
    assert (first["event"], left["event"]) == ("snapshot_saved", "snapshot_leftover")
    assert left["reason"] == "it cannot be removed: Permission denied (EACCES)"
    assert (saves.meters.snapshots_saved, saves.meters.snapshots_failed) == (2, 0)


async def test_what_is_given_up_for_want_of_space_is_said_once_while_it_lasts(
    tmp_path: Path,
) -> None:
    """A warning with the remedy; the save counts as saved."""
    saves = _Saves(tmp_path, FullFs(tmp_path / "dedup", 2), keep=2)
    events = [[line["event"] for line in await saves()] for _ in range(4)]
    once, twice = ["snapshot_saved"], ["snapshot_saved", "snapshots_given_up"]
    assert events == [once, once, twice, once]
    [_, line] = await _Saves(tmp_path, FullFs(tmp_path / "dedup", 2), keep=2)()
    assert (line["log_level"], line["generations"]) == ("warning", 1)
    assert "snapshot.keep + 1 files of each partition" in line["remedy"]
    assert (saves.meters.snapshots_saved, saves.meters.snapshots_failed) == (4, 0)


async def test_a_lock_of_another_worker_is_no_failure(tmp_path: Path) -> None:
    """It saves the same partition, so nobody is needed; if that is so each time, it is a warning, until a save."""
    saves = _Saves(tmp_path)
    await saves()
    with (saves.directory / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = [line for _ in range(3) for line in await saves()]
    assert [(line["event"], line["log_level"], line["times"]) for line in lines] == [
        ("snapshot_postponed", "info", 1),
        ("snapshot_postponed", "info", 2),
        ("snapshot_postponed", "warning", 3),
    ]
    assert lines[0]["reason"].startswith(f"another process holds {saves.directory}/lock")
    assert [line["event"] for line in await saves()] == ["snapshot_saved"]
    assert (saves.meters.snapshots_saved, saves.meters.snapshots_failed) == (2, 0)
    with (saves.directory / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [line["times"] for line in await saves()] == [1]


async def test_a_load_notes_what_it_found(tmp_path: Path) -> None:
    """No snapshot is a line of the log, too: the directory may be another one than the operator thinks."""
    saves = _Saves(tmp_path, keep=2)

    async def loaded() -> tuple[str, list[Any]]:
        async def undoubted(_snapshot: Any) -> None:
            return

        with capture_logs() as logs:
            await saves.snapshots.load(IDENTITY, 1 << 40, undoubted)
        return saves.snapshots.search, [line["event"] for line in logs]

    assert await loaded() == (f"none was found in {saves.directory}", ["no_snapshot"])
    await saves()
    (path,) = saves.directory.glob("*.snapshot")
    text, events = await loaded()
    assert text == f"the newest that is of use, {path}, reaches up to 5"
    assert events == ["snapshot_loaded"]
    await saves()
    newer = max(saves.directory.glob("*.snapshot"))
    newer.write_bytes(b"damaged")
    text, events = await loaded()
    assert text.startswith(f"{newer} was refused: ")
    assert text.endswith(f"; the newest that is of use, {path}, reaches up to 5")
    assert events == ["snapshot_refused", "snapshot_loaded"]
    path.write_bytes(b"damaged")
    text, events = await loaded()
    assert text.startswith(f"{path} was refused: ")
    assert events == ["snapshot_refused"]
    shutil.rmtree(saves.directory)
    saves.directory.touch()
    text, events = await loaded()
    assert text.startswith(f"{saves.directory} was refused: cannot list {saves.directory}: Not a")
    assert events == ["snapshot_refused"]
    assert [line["event"] for line in await saves()] == ["snapshot_failed"]
