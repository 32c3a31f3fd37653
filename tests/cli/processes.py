"""The command as a process, or in this one, with its streams in the hands of a test."""

import array
import fcntl
import os
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import pytest

from streamdedup.cli import main
from tests.broker.base import DEADLINE_S
from tests.lists.tools import built

EXAMPLE = Path(__file__).parents[2] / "config" / "dedup.yaml"
COMMAND = [sys.executable, "-m", "streamdedup"]
LINES = b"".join(b"%d\n" % number for number in range(100_000))


class Call(Protocol):
    """Runs the command in this process, which takes a tenth of the time of another."""

    def __call__(
        self, *arguments: str, given: bytes = b"", encoding: str = "utf-8"
    ) -> subprocess.CompletedProcess[bytes]:
        """What `subprocess.run` returns."""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Give a way to run the command, for claims that are not about the process. Its streams are files."""

    def called(
        *arguments: str, given: bytes = b"", encoding: str = "utf-8"
    ) -> subprocess.CompletedProcess[bytes]:
        paths = [tmp_path / name for name in ("stdin", "stdout", "stderr")]
        paths[0].write_bytes(given)
        with ExitStack() as held, monkeypatch.context() as patched:
            for path, mode in zip(paths, "rww", strict=True):
                stream = held.enter_context(path.open(mode, encoding=encoding))
                patched.setattr(sys, path.name, stream)
            status = main(arguments)
        output, errors = (path.read_bytes() for path in paths[1:])
        return subprocess.CompletedProcess(arguments, status, output, errors)

    return called


def is_asleep(pid: int) -> bool:
    """Whether a process waits for something, as Linux tells it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def holds(pipe_end: IO[bytes] | int, size_bytes: int) -> bool:
    """Whether so many bytes wait in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe_end, termios.FIONREAD, count)
    return count[0] == size_bytes


@dataclass(frozen=True)
class Piped:
    """`streamdedup pipe`, running, with all its streams in our hands."""

    process: subprocess.Popen[bytes]
    input: IO[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    def write(self, data: bytes) -> None:
        """Hand on `data`, of a few KiB at most, at once."""
        self.input.write(data)

    def arriving(self) -> bytes:
        """Read what is there, now or before the deadline."""
        ready, _, _ = select.select([self.output], [], [], DEADLINE_S)
        return os.read(self.output.fileno(), 1 << 16) if ready else b"(nothing arrived)"


@pytest.fixture
def piped() -> Iterator[Piped]:
    """Start `streamdedup pipe`, and end it where the test did not."""
    # A shell may have started us with signals ignored, which children inherit.
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "from streamdedup.cli import main\n"
        "sys.exit(main(['pipe']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        yield Piped(process, process.stdin, process.stdout, process.stderr)
        process.kill()


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with a list."""
    made = tmp_path_factory.mktemp("streams")
    built(made, ["a", "b"])
    (made / "in").write_bytes(LINES)
    return made
