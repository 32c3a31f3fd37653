"""`streamdedup pipe`: standard input to standard output, the first occurrence of each line (or key) passes.

Bytes in, bytes out: nothing is decoded, a last line without a newline stays without one. Memory is the filter, one
chunk, and a line of at most LINE_BYTES_MAX.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from streamdedup.errors import ConfigError, StreamdedupError
from streamdedup.filters.base import Filter
from streamdedup.keys.extract import MalformedError, json_reader
from streamdedup.keys.hashing import digests
from streamdedup.rules.duplicates import rows_that_fit, unseen

CHUNK_BYTES = 1 << 20
LINE_BYTES_MAX = 64 << 20

Lines = list[bytes]
KeyReader = Callable[[bytes], bytes]


class LineSource(Protocol):
    """The part of a binary file that `deduplicate` reads from."""

    def read1(self, size: int, /) -> bytes:
        """At most `size` bytes, as soon as there are any; empty at the end."""


class LineSink(Protocol):
    """The part of a binary file that `deduplicate` writes to."""

    def write(self, data: bytes, /) -> Any:  # noqa: ANN401 - whatever the file returns
        """Write all of `data`."""

    def flush(self) -> None:
        """Hand everything on."""


@dataclass
class Summary:
    """What went through: lines by verdict."""

    lines: int = 0
    passed: int = 0
    malformed: int = 0
    malformed_first: str = ""
    started: float = field(default_factory=time.monotonic)

    def text(self, seen: Filter) -> str:
        """Two lines for a person; a third where no line had a key, for then the key is wrong rather than the lines."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        malformed = f" ({self.malformed:,} malformed, passed unjudged)" if self.malformed else ""
        beyond = " (BEYOND ITS CAPACITY)" if len(seen) > seen.capacity else ""
        return (
            f"{_counted(self.lines, 'line')}: {self.passed:,} passed{malformed},"
            f" {_counted(self.lines - self.passed, 'duplicate')}; {self.lines / seconds:,.0f} lines/s\n"
            f"{seen.kind}: {len(seen):,} of {seen.capacity:,} keys, {seen.size_bytes / 1e6:,.1f} MB,"
            f" {seen.fill_ratio:.2%} of the bits set, estimated error {seen.error_rate_now:.2g}{beyond}"
            f"{self._hint()}"
        )

    def _hint(self) -> str:
        if not 0 < self.lines == self.malformed:
            return ""
        return f"\nhint: no line had the key; in the first, {self.malformed_first}; check --key"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class FullError(StreamdedupError):
    """The filter holds as many keys as it was made for."""


class OutputError(StreamdedupError):
    """The sink takes no more, though it is still there."""


def deduplicate(
    source: LineSource,
    sink: LineSink,
    seen: Filter,
    *,
    key: KeyReader | None = None,
    on_full: str = "stop",
    summary: Summary,
    warn: Callable[[str], None],
    is_unread: Callable[[], bool] = lambda: False,
) -> None:
    """Copy to `sink` the lines of `source` whose key is not in `seen`, and add those keys.

    `key` takes it from a line, and is the line where it is None. At capacity raises FullError where `on_full` is
    "stop", after the lines before were written; else calls `warn` once, when it is passed. Raises OutputError where
    `sink` fails, but BrokenPipeError as it is: its reader has gone. `is_unread` says so where nothing is written.
    """
    sieve = _Sieve(sink, seen, key, on_full == "stop", summary)
    for lines, ends_open in _lines_by_chunk(source):
        had_room = len(seen) <= seen.capacity
        if sieve.pass_fresh(lines, ends_open) < len(lines):
            raise FullError(
                f"the filter is full: it holds {_counted(len(seen), 'key')}, so line {summary.lines + 1:,} and"
                " those after it did not pass; give a larger --capacity, or --on-full warn to go on with more errors"
            )
        if had_room and len(seen) > seen.capacity:
            warn(
                f"the filter is full: by line {summary.lines:,} it holds more than {_counted(seen.capacity, 'key')};"
                " from here on ever more new lines are dropped wrongly; give a larger --capacity"
            )
        if is_unread():
            return


def key_reader(keys: Sequence[str]) -> KeyReader | None:
    """What takes the key from a line, None for the line itself; each of `keys` is "line" or "json:FIELD".

    FIELD is as in the configuration's `key.field`, and several are joined as there. Raises ConfigError.
    """
    if set(keys) == {"line"}:
        return None
    if "line" in keys:
        raise ConfigError(
            "--key line is the whole line, so no other key can be beside it; delete one of them"
        )
    return json_reader([_field(key) for key in keys])


def _field(key: str) -> str:
    kind, _, name = key.partition(":")
    if kind == "json" and name:
        return name
    meant = f"; did you mean json:{key}?" if kind == key not in ("", "json") else ""
    raise ConfigError(f"--key {key!r} is neither 'line' nor 'json:FIELD'{meant}")


def _lines_by_chunk(source: LineSource) -> Iterator[tuple[Lines, bool]]:
    """Whole lines without their newlines; the flag is True where the last of all had none."""
    pieces: Lines = []
    held = 0
    while chunk := _read(source):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*pieces, head]).split(b"\n"), False
            pieces, held = [], 0
        if tail:
            pieces.append(tail)
            held += len(tail)
        if held > LINE_BYTES_MAX:
            raise StreamdedupError(f"a line is longer than {LINE_BYTES_MAX:,} bytes; is this text?")
    if pieces:
        yield [b"".join(pieces)], True


def _read(source: LineSource) -> bytes:
    try:
        return source.read1(CHUNK_BYTES)
    except OSError as error:
        raise StreamdedupError(f"the input cannot be read: {error.strerror}") from None


@dataclass(frozen=True)
class _Sieve:
    sink: LineSink
    seen: Filter
    take: KeyReader | None
    stops_when_full: bool
    summary: Summary

    def pass_fresh(self, lines: Lines, ends_open: bool) -> int:
        """Judge and write `lines`; the number taken is smaller only where the filter became full."""
        count = len(lines)
        keys, judged = self._keys(lines)
        hashed = digests(keys)
        room = self.seen.capacity - len(self.seen)
        if self.stops_when_full and len(keys) > room:
            fitting = rows_that_fit(unseen(self.seen, hashed), room)
            if fitting < len(keys):
                count = int(np.flatnonzero(judged)[fitting])
                hashed, judged = hashed[:fitting], judged[:count]
        passes = ~judged
        passes[judged] = self.seen.add_many(hashed)
        out = list(compress(lines, passes))
        self.summary.lines += count
        self.summary.passed += len(out)
        self.summary.malformed += int(count - np.count_nonzero(judged))
        if out:
            _write(self.sink, b"\n".join(out) + (b"" if ends_open else b"\n"))
        return count

    def _keys(self, lines: Lines) -> tuple[Sequence[bytes], npt.NDArray[np.bool_]]:
        judged = np.ones(len(lines), dtype=np.bool_)
        if self.take is None:
            return lines, judged
        keys: Lines = []
        for row, line in enumerate(lines):
            try:
                keys.append(self.take(line))
            except MalformedError as reason:
                judged[row] = False
                self.summary.malformed_first = self.summary.malformed_first or str(reason)
        return keys, judged


def _write(sink: LineSink, data: bytes) -> None:
    try:
        sink.write(data)
        sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the output cannot be written: {error.strerror}") from None
