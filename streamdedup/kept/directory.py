"""The files of a kept filter: the newest `N.filter`, and `N.log` and those after it, which lead on from there.

A filter is saved in three steps: log N+1 is begun, the filter is saved as N+1, and what has lower numbers is removed. A
process that ends between any two leaves a filter and all logs that follow it. `lock` is empty, locked (flock) while a
process uses the directory, and never removed.
"""

import fcntl
import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from streamdedup.errors import ConfigError, FilterFullError, SnapshotError
from streamdedup.filters.base import Addable, Filter
from streamdedup.kept.changes import Changes
from streamdedup.kept.log import HEADER_BYTES, TORN_BYTES_MAX, Label, LogReader, LogWriter
from streamdedup.named_files import make_directory, open_regular
from streamdedup.snapshot import files

TO_LOCK = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
NAME = re.compile(r"([0-9]{8,18})\.(filter|log)")
ELSEWHERE = "choose another directory"
CUT = (
    "%s: its last %d bytes are not whole, and are left out: after a kill or a loss of power they were not flushed; if"
    " there was none, the disk has damaged them"
)

_log = logging.getLogger(__name__)


class InUseError(ConfigError):
    """The directory is in use."""


class Directory:
    """The files in `path`, which is made if it is missing. InUseError if another process, or this one, uses them.

    SnapshotError if they cannot be made, as on a disk that is read-only. All methods block.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with files.blaming("write", path / "lock", ELSEWHERE):
            for made in make_directory(path):
                files.sync_directory(os, made.parent)
            self._lock: int | None = os.open(path / "lock", TO_LOCK, 0o600)
        self._owner = os.getpid()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise InUseError(
                f"{path} is in use, by another process or an object of this one that is not closed; end or close that"
                " one, or give each a directory of its own"
            ) from None
        try:
            with files.blaming("read", path, ELSEWHERE):
                self._last = max((number for number, _ in self._numbered()), default=0)
            for left in self.path.glob(files.TEMPORARY.format("*")):  # by a process that was killed
                with suppress(OSError):
                    left.unlink()
        except BaseException:
            self.close()
            raise

    @property
    def exists(self) -> bool:
        """Whether a filter is saved here. SnapshotError if there are logs alone."""
        return is_in(self.path)

    def load(self, restored: Callable[[Path], Filter]) -> Addable:
        """Return what `restored` makes of the newest filter, as it was when it was saved.

        SnapshotError if its file cannot be read, or is damaged.
        """
        path = self._path(self._newest(), "filter")
        try:
            filter_ = restored(path)
        except SnapshotError as error:
            raise SnapshotError(f"{error}; {self._or_remove()}") from error
        if not isinstance(filter_, Addable):
            raise SnapshotError(
                f"{path} holds a {filter_.kind}, which takes no keys; {self._or_remove()}"
            )
        return filter_

    def replay(self, filter_: Addable, changes: Changes) -> LogWriter:
        """Do to `filter_`, as `load` returned it, what its logs have; return the log that goes on.

        SnapshotError if one cannot be read, or is of another filter.
        """
        newest, writer = self._newest(), None
        logs = sorted(
            number for number, ending in self._numbered() if ending == "log" and number >= newest
        )
        for number in logs:
            label = Label(number, filter_.hash.check, changes.words)
            if read := self._played(label, changes, TORN_BYTES_MAX if number == logs[-1] else 0):
                if writer is not None:
                    writer.close()
                with files.blaming("write", self._path(number, "log"), ELSEWHERE):
                    writer = LogWriter(self._path(number, "log"), label, read)
        return writer or self.new_log(filter_, changes)

    def _played(self, label: Label, changes: Changes, torn_bytes_max: int) -> LogReader | None:
        """Play a log; return how far it was read. None, and no log, if it was begun for a filter that was not saved.

        SnapshotError if more than so many bytes at its end are not whole: they were on the disk, and are damaged.
        """
        path = self._path(label.number, "log")
        with (
            files.blaming("read", path, ELSEWHERE),
            os.fdopen(open_regular(path, os.O_NOFOLLOW), "rb") as file,
        ):
            read, size_bytes = LogReader(file), os.fstat(file.fileno()).st_size
            if read.label != label and size_bytes <= HEADER_BYTES:
                path.unlink()
                return None
            if read.label != label or not _is_played(read, changes):
                problem = "is of another filter" if read.label else "is damaged"
                raise SnapshotError(
                    f"cannot use {path}: it {problem}; take a copy of it, or remove it: then its keys are not known"
                )
        left = size_bytes - read.end_bytes
        if left > torn_bytes_max:
            raise SnapshotError(
                f"cannot use {path}: it is damaged at byte {read.end_bytes}, and has {left} bytes from there on; take a"
                f" copy of it, and cut it there (truncate -s {read.end_bytes}): then what follows is not known"
            )
        if left:
            _log.warning(CUT, path, left)
        return read

    def new_log(self, filter_: Addable, changes: Changes) -> LogWriter:
        """Begin the next log. SnapshotError if it cannot be written."""
        number = self._last + 1
        path = self._path(number, "log")
        try:
            with files.blaming("write", path, ELSEWHERE):
                log = LogWriter(path, Label(number, filter_.hash.check, changes.words))
        except SnapshotError:
            with suppress(OSError):
                path.unlink()
            raise
        self._last = number
        return log

    def save(self, filter_: Addable, number: int) -> None:
        """Save the filter, as it was when log `number` was begun, and remove what came before.

        SnapshotError if it cannot be saved: then all logs stay.
        """
        files.save(filter_, self._path(number, "filter"))
        for older, ending in self._numbered():
            if older < number:
                with suppress(OSError):  # it is tried again after the next save
                    self._path(older, ending).unlink()

    def close(self) -> None:
        """Let others use the directory. A second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            if (
                os.getpid() == self._owner
            ):  # a child that was just forked has the lock's file open for a moment
                fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _newest(self) -> int:
        return max(number for number, ending in self._numbered() if ending == "filter")

    def _numbered(self) -> list[tuple[int, str]]:
        return _numbered(self.path)

    def _path(self, number: int, ending: str) -> Path:
        return self.path / f"{number:08}.{ending}"

    def _or_remove(self) -> str:
        return f"or remove {self.path}: then no key is known"


def _is_played(log: LogReader, changes: Changes) -> bool:
    """Play the changes of a log. False if the filter cannot be changed so: one of the same hash wrote it."""
    try:
        for what, rows in log.frames():
            changes.play(what, rows)
    except (ValueError, FilterFullError):
        return False
    return True


def is_in(path: Path) -> bool:
    """Whether a filter is saved in the directory `path`. SnapshotError if it cannot be read, or has logs alone."""
    with files.blaming("read", path, ELSEWHERE), suppress(FileNotFoundError):
        found = _numbered(path)
        if any(ending == "filter" for _, ending in found):
            return True
        for number, ending in found:
            log = path / f"{number:08}.{ending}"
            if log.stat().st_size > HEADER_BYTES:
                raise SnapshotError(
                    f"cannot use {path}: the filter to which {log.name} belongs is missing; take a copy of it, or"
                    f" remove {path}: then no key is known"
                )
    return False


def _numbered(path: Path) -> list[tuple[int, str]]:
    names = filter(None, (NAME.fullmatch(each.name) for each in path.iterdir()))
    return [(int(name[1]), name[2]) for name in names]
