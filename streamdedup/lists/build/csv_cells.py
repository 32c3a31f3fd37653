"""Read entries from one column of CSV, by Python's own reader in strict mode: a line with stray quotes is bad.

A record may span several lines, up to LINE_BYTES_MAX bytes in all. Messages name it by its first line's number.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from streamdedup.errors import ConfigError
from streamdedup.events import Column
from streamdedup.lists.build.blocks import LINE_BYTES_MAX, Block
from streamdedup.lists.build.entries import NOT_UTF8, TOO_LONG, Entries
from streamdedup.lists.build.inputs import CHUNK_BYTES, Input

NO_CSV = "the line is not CSV: its quotes do not match, or a field is too long"
TOO_SHORT = "the line has too few columns"


class _TooLongError(Exception):
    """The record being read is longer than a line may be."""


class _Lines:
    """The lines of `blocks` as text. `first` is the first line of the record being read, `number` its number."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._lines = (line or b"" for block in blocks for line in block.lines)
        self._size_bytes = self.count = 0
        self.first, self.number = b"", 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.count += 1
        self._size_bytes += len(line) + 1
        if not self.number:
            self.first, self.number = line, self.count
        if self._size_bytes > LINE_BYTES_MAX + 1:
            raise _TooLongError
        return line.decode("utf-8", "surrogateescape") + "\n"

    def begin(self) -> None:
        """Begin a record: its first line is the next line."""
        self._size_bytes = self.number = 0


@dataclass
class _Piece:
    """The entries read so far; they become a column when there are enough of them."""

    cells: list[bytes | None] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    size_bytes: int = 0

    def add(self, cell: bytes | None, reason: str, lines: _Lines) -> None:
        """Add the cell of the record that `lines` has just read, or the reason why it has none."""
        if reason:
            self.bad[len(self.cells)] = reason
        self.cells.append(None if reason else cell)
        self.lines.append(lines.first)
        self.numbers.append(lines.number)
        self.size_bytes += len(lines.first) + len(cell or b"") + 1

    def entries(self) -> Entries:
        """Return the entries as columns."""
        numbers = np.array(self.numbers, dtype=np.int64)
        return Entries(Column.of(self.cells), Column.of(self.lines), numbers, self.bad)


def csv_entries(given: Input, blocks: Iterable[Block]) -> Iterator[Entries]:
    """Yield the cells of the column that `given` names; not its name in the header line."""
    lines = _Lines(blocks)
    reader = csv.reader(lines, strict=True)
    column = _column(given, reader)
    piece = _Piece()
    for cell, reason in _cells(reader, lines, column):
        piece.add(cell, reason, lines)
        if piece.size_bytes > CHUNK_BYTES:
            yield piece.entries()
            piece = _Piece()
    yield piece.entries()


def _column(given: Input, reader: Iterator[list[str]]) -> int:
    """Return the index of the column, counted from 0; `given.column` is its name, or its number, counted from 1.

    A name is looked up in the first line. That line may be data, so no message quotes it.
    """
    if given.column.isdecimal():
        if int(given.column) == 0:
            raise ConfigError("--column 0: columns are counted from 1")
        return int(given.column) - 1
    try:
        header = [name.strip() for name in next(reader, [])]
    except (csv.Error, _TooLongError):
        header = []
    if (found := header.count(given.column)) != 1:
        raise ConfigError(
            f"--column {given.column}: the first line of {given.name} has {found} columns with that name among"
            f" {len(header)}; name one of its columns exactly as it is written there, or give its number"
        )
    return header.index(given.column)


def _cells(
    reader: Iterator[list[str]], lines: _Lines, column: int
) -> Iterator[tuple[bytes | None, str]]:
    """Yield the cell of each record that is not blank, or the reason why it has none."""
    while True:
        lines.begin()
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield None, NO_CSV
        except _TooLongError:
            yield None, TOO_LONG
        else:
            if record:
                yield _cell(record, column)


def _cell(record: list[str], column: int) -> tuple[bytes | None, str]:
    if column >= len(record):
        return None, TOO_SHORT
    cell = record[column]
    try:
        return (cell.encode() if cell.strip() else b""), ""
    except (
        UnicodeEncodeError
    ):  # the line was not UTF-8: `_Lines` decoded its bytes to lone surrogates
        return None, NOT_UTF8
