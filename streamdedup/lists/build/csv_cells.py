"""Read entries from one column of CSV.

A record may take several lines, an entry may not. Messages name a record by its first line's number.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from streamdedup.events import Column
from streamdedup.keys.formats.csv_records import (
    NO_RECORD,
    CsvRecord,
    CsvRecords,
    cell_of,
    column_in,
    numbered,
    unclosed,
)
from streamdedup.keys.formats.texts import Lines
from streamdedup.lists.build.blocks import LINE_BYTES_MAX
from streamdedup.lists.build.entries import TOO_LONG, Entries
from streamdedup.lists.build.inputs import CHUNK_BYTES, Input


@dataclass
class _Piece:
    """The entries read so far; they become a column when there are enough of them."""

    cells: list[bytes | None] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    takes: dict[int, int] = field(default_factory=dict)
    within: dict[int, int] = field(default_factory=dict)
    blank: int = 0
    size_bytes: int = 0

    def add(self, record: CsvRecord, cell: bytes | None, reason: str) -> None:
        """Add the entry of a record, or the reason why it has none."""
        if reason:
            self.bad[len(self.cells)] = reason
            if record.takes != len(record.lines):
                self.takes[len(self.cells)] = record.takes
        if record.within:
            self.within[record.number] = record.within
        self.cells.append(cell)
        self.lines.append(b"\n".join(record.lines))
        self.numbers.append(record.number)
        self.size_bytes += len(self.lines[-1]) + len(cell or b"") + 1

    def entries(self) -> Entries:
        """Return the entries as columns."""
        numbers = np.array(self.numbers, dtype=np.int64)
        lines = Column.of(self.lines)
        cells = Column.of(self.cells)
        return Entries(cells, lines, numbers, self.bad, self.takes, self.within, self.blank)


def csv_entries(given: Input, chunks: Iterable[bytes]) -> Iterator[Entries]:
    """Yield the cells of the column that `given` names; not its name in the header line."""
    records = CsvRecords(Lines(_cut(chunks)), given.separator)
    column = _column(given, records)
    piece = _Piece()
    for record in records:
        if record.cells or record.reason:
            piece.add(record, *_entry(record, column))
        else:
            piece.blank += 1
        if piece.size_bytes > CHUNK_BYTES:
            yield piece.entries()
            piece = _Piece()
    yield piece.entries()


def refuse_unknown_column(given: Input) -> None:
    """ConfigError if `given` can be read again, and its first line does not have the column."""
    if given.format == "csv" and not given.is_read_once:
        with closing(given.chunks()) as chunks:
            _column(given, CsvRecords(Lines(_cut(chunks)), given.separator))


def _cut(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield `chunks`, with the end of each line of more than LINE_BYTES_MAX bytes cut off, so memory is bounded.

    If what is cut has an odd number of quotes, one is left: so the same records are open after that line.
    """
    held, is_odd = 0, False
    for chunk in chunks:
        line, newline, rest = chunk.partition(b"\n")
        kept = line[: max(0, LINE_BYTES_MAX + 1 - held)]
        held += len(kept)
        is_odd ^= line.count(b'"', len(kept)) & 1 == 1
        yield kept
        if newline:
            yield b'"\n' if is_odd else b"\n"
            yield rest
            held, is_odd = len(rest) - (rest.rfind(b"\n") + 1), False
    if is_odd:
        yield b'"'


def _column(given: Input, records: CsvRecords) -> int:
    """Return the index of the key's column, and let `records` know it. If it is given by name, read the header."""
    option = f"--column {given.column}"
    column = numbered(given.column, option)
    if column is None:
        header = next(records, NO_RECORD)
        column = column_in(header, given.column, option, given.name)
    records.columns = (column,)
    return column


def _entry(record: CsvRecord, column: int) -> tuple[bytes | None, str]:
    """Return the entry of a record, empty if its cell is blank; or None and the reason why it has none."""
    if max(map(len, record.lines)) > LINE_BYTES_MAX:  # it was cut
        return None, TOO_LONG
    cell, reason = cell_of(record, column)
    if cell is None:
        return None, reason
    if not cell.strip() and not cell.decode().strip():
        return b"", ""
    if b"\n" in cell:
        return None, f"an entry holds no line end; {unclosed(record.number, record.takes)}"
    return cell, ""
