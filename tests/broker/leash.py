"""Run as a script, `leash.py DIRECTORY COMMAND...`: a broker that cannot outlive its tests.

Runs COMMAND, passes SIGTERM and SIGCONT on to it, SIGUSR1 as SIGKILL, SIGUSR2 as SIGSTOP; ends when
it has ended. When standard input ends, as whoever started us is gone, however it went, COMMAND is
killed, DIRECTORY removed.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path


def on_leash(directory: Path, command: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """Start `command` on a leash; whoever closes the standard input of what is returned lets go of it."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, __file__, str(directory), *command],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def main(directory: str, *command: str) -> int:
    """Run `command` and return its exit status."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    signal.signal(signal.SIGUSR1, lambda *_: child.kill())
    signal.signal(signal.SIGUSR2, lambda *_: child.send_signal(signal.SIGSTOP))
    signal.signal(signal.SIGCONT, lambda *_: child.send_signal(signal.SIGCONT))
    abandoned = threading.Event()
    threading.Thread(target=_kill_when_abandoned, args=(child, abandoned), daemon=True).start()
    status = child.wait()
    if abandoned.is_set():
        shutil.rmtree(directory)
    return status


def _kill_when_abandoned(child: "subprocess.Popen[bytes]", abandoned: threading.Event) -> None:
    # Not sys.stdin, whose lock an interpreter that exits could not get back from us.
    os.read(0, 1)
    abandoned.set()
    child.kill()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
