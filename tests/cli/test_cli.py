"""Claims about the command itself: quick to help, honest in its exit status, polite to signals."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numba
import numpy as np
import pytest

import streamdedup
from streamdedup.cli import main
from streamdedup.errors import StreamdedupError
from streamdedup.filters.options import Kind
from streamdedup.kernel import COMPILING
from streamdedup.keys.formats import texts
from tests.broker.base import DEADLINE_S, wait_until
from tests.cli.processes import COMMAND, EXAMPLE, Call, Piped
from tests.rows import every

ROOT = Path(__file__).parents[2]


HEAVY = {"numba", "numpy", "aiokafka", "prometheus_client", "pydantic", "orjson", "mmh3"}


HELP = [
    ["--help"],
    *([name, "--help"] for name in ("audit", "explain", "pipe", "plan", "reset")),
    ["lists", "build", "--help"],
    ["--version"],
]


def test_help_imports_nothing_heavy() -> None:
    """Help and version come without the libraries that the work needs."""
    program = (
        "import sys\n"
        "from streamdedup.cli import main\n"
        f"for arguments in {HELP!r}:\n"
        "    try:\n"
        "        main(arguments)\n"
        "    except SystemExit as end:\n"
        "        assert end.code == 0\n"
        f"    print('imported', *arguments, *sorted({HEAVY!r} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("imported")]
    assert told == [" ".join(["imported", *arguments]) for arguments in HELP]


def test_the_exit_looks_at_no_object() -> None:
    """By then all are frozen. What is registered before the command is called after what the command registers."""
    program = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "from streamdedup.cli import main\n"
        "sys.exit(main(['--version']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "True"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version printed is the package's."""
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"streamdedup {streamdedup.__version__}\n"


WRONG = [
    ([], "required: COMMAND"),
    (["no-such-command"], "invalid choice"),
    (["pipe", "--no-such-option"], "unrecognized arguments: --no-such-option"),
    (["pipe", "--no-such-option"], "usage: streamdedup pipe [-h]"),
    (["lists", "build", "-x"], "usage: streamdedup lists build [-h]"),
    (
        ["pipe", "-c"],
        "-c is an option of uniq: to count each line takes all of them: sort FILE | u",
    ),
    (["pipe", "-d", "in"], "-d is an option of uniq: --repeated copies each further occurrence"),
    (["pipe", "in", "-i"], "-i is an option of uniq: --normalize lowercase ignores case"),
    (["pipe", "-u"], "-u is an option of uniq: a line that comes once is known at the end only"),
    (["pipe", "--capacity", "many"], "--capacity: is not an integer; write one like"),
    (["pipe", "--capacity", "1.5"], "--capacity: '1.5': must come to a whole number"),
    (["pipe", "--error-rate", "low"], "--error-rate: must be a number from 1e-15"),
    (["pipe", "--on-full", "shrink"], "argument --on-full"),
    (
        ["pipe", "--kind", "bitmap", "--on-full", "grow"],
        "--on-full grow is not for --kind bitmap",
    ),
    (
        ["pipe", "--on-full", "stop", "--max-size", "1GiB"],
        "--max-size is the size to which a filter may grow; give --on-full grow, or leave it out",
    ),
    (
        ["pipe", "--kind", "bitmap", "--max-size", "1GiB"],
        "--max-size is the size to which a filter may grow; choose a --kind that can grow, or",
    ),
    (["pipe", "--kind", "window", "--max-size", "1GiB"], "--max-size is not for --kind window"),
    (["pipe", "--kind", "window", "--on-full", "grow"], "--on-full grow is not for --kind w"),
    (["pipe", "--kind", "blom"], "argument --kind: invalid choice: 'blom' (choose from "),
    (["pipe", "--kind", "fuse"], "argument --kind: 'fuse' is static: it is built once, from"),
    (["pipe", "--hash", "md5"], "argument --hash: invalid choice (choose from "),
    (["pipe", "--capacity", "0"], "--capacity: '0': out of range, must be 1 to 1000G keys"),
    (["pipe", "--capacity", "2e12"], "--capacity: '2e12': out of range, must be 1 to 1000G"),
    (
        ["pipe", "--on-full", "stop", "--capacity", "900G"],
        "streamdedup: --capacity 900000000000 at --error-rate 1e-06 does not fit --kind cuckoo: it takes 2.48",
    ),
    (
        ["pipe", "--on-full", "stop", "--capacity", "900G"],
        "; set --capacity to 363G at most, raise --error-rate, or choose another --kind",
    ),
    (["pipe", "--error-rate", "1"], "--error-rate: '1': must be a number from 1e-15 to 0.5"),
    (["pipe", "--error-rate", "9e-16"], "--error-rate: '9e-16': must be a number from 1e-15"),
    (["pipe", "--error-rate", "nan"], "--error-rate: 'nan': must be a number from 1e-15"),
    (["pipe", "--key", "json:a", "--key", "line"], "--key line is the whole line"),
]


def test_wrong_arguments_end_in_2(capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that do not fit end in status 2 and a message that names them, without a trace."""

    def check(row: tuple[list[str], str]) -> None:
        arguments, expected = row
        try:
            status: object = main(arguments)
        except SystemExit as end:
            status = end.code
        said = capsys.readouterr()
        assert (status, said.out) == (2, "")
        assert expected in said.err
        assert "Traceback" not in said.err
        assert "lines/s" not in said.err

    every(WRONG, check)


def test_a_filter_beyond_the_memory_names_the_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The remedy is told by the names on the command line, not by those in a configuration."""
    zeros = np.zeros

    def fail(shape: int, *arguments: Any, **options: Any) -> Any:
        if np.prod(shape) > 1 << 20:  # the table, and nothing beside it
            raise MemoryError
        return zeros(shape, *arguments, **options)

    monkeypatch.setattr("numpy.zeros", fail)
    assert main(["pipe"]) == 2
    said = capsys.readouterr().err
    assert said.endswith("does not fit into memory; lower --capacity or raise --error-rate\n")


def test_the_limit_of_a_line_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The help and docs/pipe.md name the limit that the code has."""
    limit = f"up to {texts.LINE_BYTES_MAX >> 20} MiB"
    with pytest.raises(SystemExit, match="0"):
        main(["pipe", "--help"])
    for text in (capsys.readouterr().out, (ROOT / "docs" / "pipe.md").read_text()):
        assert limit in " ".join(text.split())


def test_success_ends_in_0() -> None:
    """A run over all of its input ends in status 0, with the summary on standard error only."""
    command = [*COMMAND, "pipe", "--capacity", "1_000"]
    done = subprocess.run(command, input=b"a\nb\na\n", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"a\nb\n")
    assert (
        b"3 lines: 2 passed, 1 duplicate;" in done.stderr
    )  # after a line about kernels, if none is kept
    assert b"cuckoo in 1 stage: 2 of 15," in done.stderr  # thousand keys, after all growth


@pytest.mark.parametrize("kind", sorted(get_args(Kind)))
def test_every_kind_serves_the_pipe(kind: str, call: Call) -> None:
    """By one word on the command line, under a keyed hash by another: the same lines pass."""
    options = ("--kind", kind, "--hash", "siphash", "--capacity", "9")
    done = call("pipe", *options, given=b"a\nb\na\n")
    assert (done.returncode, done.stdout) == (0, b"a\nb\n")
    held = {
        "window": "window: remembers 2 keys (at least the last 9)",
        "bitmap": "bitmap: 2 of 9 keys",
    }
    said = held.get(kind, f"{kind} in 1 stage: 2 of ")
    assert said.encode() in done.stderr
    filled = {"window": "the cells in use", "bitmap": "the bits set"}
    what = filled.get(kind, "its greatest size in use")
    assert re.search(rf" (bytes|[kM]B), [0-9.]+% of {what},", done.stderr.decode())


def test_a_full_filter_ends_in_1(call: Call) -> None:
    """At capacity the lines before are out, and the message names all remedies that the kind has."""
    options = ("--on-full", "stop", "--capacity", "2", "--error-rate", "1e-9")
    done = call("pipe", *options, given=b"a\nb\na\nc\nd\n")
    assert (done.returncode, done.stdout) == (1, b"a\nb\n")
    assert b"2 of 2 keys" in done.stderr
    assert b"streamdedup: the filter is full: it holds 2 keys, so line 4 " in done.stderr
    assert (
        b"larger --capacity, --on-full grow to take more memory, or --on-full warn" in done.stderr
    )
    assert b"Traceback" not in done.stderr
    given = b"".join(b"%d\n" % i for i in range(99))
    done = call("pipe", "--kind", "bitmap", "--capacity", "2", given=given)
    assert b"; give a larger --capacity, or --on-full warn to go on" in done.stderr


def test_a_filter_grows_unless_told_otherwise(call: Call) -> None:
    """Within --max-size; if it ends before the input does, the last line of standard error says so."""
    given = b"".join(b"%d\n" % i for i in range(5000))
    options = ("--capacity", "100", "--error-rate", "1e-9")
    done = call("pipe", *options, "--max-size", "64KiB", given=given)
    assert (done.returncode, done.stdout) == (0, given)
    done = call("pipe", *options, "--max-size", "8KiB", given=given)
    assert done.returncode == 1
    assert given.startswith(done.stdout)
    passed = done.stdout.count(b"\n")
    last = done.stderr.splitlines()[-1].decode()
    assert last.startswith(f"streamdedup: the filter is full: it holds {passed:,} keys, so line ")
    assert "; give a larger --max-size, or --on-full warn" in last


@pytest.mark.parametrize(
    ("kind", "beyond"),
    [
        ("bloom", b"more and more new lines are dropped wrongly"),
        ("cuckoo", b"each key takes much more memory and time"),
    ],
)
def test_on_full_warn_ends_in_0(call: Call, kind: str, beyond: bytes) -> None:
    """With --on-full warn all lines pass, one line warns, and the summary shows the filter overfull."""
    given = b"".join(b"%d\n" % i for i in range(9))
    options = ("--kind", kind, "--capacity", "5", "--error-rate", "1e-9", "--on-full", "warn")
    done = call("pipe", *options, given=given)
    assert (done.returncode, done.stdout) == (0, given)
    warning, *summary = done.stderr.splitlines()
    assert warning.startswith(b"streamdedup: warning: the filter is full: by line 9 it holds more")
    assert beyond in warning
    assert len(summary) == 2
    assert b"9 of 5 keys" in summary[1]


def test_errors_do_not_tell_keys(call: Call) -> None:
    """No line of the input appears on standard error, whatever goes wrong with it."""
    given = b'{"id": "s3cr3t-1"}\n{"id": "s3cr3t-2"}\n{"id": ["s3cr3t-3"]}\ns3cr3t-4\n'
    for arguments in (["--key", "json:id"], ["--key", "json:id", "--capacity", "1"]):
        done = call("pipe", *arguments, given=given)
        assert b"line" in done.stderr
        assert b"s3cr3t" not in done.stderr


def test_lines_pass_before_the_input_ends(piped: Piped) -> None:
    """What was written to the command comes out although its input stays open."""
    for line in (b"one\n", b"two\n"):
        piped.write(line * 2)
        assert piped.arriving() == line
    piped.input.close()
    assert piped.output.read() == b""
    assert piped.process.wait(DEADLINE_S) == 0


def test_a_worker_that_is_still_starting_hears_sigterm() -> None:
    """Whatever catches all exceptions meanwhile, as some imports do: there is nothing to drain."""
    program = (
        "import os, signal, sys\n"
        "from streamdedup import settings\n"
        "from streamdedup.cli import main\n"
        "def load(*_):\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        signal.pause()\n"
        "    except BaseException:\n"
        "        sys.exit('the signal was lost')\n"
        "settings.load = load\n"
        "main(['run'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("number", "after"),
    [(signal.SIGTERM, "broker_away"), (signal.SIGINT, "connecting")],
    ids=["TERM", "INT"],
)
def test_an_interrupt_ends_a_start_without_a_broker(
    tmp_path: Path, number: signal.Signals, after: str
) -> None:
    """As soon as the worker begins to connect, and while it waits."""
    config = tmp_path / "dedup.yaml"
    config.write_text(
        "kafka: {bootstrap_servers: '127.0.0.1:1', group_id: g}\nsource: {topic: a}\nsink: {topic: b}\n"
        f"key: {{from: key}}\nfilter: {{capacity: 10}}\nsnapshot: {{directory: {tmp_path}}}\n"
    )
    command = [*COMMAND, "run", "-c", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if b'"%s"' % after.encode() in line)
        process.send_signal(number)
        _, rest = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, b'"worker_failed"' in said + rest) == (0, False)


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="no list of limits")
def test_a_worker_leaves_no_core_file(tmp_path: Path) -> None:
    """It would hold keys and secrets. The limit is set before the configuration is read."""
    config = tmp_path / "fifo.yaml"
    os.mkfifo(config)  # the start waits for whoever writes to it
    with subprocess.Popen([*COMMAND, "run", "-c", str(config)], stderr=subprocess.PIPE) as process:
        limits = Path(f"/proc/{process.pid}/limits")
        try:
            wait_until(
                lambda: re.search(r"Max core file size +0 +0 ", limits.read_text()),
                DEADLINE_S,
                limits.read_text,
            )
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["try", "-c", str(EXAMPLE)], "streamdedup.commands.trial.tried"),
        (["audit", "-c", str(EXAMPLE)], "streamdedup.commands.audit.audit"),
        (["explain", "-c", str(EXAMPLE), "key"], "streamdedup.commands.explain.explain"),
        (["pipe"], "streamdedup.commands.pipe.adder"),
        (["plan", "--sample", "-"], "streamdedup.commands.plan.sample.digests_of"),
        (["compile"], "streamdedup.rules.warm_up_all"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
@pytest.mark.parametrize("compiles", [True, False])
def test_a_command_that_compiles_says_so(
    *,
    arguments: list[str],
    place: str,
    compiles: bool,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
) -> None:
    """Once, also while it reads lines, which comes first. A command that finds all in the cache says nothing."""

    def work(*_: object, **__: object) -> None:
        if compiles:
            numba.njit(lambda number: number + 1)(1)
            numba.njit(lambda number: number + 2)(1)
        raise StreamdedupError("enough")

    monkeypatch.setattr(place, work)
    done = call(*arguments, given=b"a\n")
    assert (done.returncode, done.stderr.count(COMPILING.encode())) == (1, compiles)
    assert done.stderr.endswith(b"streamdedup: enough\n")
