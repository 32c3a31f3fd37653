"""Run as a script, `leash.py DIRECTORY COMMAND...`: a broker that cannot outlive its tests.

Runs COMMAND, passes SIGTERM and SIGCONT on to it, SIGUSR1 as SIGKILL, SIGUSR2 as SIGSTOP; ends when
it has ended. When standard input ends, as whoever started us is gone, however it went, COMMAND is
killed, DIRECTORY removed. What COMMAND took of the CPU is added to the file that CPU_FILE names.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CPU_FILE = "STREAMDEDUP_TEST_CPU_FILE"


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


@contextmanager
def accounted() -> Iterator[None]:
    """Add the CPU seconds of the processes that end meanwhile to the file that CPU_FILE names, a line each."""
    before = _ended_s()
    yield
    if path := os.environ.get(CPU_FILE):
        with Path(path).open("a") as file:
            file.write(f"{_ended_s() - before:.3f}\n")


def _ended_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(directory: str, *command: str) -> int:
    """Run `command` and return its exit status."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    signal.signal(signal.SIGUSR1, lambda *_: child.kill())
    signal.signal(signal.SIGUSR2, lambda *_: child.send_signal(signal.SIGSTOP))
    signal.signal(signal.SIGCONT, lambda *_: child.send_signal(signal.SIGCONT))
    abandoned = threading.Event()
    threading.Thread(target=_kill_when_abandoned, args=(child, abandoned), daemon=True).start()
    with accounted():
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
