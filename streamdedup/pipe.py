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
    started: float = field(default_factory=time.monotonic)

    def text(self, seen: Filter) -> str:
        """Two lines for a person."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        duplicates = self.lines - self.passed
        malformed = f" ({self.malformed:,} malformed, passed unjudged)" if self.malformed else ""
        beyond = " (BEYOND ITS CAPACITY)" if len(seen) > seen.capacity else ""
        return (
            f"{self.lines:,} lines: {self.passed:,} passed{malformed}, {duplicates:,} duplicates;"
            f" {self.lines / seconds:,.0f} lines/s\n"
            f"{seen.kind}: {len(seen):,} of {seen.capacity:,} keys, {seen.size_bytes / 1e6:,.1f} MB,"
            f" {seen.fill_ratio:.2%} of the bits set, estimated error {seen.error_rate_now:.2g}{beyond}"
        )


class FullError(StreamdedupError):
    """The filter holds as many keys as it was made for."""


class OutputError(StreamdedupError):
    """The sink takes no more, though it is still there."""


def deduplicate(
    source: LineSource,
    sink: LineSink,
    seen: Filter,
    *,
    key: str = "line",
    on_full: str = "stop",
    summary: Summary,
    warn: Callable[[str], None],
) -> None:
    """Copy to `sink` the lines of `source` whose key is not in `seen`, and add those keys.

    `key` is "line", or "json:FIELD" with FIELD as in the configuration's `key.field`. At capacity raises FullError
    where `on_full` is "stop", after the lines before were written; else calls `warn` once, when it is passed. Raises
    OutputError where `sink` fails, but BrokenPipeError as it is: its reader has gone.
    """
    sieve = _Sieve(sink, seen, _key_reader(key), on_full == "stop", summary)
    for lines, ends_open in _lines_by_chunk(source):
        had_room = len(seen) <= seen.capacity
        if sieve.pass_fresh(lines, ends_open) < len(lines):
            raise FullError(
                f"the filter is full: it holds {len(seen):,} keys, so line {summary.lines + 1:,} and those after it"
                " did not pass; give a larger --capacity, or --on-full warn to go on with more errors"
            )
        if had_room and len(seen) > seen.capacity:
            warn(
                f"the filter is full: by line {summary.lines:,} it holds more than {seen.capacity:,} keys; from here on"
                " ever more new lines are dropped wrongly; give a larger --capacity"
            )


def _key_reader(key: str) -> Callable[[bytes], bytes] | None:
    kind, _, name = key.partition(":")
    if kind == "line" and not name:
        return None
    if kind == "json" and name:
        return json_reader([name])
    raise ConfigError(f"--key {key!r} is neither 'line' nor 'json:FIELD'")


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
    take: Callable[[bytes], bytes] | None
    stops_when_full: bool
    summary: Summary

    def pass_fresh(self, lines: Lines, ends_open: bool) -> int:
        """Judge and write `lines`; the number taken is smaller only where the filter became full."""
        count = len(lines)
        keys, judged = _keys(lines, self.take)
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


def _write(sink: LineSink, data: bytes) -> None:
    try:
        sink.write(data)
        sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the output cannot be written: {error.strerror}") from None


def _keys(
    lines: Lines, take: Callable[[bytes], bytes] | None
) -> tuple[Sequence[bytes], npt.NDArray[np.bool_]]:
    judged = np.ones(len(lines), dtype=np.bool_)
    if take is None:
        return lines, judged
    keys: Lines = []
    for row, line in enumerate(lines):
        try:
            keys.append(take(line))
        except MalformedError:
            judged[row] = False
    return keys, judged
