"""Lines that are no entries: counted, and written to a file of their own, until there are too many of them."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from streamdedup.errors import StreamdedupError
from streamdedup.lists.build.entries import Entries
from streamdedup.snapshot.files import blaming
from streamdedup.units import counted

SHOWN_BYTES = 300  # of a line
FIRST_MAX = 5  # told in a message
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_INSTEAD = "name another file by --rejects"


class Rejects:
    """Up to `most` bad lines. The file at `path`, for its owner only, is there if one came; it holds keys.

    Each of its lines is: input, number of the line, reason, the line's first 300 bytes as they were; by tabs.
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path, self._most = path, most
        self._file: BinaryIO | None = None
        self._first: list[str] = []
        self.count = 0

    def note(self, name: str, piece: Entries, bad: dict[int, str]) -> None:
        """Those of a piece of the input `name`, by row. StreamdedupError once there are more than may be."""
        for row, reason in bad.items():
            self.count += 1
            number = int(piece.numbers[row])
            if len(self._first) < FIRST_MAX:
                self._first.append(f"{name} line {number:,}: {reason}")
            shown = (piece.lines[row] or b"")[:SHOWN_BYTES]
            with blaming("write", self.path, _INSTEAD):
                told = os.fsencode(f"{name}\t{number}\t{reason}\t")
                self._opened().write(told + shown + b"\n")
            if self.count > self._most:
                raise StreamdedupError(
                    f"more than {counted(self._most, 'line')} could not be read, so nothing was built; the first:"
                    f" {'; '.join(self._first)}; all that were met are in {self.path}; mend them, or raise --bad-max"
                )

    def told(self) -> str:
        """For a person; empty where there were none."""
        if not self.count:
            return ""
        return f"{counted(self.count, 'bad line')}, written to {self.path}; the first: {self._first[0]}"

    @contextmanager
    def opened(self) -> Iterator["Rejects"]:
        """Closes the file; where all went well without a bad line, the file of a build before is removed."""
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
            fd = os.open(self.path, _OPEN, 0o600)
            os.fchmod(fd, 0o600)
            self._file = os.fdopen(fd, "wb")
        return self._file
