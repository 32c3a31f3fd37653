"""Lines of text as events: read them in chunks, take the key of each, and hash it.

Lines are bytes; nothing is decoded but CSV, of which a record may take several lines and counts as one. Memory holds a
chunk, and a line or record of at most `texts.LINE_BYTES_MAX`.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.events import Column, Integers
from streamdedup.keys.extract import json_keys
from streamdedup.keys.formats.csv_column import cells_of, is_plain
from streamdedup.keys.formats.csv_records import (
    NO_RECORD,
    CsvRecord,
    CsvRecords,
    cell_of,
    column_in,
    numbered,
)
from streamdedup.keys.formats.line_column import bounds_of
from streamdedup.keys.formats.texts import BYTE_ORDER_MARK, NEWLINE, Lines, texts
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.keys.join import joined
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import Normalization, UrlRules
from streamdedup.keys.steps import drained
from streamdedup.named_files import can_be_read_again, open_stream
from streamdedup.units import quote

CHUNK_BYTES = 1 << 19
KEPT_BYTES = 16 << 20  # the arrays of a chunk take less
STDIN = "-"
RECORDS_MAX = 20_000  # in a chunk; each is some Python objects


class LineSource(Protocol):
    """The part of a binary file that reading needs."""

    def read1(self, size: int, /) -> bytes:
        """Return at most `size` bytes, as soon as there are any; empty at the end."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines in one `text`, with their `bounds` (n + 1,), and their `keys` (n,).

    `malformed` has the reason of each line that has no key. A record of several lines counts as one. `first` is the
    number of the first line, from 1. `is_header`: this is one line, without a key. `within` has the number of lines
    within a record that could be records (`CsvRecord.within`), by its row. `end` is the byte that ends a line; the last
    one of an input may have none.
    """

    text: bytes
    bounds: Integers
    keys: Column
    malformed: dict[int, str]
    first: int
    is_header: bool = False
    within: Mapping[int, int] = field(default_factory=dict)
    end: bytes = NEWLINE

    def __len__(self) -> int:
        return len(self.keys)

    def number(self, row: int) -> int:
        """Return the number of the line at which a row begins; of the row after the last, that of the next line."""
        ends = self.text.count(self.end, 0, int(self.bounds[row]))
        return self.first + ends + (row == len(self) and self.is_open)

    @property
    def is_open(self) -> bool:
        """Whether the last line has no end."""
        return not self.text.endswith(self.end)


LineReader = Callable[[LineSource], Iterator[Chunk]]


class LineDigests(NamedTuple):
    """Digests (m, 2) of the lines that have a key, and which lines these are, (n,)."""

    digests: Digests
    rows: npt.NDArray[np.bool_]


def line_reader(
    keys: Sequence[str],
    normalize: Normalization = "none",
    rules: UrlRules | None = None,
    separator: str | None = None,
    end: bytes = NEWLINE,
) -> LineReader:
    """Return what reads lines and their keys.

    Each of `keys` is "line", "json:FIELD" or "csv:COLUMN". FIELD is as in the configuration's `key.field`, and several
    are joined as there; of "json:[FIELD, FIELD]" the first counts that is neither missing nor null. COLUMN is the name
    of a column in the first line, which is then a header, or a number, counted from 1. `rules` are those of "url";
    `separator` is that of CSV, by default a comma, and `end` is the byte that ends a line. ConfigError if the keys do
    not fit.
    """
    if separator and not all(key.startswith("csv:") for key in keys):
        raise ConfigError(
            "--separator is for --key csv:COLUMN; give such a key, or delete the option"
        )
    normal = normalizer(normalize, rules)
    if set(keys) == {"line"}:
        return partial(_plain, normal.of_column if normal else None, end=end)
    if "line" in keys:
        raise ConfigError(
            "--key line is the whole line, so it cannot be combined with another key; delete one of them"
        )
    names = [_name(key) for key in keys]
    formats = {key.partition(":")[0] for key in keys}
    if len(formats) > 1:
        raise ConfigError(
            "--key json: and csv: are of lines of two formats; delete those of one format"
        )
    if formats == {"csv"}:
        if end != NEWLINE:
            raise ConfigError(
                "--key csv: is of records that end with a newline; delete --null or --delimiter"
            )
        columns = [numbered(name, f"--key csv:{name}") for name in names]
        return partial(_csv, names, columns, normal, separator or ",")
    take = partial(json_keys, list(map(_fields, names)), normalizer=normal)
    return partial(_plain, take, end=end)


def url_rules(
    normalize: str | None, names: Sequence[str] | None, ignored: Sequence[str] | None
) -> UrlRules | None:
    """Return the rules of `--url-rule` and `--url-ignore`; None without `--normalize url`.

    ConfigError if there are some all the same, or if a parameter cannot have such a name.
    """
    if normalize == "url":
        return UrlRules.of(ignored or (), **dict.fromkeys(names or (), True))
    for option, given in (("--url-rule", names), ("--url-ignore", ignored)):
        if given:
            raise ConfigError(
                f"{option} is for --normalize url; give --normalize url, or delete {option}"
            )
    return None


def all_lines(
    read: LineReader, sources: Iterable[AbstractContextManager[LineSource]]
) -> Generator[Chunk]:
    """Read one source after the other, each to its end. Lines are counted through all of them.

    Of all but the first, a byte order mark is left out, and so is the header. ConfigError if that is another one than
    the first.
    """
    header, before = b"", 0
    for number, opened_ in enumerate(sources, 1):
        last: Chunk | None = None
        with opened_ as source:
            for chunk in read(source):
                last = replace(chunk, first=before + chunk.first)
                if before and chunk.first == 1:
                    last = _unmarked(last)
                if chunk.is_header:
                    names = chunk.text.removeprefix(BYTE_ORDER_MARK).rstrip(b"\r\n")
                    if before and names != header:
                        raise ConfigError(
                            f"FILE {number}: its first line differs from that of the first FILE, so their records do"
                            " not have the same columns; give the number of the column if these lines are no headers"
                        )
                    header = names
                if not (before and chunk.is_header):
                    yield last
        before = last.number(len(last)) - 1 if last else before


def _unmarked(chunk: Chunk) -> Chunk:
    if not chunk.text.startswith(BYTE_ORDER_MARK):
        return chunk
    bounds = chunk.bounds.copy()
    bounds[0] = len(BYTE_ORDER_MARK)
    return replace(chunk, bounds=bounds)


def digests_of(chunk: Chunk, hash_: Hash) -> LineDigests:
    """Return the digests of the keys of a chunk."""
    rows, keys = np.ones(len(chunk), dtype=np.bool_), chunk.keys
    if chunk.malformed:
        rows[list(chunk.malformed)] = False
        keys = keys.take(np.flatnonzero(rows))
    return LineDigests(hash_.of_column(keys), rows)


def _plain(
    take: Callable[[Column], tuple[Column, dict[int, str]]] | None,
    source: LineSource,
    end: bytes = NEWLINE,
) -> Iterator[Chunk]:
    first = 1
    for text in texts(_chunks(source), end):
        bounds = bounds_of(text, end)
        starts, sizes = bounds[:-1].copy(), np.diff(bounds) - 1
        sizes[-1] += not text.endswith(end)
        if first == 1 and text.startswith(BYTE_ORDER_MARK):
            starts[0] += len(BYTE_ORDER_MARK)
            sizes[0] -= len(BYTE_ORDER_MARK)
        lines = Column(text, starts, sizes)
        keys, malformed = (lines, {}) if take is None else take(lines)
        yield Chunk(text, bounds, keys, malformed, first, end=end)
        first += len(lines)


whole_lines: LineReader = partial(_plain, None)
"""Reads lines that are the keys."""


def _csv(
    names: Sequence[str],
    numbers: Sequence[int | None],
    normal: Normalizer | None,
    separator: str,
    source: LineSource,
) -> Iterator[Chunk]:
    """Read records, whose keys are in the columns of these numbers, or, where a number is None, of these names."""
    lines = Lines(_chunks(source))
    records = CsvRecords(lines, separator)
    header = next(records, None) if None in numbers else NO_RECORD
    if header is None:
        return
    records.columns = columns = [
        column_in(header, name, f"--key csv:{name}", "the input") if number is None else number
        for name, number in zip(names, numbers, strict=True)
    ]
    if header.lines:
        text = _text(header.lines, ends_open=lines.ends_open)
        bounds = np.array([0, len(text)])
        yield Chunk(text, bounds, Column.of([None]), {0: "a header"}, 1, is_header=True)
    while lines.are_waiting or lines.ahead():
        if not lines.are_waiting and records.has_begun:
            text, number = lines.ahead(), lines.number
            bounds = bounds_of(text, NEWLINE)
            if is_plain(text, bounds):
                cells = [cells_of(text, bounds, separator, column) for column in columns]
                lines.skip(len(bounds) - 1)
                yield _chunk(text, bounds, cells, normal, number)
                continue
        read = list[CsvRecord]()
        for record in records:
            read.append(record)
            # What follows those that wait may be a while in coming.
            if not lines.are_waiting or len(read) == RECORDS_MAX:
                break
        yield _chunk_of(read, columns, normal, ends_open=lines.ends_open)


def _chunk_of(
    records: Sequence[CsvRecord],
    columns: Sequence[int],
    normal: Normalizer | None,
    *,
    ends_open: bool,
) -> Chunk:
    cells = list[tuple[Column, dict[int, str]]]()
    for column in columns:
        found = [cell_of(record, column) for record in records]
        reasons = {row: reason for row, (_, reason) in enumerate(found) if reason}
        cells.append((Column.of([cell for cell, _ in found]), reasons))
    text = _text((line for record in records for line in record.lines), ends_open=ends_open)
    sizes = [sum(map(len, record.lines)) + len(record.lines) for record in records]
    bounds = np.minimum(np.cumsum([0, *sizes]), len(text))
    within = {row: record.within for row, record in enumerate(records) if record.within}
    return _chunk(text, bounds, cells, normal, records[0].number, within=within)


def _chunk(
    text: bytes,
    bounds: Integers,
    cells: Sequence[tuple[Column, dict[int, str]]],
    normal: Normalizer | None,
    number: int,
    *,
    within: Mapping[int, int] | None = None,
) -> Chunk:
    """Return records as a chunk; `cells` are those of each column, with the reasons for each row that has none."""
    parts = list[Column]()
    malformed = dict[int, str]()
    for found, missing in cells:
        keys, reasons = found, missing
        if normal is not None:
            keys, more = drained(normal.steps(keys))
            reasons = reasons | more
        parts.append(keys)
        malformed = reasons | malformed  # the first column that is missing is named
    keys = parts[0] if len(parts) == 1 else joined(parts)
    return Chunk(text, bounds, keys, dict(sorted(malformed.items())), number, within=within or {})


def _text(lines: Iterable[bytes], *, ends_open: bool) -> bytes:
    return b"\n".join(lines) + (b"" if ends_open else b"\n")


def _chunks(source: LineSource) -> Iterator[bytes]:
    _keep_memory()
    return iter(partial(_read, source), b"")


def _keep_memory() -> None:
    """Have this process use the memory of one chunk for the next.

    Otherwise glibc gives it back, and to get each page anew takes as long as half of the work on a chunk. It keeps as
    much as the largest block that it has given back (M_MMAP_THRESHOLD in mallopt(3)), which need not be written to.
    """
    np.empty(KEPT_BYTES, dtype=np.uint8)


@contextmanager
def opened(name: str, option: str, stdin: Callable[[], BinaryIO]) -> Iterator[LineSource]:
    """Open the file or pipe that `option` names; "-" stands for `stdin()`. ConfigError if it cannot be opened."""
    if name == STDIN:
        yield cast("LineSource", stdin())
        return
    with _naming(option):
        file = open_stream(Path(name))
    with file:
        yield file


def refuse_unreadable(name: str, option: str) -> None:
    """ConfigError if `opened` would refuse it, as far as that is known in advance."""
    with _naming(option):
        if name != STDIN and can_be_read_again(path := Path(name)):
            open_stream(path).close()


@contextmanager
def _naming(option: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{option}: {getattr(error, 'strerror', error)}; name a file, or - for standard input"
        ) from None


def _read(source: LineSource) -> bytes:
    try:
        return source.read1(CHUNK_BYTES)
    except OSError as error:
        raise StreamdedupError(f"the input cannot be read: {error.strerror}") from None


def _fields(name: str) -> tuple[str, ...]:
    """Return the fields that may stand for this part of the key, in their order. ConfigError if one is empty."""
    listed = re.fullmatch(r"\[(.*,.*)\]", name)
    fields = tuple(field.strip() for field in listed[1].split(",")) if listed else (name,)
    if not all(fields):
        raise ConfigError("--key json:[...] has an empty field; write json:[FIELD, FIELD]")
    return fields


def _name(key: str) -> str:
    kind, _, name = key.partition(":")
    if kind in ("json", "csv") and name:
        return name
    meant = (
        "; write json: before the name of a field" if kind == key not in ("", "json", "csv") else ""
    )
    given = quote(key, ("line", "json:", "csv:"))
    which = "--key" if given is None else f"--key {given}"
    raise ConfigError(f"{which} is neither 'line' nor 'json:FIELD' nor 'csv:COLUMN'{meant}")
