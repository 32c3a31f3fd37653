"""A run of the tests says what it took of the CPU, and fails above a limit; what it starts counts, Java does not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BURNS = "import time; ends = time.process_time() + 1\nwhile time.process_time() < ends: pass"
TESTS = f"""
import subprocess, sys
from tests.broker.leash import accounted

def test_itself():
    {BURNS.replace(chr(10), chr(10) + "    ")}

def test_a_child():
    subprocess.run([sys.executable, "-c", {BURNS!r}], check=True)

def test_java():
    with accounted():
        subprocess.run([sys.executable, "-c", {BURNS!r}], check=True)
"""


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one", "several"])
@pytest.mark.parametrize(("limit", "status"), [(60, 0), (1, 1)])
def test_what_a_run_takes_is_counted_and_bounded(
    processes: tuple[str, ...], limit: int, status: int, tmp_path: Path
) -> None:
    """A second each of the process and its child, and none of what is accounted elsewhere."""
    (tmp_path / "test_it.py").write_text(TESTS)
    root = str(Path(__file__).parents[1])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.timing", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", f"--cpu-max={limit}", *processes, str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    found = re.search(r"^(\d+) s of CPU, brokers left out$", done.stdout, re.MULTILINE)
    assert found, done.stdout
    # Each process also takes a second or two to begin.
    assert 2 <= int(found[1]) <= 2 + 3 * (1 + 2 * bool(processes)), done.stdout
    assert ("FAILED: --cpu-max is 1 s" in done.stdout) is bool(status)
