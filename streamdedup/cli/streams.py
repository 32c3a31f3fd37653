"""The standard streams of a command: closed streams, readers that have gone, and messages to a person."""

import os
import select
import stat
import sys
from contextlib import suppress
from typing import BinaryIO, TextIO

from streamdedup.errors import StreamdedupError


def silence_stdout() -> None:
    """Discard everything that is still to be written to standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


def put(text: str) -> None:
    """Write `text` to standard output and flush it. StreamdedupError if that fails while its reader is there."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StreamdedupError(f"the output cannot be written: {error.strerror}") from None


def say(text: str) -> None:
    """Write lines to standard error, if that is open. If it is closed, `print` would write to standard output.

    What others chose in them moves no cursor.
    """
    if sys.stderr is not None:
        from streamdedup.units import escaped  # imports pydantic, which --help does without

        with suppress(OSError):
            print(escaped(text, keep="\n"), file=sys.stderr)


def say_compiling() -> None:
    """Say why a command is silent for some seconds, or on a busy machine for minutes."""
    say(
        "streamdedup: compiling inner loops that never ran here before; this takes half a minute, on a busy machine"
        " minutes, and the result is kept"
    )


def binary(stream: TextIO | None, closed: str) -> BinaryIO:
    """Return the bytes of a standard stream. StreamdedupError with the text `closed` if it is closed."""
    if stream is None:  # Python sets this if the descriptor was closed before it began
        raise StreamdedupError(closed)
    return stream.buffer
