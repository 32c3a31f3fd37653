"""Headers as the wire has them, left where they are: read where somebody asks for them, or found by a kernel."""

from collections.abc import Sequence
from functools import partial
from typing import overload

import numpy as np

from streamdedup.events import NULL, Column, HeaderColumn, Headers, Integers
from streamdedup.kafka import walking
from streamdedup.kafka.wire import read_headers
from streamdedup.keys import cells
from streamdedup.keys.hashing import frozen

REPLACEMENT = "\ufffd"  # what is read for bytes of a name that are no UTF-8


class RawHeaders(HeaderColumn):
    """The headers of each event: cells of `column` begin with their count, as behind the value of a record."""

    def __init__(self, column: Column) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, at: int) -> Headers: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Headers]: ...
    def __getitem__(self, at: int | slice) -> Headers | Sequence[Headers]:
        if isinstance(at, slice):
            return self.take(at)
        start, size = int(self._column.starts[at]), int(self._column.sizes[at])
        return read_headers(self._column.buffer, start, start + size)

    def take(self, rows: Integers | slice) -> "RawHeaders":
        """The headers of `rows`, over the same buffer."""
        return RawHeaders(self._column.take(rows))

    def located(self, name: str) -> Column:
        """As `HeaderColumn.located`: found by a kernel, which tells no null header from one that is missing."""
        wanted = name.encode("utf-8", "surrogatepass")
        if REPLACEMENT in wanted.decode(errors="replace"):  # the name of many, or of none
            count = len(self)
            return Column(b"", np.zeros(count, np.int64), np.full(count, NULL, np.int64))
        name_bytes = frozen(np.frombuffer(wanted, dtype=np.uint8), np.uint8)
        return cells.located(self._column, partial(walking.last_header, name_bytes))
