"""What a crawl has seen, on disk: a filter, and a log of the keys that it was given since it was saved.

`seen.filter` is as `streamdedup.save` writes it, with the secret of its hash. `seen.log` (`seen_log`) is there while a
crawl runs, and after a kill: a clean stop saves the filter, then removes the log. To read a log twice does no harm,
since a filter is a set. `lock` is empty, locked (flock) while a crawl uses the directory, and never removed.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from streamdedup.contrib.seen_log import LogReader, LogWriter
from streamdedup.errors import ConfigError, SnapshotError
from streamdedup.filters.base import Addable
from streamdedup.named_files import make_directory, open_regular
from streamdedup.rules.duplicates import adder
from streamdedup.snapshot import files

TO_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
ELSEWHERE = "choose another JOBDIR"


class Seen:
    """The files in `directory`, which is made if it is missing. ConfigError if another crawl uses them.

    SnapshotError if they cannot be made, as on a disk that is read-only.

    Call `begin` or `resume`, and at the end `save` and `close`. All of them block.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._filter, self._log = directory / "seen.filter", directory / "seen.log"
        self._writer: LogWriter | None = None
        with files.blaming("write", directory / "lock", ELSEWHERE):
            make_directory(directory)
            self._lock = os.fdopen(os.open(directory / "lock", TO_APPEND, 0o600), "ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ConfigError(
                f"JOBDIR {directory.parent} is in use by another crawl; end that one, or give each a JOBDIR of its own"
            ) from None

    @property
    def exists(self) -> bool:
        """Whether a filter is saved here."""
        return self._filter.exists()

    def begin(self, filter_: Addable) -> Callable[[str | bytes], None]:
        """Save `filter_`, instead of one that is here, and begin its log; return what takes each key that is added.

        SnapshotError if the directory cannot be written to.
        """
        files.save(filter_, self._filter)
        with files.blaming("write", self._log, ELSEWHERE):
            self._writer = LogWriter(self._log, filter_.hash)
        return self._writer.append

    def load(self) -> Addable:
        """Return the filter with all keys of its log. SnapshotError if its file cannot be read, or is damaged."""
        try:
            filter_ = files.load(self._filter)
        except SnapshotError as error:
            raise SnapshotError(
                f"{error}; or remove {self._directory}: then nothing has been seen"
            ) from error
        if not isinstance(filter_, Addable):
            raise SnapshotError(
                f"{self._filter} holds a {filter_.kind}, which takes no keys; remove {self._directory}: then"
                " nothing has been seen"
            )
        self._replay(filter_)
        return filter_

    def _replay(self, filter_: Addable) -> None:
        add = adder(filter_)
        with (
            files.blaming("read", self._log, ELSEWHERE),
            suppress(FileNotFoundError),
            os.fdopen(open_regular(self._log, os.O_NOFOLLOW), "rb") as file,
        ):
            log = LogReader(file)
            if log.check == filter_.hash.check:  # else it is of a filter that was here before
                for digests in log.frames():
                    add(digests)

    def save(self, filter_: Addable) -> None:
        """End the log, save the filter, and only then remove the log. SnapshotError if the filter cannot be saved."""
        self._end_log()
        files.save(filter_, self._filter)
        self._log.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others use the directory. Without `save` before it, the log stays, as after a kill."""
        self._end_log()
        self._lock.close()

    def _end_log(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
