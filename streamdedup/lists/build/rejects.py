"""Lines that are not entries: counted to the end by their reasons, and written to a file of their own.

A list of which more lines were left out than accepted is not built.
"""

import os
import stat
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from streamdedup.errors import StreamdedupError
from streamdedup.events import Integers
from streamdedup.keys.formats.csv_records import swallowed
from streamdedup.keys.formats.json_kinds import without_place
from streamdedup.lists.build.entries import Entries
from streamdedup.named_files import kind_of
from streamdedup.snapshot.files import blaming
from streamdedup.units import counted

SHOWN_BYTES = 300  # bytes of a bad line that are written
WRITTEN_MAX = 1_000_000  # bad lines that are written; all are counted
FIRST_MAX = 5  # bad lines that a message names
REASONS_MAX, REASONS_SHOWN = 1_000, 3
SHARE_MAX = 100  # without --bad-max, one line in so many may be bad
_OTHER = "other reasons"
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_INSTEAD = "name another file by --rejects"


class Rejects:
    """The bad lines, of which `most` are accepted; None: one in SHARE_MAX of all lines.

    The file at `path` is created with the first of them. It holds keys, so its mode is 0600. Each of its lines has,
    separated by tabs: the input, the line number, the reason, and the first 300 bytes of the line. Of a record that is
    bad as a whole it has each line.
    """

    def __init__(self, path: Path, most: int | None = None) -> None:
        self.path, self._most = path, most
        self._file: BinaryIO | None = None
        self._first: list[str] = []
        self._reasons = Counter[str]()
        self._numbers = defaultdict[str, "array[int]"](lambda: array("q"))
        self.count = self._lines = self._written = self._within = 0
        self._first_within = ""

    def note(self, name: str, piece: Entries, bad: dict[int, str]) -> None:
        """Record the bad rows of a piece of the input `name`, and how many lines the piece has."""
        self._lines += len(piece.numbers)
        for number, swallowed_lines in piece.within.items():
            self._within += swallowed_lines
            self._first_within = (
                self._first_within
                or f"{name} line {number + 1:,}, in the record at line {number:,}"
            )
        for row, reason in bad.items():
            number, lines = int(piece.numbers[row]), (piece.lines[row] or b"").split(b"\n")
            takes = piece.takes.get(row, len(lines))
            self.count += takes
            self._lines += takes - 1
            self._numbers[name].extend(range(number, number + max(takes, len(lines))))
            what = without_place(reason)
            known = what in self._reasons or len(self._reasons) < REASONS_MAX
            self._reasons[what if known else _OTHER] += takes
            if len(self._first) < FIRST_MAX:
                self._first.append(f"{name} line {number:,}: {reason}")
            self._write(name, number, reason, lines)

    def _write(self, name: str, number: int, reason: str, lines: Sequence[bytes]) -> None:
        """Write each of the `lines` of a record, while there are not too many."""
        with blaming("write", self.path, _INSTEAD):
            for at, line in enumerate(lines[: max(0, WRITTEN_MAX - self._written)], number):
                begun = os.fsencode(f"{name}\t{at}\t{reason}\t")
                self._opened().write(begun + line[:SHOWN_BYTES] + b"\n")
        self._written += len(lines)

    def refuse_too_many(self) -> None:
        """Raise StreamdedupError if more lines are bad than are accepted. Called when all have been read."""
        if not self.accepts(0):
            limit = f"{self._limit:,} are accepted{' (1 %)' if self._most is None else ''}"
            raise StreamdedupError(
                f"{self._left_out()}; {limit}, so nothing was built; the first: {'; '.join(self._first)};"
                f" {self._where()}; correct them, or accept them by --bad-max {self.count}"
            )

    def accepts(self, more: int) -> bool:
        """Return whether so many more lines may be bad."""
        return self.count + more <= self._limit

    @property
    def _limit(self) -> int:
        return self._lines // SHARE_MAX if self._most is None else self._most

    def summary(self) -> str:
        """Return a sentence for a person; empty if there were no bad lines."""
        if not self.count:
            return ""
        return f"{self._left_out()}; {self._where()}; the first: {self._first[0]}"

    def has(self, name: str, numbers: Integers) -> Integers:
        """Return the positions in `numbers` (n,) of those lines of the input `name` that are bad."""
        bad = np.frombuffer(self._numbers[name], dtype=np.int64)
        return np.flatnonzero(np.isin(numbers, bad))

    def swallowed(self) -> str:
        """Return what to say of lines that were read as parts of records; empty if there are none."""
        return swallowed(self._within, self._first_within) if self._within else ""

    def _left_out(self) -> str:
        most = self._reasons.most_common(REASONS_SHOWN)
        reasons = [f"{reason} ({count:,})" for reason, count in most]
        if more := self.count - sum(count for _, count in most):
            reasons.append(f"{_OTHER} ({more:,})")
        share = self.count / max(1, self._lines)
        lines = f"{counted(self.count, 'bad line')} of {self._lines:,} ({share:.2%})"
        return f"{lines} left out: {'; '.join(reasons)}"

    def _where(self) -> str:
        if self._written > WRITTEN_MAX:
            return f"the first {WRITTEN_MAX:,} are in {self.path}"
        if again := max(0, self.count - self._written):
            return (
                f"they are in {self.path}, but for {again:,} that were read again, each as a record"
            )
        return f"they are in {self.path}"

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
