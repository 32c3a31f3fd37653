"""Claims about the standard streams: what is written is written whole or the status is not 0; a pause is no end."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.broker.base import DEADLINE_S, wait_until
from tests.cli.processes import COMMAND, EXAMPLE, LINES, holds, is_asleep

# As in most images. Standard output is then a raw file, whose `write` may write a part.
UNBUFFERED = {**os.environ, "PYTHONUNBUFFERED": "1"}

full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


PRINTING = [
    ["--help"],
    ["--version"],
    ["pipe", "--help"],
    ["lists", "check", "--help"],
    ["config", "check", str(EXAMPLE)],
    ["config", "show", str(EXAMPLE)],
    ["config", "schema"],
    ["plan", "--table"],
    ["plan", "--table", "--json"],
    ["pipe"],
    ["pipe", "--key", "csv:1"],
    ["lists", "check", "out.list"],
    ["lists", "check", "out.list", "a"],
    ["lists", "inspect", "out.list"],
]


SAID = b"streamdedup: the output cannot be written: "


def written_to(
    path: Path, arguments: list[str], listed: Path, first: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command over `in`, with its standard output at `path`; the new process calls `first` before."""
    with path.open("wb") as output, (listed / "in").open("rb") as lines:
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=listed,
            env=UNBUFFERED,
            stdin=lines,
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
            timeout=DEADLINE_S,
            preexec_fn=first,
        )


@full
@pytest.mark.parametrize("arguments", PRINTING, ids=lambda words: "-".join(words[:2]))
def test_a_full_disk_is_named(arguments: list[str], listed: Path) -> None:
    """By every command that prints, in the same words, in one line, with status 1."""
    done = written_to(Path("/dev/full"), arguments, listed)
    assert done.returncode == 1
    assert done.stderr.endswith(SAID + b"No space left on device\n")
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["pipe"], ["lists", "check", "out.list"], ["config", "schema"], ["plan", "--table"]],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_disk_that_fills_up_is_named(arguments: list[str], listed: Path, tmp_path: Path) -> None:
    """The last write is then a short one, which is no error by itself: the next one fails."""
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1000, 1000))
    done = written_to(tmp_path / "out", arguments, listed, limit)
    assert (tmp_path / "out").stat().st_size == 1000
    assert done.returncode == 1
    assert done.stderr.endswith(SAID + b"File too large\n")


@linux
@pytest.mark.parametrize("blocks", [True, False], ids=["blocking", "not blocking"])
@pytest.mark.parametrize(
    "given", [LINES, 3 * (b"x" * (9 << 20) + b"\n")], ids=["lines", "a long line"]
)
def test_a_slow_reader_gets_all(given: bytes, blocks: bool, tmp_path: Path) -> None:
    """Signals interrupt writes in the middle, as pipe's own timer does, and a descriptor may not block."""
    (tmp_path / "in").write_bytes(given)
    reader, writer = os.pipe()
    os.set_blocking(writer, blocks)
    with (
        (tmp_path / "in").open("rb") as lines,
        subprocess.Popen(
            [*COMMAND, "pipe"],
            env=UNBUFFERED,
            stdin=lines,
            stdout=writer,
            stderr=subprocess.PIPE,
        ) as process,
        os.fdopen(reader, "rb", buffering=0) as output,
    ):
        os.close(writer)
        got = [output.read(5000)]
        for _ in range(3):
            wait_until(partial(is_asleep, process.pid), DEADLINE_S, lambda: "it does not wait")
            process.send_signal(signal.SIGALRM)
            got.append(output.read(5000))
        got.append(output.read())
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr is not None
        said = process.stderr.read()
    expected = given if given is LINES else given[: (9 << 20) + 1]
    assert b"".join(got) == expected
    assert b" %d passed" % expected.count(b"\n") in said.replace(b",", b"")


@linux
@pytest.mark.parametrize(
    ("arguments", "out", "said"),
    [
        (["pipe"], b"a\nb\n", b"3 lines: 2 passed"),
        (["lists", "check", "out.list"], b"blocked\taddress\ta\n" * 2, b""),
        (["lists", "build", "-", "-o", "new.list"], b"", b"reading: 3 lines"),
        (["plan", "--sample", "-"], b"2", b""),
        (["pipe", "--key", "csv:1"], b"a\nb\n", b"3 records: 2 passed"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_an_input_that_pauses_has_not_ended(
    arguments: list[str], out: bytes, said: bytes, listed: Path
) -> None:
    """If it does not block, a read finds nothing now and then."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=listed,
        stdin=reader,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        for given in (b"a\n", b"a\nb", b"\n"):
            wait_until(partial(is_asleep, process.pid), DEADLINE_S, lambda: "it does not wait")
            os.write(writer, given)
            wait_until(partial(holds, reader, 0), DEADLINE_S, lambda: "it does not read")
        os.close(reader)
        os.close(writer)
        printed, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert out in printed
    assert said in errors


@pytest.mark.parametrize(
    "arguments",
    [["config", "schema"], ["config", "show", EXAMPLE], ["pipe"], ["lists", "inspect", "out.list"]],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_closed_output_is_named(arguments: list[str], listed: Path) -> None:
    """What cannot be printed is not taken for printed."""
    done = subprocess.run(
        ["bash", "-c", '"$@" >&- </dev/null', "bash", *COMMAND, *arguments],
        cwd=listed,
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"streamdedup: standard output is closed; redirect it")
