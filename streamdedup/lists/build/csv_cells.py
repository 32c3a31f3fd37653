"""Read entries from one column of CSV.

A record may span several lines, up to LINE_BYTES_MAX bytes in all. Messages name it by its first line's number.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from streamdedup.events import Column
from streamdedup.keys.formats.csv_records import (
    NO_RECORD,
    CsvRecords,
    cell_of,
    column_in,
    numbered,
)
from streamdedup.lists.build.blocks import LINE_BYTES_MAX, Block
from streamdedup.lists.build.entries import TOO_LONG, Entries
from streamdedup.lists.build.inputs import CHUNK_BYTES, Input


@dataclass
class _Piece:
    """The entries read so far; they become a column when there are enough of them."""

    cells: list[bytes | None] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    size_bytes: int = 0

    def add(self, cell: bytes | None, reason: str, line: bytes, number: int) -> None:
        """Add the cell of the record that begins with this line, or the reason why it has none."""
        if reason:
            self.bad[len(self.cells)] = reason
        self.cells.append(cell)
        self.lines.append(line)
        self.numbers.append(number)
        self.size_bytes += len(line) + len(cell or b"") + 1

    def entries(self) -> Entries:
        """Return the entries as columns."""
        numbers = np.array(self.numbers, dtype=np.int64)
        return Entries(Column.of(self.cells), Column.of(self.lines), numbers, self.bad)


def csv_entries(given: Input, blocks: Iterable[Block]) -> Iterator[Entries]:
    """Yield the cells of the column that `given` names; not its name in the header line."""
    lines = (line or b"" for block in blocks for line in block.lines)
    records, number = CsvRecords(lines, LINE_BYTES_MAX, TOO_LONG), 1
    option = f"--column {given.column}"
    column = numbered(given.column, option)
    if column is None:
        header = next(records, NO_RECORD)
        column, number = column_in(header, given.column, option, given.name), 1 + len(header.lines)
    piece = _Piece()
    for record in records:
        if record.cells or record.reason:
            cell, reason = cell_of(record, column)
            blank = cell is not None and not cell.decode().strip()
            piece.add(b"" if blank else cell, reason, record.lines[0], number)
        number += len(record.lines)
        if piece.size_bytes > CHUNK_BYTES:
            yield piece.entries()
            piece = _Piece()
    yield piece.entries()
