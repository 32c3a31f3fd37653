"""The file systems of a worker's snapshots, in its wrapper: one that counts the steps of a save, one on a bad disk."""

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from streamdedup.testing.files import WatchedFs

DISK_FAILED = "chaos_disk"

T = TypeVar("T")


def tell(event: str, **fields: object) -> None:
    """A line in the worker's log, written at once, since the process may end with the next instruction."""
    os.write(2, json.dumps({"event": event, **fields}).encode() + b"\n")


class SteppingFs(WatchedFs):
    """The file system of snapshots, of which every call of a save is a step."""

    def __init__(self, reached: Callable[[str], None]) -> None:
        super().__init__()
        self._reached = reached
        self._directories: set[int] = set()
        self._written: set[int] = set()

    @override
    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        fd = os.open(path, flags, mode)
        if flags & os.O_DIRECTORY:
            self._directories.add(fd)
        elif flags & os.O_CREAT and path.suffix == ".tmp":
            self._written.add(fd)
            self._reached("snapshot_opened")
        return fd

    @override
    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        count = os.write(fd, data)
        self._reached("snapshot_written")
        return count

    @override
    def fsync(self, fd: int) -> None:
        os.fsync(fd)
        self._reached("snapshot_directory_synced" if fd in self._directories else "snapshot_synced")

    @override
    def close(self, fd: int) -> None:
        os.close(fd)
        self._directories.discard(fd)
        if fd in self._written:
            self._written.discard(fd)
            self._reached("snapshot_closed")

    @override
    def rename(self, src: Path, dst: Path) -> None:
        super().rename(src, dst)
        if src.suffix == ".tmp":
            self._reached("snapshot_renamed")


class BadDisk(WatchedFs):
    """The file system of snapshots on a disk that fails, or is slow, for some calls."""

    def __init__(self, first: int, count: int, error: str | None, slow_s: float) -> None:
        super().__init__()
        self._bad = range(first, first + count)
        self._error = error and getattr(errno, error)
        self._slow_s = slow_s
        self._lock = threading.Lock()
        self._count, self._saving = 0, False

    def around(self, name: str, act: Callable[[], T]) -> T:
        """Make the call, or fail."""
        with self._lock:
            self._saving |= name == "mkdir"  # what comes before belongs to a load
            number, self._count = self._count, self._count + self._saving
        if not self._saving or number not in self._bad:
            return act()
        tell(DISK_FAILED, call=name, number=number)
        if self._slow_s:
            time.sleep(self._slow_s)
        if not self._error:
            return act()
        if name == "close":  # a descriptor is gone after a failed close, too
            act()
        raise OSError(self._error, os.strerror(self._error))


class UnreadableSnapshots(WatchedFs):
    """The file system of snapshots, of which one kind of call fails until something is saved."""

    def __init__(self, call: str, error: str) -> None:
        super().__init__()
        self._call, self._error = call, getattr(errno, error)
        self._saving = False

    def around(self, name: str, act: Callable[[], T]) -> T:
        """Make the call, or fail."""
        self._saving |= name == "mkdir"  # a save's first call
        if self._saving or name != self._call:
            return act()
        tell(DISK_FAILED, call=name)
        raise OSError(self._error, os.strerror(self._error))
