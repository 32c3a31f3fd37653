"""Finds the cells of a column in lines of plain CSV by a kernel: each line is a record, since none has a quote.

They are the cells that `csv_records` reads of the same lines, in a hundredth of its time.
"""

import csv

import numpy as np

from streamdedup.events import NULL, Column, Integers
from streamdedup.kernel import kernel
from streamdedup.keys.cells import pass_over
from streamdedup.keys.formats.csv_records import TOO_SHORT, CsvRecord, separated
from streamdedup.keys.words import Bytes

_NEWLINE, _RETURN = b"\n\r"


def is_plain(text: bytes, bounds: Integers) -> bool:
    """Return whether each of these whole lines is a record by itself, whatever comes before and after it."""
    returns = text.count(b"\r")
    if (
        b'"' in text
        or returns != text.count(b"\r\n")
        or np.diff(bounds).max() > csv.field_size_limit()
    ):
        return False
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def cells_of(
    text: bytes, bounds: Integers, separator: str, column: int
) -> tuple[Column, dict[int, str]]:
    """Return the cell of each line in a column, counted from 0, and the reason for each line that has none."""
    lines = Column(text, bounds[:-1], np.diff(bounds))
    starts, sizes = np.empty((2, len(lines)), dtype=np.int64)
    pass_over(lines, fill, starts, sizes, whole=(ord(separator), column))
    reasons = {}
    for row in (sizes < 0).nonzero()[0].tolist():
        line = text[bounds[row] : bounds[row + 1]].rstrip(b"\r\n")
        cells = line.decode().split(separator) if line else []
        reasons[row] = TOO_SHORT + separated(CsvRecord([line], cells, 0, 1))
    return Column(text, starts, sizes), reasons


def warm_up() -> None:
    """Compile the kernel or load it from the cache."""
    cells_of(b"\n", np.arange(2), ",", 0)


@kernel
def fill(
    text: Bytes,
    starts: Integers,
    sizes: Integers,
    separator: int,
    column: int,
    cell_starts: Integers,
    cell_sizes: Integers,
) -> int:
    """Write where the cell of each line is; its size is NULL if the line is blank, or has too few cells."""
    for row in range(starts.shape[0]):
        at, end = starts[row], starts[row] + sizes[row]
        if end > at and text[end - 1] == _NEWLINE:
            end -= 1
        if end > at and text[end - 1] == _RETURN:
            end -= 1
        left, is_blank = column, at == end
        while left > 0 and at < end:
            left -= text[at] == separator
            at += 1
        cell_starts[row], cell_sizes[row] = at, NULL
        if left == 0 and not is_blank:
            stop = at
            while stop < end and text[stop] != separator:
                stop += 1
            cell_sizes[row] = stop - at
    return len(starts)
