"""The entries of an input, piece by piece, and the reasons why other lines have none."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamdedup.events import Column, Integers
from streamdedup.lists.build.blocks import LINE_BYTES_MAX

TOO_LONG = f"the line is longer than {LINE_BYTES_MAX:,} bytes"


@dataclass(frozen=True, slots=True)
class Entries:
    """One piece of an input, as rows: each entry's text, null or empty if there is none, and the lines it came from.

    `numbers`, shape (n,), are the numbers of their first lines, from 1. `bad` maps a row to the reason why it has no
    entry, in ascending order, and `takes` those that count as more bad lines than their `lines`, or as fewer, to their
    number. `within` maps the line of a record to the number of lines within it that could be records by themselves.
    Beside the rows there were so many `blank` lines and comments, of which some hold `at_signs`.
    """

    cells: Column
    lines: Column
    numbers: Integers
    bad: dict[int, str]
    takes: Mapping[int, int] = field(default_factory=dict)
    within: Mapping[int, int] = field(default_factory=dict)
    blank: int = 0
    at_signs: int = 0


def first_bytes(column: Column) -> npt.NDArray[np.uint8]:
    """Return the first byte of each row, shape (n,), dtype uint8; 0 if the row is empty or null."""
    raw = np.frombuffer(column.buffer, dtype=np.uint8)
    found = np.zeros(len(column), dtype=np.uint8)
    rows = np.flatnonzero(column.sizes > 0)
    found[rows] = raw[column.starts[rows]]
    return found


def with_byte(column: Column, byte: bytes) -> npt.NDArray[np.bool_]:
    """Return which rows, shape (n,), hold the byte."""
    if byte not in column.buffer:
        return np.zeros(len(column), dtype=np.bool_)
    there = np.frombuffer(column.buffer, dtype=np.uint8) == ord(byte)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(there)))
    counts: Integers = before[column.starts + np.maximum(column.sizes, 0)] - before[column.starts]
    return np.greater(counts, 0)


def is_utf8(text: bytes) -> bool:
    """Return whether `text` can be decoded."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
