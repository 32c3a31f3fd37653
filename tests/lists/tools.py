"""What the tests of lists share: a list built from lines in one call, and what a command said."""

import gzip
import io
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import cramjam
import pytest

from streamdedup.cli import main
from streamdedup.keys.hashing import Hash
from streamdedup.keys.options import EmailRules
from streamdedup.lists.build.builder import BuildRequest, build
from streamdedup.lists.build.inputs import Input, inputs_of
from streamdedup.lists.build.rejects import Rejects
from streamdedup.lists.key_list import KeyList, load
from streamdedup.lists.normalization import Normalizing
from streamdedup.progress import Progress
from tests.filters.cases import HASH_KEY

PROVIDER = Normalizing("email", EmailRules.of("provider"))
STRICT = Normalizing("email", EmailRules.of("strict"))
RATES = {"bitmap": 1e-3}  # the others take 1e-6
HASHES = {"murmur3": Hash(), "siphash": Hash("siphash", HASH_KEY)}
BUILT_AT = 1_795_360_114.5  # 2026-11-22T15:08:34Z
PEAK = """
import re, resource, sys
from pathlib import Path
from streamdedup.cli import main
def peak():  # in bytes; Linux has the parent's in ru_maxrss, too
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
"""


def no_stdin() -> BinaryIO:
    """Stand in for standard input in a test that must not read it."""
    raise AssertionError("nobody reads standard input here")


def quiet() -> Progress:
    """Return a progress that writes nothing."""
    return Progress(None, live=False)


def inputs(*paths: Path, **options: str) -> list[Input]:
    """The inputs of these files."""
    return inputs_of([str(path) for path in paths], no_stdin, **options)


def written(path: Path, lines: Iterable[str | bytes]) -> Path:
    """Put `lines` at `path`, each with a newline; compressed as its name says."""
    data = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)
    path.write_bytes(packed(path.suffix, data))
    return path


def packed(ending: str, data: bytes) -> bytes:
    """Compress `data` as a name of this ending says, or not."""
    if ending == ".gz":
        return gzip.compress(data)
    return zstd(data) if ending == ".zst" else data


def zstd(data: bytes) -> bytes:
    """Compress as one frame."""
    return bytes(cramjam.zstd.compress(data))


def recipe(**given: Any) -> BuildRequest:
    """A recipe with a name, and with an error rate that the kind can have."""
    rate = RATES.get(given.get("kind", "fuse"), 1e-6)
    return BuildRequest(**{"name": "bad", "error_rate": rate, **given})


def built(directory: Path, lines: Iterable[str | bytes], **given: Any) -> KeyList:
    """The list of `lines`, built and loaded in `directory`."""
    source, output = written(directory / "in.txt", lines), directory / "out.list"
    made = recipe(**given)
    rejects = Rejects(directory / "out.rejects", 1000)
    build(made, inputs(source), output, rejects, quiet(), wall_clock=lambda: BUILT_AT)
    return load(output, hash_key=made.hash.key)


@dataclass(frozen=True)
class Said:
    """What a command did."""

    status: int
    out: bytes
    errors: str


class Commands:
    """`streamdedup lists ...` in this process, with what is on standard input."""

    def __init__(
        self, capture: pytest.CaptureFixture[bytes], patch: pytest.MonkeyPatch, directory: Path
    ) -> None:
        self._capture, self._patch = capture, patch
        self.directory = directory

    def __call__(self, *arguments: str | Path, stdin: bytes = b"") -> Said:
        """Run it in `directory`."""
        self._patch.chdir(self.directory)
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capture.readouterr()
        status = main(["lists", *map(str, arguments)])
        found = self._capture.readouterr()
        return Said(status, found.out, found.err.decode())

    def built(
        self, lines: Iterable[str | bytes], *options: str, name: str = "in.txt"
    ) -> tuple[KeyList, str]:
        """Build `out.list` of these lines by the command; the list, and what was said of it."""
        written(self.directory / name, lines)
        said = self("build", name, "-o", "out.list", *options)
        assert said.status == 0, said.errors
        return load(self.directory / "out.list"), said.errors

    def rejected(self) -> list[tuple[int, str, str]]:
        """The number and the reason of each bad line of `out.list`, and the line itself."""
        path = self.directory / "out.list.rejects"
        rows = (
            [row.split("\t", 3) for row in path.read_text(errors="replace").splitlines()]
            if path.exists()
            else []
        )
        return [(int(number), reason, line) for _, number, reason, line in rows]


@pytest.fixture
def lists(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Commands:
    """The command, in an empty directory."""
    return Commands(capsysbinary, monkeypatch, tmp_path)


def child(program: str, *arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end; its failure is the test's."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done
