"""Claims about errors that nobody catches: what they report quotes no data, wherever they are raised."""

import subprocess
import sys

import pytest

SECRET = "jane.doe@example.org"  # noqa: S105 - a key, which nothing may show

RAISED = {
    "in the main thread": "fail()",
    "in a group": "raise ExceptionGroup(KEY, [ValueError(KEY)])",
    "as the cause of another": "try: fail()\nexcept ValueError as e: raise KeyError(KEY) from e",
    "with a note": "e = ValueError(KEY); e.add_note(KEY); raise e",
    "in a thread": "t = threading.Thread(target=fail); t.start(); t.join()",
    "in a thread with a name": "t = threading.Thread(target=fail, name='log'); t.start(); t.join()",
    "in a destructor": "Fails(); gc.collect()",
    "in a generator that is dropped": "g = generator(); next(g); del g; gc.collect()",
    "at the exit": "atexit.register(fail)",
    "in a line of the log": "logging.getLogger(KEY).warning('%d', KEY)",
    "in a handler of the log": "logging.root.addHandler(Broken()); logging.warning('x')",
    "in a callback of C": "r = weakref.ref(held, lambda _: fail()); del held",
}

SCRIPT = f"""
import atexit, gc, logging, threading, weakref
from streamdedup.errors import hide_messages
KEY = {SECRET!r}
def fail(): raise ValueError(KEY)
def generator():
    try: yield
    finally: fail()
class Fails:
    def __repr__(self): return KEY
    def __del__(self): fail()
class Broken(logging.StreamHandler):
    def format(self, record): fail()
held = type('Held', (), {{}})()
hide_messages()
"""


@pytest.mark.parametrize("how", RAISED)
def test_an_error_that_nobody_catches_quotes_nothing(how: str) -> None:
    """Its type and its place are reported; its message, its notes and its objects are not."""
    done = _ran(SCRIPT + RAISED[how])
    assert SECRET not in done.stderr
    assert "of the log" in how or "Error" in done.stderr or "ExceptionGroup" in done.stderr
    assert done.returncode == (how in list(RAISED)[:4])


def test_a_thread_that_exits_reports_nothing() -> None:
    """That is no error."""
    done = _ran(SCRIPT + "t = threading.Thread(target=exit); t.start(); t.join()")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("given", ["None", "['config', 'schema']"])
def test_the_command_hides_messages_and_a_program_keeps_its_hooks(given: str) -> None:
    """Only as a process of its own does the command decide how errors are reported."""
    done = _ran(
        "import sys\nfrom streamdedup.cli import main\nsys.argv = ['streamdedup', 'config', 'schema']\n"
        f"main({given})\nraise ValueError({SECRET!r})"
    )
    assert (SECRET in done.stderr) == (given != "None")
    assert "ValueError" in done.stderr


def _ran(script: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
