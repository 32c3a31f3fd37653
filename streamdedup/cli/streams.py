"""The standard streams of a command, by their descriptors: all output is written, and a pause does not end an input.

Python's own streams do not do that. With PYTHONUNBUFFERED, `write` may write a part and say so only by its result; if
a descriptor does not block, a read that finds nothing looks like the end.
"""

import fcntl
import io
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import BinaryIO, TextIO

from typing_extensions import Buffer, override

from streamdedup.errors import ConfigError, StreamdedupError

TELL_EVERY_S = 0.5
CLEARED = "\r\x1b[K"  # go to the beginning of the line and erase it
PIPE_BYTES = 1 << 20  # else 64 KiB, in pieces of which our own work takes half as long again


def put(text: str) -> None:
    """Write what a command found or did to standard output, as `write` does.

    If its reader has gone, the rest of the command, and its status, are the same: it may still have something to do.
    """
    with suppress(BrokenPipeError):
        write(text)


def write(data: str | Buffer) -> None:
    """Write all of `data` to standard output. Of a text, what its encoding lacks is escaped.

    StreamdedupError if that fails, BrokenPipeError if its reader has gone. If a signal handler raises meanwhile, a part
    is written.
    """
    if sys.stdout is None:  # Python sets this if the descriptor was closed before it began
        raise StreamdedupError("standard output is closed; redirect it to a file or a pipe")
    try:
        _write(sys.stdout, data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StreamdedupError(f"the output cannot be written: {error.strerror}") from None


def say(text: str) -> None:
    """Write lines to standard error, if that is open and can be written to. What others chose in them is `escaped`."""
    if sys.stderr is not None:
        from streamdedup.units import escaped

        with suppress(OSError):
            _write(sys.stderr, escaped(text, keep="\n") + "\n")


@contextmanager
def compiling() -> Iterator[None]:
    """Within this context, say once that kernels are compiled, which is why the command is silent."""
    from streamdedup import kernel  # imports numpy

    with kernel.compiling(lambda: say(f"streamdedup: {kernel.COMPILING}")):
        yield


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows its text on one line of the terminal, at most every `TELL_EVERY_S`.

    The line is erased at the end. If standard error is no terminal, nothing is shown.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    told_at = 0.0

    def on_progress(text: str) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= TELL_EVERY_S:
            told_at = time.monotonic()
            sys.stderr.write(f"{CLEARED}{text}")
            sys.stderr.flush()

    try:
        yield on_progress
    finally:
        sys.stderr.write(CLEARED)


def _write(stream: TextIO, data: str | Buffer) -> None:
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # the caller of `main` collects the output in memory
        stream.write(data) if isinstance(data, str) else stream.buffer.write(data)
        stream.flush()
        return
    stream.flush()
    text = data.encode(stream.encoding, "backslashreplace") if isinstance(data, str) else data
    rest = memoryview(text)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            _wait(descriptor, select.POLLOUT)


def is_unread() -> bool:
    """Return whether standard output is a pipe or a socket whose reader has gone."""
    if sys.stdout is None:
        return False
    descriptor = sys.stdout.fileno()
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    poll = select.poll()
    # Linux always reports errors and hang-ups, macOS only those that were asked for.
    poll.register(descriptor, select.POLLHUP)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def stdin(instead: str) -> BinaryIO:
    """Return the bytes of standard input. StreamdedupError if it is closed: `instead` is what else to do.

    ConfigError if it is also standard output.
    """
    if sys.stdin is None:
        raise StreamdedupError(f"standard input is closed; {instead}")
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:  # the caller of `main` gives the input in memory
        return sys.stdin.buffer
    refuse_output(descriptor)
    with suppress(AttributeError, OSError):  # of Linux alone, and no pipe, or there are too many
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return io.BufferedReader(_Input(descriptor))


def refuse_output(file: int | str) -> None:
    """ConfigError if this file is also standard output: it could grow as long as it is read, or be overwritten."""
    with suppress(OSError, ValueError):
        found = os.stat(file)  # noqa: PTH116 - or a descriptor
        if (
            sys.stdout is not None
            and stat.S_ISREG(found.st_mode)
            and os.path.samestat(found, os.fstat(sys.stdout.fileno()))
        ):
            raise ConfigError("the input is also the output; write to another file")


@contextmanager
def writing_to(path: str | None) -> Iterator[None]:
    """Within this context, standard output is the file at `path`, unless that is None.

    The file is made if it is missing, and keeps what is in it until `empty_output`. ConfigError if it cannot be opened.
    """
    if path is None:
        yield
        return
    try:
        # A pipe waits here for its reader, as in a shell.
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "w")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--output: {getattr(error, 'strerror', error)}; name a file that can be written to"
        ) from None
    with file, redirect_stdout(file):
        yield


def empty_output() -> None:
    """Remove what is in the file that is standard output."""
    if _is_regular(sys.stdout.fileno()):
        os.ftruncate(sys.stdout.fileno(), 0)


def sync_output() -> None:
    """Make what was written durable, if standard output is a file. StreamdedupError if that fails."""
    with suppress(io.UnsupportedOperation):
        if _is_regular(sys.stdout.fileno()):
            try:
                os.fsync(sys.stdout.fileno())
            except OSError as error:
                raise StreamdedupError(f"the output cannot be written: {error.strerror}") from None


def _is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


class _Input(io.RawIOBase):
    """A descriptor to read from. If there is nothing to read yet, to read waits, even if the descriptor does not."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, into: Buffer) -> int:
        while True:
            try:
                return os.readv(self._descriptor, [into])
            except BlockingIOError:
                _wait(self._descriptor, select.POLLIN)


def _wait(descriptor: int, event: int) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    poll.poll()
