"""Opens the files that an operator names. To open one never blocks, whatever is at its path.

What is mapped or watched must be a regular file, also behind links: Kubernetes mounts secrets so. What is read once may
be a pipe, too, as `<(...)` makes one; then the time to wait for its writer is limited. This module also makes
directories, for this user alone, and finds out who else could write to one.
"""

import errno
import io
import os
import select
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from typing_extensions import Buffer, override

# Without O_NONBLOCK, to open a FIFO waits until another process opens it, too. Regular files ignore the flag.
TO_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
PIPE_S_MAX = 10.0  # until somebody writes to a pipe; a short file must be whole by then
SILENT_S_MAX = 600.0  # between two pieces of a long input
SHORT_BYTES_MAX = 16 << 20

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
)


def kind_of(mode: int) -> str | None:
    """Return what a file with this `st_mode` is, in words; None if it is a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "a device")


def open_regular(path: Path, flags: int = 0) -> int:
    """Return a descriptor of the regular file at `path`, to read. OSError if it cannot be opened, or is none.

    With `flags` of O_NOFOLLOW a link is none.
    """
    fd = os.open(path, TO_READ | flags)
    try:
        if kind := kind_of(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, f"it is {kind}, and must be a regular file")
    except BaseException:
        os.close(fd)
        raise
    return fd


def make_directory(path: Path, mkdir: Callable[[Path, int], None] = os.mkdir) -> list[Path]:
    """Make the directory at `path`, and each that is missing above it, for this user alone: mode 0700.

    Return those that were made, the uppermost first. OSError if one cannot be made.
    """
    made = list[Path]()
    missing = [level for level in (path, *path.parents) if not level.exists()]
    for level in reversed(missing):
        with suppress(FileExistsError):  # another process made it just now
            mkdir(level, 0o700)
            made.append(level)
    return made


def others_may_write(
    path: Path, *, but_our_groups: bool = False, up_to: Path | None = None
) -> str | None:
    """Return who else could change what is at `path`, and where, in words; None if only this user and root could.

    The directories above it count as well, as far as `up_to`: to write to one is to replace what is in it, unless it
    has the sticky bit. With `but_our_groups`, groups of this process may write, as the `fsGroup` of a pod does. What
    is not there counts for nothing. `path` and `up_to` are without links (`Path.resolve`). OSError if a level cannot
    be looked at.
    """
    ours = {os.getegid(), *os.getgroups()} if but_our_groups else ()
    for level in (path, *path.parents):
        try:
            found = level.lstat()
        except FileNotFoundError:
            continue
        mode = found.st_mode
        if found.st_uid not in (0, os.geteuid()):
            return f"user id {found.st_uid}, who owns {level}"
        if level == path or not mode & stat.S_ISVTX:
            if mode & stat.S_IWOTH:
                return f"every user, since {level} has mode {stat.S_IMODE(mode):04o}"
            if mode & stat.S_IWGRP and found.st_gid not in ours:
                return f"group id {found.st_gid}, since {level} has mode {stat.S_IMODE(mode):04o}"
        if level == up_to:
            break
    return None


def can_be_read_again(path: Path) -> bool:
    """Return whether the file at `path` can be read twice: a pipe cannot. True if there is no file, or a directory."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def read_short(path: Path, within_s: float = PIPE_S_MAX) -> bytes:
    """Return all of a regular file, a pipe or a device, within `within_s` seconds. This blocks.

    OSError if it cannot be read, is a directory or has more than SHORT_BYTES_MAX bytes; TimeoutError, which is one,
    if a pipe is not written to its end in time.
    """
    with _opened(path, within_s, within_s, whole_s=within_s) as file:
        content = file.read(SHORT_BYTES_MAX + 1)
    if len(content) > SHORT_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it has more than {SHORT_BYTES_MAX >> 20} MiB")
    return content


def open_stream(
    path: Path, begins_s: float = PIPE_S_MAX, silent_s: float = SILENT_S_MAX
) -> io.BufferedReader:
    """Return the regular file, pipe or device at `path`, to be read once. To read blocks.

    OSError if it cannot be opened, or is a directory. To read raises TimeoutError if after `begins_s` seconds nobody
    has a pipe open to write to it, or if whoever has writes nothing for `silent_s` seconds.
    """
    return _opened(path, begins_s, silent_s)


def _opened(
    path: Path, begins_s: float, silent_s: float, whole_s: float | None = None
) -> io.BufferedReader:
    fd = os.open(path, TO_READ)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if stat.S_ISREG(mode):
            return os.fdopen(fd, "rb")
        return io.BufferedReader(_Pipe(fd, begins_s, silent_s, whole_s))
    except BaseException:
        os.close(fd)
        raise


class _Pipe(io.RawIOBase):
    """What somebody else writes, while we wait for it for a limited time."""

    def __init__(
        self, fd: int, begins_s: float, silent_s: float, whole_s: float | None = None
    ) -> None:
        self._fd, self._begins_s, self._silent_s = fd, begins_s, silent_s
        self._ends_at = None if whole_s is None else time.monotonic() + whole_s
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    @override
    def readable(self) -> bool:
        return True

    @override
    def fileno(self) -> int:
        return self._fd

    @override
    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()

    @override
    def readinto(self, into: Buffer) -> int:
        silent_s = self._silent_s
        if self._ends_at is not None:
            silent_s = max(0.0, self._ends_at - time.monotonic())
        begins_s = min(self._begins_s, silent_s)
        is_ready = self._ready(begins_s)
        while True:
            try:
                count = os.readv(self._fd, [into])
            except BlockingIOError:  # somebody has it open to write, and writes nothing yet
                if not (is_ready := self._ready(silent_s - begins_s)):
                    raise TimeoutError(errno.ETIMEDOUT, self._unfinished()) from None
                continue
            if count or is_ready:
                return count
            raise TimeoutError(
                errno.ETIMEDOUT, f"it is a pipe to which nobody writes within {self._begins_s:g} s"
            )

    def _ready(self, seconds: float) -> bool:
        """Wait for bytes, or for the end. A FIFO that nobody has opened to write has neither."""
        return bool(self._poll.poll(max(0.0, seconds) * 1000))

    def _unfinished(self) -> str:
        if self._ends_at is None:
            return f"it is a pipe to which nothing is written for {self._silent_s:g} s"
        return f"it is a pipe that is not written to its end within {self._silent_s:g} s"
