"""Reads records of CSV out of lines. A record is read to its end, or is bad as a whole; reading goes on after it.

Python's reader, in strict mode, reads what has no fault and no cell above its limit. For the rest, the end of a record
is where that reader would find it if it were not strict. A quote that is not closed would swallow all lines up to the
next one, so such a record is bad, and reading goes on with its second line:

- if the input, or what memory may hold, ends before the record does;
- if its quotes do not match, and it takes more than LINES_PLAUSIBLE lines, or each line after its first has as many
  cells as a record;
- if it takes more than LINES_PLAUSIBLE lines, and its key takes so many, or each line has as many cells as a record.

All else that is written with its quotes doubled is one record, however long it is. So lines of a long note become
records only if the note looks like an unclosed quote, and then a bad record reports that. If each line of a record
could be a record, two stray quotes may have made it, so the number of these lines is to be reported (`swallowed`).
"""

import csv
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.keys.formats.texts import BYTE_ORDER_MARK, LINE_BYTES_MAX, Lines
from streamdedup.units import counted, escaped

NO_CSV = "the line is not CSV: its quotes do not match, or it holds a carriage return"
TOO_SHORT = "the line has too few columns"
NOT_UTF8 = "the line is not UTF-8"
SEPARATORS = {",": ",", ";": ";", "|": "|", "tab": "\t"}
LINES_PLAUSIBLE = 20
LINES_MAX = 1_000_000  # the most that a record may take, each of them a Python object
COLUMNS_SHOWN = 20
_EXCELS = re.compile(r'"?sep=([^"\r]*)"?\r*', re.IGNORECASE)
NAME_SHOWN = 40


class CsvRecord(NamedTuple):
    """The `lines` that a record takes, and its cells, none if the line is blank; or the reason why it has none.

    `number` is that of its first line, from 1. `takes` is the number of lines that it takes, without those that are
    counted for a record before it, or that are read for what they are. If reading goes on with its second line, `lines`
    has the first alone. `within` is the number of its lines after the first, if each could be
    a record by itself; else 0.
    """

    lines: list[bytes]
    cells: list[str]
    number: int
    takes: int
    reason: str = ""
    within: int = 0


NO_RECORD = CsvRecord([], [], 1, 0)


class CsvRecords(Iterator[CsvRecord]):
    """The records of `lines`. `columns` are those of the key, if they are known.

    StreamdedupError if a record of a few lines is longer than LINE_BYTES_MAX.
    """

    def __init__(self, lines: Lines, separator: str = ",") -> None:
        self.columns: Sequence[int] = ()
        self._lines, self._forms = lines, _forms(separator)
        self._taking = _Taking(lines)
        self._reader = csv.reader(self._taking, strict=True, delimiter=separator)
        self._width = 0  # cells of the first record
        self._read_to = 0  # lines before this one were read earlier, and put back

    @property
    def has_begun(self) -> bool:
        """Whether the number of cells of the first record is known."""
        return self._width > 0

    def __next__(self) -> CsvRecord:
        number = self._lines.number
        # No record is read far again: that could take quadratic time.
        is_again = number < self._read_to
        taken = self._taking.begin(LINES_PLAUSIBLE if is_again else LINES_MAX)
        try:
            cells: list[str] | None = next(self._reader)
        except csv.Error:
            cells = self._read_on(taken)
        except _TooLongError:
            cells = None
        if cells is not None and not self._is_implausible(taken, cells):
            self._width = self._width or len(cells)
            within = len(taken) - 1 if self._are_alike(taken) else 0
            return CsvRecord(taken, cells, number, len(taken), within=within)
        reason = NO_CSV if len(taken) == 1 else unclosed(number, len(taken))
        takes = 1 if is_again else len(taken)
        if self._taking.has_ended and len(taken) <= LINES_PLAUSIBLE:
            if not self._are_records(taken):
                return CsvRecord(taken, [], number, takes, reason)
            takes = 1  # the others are read for what they are
        if not is_again:
            self._read_to = number + len(taken) - 1
        self._lines.put_back(taken[1:])
        return CsvRecord(taken[:1], [], number, takes, reason)

    def _read_on(self, taken: list[bytes]) -> list[str] | None:
        """Read to the end of a record at which Python's reader gave up. Return its cells; None if it is bad."""
        is_open = False
        for at, line in enumerate(taken):
            text = self._taking.unmarked(line) if at == 0 else line
            is_open = not self._forms.closing(text, is_open=is_open)
        try:
            while is_open:
                is_open = not self._forms.closing(self._taking.take(), is_open=True)
        except (StopIteration, _TooLongError):
            return None
        self._taking.has_ended = True
        return self._forms.cells(self._taking.unmarked(b"\n".join(taken)))

    def _is_implausible(self, taken: list[bytes], cells: list[str]) -> bool:
        """Return whether the quotes of a record match, but probably should not."""
        if len(taken) <= LINES_PLAUSIBLE:
            return False
        keys = (cells[column] for column in self.columns if column < len(cells))
        if any(cell.count("\n") >= LINES_PLAUSIBLE for cell in keys):
            return True
        separators = self._width - 1
        return separators > 0 and all(
            line.count(self._forms.separator) == separators for line in taken[1:-1]
        )

    def _are_records(self, taken: list[bytes]) -> bool:
        """Return whether each line after the first has as many cells as a record, by its quotes or without them."""
        return self._width > 0 and all(
            line.count(self._forms.separator) == self._width - 1
            or len(self._forms.cells(line) or ()) == self._width
            for line in taken[1:]
        )

    def _are_alike(self, taken: list[bytes]) -> bool:
        """Return whether each line has as many separators as a record, but for lines in the midst that have quotes."""
        separators, last = self._width - 1, len(taken) - 1
        if not separators or not last:
            return False
        return all(
            line.count(self._forms.separator) == separators or (0 < at < last and b'"' in line)
            for at, line in enumerate(taken)
        )


def swallowed(lines: int, first: str) -> str:
    """Return what to say of so many lines within records; `first` names the first of them and its record."""
    return (
        f"{counted(lines, 'line')} read as parts of other records, though they are records by themselves; the first:"
        f" {first}: an unclosed quote?"
    )


def unclosed(number: int, takes: int) -> str:
    """Return the reason why a record is bad that takes so many lines, of which the first has this number."""
    return f"the record at line {number:,} takes {counted(takes, 'line')}: an unclosed quote?"


class _TooLongError(Exception):
    """The record being read takes more lines than it may, or more bytes."""


class _Taking(Iterator[str]):
    """Takes the lines of one record after the other. `has_ended`: the end of a record with a fault was found.

    As an iterator it gives them to Python's reader: as text, in which bytes that are no UTF-8 are lone surrogates.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.begin(LINES_MAX)

    def begin(self, lines_max: int) -> list[bytes]:
        """Begin a record, and return the list of its lines, which grows as they are taken."""
        self._taken: list[bytes] = []
        self._is_first = self._lines.number == 1
        self._size_bytes, self._lines_max, self.has_ended = 0, lines_max, False
        return self._taken

    def unmarked(self, text: bytes) -> bytes:
        """Return the beginning of the record without a byte order mark before the first line of all."""
        return text.removeprefix(BYTE_ORDER_MARK) if self._is_first else text

    def take(self) -> bytes:
        """Return the next line. _TooLongError if the record may not take more, StopIteration if there is none."""
        if len(self._taken) >= self._lines_max or self._size_bytes > LINE_BYTES_MAX:
            if len(self._taken) < LINES_PLAUSIBLE:
                raise StreamdedupError(
                    f"the record at line {self._lines.number - len(self._taken):,} is longer than"
                    f" {LINE_BYTES_MAX:,} bytes: an unclosed quote?"
                )
            raise _TooLongError
        line = next(self._lines)
        self._taken.append(line)
        self._size_bytes += len(line) + 1
        return line

    def __next__(self) -> str:
        line = self.take()
        if len(self._taken) == 1:
            line = self.unmarked(line)
        return line.decode("utf-8", "surrogateescape") + "\n"


class _Forms(NamedTuple):
    """What lines of CSV with one separator look like."""

    separator: bytes
    closed: re.Pattern[bytes]
    closed_within: re.Pattern[bytes]
    cell: re.Pattern[bytes]

    def closing(self, line: bytes, *, is_open: bool) -> bool:
        """Return whether the record ends with `line`. `is_open`: a quoted cell has begun before it."""
        return bool((self.closed_within if is_open else self.closed).fullmatch(line))

    def cells(self, text: bytes) -> list[str] | None:
        """Return the cells of a whole record; None if its quotes do not match."""
        found, at = list[str](), 0
        while match := self.cell.match(text, at):
            quoted, plain, end = match.groups()
            cell = plain if quoted is None else quoted.replace(b'""', b'"')
            found.append(cell.decode("utf-8", "surrogateescape"))
            if end != self.separator:
                return found
            at = match.end()
        return None


@lru_cache(maxsize=len(SEPARATORS))
def _forms(separator: str) -> _Forms:
    """Return the forms for a separator. No pattern goes back, so each takes time that is linear in the text."""
    mark = re.escape(separator.encode())
    quoted = rb'[^"]*+(?:""[^"]*+)*+'
    # Of a quoted cell, after its first quote; what follows the last one may be a fault.
    rest = rb'%b"[^%b]*+' % (quoted, mark)
    cell = rb'(?:(?!")[^%b]*+|"%b)' % (mark, rest)
    more = rb"(?:%b%b)*+" % (mark, cell)
    strict = rb'(?:"(%b)"|(?!")([^%b\r]*+))(%b|\r*+\Z)' % (quoted, mark, mark)
    return _Forms(separator.encode(), *map(re.compile, (cell + more, rest + more, strict)))


def column_in(header: CsvRecord, name: str, option: str, of: str) -> int:
    """Return the index of the column that is called `name` in the first record, counted from 0.

    ConfigError, which names the `option`, what the line is `of`, and its columns, if there is none or more than one.
    """
    first = f"{option}: the first line of {of}"
    begun = b"\n".join(header.lines).removeprefix(BYTE_ORDER_MARK)
    line = begun.decode("utf-8", "surrogateescape")
    if excels := _EXCELS.fullmatch(line):
        other = next((name for name, mark in SEPARATORS.items() if mark == excels[1]), "")
        remedy = f", and give --separator '{other}'" if other else ""
        raise ConfigError(f"{first} is Excel's sep=: delete it{remedy}")
    if header.reason or header.takes > LINES_PLAUSIBLE:
        other = _separator_in(line)
        raise ConfigError(
            f"{first} is no header: {header.reason or unclosed(header.number, header.takes)}; correct it, or give the"
            f" number of the column if there is no header{f', or its --separator, perhaps {other!r}' if other else ''}"
        )
    names = [cell.strip() for cell in header.cells]
    if (found := names.count(name)) == 1:
        return names.index(name)
    listed = ", ".join(_shown(cell) for cell in names[:COLUMNS_SHOWN])
    more = f" and {len(names) - COLUMNS_SHOWN:,} more" if len(names) > COLUMNS_SHOWN else ""
    quote = "; a quote within a name is part of it" if any('"' in cell for cell in names) else ""
    raise ConfigError(
        f"{first} has {found} columns with that name among {len(names)}: {listed}{more}{quote}; name one of these, or"
        f" give its number{separated(header)}"
    )


def separated(record: CsvRecord) -> str:
    """Return advice if a record that has one cell probably has another separator; empty if not."""
    if len(record.cells) != 1:
        return ""
    other = _separator_in(record.cells[0])
    return f"; its separator seems to be another one: --separator '{other}'" if other else ""


def _separator_in(text: str) -> str:
    """Return the first separator that `text` holds, as the option names it; empty if there is none."""
    return next((name for name, mark in SEPARATORS.items() if mark in text), "")


def _shown(name: str) -> str:
    """Return the beginning of a name, on one line."""
    return escaped(name[:NAME_SHOWN]) + ("..." if len(name) > NAME_SHOWN else "")


def numbered(given: str, option: str) -> int | None:
    """Return the index of the column that is given by its number, counted from 1; None if it is given by its name."""
    if not given.isdecimal():
        return None
    if int(given) == 0:
        raise ConfigError(f"{option}: columns are counted from 1")
    return int(given) - 1


def cell_of(record: CsvRecord, column: int) -> tuple[bytes | None, str]:
    """Return the cell of a record in a column; or None and the reason why it has none."""
    if record.reason:
        return None, record.reason
    if column >= len(record.cells):
        return None, TOO_SHORT + separated(record)
    cell = record.cells[column]
    try:
        return cell.encode(), ""
    except UnicodeEncodeError:
        return None, NOT_UTF8
