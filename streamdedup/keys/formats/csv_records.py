"""Reads records of CSV out of lines, by Python's own reader in strict mode: a line with stray quotes is bad.

A record may span several lines. The name of the key's column, or its number, says which cell is the key.
"""

import csv
from collections.abc import Iterator
from typing import NamedTuple

from streamdedup.errors import ConfigError

NO_CSV = "the line is not CSV: its quotes do not match, or a field is too long"
TOO_SHORT = "the line has too few columns"
NOT_UTF8 = "the line is not UTF-8"


class CsvRecord(NamedTuple):
    """The `lines` that a record takes, and its cells, none if the line is blank; or the reason why it has none."""

    lines: list[bytes]
    cells: list[str]
    reason: str = ""


NO_RECORD = CsvRecord([], [])


class CsvRecords(Iterator[CsvRecord]):
    """The records of `lines`, which are without their newlines.

    A record that is longer than `bytes_max` has no cells, but `too_long` as its reason, and ends at that line.
    """

    def __init__(self, lines: Iterator[bytes], bytes_max: int, too_long: str) -> None:
        self._lines, self._too_long = _Lines(lines, bytes_max), too_long
        self._reader = csv.reader(self._lines, strict=True)

    def __next__(self) -> CsvRecord:
        self._lines.begin()
        try:
            return CsvRecord(self._lines.taken, next(self._reader))
        except csv.Error:
            return CsvRecord(self._lines.taken, [], NO_CSV)
        except _TooLongError:
            return CsvRecord(self._lines.taken, [], self._too_long)


class _TooLongError(Exception):
    """The record being read is too long."""


class _Lines(Iterator[str]):
    """The lines as text, in which bytes that are no UTF-8 are lone surrogates. `taken` are those of one record."""

    def __init__(self, lines: Iterator[bytes], bytes_max: int) -> None:
        self._lines, self._bytes_max = lines, bytes_max
        self.begin()

    def __next__(self) -> str:
        line = next(self._lines)
        self.taken.append(line)
        self._size_bytes += len(line) + 1
        if self._size_bytes > self._bytes_max + 1:
            raise _TooLongError
        return line.decode("utf-8", "surrogateescape") + "\n"

    def begin(self) -> None:
        """Begin a record with the next line."""
        self.taken: list[bytes] = []
        self._size_bytes = 0


def column_in(header: CsvRecord, name: str, option: str, of: str) -> int:
    """Return the index of the column that is called `name` in the first record, counted from 0.

    ConfigError, which names the `option` and what the line is `of`, if there is none or more than one. The record may
    be data, so no message quotes it.
    """
    names = [cell.removeprefix("\ufeff").strip() for cell in header.cells]  # a byte order mark
    if (found := names.count(name)) != 1:
        raise ConfigError(
            f"{option}: the first line of {of} has {found} columns with that name among {len(names)}; name one of its"
            " columns exactly as it is written there, or give its number"
        )
    return names.index(name)


def numbered(given: str, option: str) -> int | None:
    """Return the index of the column that is given by its number, counted from 1; None if it is given by its name."""
    if not given.isdecimal():
        return None
    if int(given) == 0:
        raise ConfigError(f"{option}: columns are counted from 1")
    return int(given) - 1


def cell_of(record: CsvRecord, column: int) -> tuple[bytes | None, str]:
    """Return the cell of a record in a column; or None and the reason why it has none."""
    if record.reason:
        return None, record.reason
    if column >= len(record.cells):
        return None, TOO_SHORT
    cell = record.cells[column]
    try:
        return cell.encode(), ""
    except UnicodeEncodeError:
        return None, NOT_UTF8
