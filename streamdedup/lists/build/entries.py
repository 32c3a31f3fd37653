"""What stands in the lines of an input, piece by piece: its entries, and why a line that should have one has none."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamdedup.events import Column, Integers
from streamdedup.lists.build.blocks import LINE_BYTES_MAX

TOO_LONG = f"the line is longer than {LINE_BYTES_MAX:,} bytes"
NOT_UTF8 = "the line is not UTF-8"


@dataclass(frozen=True, slots=True)
class Entries:
    """Of a piece of an input, in rows: what each entry is, null or empty where there is none; the line it stands in.

    `numbers`, shape (n,), are those of the lines, from 1; `bad` has the reason by row, ascending.
    """

    cells: Column
    lines: Column
    numbers: Integers
    bad: dict[int, str]


def first_bytes(column: Column) -> npt.NDArray[np.uint8]:
    """The first byte of each row, shape (n,), 0 where it is empty or null."""
    raw = np.frombuffer(column.buffer, dtype=np.uint8)
    found = np.zeros(len(column), dtype=np.uint8)
    rows = np.flatnonzero(column.sizes > 0)
    found[rows] = raw[column.starts[rows]]
    return found


def is_utf8(text: bytes) -> bool:
    """Whether it could be decoded."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
