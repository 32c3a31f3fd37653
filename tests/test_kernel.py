"""Claims about compiled functions: their cache follows the sources, and none is needed to work.

Each claim runs a copy of the package in a process of its own: the cache is chosen at import.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import streamdedup

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
def sources(tmp_path: Path) -> Path:
    """Make a directory with a copy of the package and a module that has a kernel."""
    root = tmp_path / "sources"
    package = Path(streamdedup.__file__).parent
    shutil.copytree(package, root / "streamdedup", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "probe.py").write_text(PROBE)
    return root


def test_a_second_process_loads_what_the_first_compiled(sources: Path, tmp_path: Path) -> None:
    """The cache is where STREAMDEDUP_CACHE says, serves the next process, and is nowhere else."""
    cache = tmp_path / "cache"
    assert _hits_and_misses(sources, STREAMDEDUP_CACHE=str(cache)) == (0, 1)
    assert len(_kernels(cache)) == 2  # the index and the machine code
    assert _hits_and_misses(sources, STREAMDEDUP_CACHE=str(cache)) == (1, 0)
    assert _kernels(sources) == []


def test_a_change_in_any_module_makes_a_new_cache(sources: Path, tmp_path: Path) -> None:
    """After an edit in another module than the kernel's, nothing compiled before is used."""
    cache = tmp_path / "cache"
    assert _hits_and_misses(sources, STREAMDEDUP_CACHE=str(cache)) == (0, 1)
    (other,) = (sources / "streamdedup" / "keys").glob("hashing.py")
    other.write_text(other.read_text() + "\nCHANGED = True\n")
    assert _hits_and_misses(sources, STREAMDEDUP_CACHE=str(cache)) == (0, 1)
    assert len({path.parents[1] for path in _kernels(cache)}) == 2


def test_bounds_checking_has_a_cache_of_its_own(sources: Path, tmp_path: Path) -> None:
    """With NUMBA_BOUNDSCHECK the unchecked machine code is not used."""
    cache = tmp_path / "cache"
    assert _hits_and_misses(sources, STREAMDEDUP_CACHE=str(cache)) == (0, 1)
    assert _hits_and_misses(sources, STREAMDEDUP_CACHE=str(cache), NUMBA_BOUNDSCHECK="1") == (0, 1)


@pytest.mark.parametrize("variable", ["STREAMDEDUP_CACHE", "XDG_CACHE_HOME", "HOME"])
def test_without_a_writable_directory_there_is_no_cache(sources: Path, variable: str) -> None:
    """Where no directory can be made, kernels compile and work, each time anew, and leave nothing.

    Below /dev/null nobody can write, not even root.
    """
    for _ in range(2):
        assert _hits_and_misses(sources, **{variable: "/dev/null/none"}) == (0, 1)
    assert _kernels(sources) == []


def _hits_and_misses(sources: Path, **environment: str) -> tuple[int, int]:
    """Call one kernel in a process: what it found in a cache, what it had to compile."""
    ours = {"STREAMDEDUP_CACHE", "XDG_CACHE_HOME", "NUMBA_BOUNDSCHECK", "NUMBA_CACHE_DIR"}
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [sys.executable, "probe.py"],
        cwd=sources,
        env={
            **inherited,
            "PYTHONPATH": str(sources),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    hits, misses = done.stdout.split()
    return int(hits), int(misses)


def _kernels(root: Path) -> list[Path]:
    """List what numba wrote below `root`."""
    return [path for path in root.rglob("*") if path.suffix in {".nbi", ".nbc"}]
