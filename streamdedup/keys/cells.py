"""Passes over a column: by a kernel, in short calls; or cell by cell, for the cells that a kernel cannot read."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from streamdedup.errors import MalformedError
from streamdedup.events import Column, Integers, concatenated
from streamdedup.keys.hashing import ROWS_A_CALL, Bytes, frozen

Cell = TypeVar("Cell")


def located(column: Column, fill: Callable[..., int]) -> Column:
    """Return where in each cell of `column` a kernel finds what it looks for, over the same buffer.

    `fill` is called by `pass_over`, and writes starts and sizes.
    """
    starts, sizes = np.empty((2, len(column)), dtype=np.int64)
    pass_over(column, fill, starts, sizes)
    return Column(column.buffer, starts, sizes)


def written(
    column: Column,
    fill: Callable[..., int],
    out: Bytes,
    *,
    whole: Sequence[object] = (),
) -> Column:
    """Return the text that a kernel makes of each cell of `column`, over a new buffer that has nothing else.

    `fill` is called by `pass_over`, with `out` and `end` before `whole`. It appends the texts to `out`, from `end[0]`
    on, and sets `end[0]` to the offset after them. It writes their starts and sizes.
    """
    starts, sizes = np.empty((2, len(column)), dtype=np.int64)
    end: Integers = np.zeros(1, dtype=np.int64)
    pass_over(column, fill, starts, sizes, whole=(out, end, *whole))
    return Column(concatenated([out[: end[0]].data]), starts, sizes)


def pass_over(
    column: Column,
    fill: Callable[..., int],
    *found: npt.NDArray[Any],
    whole: Sequence[object] = (),
) -> None:
    """Have a kernel write into `found`, of which each has a row for a cell of `column`.

    `fill` takes the buffer, the starts and sizes of some cells, all of `whole`, and the rows of `found` for these
    cells. It returns how many rows it has done, at least one. ValueError if it has done none, because the first of
    them does not lie in the buffer.
    """
    buffer = frozen(np.frombuffer(column.buffer, dtype=np.uint8), np.uint8)
    at = 0
    while at < len(column):
        part = slice(at, at + ROWS_A_CALL)
        cells = frozen(column.starts[part], np.int64), frozen(column.sizes[part], np.int64)
        done = fill(buffer, *cells, *whole, *(rows[part] for rows in found))
        if not done:
            raise ValueError(f"row {at} does not lie in a buffer of {len(buffer)} bytes")
        at += done


def completed(
    found: Column, asked: Integers, read: Callable[[Any], bytes], cells: Iterable[Any]
) -> tuple[Column, dict[int, str]]:
    """Return `found` with the keys that `read` makes of `cells`, which are those of the rows `asked`.

    The second result has the reason for each of these rows that has no key, as that of `each`.
    """
    if not len(asked):
        return found, {}
    answers, reasons = each(read, cells)
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
