"""Claims about the command itself: quick to help, honest in its exit status, polite to signals."""

import os
import signal
import subprocess
import sys
import time

import pytest

import streamdedup
from streamdedup.cli import main

COMMAND = [sys.executable, "-m", "streamdedup"]
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
HEAVY = {"numba", "numpy", "aiokafka", "pydantic", "orjson", "mmh3"}


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
        (["pipe", "--capacity", "many"], "argument --capacity"),
        (["pipe", "--capacity", "1.5"], "argument --capacity"),
        (["pipe", "--error-rate", "low"], "argument --error-rate"),
        (["pipe", "--on-full", "grow"], "argument --on-full"),
        (["pipe", "--kind", "blom"], "filter.kind 'blom' is unknown; choose one of: bloom"),
        (["pipe", "--capacity", "0"], "filter.capacity is 0; it must be at least 1"),
        (["pipe", "--error-rate", "1"], "filter.error_rate is 1.0; it must be above 0"),
        (["pipe", "--error-rate", "nan"], "filter.error_rate is nan"),
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
    """With --on-full warn all lines pass, and the summary shows the filter overfull."""
    given = b"".join(b"%d\n" % i for i in range(9))
    done = _run("pipe", "--capacity", "5", "--error-rate", "1e-9", "--on-full", "warn", given=given)
    assert (done.returncode, done.stdout) == (0, given)
    assert b"9 of 5 keys" in done.stderr


def test_errors_do_not_tell_keys() -> None:
    """No line of the input appears on standard error, whatever goes wrong with it."""
    given = b'{"id": "s3cr3t-1"}\n{"id": "s3cr3t-2"}\n{"id": ["s3cr3t-3"]}\ns3cr3t-4\n'
    for arguments in (["--key", "json:id"], ["--key", "json:id", "--capacity", "1"]):
        done = _run("pipe", *arguments, given=given)
        assert b"lines" in done.stderr
        assert b"s3cr3t" not in done.stderr


def test_a_closed_pipe_is_no_error() -> None:
    """Where the reader has had enough, the command ends in 0 with its summary and no complaint."""
    with subprocess.Popen(
        [*COMMAND, "pipe"],
        env=BUFFERED,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        process.stdin.write(b"second\n")
        process.stdin.flush()  # and left open: it is the closed output that ends the command
        said = process.stderr.read().splitlines()
        assert process.wait(30) == 0
    assert [line.split(b":")[0] for line in said] == [b"2 lines", b"bloom"]


def test_an_interrupt_ends_in_130() -> None:
    """SIGINT ends the command at once: what passed is out, the summary is printed, no trace."""
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
        os.write(process.stdin.fileno(), b"a\na\nb\n")
        assert [process.stdout.readline() for _ in range(2)] == [b"a\n", b"b\n"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        said = process.stderr.read()
    assert said.startswith(b"3 lines: 2 passed, 1 duplicates;")
    assert b"Traceback" not in said


def _run(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], input=given, capture_output=True, check=False, timeout=60
    )
