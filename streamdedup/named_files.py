"""Opens the files that an operator names. To open one never blocks, whatever is at its path.

What is mapped or watched must be a regular file, also behind links: Kubernetes mounts secrets so. What is read once may
be a pipe, too, as `<(...)` makes one; then the time to wait for whoever writes to it is limited.
"""

import errno
import io
import os
import select
import stat
import time
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


def open_regular(path: Path) -> int:
    """Return a descriptor of the regular file at `path`, to read. OSError if it cannot be opened, or is none."""
    fd = os.open(path, TO_READ)
    try:
        if kind := kind_of(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, f"it is {kind}, and must be a regular file")
    except BaseException:
        os.close(fd)
        raise
    return fd


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
