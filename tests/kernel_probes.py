"""Runs Python in a directory with a kernel of its own, and with a cache of kernels of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import streamdedup
from streamdedup.kernel.cache import CACHE_ENV

NOBODY = 65534
PACKAGE = Path(streamdedup.__file__).parent
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
SHOWN = (
    "import numba; c = numba.config; print(c.DISABLE_JIT, c.BOUNDSCHECK, int(c.OPT), c.CPU_NAME)"
)
PROBE = """
import numba
outer = numba.config.CACHE_DIR
from streamdedup.kernel import kernel

@kernel
def double(number):
    return number + number

assert double(21) == 42
assert numba.config.CACHE_DIR == outer
assert double.targetoptions["nogil"]
print(sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values()))
"""


@pytest.fixture
def kernel_sources(tmp_path: Path) -> Path:
    """Make a directory with a module that has a kernel."""
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "probe.py").write_text(PROBE)
    return tmp_path / "sources"


@pytest.fixture
def cache_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name a directory for caches, which is not there yet."""
    monkeypatch.setenv(CACHE_ENV, str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(
    arguments: list[str], directory: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run Python in `directory`; it imports the package from there, or else the one under test."""
    process = started(arguments, directory, **environment)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def started(arguments: list[str], directory: Path, **environment: str) -> "subprocess.Popen[str]":
    """As `run`, without waiting for its end."""
    ours = ("NUMBA_", CACHE_ENV, "XDG_CACHE_HOME")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join([str(directory), str(PACKAGE.parent)])
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=directory,
        env={**inherited, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
