"""Claims about the command itself: quick to help, honest in its exit status, polite to signals."""

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from streamdedup.cli import main
from tests.broker.base import DEADLINE_S, wait_until
from tests.cli.processes import COMMAND, EXAMPLE, Piped, holds, is_asleep


@pytest.mark.parametrize(
    ("redirection", "said"),
    [
        ("<&-", b"streamdedup: standard input is closed; "),
        ("0>/dev/null", b"streamdedup: the input cannot be read: Bad file descriptor\n"),
    ],
    ids=["input closed", "input broken"],
)
def test_a_stream_that_fails_is_named_and_ends_in_1(redirection: str, said: bytes) -> None:
    """By its side, and there is no trace."""
    done = _shell(f'"$@" pipe {redirection}')
    assert done.returncode == 1
    assert said in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


def test_without_standard_error_the_outputholds_lines_only() -> None:
    """Where standard error is closed the summary is not told: it has no place among the lines."""
    done = _shell('"$@" pipe <<<line 2>&-')
    assert (done.returncode, done.stdout) == (0, b"line\n")


def test_what_nobody_foresaw_ends_in_1_and_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of unknown origin is told by its type and its places: its message may hold a key."""

    def fail(*_given: object) -> None:
        raise ValueError("s3cr3t") from KeyError("s3cr3t")

    monkeypatch.setattr("streamdedup.filters.build", fail)
    assert main(["pipe"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("streamdedup: a bug in streamdedup, please report it; it came from ")
    assert "KeyError\n\nwhich led to:" in said
    assert "in _pipe\n" in said
    assert said.endswith("in fail\nValueError\n")
    assert "s3cr3t" not in said


@pytest.mark.parametrize("line", [b"new\n", b"first\n"], ids=["new", "duplicate"])
def test_a_closed_pipe_is_no_error(piped: Piped, line: bytes) -> None:
    """Where the reader has had enough, the command ends in 0 with its summary and no complaint.

    It does so also where only duplicates come: nothing is then written that could fail.
    """
    piped.write(b"first\n")
    assert piped.arriving() == b"first\n"
    piped.output.close()
    with suppress(BrokenPipeError):  # it may have ended before this comes
        piped.write(line)  # and left open: it is the closed output that ends the command
    assert piped.process.wait(DEADLINE_S) == 0
    assert re.match(rb"(1 line|2 lines): .+\ncuckoo in 1 stage: .+\n$", piped.errors.read())


def test_a_closed_socket_is_noticed_without_a_new_line() -> None:
    """Standard output may be a socket, as under inetd."""
    ours, theirs = socket.socketpair()
    command = [*COMMAND, "pipe"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=theirs.fileno(), stderr=subprocess.DEVNULL, bufsize=0
    ) as process:
        theirs.close()
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        assert ours.recv(100) == b"first\n"
        ours.close()
        with suppress(BrokenPipeError):
            process.stdin.write(b"first\n")
        assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["pipe", "--help"],
        ["config", "check", str(EXAMPLE)],
        ["config", "show", str(EXAMPLE)],
        ["config", "schema"],
        ["plan", "--table"],
        ["demo"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_command_whose_reader_has_gone_ends_silently(
    arguments: list[str], tmp_path: Path
) -> None:
    """As of any tool, the output may be left unread: the status is 0, and nothing is complained of."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=DEADLINE_S,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_an_interrupt_ends_the_command_with_its_summary(
    piped: Piped, number: signal.Signals, status: int
) -> None:
    """SIGINT and SIGTERM end it at once: what passed is out, the summary is printed, no trace."""
    piped.write(b"a\na\nb\n")
    assert piped.arriving() == b"a\nb\n"
    piped.process.send_signal(number)
    assert piped.process.wait(DEADLINE_S) == status
    said = piped.errors.read()
    assert said.startswith(b"3 lines: 2 passed, 1 duplicate;")
    assert b"Traceback" not in said


@pytest.mark.skipif(not hasattr(fcntl, "F_GETPIPE_SZ"), reason="needs Linux's size of a pipe")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
def test_an_interrupt_does_not_wait_for_the_reader(piped: Piped, number: signal.Signals) -> None:
    """Where the reader stands still, what it has not taken is given up, rather than waited with."""
    line_bytes = 4096
    size = fcntl.fcntl(piped.output, fcntl.F_GETPIPE_SZ)
    for written in range(line_bytes, size + 1, line_bytes):
        piped.write(b"%0*d\n" % (line_bytes - 1, written))
        wait_until(partial(holds, piped.output, written), DEADLINE_S, lambda: "nothing arrives")
    piped.write(b"%0*d\n" % (line_bytes - 1, 0))
    wait_until(partial(holds, piped.input, 0), DEADLINE_S, lambda: "nothing is read")
    wait_until(partial(is_asleep, piped.process.pid), DEADLINE_S, lambda: "it does not wait")
    piped.process.send_signal(number)
    assert piped.process.wait(DEADLINE_S) == 128 + number
    assert b" lines: " in piped.errors.read()


def _shell(script: str) -> subprocess.CompletedProcess[bytes]:
    """Run `script` in bash, where `"$@"` is the command."""
    return subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND],
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
    )


def test_help_is_quick() -> None:
    """`streamdedup --help` takes less than 0.3 seconds of a processor, at the best of five."""
    seconds = []
    for _ in range(5):
        before = os.times()
        done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
        after = os.times()
        took = (
            after.children_user - before.children_user,
            after.children_system - before.children_system,
        )
        seconds.append(sum(took))
        assert done.stdout.startswith("usage: streamdedup ")
    assert min(seconds) < 0.3


def test_compiling_for_nobody_ends_in_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`compile` fails where what it compiled is lost with the process, and not where all was there before."""
    monkeypatch.setattr("streamdedup.rules.warm_up_all", lambda: None)
    monkeypatch.setattr("streamdedup.kernel.kept_in", lambda: None)
    monkeypatch.setattr("streamdedup.kernel.compiled", lambda: 7)
    assert main(["compile"]) == 1
    told = capsys.readouterr()
    assert told.out == "7 loops were compiled\n"
    assert "set STREAMDEDUP_CACHE to a directory that can be written to" in told.err
    monkeypatch.setattr("streamdedup.kernel.compiled", lambda: 0)
    assert main(["compile"]) == 0
    assert capsys.readouterr().out == "all loops were compiled already\n"


def test_what_the_system_refuses_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system's own errors hold no keys: their text, and the file's name, are what helps."""

    def fail(*_given: object) -> None:
        raise PermissionError(13, "Permission denied", "/var/x")

    monkeypatch.setattr("streamdedup.filters.build", fail)
    assert main(["pipe"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("streamdedup: [Errno 13] Permission denied: '/var/x'; it came from ")
    assert said.endswith("in fail\nPermissionError\n")


INTERRUPTED = """
import os, sys
class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), NUMBER)
sys.meta_path.insert(0, Interrupter())
sys.argv[1:] = ["run", "--set", "kafka.bootstrap_servers=127.0.0.1:1"]
from streamdedup.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGHUP, 2), (signal.SIGUSR2, 2)],
    ids=["TERM", "INT", "HUP", "USR2"],
)
@pytest.mark.parametrize(
    "module", ["argparse", "streamdedup.cli.arguments", "streamdedup.logs", "pydantic"]
)
def test_an_interrupt_while_the_worker_is_imported_ends_it_well(
    module: str, number: signal.Signals, status: int
) -> None:
    """From the first import on: there is nothing to drain. SIGHUP and SIGUSR2, which ask a worker, end no start."""
    program = INTERRUPTED.replace("MODULE", repr(module)).replace("NUMBER", str(int(number)))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr
