"""Lines that are not entries: they are counted, and written to a file of their own, until there are too many."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from streamdedup.errors import StreamdedupError
from streamdedup.lists.build.entries import Entries
from streamdedup.named_files import kind_of
from streamdedup.snapshot.files import blaming
from streamdedup.units import counted

SHOWN_BYTES = 300  # bytes of a bad line that are written
FIRST_MAX = 5  # bad lines that a message names
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_INSTEAD = "name another file by --rejects"


class Rejects:
    """Up to `most` bad lines. The file at `path` is created with the first of them. It holds keys, so its mode is 0600.

    Each of its lines has, separated by tabs: the input, the line number, the reason, and the first 300 bytes of the
    line.
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path, self._most = path, most
        self._file: BinaryIO | None = None
        self._first: list[str] = []
        self.count = 0

    def note(self, name: str, piece: Entries, bad: dict[int, str]) -> None:
        """Record the bad rows of a piece of the input `name`. StreamdedupError if there are now more than `most`."""
        for row, reason in bad.items():
            self.count += piece.takes.get(row, 1)
            number = int(piece.numbers[row])
            if len(self._first) < FIRST_MAX:
                self._first.append(f"{name} line {number:,}: {reason}")
            shown = (piece.lines[row] or b"")[:SHOWN_BYTES]
            with blaming("write", self.path, _INSTEAD):
                line = os.fsencode(f"{name}\t{number}\t{reason}\t")
                self._opened().write(line + shown + b"\n")
            if self.count > self._most:
                raise StreamdedupError(
                    f"more than {counted(self._most, 'line')} could not be read, so nothing was built; the first:"
                    f" {'; '.join(self._first)}; all found so far are in {self.path}; correct them, or raise --bad-max"
                )

    def summary(self) -> str:
        """Return a sentence for a person; empty if there were no bad lines."""
        if not self.count:
            return ""
        return f"{counted(self.count, 'bad line')}, written to {self.path}; the first: {self._first[0]}"

    @contextmanager
    def opened(self) -> Iterator["Rejects"]:
        """Close the file at the end. If all went well without a bad line, remove the file of an earlier build."""
        try:
            yield self
        finally:
            if self._file is not None:
                with blaming("write", self.path, _INSTEAD):
                    self._file.close()
        if not self.count and self.path.exists() and stat.S_ISREG(self.path.lstat().st_mode):
            with blaming("remove", self.path, _INSTEAD):
                self.path.unlink()

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._refuse_irregular()
            fd = os.open(self.path, _OPEN, 0o600)
            os.fchmod(fd, 0o600)
            self._file = os.fdopen(fd, "wb")
        return self._file

    def _refuse_irregular(self) -> None:
        with suppress(FileNotFoundError):
            if kind := kind_of(self.path.stat().st_mode):
                raise StreamdedupError(
                    f"cannot write {self.path}: it is {kind}, and must be a regular file; {_INSTEAD}"
                )
