"""The progress of a long command, for a person, on standard error: the step, how far, how fast, how long to go."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TextIO

from streamdedup.units import counted, escaped, sized

UPDATE_S = 0.2
_CLEAR = "\r\x1b[K"  # go to the beginning of the line and erase it


class Progress:
    """Writes updates to `out` if it is `live`: on a terminal one line, written again and again, else a line each.

    The totals of each step are written in any case. `clock` is in seconds.
    """

    def __init__(
        self, out: TextIO | None, *, live: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out, self._clock = out, clock
        self._live = live
        self._terminal = out is not None and out.isatty()
        self._begun = self._reported_at = clock()
        self._doing = ""
        self._bytes_all: int | None = None
        self._bytes = self.lines = 0

    def begin(self, doing: str, bytes_all: int | None) -> None:
        """Begin a step that will go through `bytes_all` bytes; None if that is unknown."""
        self._doing, self._bytes_all = doing, bytes_all
        self._bytes = self.lines = 0
        self._begun = self._reported_at = self._clock()

    def through(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the same chunks, and count each of them."""
        chunk = b"\n"
        for chunk in chunks:
            self.advance(len(chunk), chunk.count(b"\n"))
            yield chunk
        self.lines += not chunk.endswith(b"\n")

    def advance(self, size_bytes: int, lines: int) -> None:
        """Count that many more bytes and lines as done."""
        self._bytes += size_bytes
        self.lines += lines
        if self._clock() - self._reported_at >= UPDATE_S:
            self._reported_at = self._clock()
            self._update()

    def say(self, text: str) -> None:
        """Write a line that stays, above the updates."""
        line = escaped(text, keep="\n")
        self._write(f"{_CLEAR if self._terminal and self._live else ''}streamdedup: {line}\n")

    def end(self) -> None:
        """End the step, and write its totals."""
        took_s = max(self._clock() - self._begun, 1e-9)
        self.say(
            f"{self._doing}: {counted(self.lines, 'line')}, {sized(self._bytes)} in {took_s:,.1f} s"
            f" ({self.lines / took_s:,.0f} lines/s)"
        )

    def _update(self) -> None:
        if not self._live:
            return
        took_s = max(self._clock() - self._begun, 1e-9)
        text = f"{self._doing}: {sized(self._bytes)}"
        if self._bytes_all and self._bytes:
            left_s = took_s * max(self._bytes_all - self._bytes, 0) / self._bytes
            text += f" of {sized(self._bytes_all)} ({self._bytes / self._bytes_all:.0%}), {left_s:,.0f} s left"
        text += f", {self.lines / took_s:,.0f} lines/s"
        self._write(f"{_CLEAR}{text}" if self._terminal else f"streamdedup: {text}\n")

    def _write(self, text: str) -> None:
        if self._out is not None:
            with suppress(OSError):
                self._out.write(text)
                self._out.flush()
