"""Writes the log from a thread, so that nobody waits for its reader: a full pipe, a stuck disk, a stopped terminal.

A line is text before it is queued: what it takes from its context, from the clock, or from an object that may change is
taken by the thread that logs. The queue is bounded in lines and in bytes. What does not fit is dropped and counted;
once half of the queue is free again, one line in the place of the dropped ones reports how many they were.
"""

import io
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import TextIO, cast

from typing_extensions import override

LINES_MAX = 8192
BYTES_MAX = 4 << 20
FLUSH_S = 1.0  # how long an exit waits for what is queued
PART_CHARS_MAX = 8192  # of a line that has no end yet


class QueuedHandler(logging.Handler):
    """Queues lines, which a thread writes to the descriptor of `before`. `report` logs how many were dropped.

    `stream` takes the place of `before`, so that other texts go the same way. Any thread may write, and so may a
    destructor that runs while its own thread writes. A process that is forked off has no such thread, and a process
    that exits soon has none: there, lines are written at once.
    """

    def __init__(self, before: TextIO, report: Callable[[int], None]) -> None:
        super().__init__()
        self.stream = QueuedStream(self, before)
        self.guard = cast("threading.Lock", self.lock)  # one for all: two could wait for each other
        self._before, self._report, self._process = before, report, os.getpid()
        self._descriptor, self._encoding = before.fileno(), before.encoding
        # Its `put` may be interrupted by one of the same thread, from a destructor; that of `queue.Queue` would hang.
        self._queue: SimpleQueue[bytes | threading.Event | None] = SimpleQueue()
        # Who logs counts what was put and refused, holding the guard; the thread counts what it took, and what failed.
        self._lines_put = self._bytes_put = self._lines_taken = self._bytes_taken = 0
        self._refused = self._failed = self._reported = 0
        self._is_dropping = self._is_torn = self._is_closed = False
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    @property
    def dropped(self) -> int:
        """How many lines were dropped: the queue was full, or they could not be written."""
        return self._refused + self._failed

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of `record`."""
        try:
            self.put(self.format(record) + "\n")
        except Exception:
            self.handleError(record)

    def put(self, text: str) -> None:
        """Queue `text`, a whole line. Drop it if there is no room, and all after it until half of the queue is free."""
        line = text.encode(self._encoding, "backslashreplace")
        if self._is_alone:
            self._write(line)
            return
        with self.guard:
            if self._is_dropping and self._has_room(LINES_MAX // 2, BYTES_MAX // 2):
                self._report_dropped()
            if self._is_dropping or not self._has_room(1, len(line)):
                self._is_dropping = True
                self._refused += 1
                return
            self._lines_put += 1
            self._bytes_put += len(line)
            self._queue.put(line)

    @override
    def flush(self) -> None:
        """Wait until all that is queued is written, for at most `FLUSH_S`."""
        until = time.monotonic() + FLUSH_S
        if self._is_written(FLUSH_S) and self._reported < self.dropped:
            with self.guard:
                self._report_dropped()
            self._is_written(until - time.monotonic())

    @override
    def close(self) -> None:
        """Give `before` its place back. If what is queued cannot be written, lines are queued as before, in vain."""
        if self._lines_put == self._lines_taken:
            self._is_closed = True
            self._queue.put(None)
            if sys.stderr is self.stream:
                sys.stderr = self._before
        super().close()

    @property
    def _is_alone(self) -> bool:
        return self._is_closed or os.getpid() != self._process

    def _is_written(self, timeout_s: float) -> bool:
        """Wait until all that is queued is written. Return whether it is."""
        if self._is_alone:
            return True
        written = threading.Event()
        self._queue.put(written)
        return written.wait(max(0.0, timeout_s))

    def _has_room(self, lines: int, size_bytes: int) -> bool:
        return (
            self._lines_put - self._lines_taken <= LINES_MAX - lines
            and self._bytes_put - self._bytes_taken <= BYTES_MAX - size_bytes
        )

    def _report_dropped(self) -> None:
        """Log how many lines were dropped since the last report. From now on lines are queued again."""
        self._is_dropping = False
        unreported, self._reported = self.dropped - self._reported, self.dropped
        if unreported:
            Context().run(self._report, unreported)  # nobody's context: the line is nobody's

    def _write_all(self) -> None:
        while (line := self._queue.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            is_written = self._write(line)
            self._lines_taken += 1
            self._bytes_taken += len(line)
            self._failed += not is_written
            # Whoever holds the guard puts something soon, or waits for this thread in `flush`, and reports by itself.
            unreported = is_written and self._reported < self.dropped and self._queue.empty()
            if unreported and self.guard.acquire(blocking=False):
                try:
                    self._report_dropped()
                finally:
                    self.guard.release()

    def _write(self, line: bytes) -> bool:
        """Write `line`, in one piece if the system takes it so. Return whether all of it was written."""
        rest = memoryview(b"\n" + line if self._is_torn else line)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                    self._is_torn = bool(rest)
                except BlockingIOError:  # another process with this very pipe made it non-blocking
                    writable = select.poll()
                    writable.register(self._descriptor, select.POLLOUT)
                    writable.poll()
        except OSError:  # nobody reads any more, or the disk is full
            return False
        return True


class QueuedStream(io.TextIOBase):
    """Standard error of a process whose log is queued. What is written there is queued by lines, in order with the log.

    Python and other packages write there, for example warnings, and errors that nobody caught.
    """

    def __init__(self, handler: QueuedHandler, before: TextIO) -> None:
        super().__init__()
        self._handler, self._before, self._part = handler, before, ""

    @override
    def write(self, text: str, /) -> int:
        """Queue each line once it has its end."""
        with self._handler.guard:
            lines, end, self._part = (self._part + text).rpartition("\n")
            if end:
                self._handler.put(lines + end)
            if len(self._part) > PART_CHARS_MAX:
                self.flush()
        return len(text)

    @override
    def flush(self) -> None:
        """Queue what has no end yet. This does not wait until it is written."""
        with self._handler.guard:
            part, self._part = self._part, ""
            if part:
                self._handler.put(part)

    @override
    def fileno(self) -> int:
        """Return the descriptor that the thread writes to."""
        return self._before.fileno()

    @override
    def isatty(self) -> bool:
        """Return whether a person reads it."""
        return self._before.isatty()

    @override
    def writable(self) -> bool:
        """Return True."""
        return True
