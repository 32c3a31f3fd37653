"""The exact store of a list, while it is built: it gets its place only when it is whole and on disk.

It is put in place before its list, under the list's version. So the list in force always has its store, no matter which
process is killed, and when. The store of the previous list stays until the next build begins, for workers that still
start with that list.
"""

import fcntl
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from streamdedup.errors import SnapshotError, StreamdedupError
from streamdedup.keys.hashing import Digests
from streamdedup.lists.build.spill_files import INSTEAD, Spill
from streamdedup.lists.exact_store import rows_of
from streamdedup.lists.facts import Facts
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.progress import BuildProgress
from streamdedup.lists.rocks import rocks_errors, rocksdict, table_options
from streamdedup.lists.store_facts import FACTS, VERSION, Owner, Sized, StoreFacts, place_of
from streamdedup.snapshot import files

TABLE_ROWS_MAX = 1 << 25  # rows of one of RocksDB's files: some 800 MB
_WORK = ".building"
_KEPT = re.compile(r"CURRENT|IDENTITY|MANIFEST-\d+|\d+\.sst", re.ASCII)
_FULL = "make room on the disk, or " + INSTEAD


class StoreBuilder:
    """Takes the digests of all entries of the list that will be at `output`, and puts its store in place.

    As a context manager it locks the stores' directory, removes the leftovers of earlier builds, and at the end its own
    temporary files.
    """

    def __init__(self, output: Path) -> None:
        rocksdict()
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

    def publish(self, listed: KeyList, progress: BuildProgress) -> Path:
        """Write all digests taken, put them in place as the store of `listed`, and return its directory.

        SnapshotError if that fails.
        """
        made = self._work / "store"
        with rocks_errors("write", made, _FULL):
            entries = self._write(made, progress)
        with files.blaming("write", made, INSTEAD):
            facts = StoreFacts(Owner.of(listed), entries, _sealed(made))
        temporary = made / f"{FACTS}.tmp"
        files.publish(os, temporary, made / FACTS, iter([facts.text()]), INSTEAD)
        target = self.place / listed.version
        with files.blaming("put in place", target, INSTEAD):
            if target.exists():  # the same entries were built within the same second
                target.rename(self._work / "before")
            made.rename(target)
            files.sync_directory(os, self.place)
            files.sync_directory(os, self.place.parent)
        return target

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
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

    def _write(self, made: Path, progress: BuildProgress) -> int:
        """Write RocksDB's files; return the number of keys in them."""
        tables = _Tables(self._work)
        progress.begin("storing", None)
        for digests in self._spill.ascending():
            tables.add(digests)
            progress.advance(digests.nbytes, len(digests))
        tables.finish()
        rocks = rocksdict()
        rows = rocks.Rdict(str(made), table_options())
        moving = rocks.IngestExternalFileOptions()
        moving.set_move_files(True)
        if tables.paths:
            rows.ingest_external_file([str(path) for path in tables.paths], moving)
        rows.close()
        progress.end()
        return tables.rows


class _Tables:
    """RocksDB's files of sorted keys. Each has TABLE_ROWS_MAX rows, or up to one piece of digests more."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writer: Any = None
        self.paths: list[Path] = []
        self.rows = self._rows_here = 0

    def add(self, ascending: Digests) -> None:
        """Add digests (n, 2), ascending, that are all greater than those before."""
        if self._writer is None:
            self._writer = self._begun()
        writer = self._writer
        for keys in rows_of(ascending):
            for key in keys:
                writer[key] = b""
        self.rows += len(ascending)
        self._rows_here += len(ascending)
        if self._rows_here >= TABLE_ROWS_MAX:
            self.finish()

    def finish(self) -> None:
        """Close the file being written."""
        if self._writer is not None:
            self._writer.finish()
            self._writer = None

    def _begun(self) -> Any:  # noqa: ANN401 - rocksdict may not be installed
        path = self._directory / f"{len(self.paths):06d}.sst"
        writer = rocksdict().SstFileWriter(table_options())
        writer.open(str(path))
        self.paths.append(path)
        self._rows_here = 0
        return writer


def _sealed(made: Path) -> dict[str, Sized]:
    """Make the files of a closed store private to their owner and flush them to disk; return their sizes and checksums.

    It removes the files that only a writer needs: the lock; the logs, including that of writes, which is empty; and the
    options, because a reader sets its own.
    """
    found = {}
    for path in sorted(made.iterdir()):
        if not _KEPT.fullmatch(path.name):
            path.unlink()
            continue
        path.chmod(0o600)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        found[path.name] = Sized.of(path)
    return found


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
