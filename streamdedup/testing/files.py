"""File systems for tests, in place of `os`: one that fails at its n-th call, one that loses power.

Both work on real files. The second logs what it was asked to do, and tells from it every state that
a disk may be found in when the power fails after any of these calls.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import TypeVar

T = TypeVar("T")


class WatchedFs:
    """`os`, with each call going through `around`, and the open file descriptors counted."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.open_fds: set[int] = set()

    def around(self, name: str, act: Callable[[], T]) -> T:
        """Make the call of that name; to be overridden."""
        self.calls.append(name)
        return act()

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        """As `os.open`."""
        fd = self.around("open", lambda: os.open(path, flags, mode))
        self.open_fds.add(fd)
        return fd

    def readv(self, fd: int, buffers: list[memoryview], /) -> int:
        """As `os.readv`."""
        return self.around("readv", lambda: os.readv(fd, buffers))

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        """As `os.write`."""
        return self.around("write", lambda: os.write(fd, data))

    def fsync(self, fd: int) -> None:
        """As `os.fsync`."""
        self.around("fsync", lambda: os.fsync(fd))

    def close(self, fd: int) -> None:
        """As `os.close`."""
        self.open_fds.discard(fd)
        self.around("close", lambda: os.close(fd))

    def rename(self, src: Path, dst: Path) -> None:
        """As `os.rename`."""
        self.around("rename", lambda: os.rename(src, dst))  # noqa: PTH104 - this is `os`

    def unlink(self, path: Path) -> None:
        """As `os.unlink`."""
        self.around("unlink", lambda: os.unlink(path))  # noqa: PTH108 - this is `os`

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """As `os.mkdir`."""
        self.around("mkdir", lambda: os.mkdir(path, mode))  # noqa: PTH102 - this is `os`

    def listdir(self, path: Path) -> list[str]:
        """As `os.listdir`."""
        return self.around("listdir", lambda: os.listdir(path))  # noqa: PTH208 - this is `os`


class FailingFs(WatchedFs):
    """Call number `fail_at` (from 0) fails with `error`; with `for_good`, so do all after it.

    With `lost_answer` the failing call takes effect anyway; else a write leaves half its bytes.
    """

    def __init__(
        self, fail_at: int, error: int, *, for_good: bool = False, lost_answer: bool = False
    ) -> None:
        super().__init__()
        self._fail_at, self._error = fail_at, error
        self._for_good, self._lost_answer = for_good, lost_answer
        self.failed: list[str] = []

    def around(self, name: str, act: Callable[[], T]) -> T:
        """Make the call, or fail."""
        due = len(self.calls) == self._fail_at
        due |= self._for_good and len(self.calls) > self._fail_at
        self.calls.append(name)
        if not due:
            return act()
        self.failed.append(name)
        # A descriptor is gone after a failed close, too, and none comes out of a failed open.
        if name == "close" or (self._lost_answer and name != "open"):
            act()
        raise OSError(self._error, os.strerror(self._error))

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        """As `os.write`."""
        written = len(self.failed)
        try:
            return super().write(fd, data)
        except OSError:
            if len(self.failed) > written and not self._lost_answer:
                os.write(fd, memoryview(data)[: len(data) // 2])
            raise


@dataclass(frozen=True)
class Operation:
    """One change: to a file's bytes (`file`, `offset`, `data`) or to the directory of `path`."""

    kind: str
    path: Path
    target: Path | None = None
    file: int = -1
    offset: int = 0
    data: bytes = b""


State = tuple[frozenset[Path], tuple[tuple[Path, bytes], ...]]  # directories; files and their bytes
SECTORS_BYTES = (512, 4096)  # what a disk writes whole


class PowerFs(WatchedFs):
    """Remembers what was asked of it, and tells what of it a disk may hold after a loss of power.

    What no fsync has settled may be there or not, each operation for itself and a write also in
    part. An fsync of a file settles its bytes but not its name, which is its directory's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Operation] = []
        self._files = 0
        self._names: dict[Path, int] = {}
        self._paths: dict[int, Path] = {}
        self._written: dict[int, int] = {}

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        """As `os.open`."""
        created = bool(flags & os.O_CREAT) and not path.exists()
        fd = super().open(path, flags, mode)
        self._paths[fd] = path
        if created:
            self._files += 1
            self._names[path] = self._files
            self._written[self._files] = 0
            self.log.append(Operation("create", path, file=self._files))
        return fd

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        """As `os.write`."""
        count = super().write(fd, data)
        path = self._paths[fd]
        file = self._names[path]
        done = bytes(memoryview(data)[:count])
        self.log.append(Operation("write", path, file=file, offset=self._written[file], data=done))
        self._written[file] += count
        return count

    def fsync(self, fd: int) -> None:
        """As `os.fsync`."""
        super().fsync(fd)
        path = self._paths[fd]
        kind = "sync directory" if path.is_dir() else "sync file"
        self.log.append(Operation(kind, path, file=self._names.get(path, -1)))

    def rename(self, src: Path, dst: Path) -> None:
        """As `os.rename`."""
        super().rename(src, dst)
        self._names[dst] = self._names.pop(src)
        self.log.append(Operation("rename", src, target=dst, file=self._names[dst]))

    def unlink(self, path: Path) -> None:
        """As `os.unlink`."""
        super().unlink(path)
        self.log.append(Operation("unlink", path, file=self._names.pop(path)))

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """As `os.mkdir`."""
        super().mkdir(path, mode)
        self.log.append(Operation("mkdir", path))

    def states_after(self, operations: int) -> set[State]:
        """Every state of the disk when the power fails after that many operations of the log."""
        log = self.log[:operations]
        made = _made(log)
        return {_state(outcome, made) for outcome in product(*_choices(log))}

    def lose_power(self, chance: Random, root: Path) -> None:
        """Have what lies in directories of `root` be one of the states that a disk may now be found in."""
        outcome = tuple(map(chance.choice, _choices(self.log)))
        directories, files = _state(outcome, _made(self.log))
        for child in root.iterdir() if root.exists() else ():
            shutil.rmtree(child)
        self.log, self._names, self._written = [], {}, {}
        for directory in sorted(directories):
            directory.mkdir()
            self.log.append(Operation("mkdir", directory))
        for path, data in files:
            path.write_bytes(data)
            self._files += 1
            self._names[path], self._written[self._files] = self._files, len(data)
            self.log.append(Operation("create", path, file=self._files))
            self.log.append(Operation("write", path, file=self._files, data=data))
            self.log.append(Operation("sync file", path, file=self._files))
        parents = {path.parent for path in (*directories, *(path for path, _ in files))}
        self.log += [Operation("sync directory", parent) for parent in sorted(parents)]


def restore(state: State, away: Path, to: Path) -> None:
    """Lay out `state` under `to`, as it was under `away`."""
    directories, files = state
    for directory in sorted(directories):
        (to / directory.relative_to(away)).mkdir()
    for path, data in files:
        (to / path.relative_to(away)).write_bytes(data)


def _made(log: list[Operation]) -> set[Path]:
    return {operation.path for operation in log if operation.kind == "mkdir"}


def _choices(log: list[Operation]) -> list[list[Operation | None]]:
    """List what may have become of each operation: done where a later fsync settled it; else also not, or in part."""
    choices: list[list[Operation | None]] = []
    settled: set[int | Path] = set()
    for operation in reversed(log):
        unknown: int | Path = operation.file if operation.kind == "write" else operation.path.parent
        if operation.kind == "sync file":
            settled.add(operation.file)
            choices.append([None])
        elif operation.kind == "sync directory":
            settled.add(operation.path)
            choices.append([None])
        elif unknown in settled:
            choices.append([operation])
        else:
            torn = _torn(operation) if operation.kind == "write" else ()
            choices.append([operation, None, *torn])
    return choices[::-1]


def _torn(write: Operation) -> Iterator[Operation]:
    for sector in SECTORS_BYTES:
        until = (write.offset // sector + 1) * sector - write.offset
        if until < len(write.data):
            yield Operation(
                "write", write.path, file=write.file, offset=write.offset, data=write.data[:until]
            )


def _state(outcome: tuple[Operation | None, ...], made: set[Path]) -> State:
    """Apply what was done, in order; what stands under a directory that was not made is lost."""
    directories: set[Path] = set()
    names: dict[Path, int] = {}
    contents: dict[int, bytearray] = {}
    for operation in outcome:
        match operation:
            case Operation(kind="mkdir", path=path):
                directories.add(path)
            case Operation(kind="create", path=path, file=file):
                names[path] = file
            case Operation(kind="rename", path=path, target=Path() as target, file=file):
                names.pop(path, None)
                names[target] = file
            case Operation(kind="unlink", path=path):
                names.pop(path, None)
            case Operation(kind="write", file=file, offset=offset, data=data):
                content = contents.setdefault(file, bytearray())
                content.extend(bytes(max(0, offset + len(data) - len(content))))
                content[offset : offset + len(data)] = data
    lost = made - directories
    reached = {path: file for path, file in names.items() if lost.isdisjoint(path.parents)}
    return (
        frozenset(path for path in directories if lost.isdisjoint(path.parents)),
        tuple((path, bytes(contents.get(file, b""))) for path, file in sorted(reached.items())),
    )
