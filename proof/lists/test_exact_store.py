"""Claims about exact stores: what they hold, to which list they belong, and that half a store is none.

They are built by `lists build --exact`, from real files, and lie beside the list.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamdedup.lists import load
from streamdedup.lists.exact_store import place_of
from tests.lists.test_exact_store import ABSENT, ENTRIES, KEYS, OPTIONS, made, opened
from tests.lists.tools import (
    PEAK,
    child,
    written,
)

KILLED = """
import os, signal, sys
from streamdedup.cli import main
from streamdedup.lists.build import builder, store
from streamdedup.snapshot import files
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
where, *arguments = sys.argv[1:]
if where == "reading": builder._list_of = die
if where == "storing": store._content = die
if where == "naming": files.sync_directory = die
if where == "between": builder.files.save = die
main(["lists", "build", *arguments])
"""


@pytest.mark.parametrize("where", ["reading", "storing", "naming", "between"])
def test_a_build_that_is_killed_leaves_list_and_store_as_they_were(
    where: str, tmp_path: Path
) -> None:
    """The list that is there has its store at every moment; the next build takes away what lies about."""
    listed = made(tmp_path, ENTRIES)
    before, place = (tmp_path / "out.list").read_bytes(), place_of(tmp_path / "out.list")
    source, output = written(tmp_path / "other.txt", ABSENT), tmp_path / "out.list"
    command = [sys.executable, "-c", KILLED, where, str(source), "-o", str(output), *OPTIONS]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (tmp_path / "out.list").read_bytes() == before
    assert opened(listed).holds(listed.hash.digests([*KEYS, *ABSENT])).sum() == len(KEYS)
    again = made(tmp_path, ABSENT)
    assert opened(again).holds(again.hash.digests([*KEYS, *ABSENT])).sum() == len(ABSENT)
    assert sorted(path.name for path in place.iterdir()) == sorted([listed.version, again.version])


STATED = f"""{PEAK}
assert main(["lists", "build", "in.txt", "-o", "out.list", "--kind", "bloom", "--exact"]) == 0
print(peak())
"""


def test_a_store_takes_no_more_memory_and_disk_than_stated(tmp_path: Path) -> None:
    """Of the whole process, once the kernels are compiled; however many entries there are, hardly more."""
    for entries in (10, 2_000_000):  # the first build is there to compile
        with (tmp_path / "in.txt").open("wb") as file:
            file.write(b"".join(b"%d@example.com\n" % n for n in range(entries)))
        done = child(STATED, directory=tmp_path)
    stated = re.search(r"needs about ([\d.]+) MB of memory.*, and ([\d.]+) MB of disk", done.stderr)
    assert stated is not None
    assert int(done.stdout) < float(stated[1]) * 1e6
    listed = load(tmp_path / "out.list")
    store = opened(listed)
    assert store.entries == 2_000_000
    assert 2 * store.size_bytes < float(stated[2]) * 1e6
