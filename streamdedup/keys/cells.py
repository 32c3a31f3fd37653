"""Passes over a column: by a kernel, in short calls; or cell by cell, for the cells that a kernel cannot read."""

from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any, TypeVar

import numpy as np

from streamdedup.errors import MalformedError
from streamdedup.events import Column, HeaderColumn, Integers
from streamdedup.keys.hashing import ROWS_A_CALL, Bytes, frozen

Cell = TypeVar("Cell")

BYTES_A_STEP = 1 << 20  # copied while a thread holds the GIL: 0.4 ms


def located(column: Column, fill: Callable[..., int]) -> Column:
    """Return where in each cell of `column` a kernel finds what it looks for, over the same buffer.

    `fill` takes the buffer, the starts and sizes of some cells, and the arrays of starts and sizes that it
    writes. It returns how many rows it has done, at least one.
    """
    buffer = frozen(np.frombuffer(column.buffer, dtype=np.uint8), np.uint8)
    starts, sizes = np.empty((2, len(column)), dtype=np.int64)
    at = 0
    while at < len(starts):
        part = slice(at, at + ROWS_A_CALL)
        cells = frozen(column.starts[part], np.int64), frozen(column.sizes[part], np.int64)
        at += fill(buffer, *cells, starts[part], sizes[part])
    return Column(column.buffer, starts, sizes)


def completed(
    found: Column, asked: Integers, read: Callable[[Any], bytes], cells: Column | HeaderColumn
) -> tuple[Column, dict[int, str]]:
    """Return `found` with the keys that `read` makes of `cells` in the rows `asked`.

    The second result has the reason for each of these rows that has no key, as that of `each`.
    """
    if not len(asked):
        return found, {}
    answers, reasons = each(read, cells.take(asked))
    return found.replaced(asked, answers), {int(asked[row]): why for row, why in reasons.items()}


def each(read: Callable[[Cell], bytes], cells: Iterable[Cell]) -> tuple[Column, dict[int, str]]:
    """Return the key that `read` makes of every cell, and the reason for each cell that has none.

    If `read` raises MalformedError, the key is a null. The reasons are by row, ascending.
    """
    keys: list[bytes | None] = []
    malformed: dict[int, str] = {}
    for row, cell in enumerate(cells):
        try:
            keys.append(read(cell))
        except MalformedError as reason:
            keys.append(None)
            malformed[row] = str(reason)
    return Column.of(keys), malformed


def as_bytes(parts: Iterable[Bytes]) -> bytes:
    """Return `parts`, arrays of bytes, as one. Between two steps of the copy, other threads get the GIL."""
    joined = BytesIO()
    for part in parts:
        for at in range(0, len(part), BYTES_A_STEP):
            joined.write(part[at : at + BYTES_A_STEP].data)
    return joined.getvalue()
