"""Lines of text as events: read them in chunks, take the key of each, and hash it.

Lines are bytes; nothing is decoded but CSV, of which a record may take several lines and counts as one. Memory holds a
chunk, and a line or record of at most LINE_BYTES_MAX.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.events import Column
from streamdedup.keys.extract import json_keys
from streamdedup.keys.formats.csv_records import (
    NO_RECORD,
    CsvRecord,
    CsvRecords,
    cell_of,
    column_in,
    numbered,
)
from streamdedup.keys.hashing import Digests, Hash
from streamdedup.keys.join import joined
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import Normalization, UrlRules
from streamdedup.keys.steps import drained
from streamdedup.units import quote

CHUNK_BYTES = 1 << 20
LINE_BYTES_MAX = 64 << 20
_TOO_LONG = f"the record is longer than {LINE_BYTES_MAX:,} bytes"


class LineSource(Protocol):
    """The part of a binary file that reading needs."""

    def read1(self, size: int, /) -> bytes:
        """Return at most `size` bytes, as soon as there are any; empty at the end."""


class Chunk(NamedTuple):
    """Lines without their newlines, and their `keys` (n,). `malformed` has the reason of each that has none.

    `ends_open`: the input ends with the last of these lines, without a newline. `is_header`: this is one line, without
    a key.
    """

    lines: list[bytes]
    keys: Column
    malformed: dict[int, str]
    ends_open: bool = False
    is_header: bool = False


LineReader = Callable[[LineSource], Iterator[Chunk]]


class LineDigests(NamedTuple):
    """Digests (m, 2) of the lines that have a key; which lines these are, (n,); why the first other line has none."""

    digests: Digests
    rows: npt.NDArray[np.bool_]
    reason: str


def line_reader(
    keys: Sequence[str], normalize: Normalization = "none", rules: UrlRules | None = None
) -> LineReader:
    """Return what reads lines and their keys.

    Each of `keys` is "line", "json:FIELD" or "csv:COLUMN". FIELD is as in the configuration's `key.field`, and several
    are joined as there; of "json:[FIELD, FIELD]" the first counts that is neither missing nor null. COLUMN is the name
    of a column in the first line, which is then a header, or a number, counted from 1. `rules` are those of "url".
    ConfigError if the keys do not fit.
    """
    normal = normalizer(normalize, rules)
    if set(keys) == {"line"}:
        return partial(_plain, normal.of_column) if normal else whole_lines
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
        columns = [numbered(name, f"--key csv:{name}") for name in names]
        return partial(_csv, names, columns, normal)
    return partial(_plain, partial(json_keys, list(map(_fields, names)), normalizer=normal))


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


def digests_of(chunk: Chunk, hash_: Hash) -> LineDigests:
    """Return the digests of the keys of a chunk."""
    rows = np.ones(len(chunk.lines), dtype=np.bool_)
    rows[list(chunk.malformed)] = False
    digests = hash_.of_column(chunk.keys.take(np.flatnonzero(rows)))
    return LineDigests(digests, rows, next(iter(chunk.malformed.values()), ""))


def _plain(
    take: Callable[[Column], tuple[Column, dict[int, str]]] | None, source: LineSource
) -> Iterator[Chunk]:
    for text, ends_open in _texts(source):
        newlines = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))
        starts = np.concatenate(([0], newlines + 1))
        lines = Column(text, starts, np.append(newlines, len(text)) - starts)
        keys, malformed = (lines, {}) if take is None else take(lines)
        yield Chunk(text.split(b"\n"), keys, malformed, ends_open)


whole_lines: LineReader = partial(_plain, None)
"""Reads lines that are the keys."""


def _csv(
    names: Sequence[str],
    numbers: Sequence[int | None],
    normal: Normalizer | None,
    source: LineSource,
) -> Iterator[Chunk]:
    """Read records, whose keys are in the columns of these numbers, or, where a number is None, of these names."""
    lines = _Lines(source)
    records = CsvRecords(lines, LINE_BYTES_MAX, _TOO_LONG)
    header = next(records, None) if None in numbers else NO_RECORD
    if header is None:
        return
    columns = [
        column_in(header, name, f"--key csv:{name}", "the input") if number is None else number
        for name, number in zip(names, numbers, strict=True)
    ]
    if header.lines:
        line = b"\n".join(header.lines)
        yield Chunk([line], Column.of([None]), {0: "a header"}, lines.ends_open, is_header=True)
    read = list[CsvRecord]()
    for record in records:
        read.append(record)
        if not lines.are_waiting:  # what follows may be a while in coming
            yield _chunk(read, columns, normal, lines.ends_open)
            read = []
    if read:
        yield _chunk(read, columns, normal, lines.ends_open)


def _chunk(
    records: Sequence[CsvRecord], columns: Sequence[int], normal: Normalizer | None, ends_open: bool
) -> Chunk:
    parts = list[Column]()
    malformed = dict[int, str]()
    for column in columns:
        cells = [cell_of(record, column) for record in records]
        keys = Column.of([cell for cell, _ in cells])
        reasons = {row: reason for row, (_, reason) in enumerate(cells) if reason}
        if normal is not None:
            keys, more = drained(normal.steps(keys))
            reasons |= more
        parts.append(keys)
        malformed = reasons | malformed  # the first column that is missing is named
    keys = parts[0] if len(parts) == 1 else joined(parts)
    lines = [b"\n".join(record.lines) for record in records]
    return Chunk(lines, keys, dict(sorted(malformed.items())), ends_open)


class _Lines(Iterator[bytes]):
    """The lines of `source`. `are_waiting`: the next one is there already. `ends_open`: the last one has no newline."""

    def __init__(self, source: LineSource) -> None:
        self._texts, self._waiting = _texts(source), deque[bytes]()
        self.ends_open = False

    def __next__(self) -> bytes:
        while not self._waiting:
            text, self.ends_open = next(self._texts)
            self._waiting.extend(text.split(b"\n"))
        return self._waiting.popleft()

    @property
    def are_waiting(self) -> bool:
        return bool(self._waiting)


def _texts(source: LineSource) -> Iterator[tuple[bytes, bool]]:
    """Yield whole lines, without the newline of the last. The flag is True if the input ends without a newline.

    StreamdedupError if `source` fails, or if a line is longer than LINE_BYTES_MAX.
    """
    pieces: list[bytes] = []
    held = 0
    while chunk := _read(source):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*pieces, head]), False
            pieces, held = [], 0
        if tail:
            pieces.append(tail)
            held += len(tail)
        if held > LINE_BYTES_MAX:
            raise StreamdedupError(f"a line is longer than {LINE_BYTES_MAX:,} bytes; is this text?")
    if pieces:
        yield b"".join(pieces), True


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
