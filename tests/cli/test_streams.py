"""Claims about the standard streams: what is written is written whole or the status is not 0; a pause is no end."""

import os
import resource
import subprocess
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from tests.broker.base import DEADLINE_S
from tests.cli.processes import COMMAND, EXAMPLE, LINES

# As in most images. Standard output is then a raw file, whose `write` may write a part.
UNBUFFERED = {**os.environ, "PYTHONUNBUFFERED": "1"}


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["lists", "inspect", "damaged.list"], 1),
        (["lists", "inspect", "out.list"], 0),
        (["config", "check", "--connect", "--set", "kafka.bootstrap_servers=127.0.0.1:1", str(EXAMPLE)], 1),
    ],
    ids=["damaged", "whole", "no-broker"],
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


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        (["pipe"], os.O_RDWR | os.O_APPEND),
        (["pipe", "link", "--key", "json:id"], os.O_RDWR),
        (["lists", "check", "out.list"], os.O_RDWR | os.O_APPEND),
    ],
    ids=["stdin", "link", "lists"],
)
def test_an_input_that_is_the_output_is_refused(
    arguments: list[str], flags: int, listed: Path
) -> None:
    """It would be read for ever, and fill the disk, if each line gives one; or be overwritten while it is read."""
    both, link = listed / "both", listed / "link"
    both.write_bytes(b"a\nb\na\n")
    link.unlink(missing_ok=True)
    link.symlink_to("both")
    output = os.open(both, flags)
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    with both.open("rb") as lines:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=listed,
            stdin=lines,
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
            timeout=DEADLINE_S,
            preexec_fn=limit,
        )
    os.close(output)
    assert done.returncode == 2
    assert done.stderr == b"streamdedup: the input is also the output; write to another file\n"
    assert both.read_bytes() == b"a\nb\na\n"


def test_what_an_encoding_lacks_is_escaped(tmp_path: Path) -> None:
    """Rather than nothing being printed at all."""
    (tmp_path / "dedup.yaml").write_text(
        "kafka: {bootstrap_servers: a:1, group_id: g}\nsource: {topic: in}\nsink: {topic: out}\n"
        "key: {field: größe}\nfilter: {capacity: 1000}\nsnapshot: {directory: s}\n"
    )
    done = subprocess.run(
        [*COMMAND, "config", "show", "dedup.yaml"],
        cwd=tmp_path,
        env={**UNBUFFERED, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0
    assert b"gr\\xf6\\xdfe" in done.stdout


def test_a_file_is_read_by_its_name(tmp_path: Path) -> None:
    """As well as standard input, and a FIFO to which somebody writes."""
    (tmp_path / "in").write_bytes(LINES + LINES)
    os.mkfifo(tmp_path / "fifo")
    writing = Thread(target=(tmp_path / "fifo").write_bytes, args=(LINES + LINES,))
    writing.start()
    for name in ("in", "fifo", "-"):
        with (tmp_path / "in").open("rb") as lines:
            done = subprocess.run(
                [*COMMAND, "pipe", name],
                cwd=tmp_path,
                stdin=lines if name == "-" else subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=DEADLINE_S,
            )
        assert (done.returncode, done.stdout) == (0, LINES)
    writing.join()
