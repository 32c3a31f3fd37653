"""File systems for tests, in place of `os`: one that fails at its n-th call, and one that loses power.

Both work on real files. The second logs its calls, and computes from the log every state in which a disk may be found
if the power fails after any of these calls.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import TypeVar

from typing_extensions import override

T = TypeVar("T")


class WatchedFs:
    """`os`, with every call passed through `around`, and a set of the open file descriptors."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.open_fds: set[int] = set()

    def around(self, name: str, act: Callable[[], T]) -> T:
        """Make the call of that name. Subclasses override this."""
        self.calls.append(name)
        return act()

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        """Open a file, like `os.open`."""
        fd = self.around("open", lambda: os.open(path, flags, mode))
        self.open_fds.add(fd)
        return fd

    def readv(self, fd: int, buffers: list[memoryview], /) -> int:
        """Read into `buffers`, like `os.readv`."""
        return self.around("readv", lambda: os.readv(fd, buffers))

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        """Write `data` or the beginning of it, like `os.write`."""
        return self.around("write", lambda: os.write(fd, data))

    def fsync(self, fd: int) -> None:
        """Make the file or directory durable, like `os.fsync`."""
        self.around("fsync", lambda: os.fsync(fd))

    def close(self, fd: int) -> None:
        """Close a descriptor, like `os.close`."""
        self.open_fds.discard(fd)
        self.around("close", lambda: os.close(fd))

    def rename(self, src: Path, dst: Path) -> None:
        """Rename a file and replace `dst` if it exists, like `os.rename`."""
        self.around("rename", lambda: os.rename(src, dst))  # noqa: PTH104 - this is `os`

    def unlink(self, path: Path) -> None:
        """Delete a file, like `os.unlink`."""
        self.around("unlink", lambda: os.unlink(path))  # noqa: PTH108 - this is `os`

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """Make a directory, like `os.mkdir`."""
        self.around("mkdir", lambda: os.mkdir(path, mode))  # noqa: PTH102 - this is `os`

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory, like `os.listdir`."""
        return self.around("listdir", lambda: os.listdir(path))  # noqa: PTH208 - this is `os`


class FailingFs(WatchedFs):
    """Call number `fail_at` (from 0) fails with the errno `error`; with `for_good`, so do all calls after it.

    With `lost_answer` the failing call takes effect all the same. Otherwise a failing write still writes half its
    bytes.
    """

    def __init__(
        self, fail_at: int, error: int, *, for_good: bool = False, lost_answer: bool = False
    ) -> None:
        super().__init__()
        self._fail_at, self._error = fail_at, error
        self._for_good, self._lost_answer = for_good, lost_answer
        self.failed: list[str] = []

    @override
    def around(self, name: str, act: Callable[[], T]) -> T:
        due = len(self.calls) == self._fail_at
        due |= self._for_good and len(self.calls) > self._fail_at
        self.calls.append(name)
        if not due:
            return act()
        self.failed.append(name)
        # A failed close releases the descriptor all the same, and a failed open never returns one.
        if name == "close" or (self._lost_answer and name != "open"):
            act()
        raise OSError(self._error, os.strerror(self._error))

    @override
    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        written = len(self.failed)
        try:
            return super().write(fd, data)
        except OSError:
            if len(self.failed) > written and not self._lost_answer:
                os.write(fd, memoryview(data)[: len(data) // 2])
            raise


@dataclass(frozen=True)
class Operation:
    """One change: to a file's bytes (`file`, `offset`, `data`), or to the directory that contains `path`."""

    kind: str
    path: Path
    target: Path | None = None
    file: int = -1
    offset: int = 0
    data: bytes = b""


# The directories; the files and their bytes.
State = tuple[frozenset[Path], tuple[tuple[Path, bytes], ...]]
SECTORS_BYTES = (512, 4096)  # the sizes that a disk writes as a whole


class PowerFs(WatchedFs):
    """Logs its operations, and computes which of them a disk may hold after a loss of power.

    An operation that no fsync has covered may be there or not, each independently of the others; a write may also be
    there in part. An fsync of a file covers its bytes but not its name: that takes an fsync of its directory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Operation] = []
        self._files = 0
        self._names: dict[Path, int] = {}
        self._paths: dict[int, Path] = {}
        self._written: dict[int, int] = {}

    @override
    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        created = bool(flags & os.O_CREAT) and not path.exists()
        fd = super().open(path, flags, mode)
        self._paths[fd] = path
        if created:
            self._files += 1
            self._names[path] = self._files
            self._written[self._files] = 0
            self.log.append(Operation("create", path, file=self._files))
        return fd

    @override
    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        count = super().write(fd, data)
        path = self._paths[fd]
        file = self._names[path]
        done = bytes(memoryview(data)[:count])
        self.log.append(Operation("write", path, file=file, offset=self._written[file], data=done))
        self._written[file] += count
        return count

    @override
    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        path = self._paths[fd]
        kind = "sync directory" if path.is_dir() else "sync file"
        self.log.append(Operation(kind, path, file=self._names.get(path, -1)))

    @override
    def rename(self, src: Path, dst: Path) -> None:
        super().rename(src, dst)
        self._names[dst] = self._names.pop(src)
        self.log.append(Operation("rename", src, target=dst, file=self._names[dst]))

    @override
    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.log.append(Operation("unlink", path, file=self._names.pop(path)))

    @override
    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        super().mkdir(path, mode)
        self.log.append(Operation("mkdir", path))

    def states_after(self, operations: int) -> set[State]:
        """Return every possible state of the disk if the power fails after that many operations."""
        log = self.log[:operations]
        made = _made(log)
        return {_state(outcome, made) for outcome in product(*_choices(log))}

    def lose_power(self, chance: Random, root: Path) -> None:
        """Replace the content of `root` by one of the states in which a disk may be found now, chosen at random."""
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
    """Recreate `state` under `to`, as it was under `away`."""
    directories, files = state
    for directory in sorted(directories):
        (to / directory.relative_to(away)).mkdir()
    for path, data in files:
        (to / path.relative_to(away)).write_bytes(data)


def _made(log: list[Operation]) -> set[Path]:
    return {operation.path for operation in log if operation.kind == "mkdir"}


def _choices(log: list[Operation]) -> list[list[Operation | None]]:
    """Return what may have become of each operation.

    It is done if a later fsync covers it. Otherwise it may also be missing, and a write may be done in part.
    """
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
    """Apply the operations that took effect, in order; files in a directory that was not made are lost."""
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
