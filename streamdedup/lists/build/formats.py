"""From the lines of an input to its entries, by the input's format.

Blank lines have no entry. In text, lines that begin with # are comments and have none either. Empty cells of CSV and
empty fields of JSON are skipped.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from streamdedup.events import Column, Integers
from streamdedup.keys.extract import json_keys
from streamdedup.keys.formats.csv_records import NOT_UTF8
from streamdedup.keys.normalizers.ascii_text import trim_column
from streamdedup.lists.build.blocks import LINE_BYTES_MAX, Block, blocks
from streamdedup.lists.build.csv_cells import csv_entries
from streamdedup.lists.build.entries import TOO_LONG, Entries, first_bytes, is_utf8, with_byte
from streamdedup.lists.build.inputs import Input

_COMMENT, _NEWLINE = ord("#"), ord("\n")
_ODD = {
    b"\r": "the line has a carriage return before its end; if the file ends its lines so, convert it first, for example"
    " with: tr '\\r' '\\n'",
    b"\x00": "the line has a byte 0; if the file is UTF-16, convert it first, for example with: iconv -f UTF-16LE"
    " -t UTF-8",
}


def entries(given: Input, chunks: Iterable[bytes]) -> Iterator[Entries]:
    """Yield all entries of `chunks`, the bytes of the input `given`."""
    match given.format:
        case "csv":
            yield from csv_entries(given, chunks)
        case "jsonl":
            yield from (_of_json(block, given.field) for block in blocks(chunks))
        case _:
            yield from map(_of_text, blocks(chunks))


def _of_text(block: Block) -> Entries:
    odd = _odd(block.lines)
    comments = first_bytes(block.lines) == _COMMENT
    comments[list(odd)] = False  # such a comment may have swallowed entries
    rows = np.flatnonzero(~comments & ~_blank(block.lines))
    at_signs = (
        int(np.count_nonzero(with_byte(block.lines, b"@") & comments)) if comments.any() else 0
    )
    lines = block.lines.take(rows)
    bad = {at: odd[row] for at, row in enumerate(rows.tolist()) if row in odd} if odd else {}
    bad |= dict.fromkeys(_long(lines).tolist(), TOO_LONG)
    if not is_utf8(lines.buffer):
        for row, line in enumerate(lines):
            if row not in bad and not is_utf8(line or b""):
                bad[row] = NOT_UTF8
    bad = dict(sorted(bad.items()))
    cells = lines.nulled(np.array(list(bad), dtype=np.int64)) if bad else lines
    blank = len(block.lines) - len(rows)
    return Entries(cells, lines, block.first + rows, bad, blank=blank, at_signs=at_signs)


def _odd(lines: Column) -> dict[int, str]:
    """Return, for the rows that hold a byte that no text has within a line, what it says of the file."""
    raw = np.frombuffer(lines.buffer, dtype=np.uint8)
    limits = np.column_stack((lines.starts, lines.starts + lines.sizes)).ravel()
    bad = dict[int, str]()
    for byte, reason in _ODD.items():
        if byte not in lines.buffer or not len(lines):
            continue
        odd = np.append(raw == byte[0], False)
        if byte == b"\r":
            odd[:-2] &= raw[1:] != _NEWLINE
        found = np.logical_or.reduceat(odd, limits)[::2] & (lines.sizes > 0)
        bad |= dict.fromkeys(np.flatnonzero(found).tolist(), reason)
    return bad


def _of_json(block: Block, field: str) -> Entries:
    rows = np.flatnonzero(~_blank(block.lines))
    lines = block.lines.take(rows)
    long = _long(lines)
    cells, bad = json_keys((field,), lines.nulled(long))
    bad |= dict.fromkeys(long.tolist(), TOO_LONG)
    blank = len(block.lines) - len(rows)
    return Entries(cells, lines, block.first + rows, dict(sorted(bad.items())), blank=blank)


def _blank(lines: Column) -> npt.NDArray[np.bool_]:
    sizes = trim_column(lines).sizes
    return np.equal(sizes, 0)


def _long(lines: Column) -> Integers:
    return np.flatnonzero(lines.sizes > LINE_BYTES_MAX)
