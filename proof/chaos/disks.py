"""The disk below the snapshots: full, read-only, failing at some call, slow. Delivery goes on, and the log says why.

Full and read-only are real where this user may mount a small file system; elsewhere the wrapper answers for the disk.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proof.chaos.files import DISK_FAILED
from proof.chaos.trial import Trial
from proof.chaos.worker import Wanted, with_disk, with_unreadable_snapshots
from tests.broker.base import DEADLINE_S, wait_until
from tests.deployment import WorkerProcess

FOR_GOOD = 1_000_000
UNREADABLE_TOLD = "snapshot_refused"
# A save that failed; older generations given up for it; what an earlier process left that could not be deleted.
REPORTS = ("snapshot_failed", "snapshots_given_up", "snapshot_leftover")
DISK_BYTES = 64 << 20
FIRST_CALLS = 60  # what four partitions ask of the disk for their first snapshots, and more
SLOW_S = 0.3
CASES = (
    "full (ENOSPC)",
    "read-only (EROFS)",
    "EIO at one call",
    "ENOSPC at one call",
    "EIO for good",
    "slow calls",
    "snapshots that cannot be listed at a start",
    "snapshots that cannot be opened at a start",
)


def harm_disk(trial: Trial, cases: int) -> None:
    """The first so many of the cases; after each, a worker on a good disk goes on from what is there."""
    for case in CASES[:cases]:
        if "at a start" in case:
            _unreadable(trial, case)
        elif case in {"full (ENOSPC)", "read-only (EROFS)"}:
            _real_disk(trial, case)
        else:
            _bad_calls(trial, case, _wanted(trial, case))
        trial.start_live().kill()


def _wanted(trial: Trial, case: str) -> Wanted:
    chance = trial.chance
    if case == "slow calls":
        return with_disk(first=0, count=FOR_GOOD, slow_s=SLOW_S)
    error = "ENOSPC" if "ENOSPC" in case else "EROFS" if "EROFS" in case else "EIO"
    if "one call" in case:
        return with_disk(first=chance.randrange(FIRST_CALLS), count=1, error=error)
    return with_disk(first=chance.randrange(20), count=FOR_GOOD, error=error)


def _bad_calls(trial: Trial, case: str, wanted: Wanted) -> None:
    worker = trial.start_live(wanted)
    failed = worker.wait_for(DISK_FAILED)
    if "slow" in case:
        worker.wait_for("snapshot_saved")
    elif failed[0]["call"] != "close":  # that of the lock need not be told
        _wait_for_report(worker, 0)
    _goes_on(trial, case, worker)


def _wait_for_report(worker: WorkerProcess, known: int) -> None:
    """Wait until the log says, once more than `known` times, what failed, or what was given up for it."""
    wait_until(
        lambda: _reports(worker) > known or worker.process.poll() is not None,
        DEADLINE_S,
        lambda: f"neither failed nor given up, in the log:\n{worker.events()[-20:]}",
    )
    assert _reports(worker) > known, worker.events()[-20:]


def _reports(worker: WorkerProcess) -> int:
    return sum(len(worker.events(name)) for name in REPORTS)


def _unreadable(trial: Trial, case: str) -> None:
    """There are snapshots, and a start cannot read them: it folds the output, says so, and saves new ones."""
    before = trial.start_live()
    before.wait_for("snapshot_saved", trial.partitions)
    before.kill()
    call, errors = (
        ("listdir", ("EIO", "EACCES", "ENOTDIR"))
        if "listed" in case
        else ("open", ("EIO", "EACCES"))
    )
    error = trial.chance.choice(errors)
    worker = trial.start_live(with_unreadable_snapshots(call, error))
    worker.wait_for(DISK_FAILED)
    worker.wait_for(UNREADABLE_TOLD)
    worker.wait_for("snapshot_saved")
    _goes_on(trial, f"{case} ({error})", worker)


def _real_disk(trial: Trial, case: str) -> None:
    with _small_disk(trial.directory / "snapshots") as disk:
        if disk is None:
            _bad_calls(trial, case, _wanted(trial, case))
            return
        worker = trial.start_live()
        worker.wait_for("snapshot_saved")
        known = _reports(worker)
        if "ENOSPC" in case:
            _fill(disk)
        else:
            # Not while a file is being written.
            wait_until(
                lambda: _mount("remount,ro", disk), DEADLINE_S, lambda: "the disk stays busy"
            )
        _wait_for_report(worker, known)
        _goes_on(trial, f"{case}, a real one", worker)
        if "EROFS" in case:
            _mount("remount,rw", disk)
        else:
            (disk / "ballast").unlink()


def _goes_on(trial: Trial, case: str, worker: WorkerProcess) -> None:
    """Delivery is not held up; the worker is killed then, as its next start is to be right."""
    trial.wait_for_progress(case)
    trial.aim()
    trial.tried(case)
    if worker.process.poll() is not None:
        trial.failed(f"{case}: the worker ended: {worker.events()[-2:]}")
        return
    worker.kill()


@contextmanager
def _small_disk(directory: Path) -> Iterator[Path | None]:
    """A file system of its own at `directory`, with what was there; None where this user may not mount one."""
    directory.mkdir(exist_ok=True)
    kept = directory.with_name("kept")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(directory, kept)
    if not _mount(f"size={DISK_BYTES}", directory):
        yield None
        return
    try:
        shutil.copytree(kept, directory, dirs_exist_ok=True)
        yield directory
        shutil.rmtree(kept)
        shutil.copytree(directory, kept)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
    shutil.copytree(kept, directory, dirs_exist_ok=True)


def _mount(options: str, directory: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _fill(directory: Path) -> None:
    try:
        with (directory / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(1 << 16)):
                pass
    except OSError:
        return
