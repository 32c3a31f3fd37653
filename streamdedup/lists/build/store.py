"""The exact store of a list, while it is built: it gets its place only when it is whole and on disk.

It is put in place before its list, under the list's version. So the list in force always has its store, no matter which
process is killed, and when. The store of the previous list stays until the next build begins, for workers that still
start with that list.
"""

import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from streamdedup.errors import SnapshotError, StreamdedupError
from streamdedup.keys.hashing import Digests
from streamdedup.lists.build.spill_files import INSTEAD, Spill
from streamdedup.lists.exact_store import VERSION, Owner, place_of
from streamdedup.lists.facts import Facts
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.sorted_digests import ROW
from streamdedup.progress import Progress
from streamdedup.snapshot import files
from streamdedup.snapshot.format import pieces
from streamdedup.snapshot.header import DamagedFileError, Header

_WORK = ".building"


class StoreBuilder:
    """Takes the digests of all entries of the list that will be at `output`, and puts its store in place.

    As a context manager it locks the stores' directory, removes the leftovers of earlier builds, and at the end its own
    temporary files.
    """

    def __init__(self, output: Path) -> None:
        self._output, self.place = output, place_of(output)
        self._work = self.place / _WORK
        self._spill = Spill(self._work)
        self._lock = -1

    def __enter__(self) -> Self:
        with files.blaming("make", self.place, INSTEAD):
            self.place.mkdir(0o700, exist_ok=True)
            self._lock = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._take_lock()
            with files.blaming("clean up", self.place, INSTEAD):
                self._clean_up(_version_at(self._output))
                self._work.mkdir(0o700)
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        with suppress(OSError):  # the directory is not empty if it holds a store
            self.place.rmdir()
        os.close(self._lock)

    def add(self, digests: Digests) -> None:
        """Take the rows of `digests` (n, 2), of addresses or of domains."""
        self._spill.add(digests)

    def publish(self, listed: KeyList, progress: Progress) -> Path:
        """Write all digests taken, put them in place as the store of `listed`, and return its path.

        SnapshotError if that fails.
        """
        progress.begin("storing", None)
        with (
            files.blaming("write", self._work, INSTEAD),
            (self._work / "sorted").open("w+b") as rows,
        ):
            for digests in self._spill.ascending():
                rows.write(digests.astype("<u8").tobytes())
                progress.advance(digests.nbytes, len(digests))
            rows.flush()
            target = self.place / listed.version
            content = _content(Owner.of_list(listed.header()), rows.fileno(), rows.tell())
            files.publish(os, self._work / "store", target, content, INSTEAD)
            files.sync_directory(os, self.place.parent)
        progress.end()
        return target

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(self._lock), self.place.stat()):
                raise FileNotFoundError  # the build that had the lock removed the directory
        except OSError:
            raise SnapshotError(
                f"another process is building the list of {self.place}; nothing was written; wait until it ends, or"
                " stop it"
            ) from None

    def _clean_up(self, in_force: str | None) -> None:
        """Remove what a killed build left, and, if the version `in_force` is known, the stores of other versions.

        It goes by their names, because a half-removed store no longer describes itself. Everything else in the
        directory is not ours, and stays.
        """
        for path in self.place.iterdir():
            old = in_force is not None and VERSION.fullmatch(path.name) and path.name != in_force
            if path.name == _WORK or old:
                _remove(path)


class _SortedFile:
    """The bytes of an open file, of which each slice is read when it is asked for."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __getitem__(self, part: slice) -> bytes:
        found = os.pread(self._fd, part.stop - part.start, part.start)
        if len(found) != part.stop - part.start:
            raise DamagedFileError("the sorted digests were cut short while they were copied")
        return found


def _content(owner: Owner, fd: int, size_bytes: int) -> files.Content:
    """Yield the store of `owner` in pieces; its digests, ascending, are the first `size_bytes` bytes of the file."""
    of_store = owner.header(size_bytes // ROW.itemsize)
    header = Header(
        filter=of_store, buffer_sizes=(size_bytes,), saved_at=time.time(), writer=files.writer()
    )
    return pieces(header, [_SortedFile(fd)], lambda: (of_store, 0))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()  # the target of a link is not ours


def _version_at(output: Path) -> str | None:
    """Return the version of the list that is there now; None if there is none, or if it cannot be read at the moment.

    An unreadable list may become readable again, so its store must stay.
    """
    try:
        with files.reading(output, mmap=True, verify=False) as reader:
            return Facts.from_header(reader.header.filter).version
    except StreamdedupError:
        return None
