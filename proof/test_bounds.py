"""Kernels over foreign bytes, run with numba's check of all indices: out of bounds, a kernel then raises IndexError."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proof.kafka.test_wire import damage_checked
from proof.keys.test_json_column import faulty, read_alone
from streamdedup.keys.formats import json_column

ROOT = Path(__file__).parents[1]
DEADLINE_S = 600


def test_no_kernel_reads_or_writes_outside_of_what_it_is_given() -> None:
    """One process compiles the kernels with the check, and runs the tests marked `bounds` and two sweeps again."""
    done = subprocess.run(
        [sys.executable, "-c", "from proof.test_bounds import again; again()"],
        cwd=ROOT,
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def again() -> None:
    """What the child process runs."""
    with pytest.raises(IndexError):  # the check is on
        json_column.fill(*faulty())
    read_alone()
    damage_checked()
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "bounds"]
    folders = ["tests/kafka", "tests/keys", "proof/kafka", "proof/keys", "proof/fuzz"]
    os.execv(sys.executable, [*run, *folders])  # noqa: S606 - our own tests
