"""Claims about the cache of kernels: it follows the sources, only this user fills it, and it is not needed to work.

The cache is chosen at import, so each claim runs in processes of its own.
"""

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import numba
import pytest

from streamdedup.kernel.cache import CACHE_ENV
from tests.kernel_probes import NOBODY, PACKAGE, SHOWN, as_root, run, started

# numba unpickles the index of a cache before it compares anything. The mark is left then, not at the look-up.
HOSTILE = """
import pickle
from pathlib import Path

class Code:
    def __reduce__(self):
        return exec, (f"open({MARK!r}, 'w')",)

(index,) = Path(CACHE).rglob("*.nbi")
with index.open("wb") as file:
    pickle.dump(numba_version, file)
    pickle.dump(Code(), file)
"""


def test_a_second_process_loads_what_the_first_compiled(
    kernel_sources: Path, tmp_path: Path
) -> None:
    """The cache is where STREAMDEDUP_CACHE says, serves the next process, and is nowhere else."""
    cache = tmp_path / "cache"
    assert _hits_and_misses(kernel_sources, STREAMDEDUP_CACHE=str(cache)) == (0, 1)
    assert len(_kernels(cache)) == 2  # the index and the machine code
    assert _hits_and_misses(kernel_sources, STREAMDEDUP_CACHE=str(cache)) == (1, 0)
    assert _kernels(kernel_sources) == []


def test_a_change_in_a_source_of_kernels_makes_a_new_cache(
    kernel_sources: Path, tmp_path: Path
) -> None:
    """After an edit in another module than the kernel's, nothing compiled before is used. Others change nothing."""
    shutil.copytree(
        PACKAGE, kernel_sources / "streamdedup", ignore=shutil.ignore_patterns("__pycache__")
    )
    cache = str(tmp_path / "cache")
    assert _hits_and_misses(kernel_sources, STREAMDEDUP_CACHE=cache) == (0, 1)
    for name, found in (("library/__init__.py", (1, 0)), ("keys/hashing.py", (0, 1))):
        with (kernel_sources / "streamdedup" / name).open("a") as file:
            file.write("\nCHANGED = True\n")
        assert _hits_and_misses(kernel_sources, STREAMDEDUP_CACHE=cache) == found
    assert len({path.parents[1] for path in _kernels(tmp_path / "cache")}) == 2


def test_bounds_checking_has_a_cache_of_its_own(kernel_sources: Path, tmp_path: Path) -> None:
    """With NUMBA_BOUNDSCHECK the unchecked machine code is not used."""
    cache = tmp_path / "cache"
    assert _hits_and_misses(kernel_sources, STREAMDEDUP_CACHE=str(cache)) == (0, 1)
    assert _hits_and_misses(
        kernel_sources, STREAMDEDUP_CACHE=str(cache), NUMBA_BOUNDSCHECK="1"
    ) == (0, 1)


@pytest.mark.parametrize("variable", ["STREAMDEDUP_CACHE", "XDG_CACHE_HOME", "HOME"])
def test_without_a_writable_directory_there_is_no_cache(
    kernel_sources: Path, variable: str
) -> None:
    """Where no directory can be made, kernels compile and work, each time anew, say so once, and leave nothing.

    Below /dev/null nobody can write, not even root.
    """
    for _ in range(2):
        done = run(["probe.py"], kernel_sources, **{variable: "/dev/null/none"})
        assert done.stdout.split() == ["0", "1"]
        (line,) = done.stderr.splitlines()
        assert "(NotADirectoryError)" in line
        assert "set STREAMDEDUP_CACHE" in line
    assert _kernels(kernel_sources) == []


READ_ONLY = """
import tempfile

def refuse(**_options):
    raise OSError(30, "Read-only file system")

tempfile.TemporaryFile = refuse  # by which we, and numba, see whether a directory can be written to
import probe
"""


def test_what_is_kept_is_loaded_where_nothing_can_be_written(
    kernel_sources: Path, tmp_path: Path
) -> None:
    """A cache on a read-only disk, as in an image, serves as any other, and nobody is warned."""
    cache = str(tmp_path / "cache")
    first = run(["-c", "import probe"], kernel_sources, STREAMDEDUP_CACHE=cache)
    second = run(["-c", READ_ONLY], kernel_sources, STREAMDEDUP_CACHE=cache)
    assert (first.stdout.split(), second.stdout.split()) == (["0", "1"], ["1", "0"])
    assert second.stderr == ""


def test_on_another_processor_a_read_only_cache_does_no_harm(
    kernel_sources: Path, tmp_path: Path
) -> None:
    """What was compiled for another processor is passed over: kernels compile, say so once, and are not kept."""
    cache = tmp_path / "cache"
    run(
        ["-c", "import probe"],
        kernel_sources,
        STREAMDEDUP_CACHE=str(cache),
        NUMBA_CPU_NAME="generic",
    )
    kept = _kernels(cache)
    done = run(["-c", READ_ONLY], kernel_sources, STREAMDEDUP_CACHE=str(cache))
    assert done.stdout.split() == ["0", "1"]
    assert "(OSError)" in done.stderr
    assert _kernels(cache) == kept != []


def test_a_process_that_compiles_nothing_says_nothing(kernel_sources: Path) -> None:
    """That there is no cache is of no interest where nothing would be in it."""
    source = "import streamdedup.rules.duplicates"
    assert run(["-c", source], kernel_sources, STREAMDEDUP_CACHE="/dev/null/none").stderr == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda cached: cached.rglob("*.nbi").__next__().chmod(0o666),
        lambda cached: cached.rglob("*.nbi").__next__().parent.chmod(0o777),
        lambda cached: cached.chmod(0o777),
        pytest.param(
            lambda cached: os.chown(next(cached.rglob("*.nbi")), NOBODY, 0), marks=as_root
        ),
        None,
    ],
    ids=["file", "folder", "root", "owner", "ours"],
)
def test_an_index_of_others_is_not_unpickled(
    kernel_sources: Path, tmp_path: Path, change: Callable[[Path], None] | None
) -> None:
    """What it holds is not run, and the kernel is compiled. If all is ours, it is run: the test could see it."""
    cached, mark = tmp_path / "cache", tmp_path / "mark"
    environment = {CACHE_ENV: str(cached)}
    assert run(["probe.py"], kernel_sources, **environment).stdout.split() == ["0", "1"]
    written = {"MARK": str(mark), "CACHE": str(cached), "numba_version": numba.__version__}
    exec(HOSTILE, written)  # noqa: S102 - what another user would do
    if change:
        change(cached)
    assert run(["probe.py"], kernel_sources, **environment).stdout.split() == ["0", "1"]
    assert mark.exists() == (change is None)


COMMAND = "import sys, streamdedup.cli; sys.argv = ['streamdedup', 'config', 'schema']; streamdedup.cli.main()"


@pytest.mark.parametrize("name", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("size", [0, 1, 30, -1])
def test_a_file_that_is_cut_short_is_compiled_anew(
    kernel_sources: Path, tmp_path: Path, name: str, size: int
) -> None:
    """A loss of power may leave such files; the next process finds whole ones again."""
    cached = tmp_path / "cache"
    environment = {CACHE_ENV: str(cached)}
    assert run(["probe.py"], kernel_sources, **environment).stdout.split() == ["0", "1"]
    (file,) = cached.rglob(name)
    file.write_bytes(file.read_bytes()[:size])
    assert run(["probe.py"], kernel_sources, **environment).stdout.split() == ["0", "1"]
    assert run(["probe.py"], kernel_sources, **environment).stdout.split() == ["1", "0"]


@pytest.mark.parametrize(
    "content",
    ["disable_jit: 1", "boundscheck: 1\nopt: 0", "- no mapping", "a: [", "\x00", "cpu_name: none"],
)
def test_a_file_in_the_working_directory_does_not_set_numba_up(
    kernel_sources: Path, tmp_path: Path, content: str
) -> None:
    """A command does not read it at the import, nor when a kernel is compiled; a variable is read."""
    (kernel_sources / ".numba_config.yaml").write_text(content)
    code = f"{COMMAND}; import streamdedup.instructions, probe; {SHOWN}"
    for variable, level in (({}, "3"), ({"NUMBA_OPT": "1"}, "1")):
        done = run(["-c", code], kernel_sources, **{CACHE_ENV: str(tmp_path / level)}, **variable)
        assert done.stdout.splitlines()[-2:] == ["0 1", f"0 None {level} None"]
        assert done.stderr == ""


def test_of_processes_that_lack_a_kernel_one_compiles_it(
    kernel_sources: Path, tmp_path: Path
) -> None:
    """The others wait, and load what it kept."""
    environment = {CACHE_ENV: str(tmp_path / "cache")}
    running = [started(["probe.py"], kernel_sources, **environment) for _ in range(4)]
    found = [process.communicate(timeout=120)[0].split() for process in running]
    assert sorted(found) == [["0", "1"], *[["1", "0"]] * 3]


HOLDS = """
import sys
from streamdedup.kernel import cache, kept_in
cache.LOCK.take(kept_in())
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_process_keeps_nobody_waiting(
    kernel_sources: Path, tmp_path: Path, number: int
) -> None:
    """Who waits says for what, and goes on once the process that compiles has ended, however it ends."""
    environment = {CACHE_ENV: str(tmp_path / "cache")}
    holder = started(["-c", HOLDS], kernel_sources, **environment)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    waiting = started(["probe.py"], kernel_sources, **environment)
    assert waiting.stderr
    line = waiting.stderr.readline()
    assert re.match(
        r"another process compiles inner loops, and holds /.*/lock; this one waits", line
    )
    assert waiting.poll() is None
    holder.send_signal(number)
    out, rest = waiting.communicate(timeout=120)
    assert (out.split(), rest) == (["0", "1"], "")
    holder.communicate()


def _hits_and_misses(sources: Path, **environment: str) -> tuple[int, int]:
    """Call one kernel in a process: what it found in a cache, what it had to compile."""
    done = run(["probe.py"], sources, **environment)
    assert done.stderr == ""
    hits, misses = done.stdout.split()
    return int(hits), int(misses)


def _kernels(root: Path) -> list[Path]:
    """List what numba wrote below `root`."""
    return [path for path in root.rglob("*") if path.suffix in {".nbi", ".nbc"}]
