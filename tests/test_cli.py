"""Claims about the command itself: quick to help, honest in its exit status, polite to signals."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

import streamdedup
from streamdedup.cli import main

COMMAND = [sys.executable, "-m", "streamdedup"]
# Python's own buffering is what a user has, and would hide behind this variable a missing flush.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
HEAVY = {"numba", "numpy", "aiokafka", "pydantic", "orjson", "mmh3"}


@dataclass(frozen=True)
class Piped:
    """`streamdedup pipe`, running, with all its streams in our hands."""

    process: subprocess.Popen[bytes]
    input: IO[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    def write(self, data: bytes) -> None:
        """Hand on `data` at once."""
        self.input.write(data)
        self.input.flush()

    def arriving(self) -> bytes:
        """Read what is there, now or within half a minute."""
        ready, _, _ = select.select([self.output], [], [], 30)
        return os.read(self.output.fileno(), 1 << 16) if ready else b"(nothing arrived)"


@pytest.fixture
def piped() -> Iterator[Piped]:
    """Start `streamdedup pipe`, and end it where the test did not."""
    # A shell may have started us with SIGINT ignored, which children inherit.
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from streamdedup.cli import main\n"
        "sys.exit(main(['pipe']))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=BUFFERED,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        yield Piped(process, process.stdin, process.stdout, process.stderr)
        process.kill()


@pytest.mark.parametrize("arguments", [["--help"], ["pipe", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """Help and version come without the libraries that the work needs."""
    program = (
        "import sys\n"
        "from streamdedup.cli import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        f"print('imported', *sorted({HEAVY!r} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "imported"


def test_help_is_quick() -> None:
    """`streamdedup --help` takes less than 0.3 seconds, at the best of five."""
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - started)
        assert done.stdout.startswith("usage: streamdedup ")
    assert min(seconds) < 0.3


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version printed is the package's."""
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"streamdedup {streamdedup.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required: COMMAND"),
        (["no-such-command"], "invalid choice: 'no-such-command'"),
        (["pipe", "--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["pipe", "--capacity", "many"], "--capacity: 'many': is not an integer; write one like"),
        (["pipe", "--capacity", "1.5"], "--capacity: '1.5': must come to a whole number"),
        (["pipe", "--error-rate", "low"], "--error-rate: 'low': must be a number from 1e-15"),
        (["pipe", "--on-full", "grow"], "argument --on-full"),
        (["pipe", "--kind", "blom"], "argument --kind: invalid choice: 'blom' (choose from "),
        (["pipe", "--capacity", "0"], "--capacity: '0': out of range, must be 1 to 1000G keys"),
        (["pipe", "--capacity", "2e12"], "--capacity: '2e12': out of range, must be 1 to 1000G"),
        (["pipe", "--capacity", "1000G"], "--capacity, --error-rate: filter.capacity 1000000000"),
        (["pipe", "--error-rate", "1"], "--error-rate: '1': must be a number from 1e-15 to 0.5"),
        (["pipe", "--error-rate", "9e-16"], "--error-rate: '9e-16': must be a number from 1e-15"),
        (["pipe", "--error-rate", "nan"], "--error-rate: 'nan': must be a number from 1e-15"),
        (["pipe", "--key", "csv:1"], "--key 'csv:1' is neither 'line' nor 'json:FIELD'"),
    ],
    ids=" ".join,
)
def test_wrong_arguments_end_in_2(arguments: list[str], said: str) -> None:
    """Arguments that do not fit end in status 2 and a message that names them, without a trace."""
    done = _run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


def test_success_ends_in_0() -> None:
    """A run over all of its input ends in status 0, with the summary on standard error only."""
    done = _run("pipe", "--capacity", "1_000", given=b"a\nb\na\n")
    assert (done.returncode, done.stdout) == (0, b"a\nb\n")
    assert done.stderr.startswith(b"3 lines: 2 passed, 1 duplicates;")
    assert b"bloom: 2 of 1,000 keys" in done.stderr


def test_a_full_filter_ends_in_1() -> None:
    """At capacity the lines before are out, and the message names both remedies."""
    done = _run("pipe", "--capacity", "2", "--error-rate", "1e-9", given=b"a\nb\na\nc\nd\n")
    assert (done.returncode, done.stdout) == (1, b"a\nb\n")
    assert b"2 of 2 keys" in done.stderr
    assert b"streamdedup: the filter is full: it holds 2 keys, so line 4 " in done.stderr
    assert b"larger --capacity" in done.stderr
    assert b"--on-full warn" in done.stderr
    assert b"Traceback" not in done.stderr


def test_on_full_warn_ends_in_0() -> None:
    """With --on-full warn all lines pass, one line warns, and the summary shows the filter overfull."""
    given = b"".join(b"%d\n" % i for i in range(9))
    done = _run("pipe", "--capacity", "5", "--error-rate", "1e-9", "--on-full", "warn", given=given)
    assert (done.returncode, done.stdout) == (0, given)
    warning, *summary = done.stderr.splitlines()
    assert warning.startswith(b"streamdedup: warning: the filter is full: by line 9 it holds more")
    assert len(summary) == 2
    assert b"9 of 5 keys" in summary[1]


def test_errors_do_not_tell_keys() -> None:
    """No line of the input appears on standard error, whatever goes wrong with it."""
    given = b'{"id": "s3cr3t-1"}\n{"id": "s3cr3t-2"}\n{"id": ["s3cr3t-3"]}\ns3cr3t-4\n'
    for arguments in (["--key", "json:id"], ["--key", "json:id", "--capacity", "1"]):
        done = _run("pipe", *arguments, given=given)
        assert b"lines" in done.stderr
        assert b"s3cr3t" not in done.stderr


@pytest.mark.parametrize(
    ("redirection", "said"),
    [
        ("<&-", b"streamdedup: standard input is closed; "),
        (">&- </dev/null", b"streamdedup: standard output is closed; "),
        ("0>/dev/null", b"streamdedup: the input cannot be read: Bad file descriptor\n"),
        pytest.param(
            ">/dev/full <<<line",
            b"streamdedup: the output cannot be written: No space left on device\n",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full"),
        ),
    ],
    ids=["input closed", "output closed", "input broken", "output broken"],
)
def test_a_stream_that_fails_is_named_and_ends_in_1(redirection: str, said: bytes) -> None:
    """The message tells input from output, and there is no trace."""
    done = _shell(f'"$@" pipe {redirection}')
    assert done.returncode == 1
    assert said in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


def test_without_standard_error_the_output_holds_lines_only() -> None:
    """Where standard error is closed the summary is not told: it has no place among the lines."""
    done = _shell('"$@" pipe <<<line 2>&-')
    assert (done.returncode, done.stdout) == (0, b"line\n")


def test_what_nobody_foresaw_ends_in_1_and_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of unknown origin is told by its type and its places: its message may hold a key."""

    def fail(_config: object) -> None:
        raise ValueError("s3cr3t") from KeyError("s3cr3t")

    monkeypatch.setattr("streamdedup.filters.build", fail)
    assert main(["pipe"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("streamdedup: a fault of ours, please report it; it came from ")
    assert "KeyError\n\nwhich led to:" in said
    assert "in _pipe\n" in said
    assert said.endswith("in fail\nValueError\n")
    assert "s3cr3t" not in said


def test_what_the_system_refuses_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system's own errors hold no keys: their text, and the file's name, are what helps."""

    def fail(_config: object) -> None:
        raise PermissionError(13, "Permission denied", "/var/x")

    monkeypatch.setattr("streamdedup.filters.build", fail)
    assert main(["pipe"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("streamdedup: [Errno 13] Permission denied: '/var/x'; it came from ")
    assert said.endswith("in fail\nPermissionError\n")


def test_lines_pass_before_the_input_ends(piped: Piped) -> None:
    """What was written to the command comes out although its input stays open."""
    for line in (b"one\n", b"two\n"):
        piped.write(line * 2)
        assert piped.arriving() == line
    piped.input.close()
    assert piped.output.read() == b""
    assert piped.process.wait(30) == 0


def test_a_closed_pipe_is_no_error(piped: Piped) -> None:
    """Where the reader has had enough, the command ends in 0 with its summary and no complaint."""
    piped.write(b"first\n")
    assert piped.arriving() == b"first\n"
    piped.output.close()
    piped.write(b"second\n")  # and left open: it is the closed output that ends the command
    said = piped.errors.read().splitlines()
    assert piped.process.wait(30) == 0
    assert [line.split(b":")[0] for line in said] == [b"2 lines", b"bloom"]


def test_an_interrupt_ends_in_130(piped: Piped) -> None:
    """SIGINT ends the command at once: what passed is out, the summary is printed, no trace."""
    piped.write(b"a\na\nb\n")
    assert piped.arriving() == b"a\nb\n"
    piped.process.send_signal(signal.SIGINT)
    assert piped.process.wait(30) == 130
    said = piped.errors.read()
    assert said.startswith(b"3 lines: 2 passed, 1 duplicates;")
    assert b"Traceback" not in said


def _shell(script: str) -> subprocess.CompletedProcess[bytes]:
    """Run `script` in bash, where `"$@"` is the command."""
    return subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND],
        env=BUFFERED,
        capture_output=True,
        check=False,
        timeout=60,
    )


def _run(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], input=given, capture_output=True, check=False, timeout=60
    )
