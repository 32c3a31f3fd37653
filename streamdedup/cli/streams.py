"""The standard streams of a command: closed ones, readers that have gone, and what is said to a person."""

import os
import select
import stat
import sys
from contextlib import suppress
from typing import BinaryIO, TextIO

from streamdedup.errors import StreamdedupError


def silence_stdout() -> None:
    """What is still to be written goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_unread() -> bool:
    """Whether standard output is a pipe or a socket from which nobody will read any more."""
    if sys.stdout is None:
        return False
    descriptor = sys.stdout.fileno()
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    poll = select.poll()
    # Linux tells of errors and hang-ups always, macOS of those that are asked for.
    poll.register(descriptor, select.POLLHUP)
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))


def put(text: str) -> None:
    """Write `text` to standard output, and hand it on; StreamdedupError where that fails and its reader is there."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StreamdedupError(f"the output cannot be written: {error.strerror}") from None


def say(text: str) -> None:
    """Write to standard error if anybody listens; where it is closed, `print` would take standard output."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(text, file=sys.stderr)


def binary(stream: TextIO | None, closed: str) -> BinaryIO:
    """The bytes of a standard stream; StreamdedupError, saying `closed`, where it is."""
    if stream is None:  # so Python tells of a descriptor that was closed before it began
        raise StreamdedupError(closed)
    return stream.buffer
