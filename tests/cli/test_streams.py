"""Claims about the standard streams: what is written is written whole or the status is not 0; a pause is no end."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from streamdedup.cli import main
from tests.broker.base import DEADLINE_S
from tests.cli.processes import COMMAND, EXAMPLE, LINES, Call


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["lists", "inspect", "damaged.list"], 1),
        (["config", "check", "--connect", "--set", "kafka.bootstrap_servers=127.0.0.1:1", str(EXAMPLE)], 1),
    ],
    ids=["damaged", "no-broker"],
)  # fmt: skip
def test_a_status_does_not_depend_on_the_reader(
    arguments: list[str], status: int, listed: Path
) -> None:
    """A check whose reader has gone checks all the same; what was not looked at is not called good."""
    content = bytearray((listed / "out.list").read_bytes())
    content[4096] ^= 1
    (listed / "damaged.list").write_bytes(content)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=listed, stdout=writer, check=False, timeout=DEADLINE_S
    )
    os.close(writer)
    assert done.returncode == status


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let no file grow beyond 1 MiB: what these tests look for would fill the disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        (["pipe"], "a+"),
        (["pipe", "link", "--key", "json:id"], "r+"),
        (["lists", "check", "out.list"], "a+"),
    ],
    ids=["stdin", "link", "lists"],
)
def test_an_input_that_is_the_output_is_refused(
    arguments: list[str],
    mode: str,
    listed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It would be read for ever, and fill the disk, if each line gives one; or be overwritten while it is read."""
    monkeypatch.chdir(listed)
    both, link = listed / "both", listed / "link"
    both.write_bytes(b"a\nb\na\n")
    link.unlink(missing_ok=True)
    link.symlink_to("both")
    with both.open() as lines, both.open(mode) as output, monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", lines)
        patched.setattr(sys, "stdout", output)
        assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said == "streamdedup: the input is also the output; write to another file\n"
    assert both.read_bytes() == b"a\nb\na\n"


def test_what_an_encoding_lacks_is_escaped(tmp_path: Path, call: Call) -> None:
    """Rather than nothing being printed at all."""
    config = tmp_path / "dedup.yaml"
    config.write_text(
        "kafka: {bootstrap_servers: a:1, group_id: g}\nsource: {topic: in}\nsink: {topic: out}\n"
        "key: {field: größe}\nfilter: {capacity: 1000}\nsnapshot: {directory: s}\n"
    )
    done = call("config", "show", str(config), encoding="ascii")
    assert done.returncode == 0
    assert b"gr\\xf6\\xdfe" in done.stdout


def test_a_file_is_read_by_its_name(tmp_path: Path, call: Call) -> None:
    """As well as standard input, and a FIFO to which somebody writes."""
    (tmp_path / "in").write_bytes(LINES + LINES)
    os.mkfifo(tmp_path / "fifo")
    writing = Thread(target=(tmp_path / "fifo").write_bytes, args=(LINES + LINES,))
    writing.start()
    for name, given in (("in", b""), ("fifo", b""), ("-", LINES + LINES)):
        done = call("pipe", name if given else str(tmp_path / name), given=given)
        assert (done.returncode, done.stdout) == (0, LINES)
    writing.join()
