"""Tests of kernels, run again with numba's check of all indices: out of bounds, a kernel then raises IndexError."""

import os
import subprocess
import sys

DEADLINE_S = 600


def check_bounds(file: str, chosen: str) -> None:
    """Run the tests of `file` that match `chosen`, as after `pytest -k`, so. CalledProcessError if one fails."""
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, "-k", chosen],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1"},
        check=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
