"""Claims about the last lines of a process: they come however it ends; if nobody reads them, it ends all the same."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.logs.pipes import DEADLINE_S, Pipe

LINES = 300
SCRIPT = """
import os, sys, threading
import structlog
from streamdedup import logs

class Fails:
    def __del__(self): raise ValueError

def fail(): raise ValueError

def work():
    logs.set_up(queued=True)
    log = structlog.get_logger("script")
    for i in range({lines}):
        log.info(f"line {{i}}")
    {end}

work()
"""
FORK = "child = os.fork(); log.info('last'); os._exit(0) if not child else os.waitpid(child, 0)"
ENDS = {
    "at the end": ("log.info('last')", 0, "last"),
    "by an exit": ("sys.exit(3)", 3, f"line {LINES - 1}"),
    "at once, since a thread hangs": ("logs.exit_at_once(4)", 4, f"line {LINES - 1}"),
    "by an error": ("fail()", 1, "ValueError"),
    "after an error in a thread": (
        "thread = threading.Thread(target=fail); thread.start(); thread.join()",
        0,
        "ValueError",
    ),
    "after an error in a destructor": ("Fails()", 0, "ValueError"),
    "after a fork": (FORK, 0, "last"),
}


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe that is read only when the test says so."""
    made = Pipe()
    yield made
    made.close()


def started(pipe: Pipe, end: str) -> subprocess.Popen[bytes]:
    """A process that logs to this pipe, and then ends so."""
    script = SCRIPT.format(lines=LINES, end=end)
    return subprocess.Popen([sys.executable, "-c", script], stderr=pipe.writing)


@pytest.mark.parametrize("how", ["at once, since a thread hangs", "by an error"])
def test_the_last_lines_come(pipe: Pipe, how: str) -> None:
    """Every line, once, in order, and then what ended it."""
    last_lines_come(pipe, how)


def last_lines_come(pipe: Pipe, how: str) -> None:
    """Check it of one end."""
    end, status, last = ENDS[how]
    with started(pipe, end) as process:
        lines = pipe.read_all()
        assert process.wait(DEADLINE_S) == status
    numbered = [line for line in lines if '"line ' in line]
    assert len(numbered) == LINES
    assert all(f'"line {i}"' in line for i, line in enumerate(numbered))
    assert last in lines[-1]


@pytest.mark.parametrize("how", ["by an exit", "by an error"])
def test_without_a_reader_it_ends_all_the_same(pipe: Pipe, how: str) -> None:
    """With its own status, a second later. A child that is forked off waits, as any program does."""
    ends_without_a_reader(pipe, how)


def ends_without_a_reader(pipe: Pipe, how: str) -> None:
    """Check it of one end."""
    pipe.fill()
    end, status, _ = ENDS[how]
    with started(pipe, end) as process:
        try:
            assert process.wait(DEADLINE_S) == status
        finally:
            process.kill()
