"""The entries of an input, read a second time, by other code than the build: for `--check`, so a fault of one is seen.

It is simple on purpose: one line after the other, by Python's own files, `gzip` and `json`, and a pattern for CSV. It
shares no code with the build's readers but the unpacking of zstd.
"""

import gzip
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from streamdedup.lists.build.inputs import Input

# A record of more lines is read as one of a single line. A note beside an entry may have many.
RECORD_LINES_MAX = 1_000_000
_MARK = b"\xef\xbb\xbf"
_BLANKS = bytes(range(0x09, 0x0E)) + bytes(range(0x1C, 0x21))  # what is no entry, nor beside one
_QUOTED = r'"((?:[^"]|"")*)"'


class SecondReading(NamedTuple):
    """An entry, and the number of its line, from 1.

    `within` is the number of the line at which a record of several lines begins, if this line alone is one, too; else
    0. Such an entry was swallowed if it is not a part of that record on purpose.
    """

    number: int
    cell: bytes
    within: int = 0


def read_again(given: Input) -> Iterator[SecondReading]:
    """Yield what looks like an entry, without comments and blank lines. What cannot be read is left out."""
    lines = _lines(given)
    match given.format:
        case "csv":
            yield from _of_csv(lines, given.column, given.separator)
        case "jsonl":
            for number, line in lines:
                if (cell := _of_json(line, given.field)) is not None:
                    yield SecondReading(number, cell)
        case _:
            for number, line in lines:
                if not line.startswith(b"#"):
                    yield SecondReading(number, line)


def _lines(given: Input) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(_bytes(given), 1):
        text = line.removeprefix(_MARK) if number == 1 else line
        if (found := text.removesuffix(b"\n").removesuffix(b"\r")).strip(_BLANKS):
            yield number, found


def _bytes(given: Input) -> Iterator[bytes]:
    if given.packing == "zstd":
        held = b""
        for chunk in given.chunks():
            *whole, held = (held + chunk).split(b"\n")
            yield from (line + b"\n" for line in whole)
        yield held
        return
    path = Path(given.name)
    with gzip.open(path) if given.packing == "gzip" else path.open("rb") as file:
        yield from file


def _of_json(line: bytes, path: str) -> bytes | None:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    for name in _names(path):
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    if isinstance(found, str):
        return found.encode(errors="surrogatepass")
    is_number = isinstance(found, int) and not isinstance(found, bool)
    return str(found).encode() if is_number else None


def _names(path: str) -> list[str]:
    if not path.startswith("/"):
        return path.split(".")
    return [name.replace("~1", "/").replace("~0", "~") for name in path[1:].split("/")]


def _of_csv(
    lines: Iterable[tuple[int, bytes]], column: str, separator: str
) -> Iterator[SecondReading]:
    records = _records(lines, _reader(separator))
    at = int(column) - 1 if column.isdecimal() else None
    width = 0
    for number, cells, within in records:
        if at is None:
            at = [cell.strip() for cell in cells].index(column)
            continue
        width = width or len(cells)
        if at < len(cells) and cells[at].strip() and (not within or len(cells) == width):
            yield SecondReading(number, cells[at].encode("utf-8", "surrogateescape"), within)


def _records(
    lines: Iterable[tuple[int, bytes]], parted: Callable[[str], list[str] | None]
) -> Iterator[tuple[int, list[str], int]]:
    """Yield the number, the cells and `within` of each record, and of each line in a record that is one by itself."""
    waiting, source = deque[tuple[int, str]](), iter(lines)
    while begun := waiting.popleft() if waiting else _next(source):
        number, text = begun
        if (cells := parted(text)) is not None:
            yield number, cells, 0
            continue
        # A quote is open: take lines until the quotes are even.
        used, quotes = list[tuple[int, str]](), text.count('"')
        while quotes % 2 and len(used) < RECORD_LINES_MAX:
            following = waiting.popleft() if waiting else _next(source)
            if following is None:
                break
            used.append(following)
            quotes += following[1].count('"')
        cells = None if quotes % 2 else parted("\n".join([text, *(each for _, each in used)]))
        if cells is None:  # nothing closes it: its other lines are records of their own
            waiting.extendleft(reversed(used))
            continue
        yield number, cells, 0
        for inner, line in used:
            if (alone := parted(line)) is not None:
                yield inner, alone, number


def _next(source: Iterator[tuple[int, bytes]]) -> tuple[int, str] | None:
    number, line = next(source, (0, b""))
    return (number, line.decode("utf-8", "surrogateescape")) if number else None


def _reader(separator: str) -> Callable[[str], list[str] | None]:
    """Return what parts a text at separators outside of quotes, or returns None if its quotes do not match."""
    apart = re.escape(separator)
    cell = re.compile(rf'(?:{_QUOTED}|((?:[^"{apart}][^{apart}]*)?))(?:{apart}|\Z)')

    def parted(text: str) -> list[str] | None:
        cells, at = list[str](), 0
        while True:
            if (found := cell.match(text, at)) is None:
                return None
            quoted, plain = found.groups()
            cells.append(plain if quoted is None else quoted.replace('""', '"'))
            at = found.end()
            if not found[0].endswith(separator):
                return cells

    return parted
