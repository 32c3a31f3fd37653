"""What programs are told of types: the code of the documents and the examples, as mypy and pyright see it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import BLOCKS, ROOT

# What type checkers are to find, beside what stands in the documents.
CLAIMS = """
import copy
from typing import assert_type

import streamdedup
from streamdedup import Addable, Cuckoo, Filter, Growing, Removable, Unionable
from streamdedup.filters import base

assert_type(Cuckoo(1000, 1e-3, multiset=True), Cuckoo)
assert_type(Cuckoo("1k", on_full="grow", max_size="1MiB"), Growing)
assert_type(streamdedup.Window(1000, retention="7d", on_full="grow"), streamdedup.GrowingWindow)
assert_type(streamdedup.Bitmap(range=[0, 9]), streamdedup.DirectBitmap)
assert_type(streamdedup.build({"kind": "cuckoo", "capacity": 1000, "multiset": True}), Cuckoo)
assert_type(streamdedup.build(kind="exact", capacity=1000, load=0.7), streamdedup.Exact)
assert_type(streamdedup.build({"kind": "bitmap", "range": (0, 9)}), streamdedup.DirectBitmap)
assert_type(streamdedup.build({"kind": "fuse", "keys": ["a"]}), streamdedup.Fuse)
assert_type(streamdedup.build(kind="dleft", capacity=1, on_full="grow"), Growing)
config = dict(kind="bloom")
assert_type(streamdedup.build(config), Addable)
assert_type(streamdedup.load("file"), Filter)
assert_type(copy.copy(Cuckoo(1)), Cuckoo)
assert_type(Cuckoo(1).copy(), Cuckoo)
assert_type(streamdedup.Bloom(1) | streamdedup.Bloom(1), streamdedup.Bloom)
assert_type(streamdedup.Exact(1) & streamdedup.Exact(1), streamdedup.Exact)


def of_worker(_0: base.Filter, _1: base.Addable, _2: base.Removable, _3: base.Unionable) -> None: ...
def of_worker_too(_0: base.Growing) -> None: ...


def adds(seen: Addable, removes: Removable, unites: Unionable, grows: Growing) -> bool:
    of_worker(seen, unites, removes, unites)
    of_worker_too(grows)
    seen.update(["a"], {"b": 1}, (f"{i}" for i in range(3)))
    return removes.discard("a") or seen.add("a")


adds(Cuckoo(1), Cuckoo(1), streamdedup.Counting(1), Cuckoo(1, on_full="grow"))
"""
WRONG = """
import streamdedup

streamdedup.Bloom(1000).discard("a")
streamdedup.Cuckoo(1000, probe="double")
streamdedup.Cuckoo(1000, on_full="grow").discard("a")
streamdedup.Fuse(["a"]).add("b")
streamdedup.load("file").add("a")
streamdedup.Quotient
streamdedup.Cuckoo(1000) | streamdedup.Cuckoo(1000)
"""
ERRORS = range(4, 11)
"""The lines of `WRONG` that have one, each."""


_ERROR = re.compile(r"(\w+\.py):(\d+)(?::\d+ -|:) error")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with each Python block of the documents as a file, the examples, and the claims."""
    folder = tmp_path_factory.mktemp("programs")
    for block in BLOCKS:
        if block.language == "python" and "streamdedup" in block.text:
            name = block.document.removesuffix(".md").replace("/", "_")
            (folder / f"{name}_{block.line}.py").write_text(block.text)
    for path in (ROOT / "examples").glob("*.py"):
        (folder / path.name).write_text(path.read_text())
    (folder / "claims.py").write_text(CLAIMS)
    (folder / "wrong.py").write_text(WRONG)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        [
            "mypy",
            "--strict",
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            str(ROOT / ".mypy_cache"),
        ],
        ["basedpyright", "--level", "error", "--pythonpath", sys.executable],
    ],
    ids=["mypy", "pyright"],
)
def test_the_programs_of_the_documents_have_types(command: list[str], programs: Path) -> None:
    """They pass strictly; what a filter cannot do is an error, in each line."""
    files = sorted(path.name for path in programs.glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-m", *command, *files],
        cwd=programs,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [(name, int(line)) for name, line in _ERROR.findall(done.stdout)]
    assert [each for each in found if each[0] != "wrong.py"] == [], done.stdout
    assert {line for _, line in found} == set(ERRORS), done.stdout
