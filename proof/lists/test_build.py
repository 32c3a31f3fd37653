"""Claims about `lists build`: every input it takes, every input it refuses, in memory that it states beforehand.

A build that fails leaves the list as it was.
"""

import gzip
import os
import re
import threading
from pathlib import Path

import pytest

from streamdedup.lists import load
from tests.lists.tools import (
    PEAK,
    child,
    written,
)

MEGABYTE = 1_000_000


GROWTH = f"""{PEAK}
def build(source):
    options = ["--allow-empty", "--bad-max", "1", *sys.argv[2:]]
    return main(["lists", "build", source, "-o", "out.list", *options])
assert build("small.txt") == 0
before = peak()
assert build(sys.argv[1]) == 0
print(peak() - before)
"""


@pytest.mark.parametrize(
    "options", [(), ("--format", "csv", "--column", "1"), ("--format", "jsonl", "--field", "x")]
)
def test_a_line_without_an_end_is_passed_over_in_bounded_memory(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """Of 100 MB, from a sparse file and from a pipe: it is one bad line, and what comes after it is read."""
    written(tmp_path / "small.txt", ["{}"])
    long = tmp_path / "long.txt"
    with long.open("wb") as file:
        file.truncate(100 * MEGABYTE)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"x": "a"}\n')
    os.mkfifo(tmp_path / "pipe")
    for source in ("long.txt", "pipe"):
        feeder = threading.Thread(target=_feed, args=(long, tmp_path / "pipe"))
        if source == "pipe":
            feeder.start()
        done = child(GROWTH, source, "--capacity", "10", *options, directory=tmp_path)
        if source == "pipe":
            feeder.join()
        assert int(done.stdout) < 30 * MEGABYTE
        rejected = (tmp_path / "out.list.rejects").read_bytes()
        assert rejected.startswith(
            f"{source}\t1\tthe line is longer than 1,048,576 bytes\t".encode()
        )
        assert len(rejected) < 400
        assert load(tmp_path / "out.list").facts.counts.addresses == 1


def _feed(source: Path, pipe: Path) -> None:
    with source.open("rb") as file, pipe.open("wb", buffering=0) as out:
        while chunk := file.read(MEGABYTE):
            out.write(chunk)


STATED = f"""{PEAK}
assert main(["lists", "build", "in.txt.gz", "-o", "out.list", "--kind", sys.argv[1]]) == 0
print(peak())
"""


@pytest.mark.parametrize("kind", ["bloom", "fuse"])
def test_two_million_addresses_take_no_more_memory_than_stated(kind: str, tmp_path: Path) -> None:
    """What the first line says is not reached by the whole process, once the kernels are compiled."""
    with gzip.open(tmp_path / "in.txt.gz", "wb", compresslevel=1) as file:
        for start in range(0, 2 * MEGABYTE, 100_000):
            file.write(b"".join(b"%d@example.com\n" % i for i in range(start, start + 100_000)))
    child(STATED, kind, directory=tmp_path)
    done = child(STATED, kind, directory=tmp_path)
    stated = re.search(r"needs about ([\d.]+) MB of memory", done.stderr)
    assert stated is not None
    assert int(done.stdout) < float(stated[1]) * MEGABYTE
    assert load(tmp_path / "out.list").facts.counts.addresses == pytest.approx(2 * MEGABYTE, abs=20)
