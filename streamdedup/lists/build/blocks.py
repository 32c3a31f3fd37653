"""The lines of an input as columns: blocks of lines over one buffer, without an object for each line.

Lines are bytes; nothing is decoded. Memory holds one chunk and one line. A line longer than LINE_BYTES_MAX is cut, and
its length still shows that it was too long.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from streamdedup.events import Column
from streamdedup.keys.formats.texts import BYTE_ORDER_MARK, refuse_utf16

LINE_BYTES_MAX = 1 << 20
_NEWLINE, _RETURN = ord("\n"), ord("\r")


class Block(NamedTuple):
    """Consecutive lines without their line ends, and the number of the first, from 1."""

    lines: Column
    first: int


def blocks(chunks: Iterable[bytes]) -> Iterator[Block]:
    """Yield the lines of all `chunks`. A line of more than LINE_BYTES_MAX bytes is cut, but stays longer than that.

    ConfigError if they are UTF-16.
    """
    first = 1
    for text in _whole_lines(chunks):
        if first == 1:
            refuse_utf16(text)
        lines = _split(text.removeprefix(BYTE_ORDER_MARK) if first == 1 else text)
        yield Block(lines, first)
        first += len(lines)


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines, each without the newline of its last line."""
    held = b""
    for chunk in chunks:
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield held + head
            held = b""
        held += tail[: LINE_BYTES_MAX + 1 - len(held)]
    if held:
        yield held


def _split(text: bytes) -> Column:
    raw = np.frombuffer(text, dtype=np.uint8)
    newlines = np.flatnonzero(raw == _NEWLINE)
    starts = np.concatenate((np.zeros(1, np.int64), newlines + 1))
    ends = np.append(newlines, len(text))
    if _RETURN in text:
        last = raw[np.maximum(ends - 1, 0)]
        ends = ends - ((ends > starts) & (last == _RETURN))
    return Column(text, starts, ends - starts)
