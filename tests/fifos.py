"""What tests of pipes share: a call that must end, and somebody who writes to a pipe."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ENDS_S_MAX = 20.0


def fifo(path: Path) -> Path:
    """Make a named pipe."""
    os.mkfifo(path)
    return path


def ends(call: Callable[[], T], pipe: Path | None = None, within_s: float = ENDS_S_MAX) -> T:
    """Return what `call` returns. It must end in time, though nobody writes to `pipe`."""
    made: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(within_s)
    hangs = thread.is_alive()
    while thread.is_alive() and pipe is not None:
        _release(pipe)
        thread.join(0.1)
    assert not hangs, "it hangs"
    if failed:
        raise failed[0]
    return made[0]


def _release(pipe: Path) -> None:
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return


def writing(pipe: Path, content: bytes) -> threading.Thread:
    """Write to `pipe` once, as soon as somebody reads, and close it; as `<(...)` and `mkfifo` are used."""

    def run() -> None:
        with pipe.open("wb") as out:
            out.write(content)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
