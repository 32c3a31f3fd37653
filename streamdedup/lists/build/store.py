"""The exact store of a list while it is built: nobody sees it before it is whole, and on the disk.

It is in place before its list is, under the list's version: so the list in force has its store at every moment,
whatever is killed when. That of the list before stays until the next build begins, for those who still start with it.
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
from streamdedup.lists.exact_store import rows_of
from streamdedup.lists.facts import Facts
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.progress import BuildProgress
from streamdedup.lists.rocks import rocks_errors, rocksdict, table_options
from streamdedup.lists.build.spill_files import INSTEAD, Spill
from streamdedup.lists.store_facts import FACTS, VERSION, Owner, Sized, StoreFacts, place_of
from streamdedup.snapshot import files

TABLE_ROWS_MAX = 1 << 25  # of one of RocksDB's files: some 800 MB
_WORK = ".building"
_KEPT = re.compile(r"CURRENT|IDENTITY|MANIFEST-\d+|\d+\.sst", re.ASCII)
_FULL = "see that the disk has room, or " + INSTEAD


class StoreBuilder:
    """Takes the digests of all entries of the list that will be at `output`, and puts its store in place."""

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
        with suppress(OSError):  # it is not empty: a store is there
            self.place.rmdir()
        os.close(self._lock)

    def add(self, digests: Digests) -> None:
        """Take the rows of `digests` (n, 2), of addresses or of domains."""
        self._spill.add(digests)

    def publish(self, listed: KeyList, progress: BuildProgress) -> Path:
        """Put the store of all that was taken in place, as that of `listed`; SnapshotError where it cannot be."""
        made = self._work / "store"
        with rocks_errors("write", made, _FULL):
            entries = self._write(made, progress)
        with files.blaming("write", made, INSTEAD):
            facts = StoreFacts(Owner.of(listed), entries, _sealed(made))
        temporary = made / f"{FACTS}.tmp"
        files.publish(os, temporary, made / FACTS, iter([facts.text()]), INSTEAD)
        target = self.place / listed.version
        with files.blaming("put in place", target, INSTEAD):
            if target.exists():  # the same entries within the same second
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
                f"another process builds the list of {self.place}; nothing was written; let it end, or end it"
            ) from None

    def _clean_up(self, in_force: str | None) -> None:
        """Remove what a build that was killed had begun, and, if the version `in_force` is known, the stores of others.

        By their names: one that was half removed says nothing of itself any more; and what else lies there is not ours.
        """
        for path in self.place.iterdir():
            old = in_force is not None and VERSION.fullmatch(path.name) and path.name != in_force
            if path.name == _WORK or old:
                _remove(path)

    def _write(self, made: Path, progress: BuildProgress) -> int:
        """RocksDB's files; how many keys they hold."""
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
    """RocksDB's files of sorted keys, of TABLE_ROWS_MAX rows or a part of the digests more."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writer: Any = None
        self.paths: list[Path] = []
        self.rows = self._rows_here = 0

    def add(self, ascending: Digests) -> None:
        """Digests (n, 2) that are all above those before."""
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
        """Close the file that is being written."""
        if self._writer is not None:
            self._writer.finish()
            self._writer = None

    def _begun(self) -> Any:  # noqa: ANN401 - rocksdict may not be there
        path = self._directory / f"{len(self.paths):06d}.sst"
        writer = rocksdict().SstFileWriter(table_options())
        writer.open(str(path))
        self.paths.append(path)
        self._rows_here = 0
        return writer


def _sealed(made: Path) -> dict[str, Sized]:
    """The files of a store that is closed, for their owner alone, and on the disk.

    Gone is what only a writer needs: the lock, the logs, of writes, too, of which none came, and the options, for which
    a reader has its own.
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
        path.unlink()  # what a link leads to is not ours


def _version_at(output: Path) -> str | None:
    """That of the list which is there now; None where there is none that can be read, now: it may come back."""
    try:
        with files.reading(output, mmap=True, verify=False) as reader:
            return Facts.from_header(reader.header.filter).version
    except StreamdedupError:
        return None
