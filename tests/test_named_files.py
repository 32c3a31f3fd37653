"""Claims about how files are opened that an operator names: to open one never blocks, and a pipe is read once."""

import os
import time
from pathlib import Path

import pytest

from streamdedup.named_files import can_be_read_again, open_regular, open_stream, read_short
from tests.fifos import ends, fifo, writing


def test_what_is_watched_must_be_a_regular_file_also_behind_links(tmp_path: Path) -> None:
    """As Kubernetes mounts a secret: the name is a link to a name in a linked directory."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "ca").write_bytes(b"pem")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "ca").symlink_to("..data/ca")
    fd = open_regular(tmp_path / "ca")
    assert os.read(fd, 10) == b"pem"
    os.close(fd)


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_refused_at_once_where_a_file_is_watched(tmp_path: Path, linked: bool) -> None:
    """Nobody writes to it, and the call does not wait for that."""
    pipe = path = fifo(tmp_path / "pipe")
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with pytest.raises(OSError, match=r"it is a pipe \(FIFO\), and must be a regular file"):
        ends(lambda: open_regular(path), pipe)


@pytest.mark.parametrize(("path", "what"), [("/", "a directory"), ("/dev/null", "a device")])
def test_what_else_is_no_file_is_named(path: str, what: str) -> None:
    """The error says what is there."""
    with pytest.raises(OSError, match=f"it is {what}, and must be a regular file"):
        open_regular(Path(path))


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    """Also if it is longer than what the system keeps of a pipe."""
    pipe = fifo(tmp_path / "pipe")
    writing(pipe, b"x" * 200_000)
    assert ends(lambda: read_short(pipe)) == b"x" * 200_000
    assert not can_be_read_again(pipe)


def test_a_pipe_of_a_shell_is_read() -> None:
    """`<(...)` names an anonymous pipe, whose writer may have ended before it is opened."""
    out, into = os.pipe()
    os.write(into, b"secret")
    os.close(into)
    assert ends(lambda: read_short(Path(f"/dev/fd/{out}"))) == b"secret"
    os.close(out)


@pytest.mark.parametrize("is_open", [False, True], ids=["nobody", "somebody who is silent"])
def test_a_pipe_that_is_not_written_is_waited_for_until_the_deadline(
    tmp_path: Path, is_open: bool
) -> None:
    """Whether nobody has it open to write, or somebody has and never ends."""
    pipe = fifo(tmp_path / "pipe")
    held = [os.open(pipe, os.O_RDWR)] if is_open else []
    started = time.monotonic()
    what = "not written to its end within 0.2 s" if is_open else "nobody writes within 0.2 s"
    with pytest.raises(TimeoutError, match=what):
        ends(lambda: read_short(pipe, 0.2), pipe)
    assert time.monotonic() - started >= 0.2
    for fd in held:
        os.close(fd)


def test_a_deadline_holds_for_the_whole_of_a_short_file(tmp_path: Path) -> None:
    """Who writes a byte now and then does not prolong it."""
    pipe = fifo(tmp_path / "pipe")
    fd = os.open(pipe, os.O_RDWR)
    os.write(fd, b"a")
    with pytest.raises(TimeoutError, match="not written to its end"):
        ends(lambda: read_short(pipe, 0.2), pipe)
    os.close(fd)


def test_a_long_input_is_waited_for_as_long_as_somebody_writes(tmp_path: Path) -> None:
    """The deadline is for silence: first until somebody opens the pipe, then between two pieces."""
    pipe = fifo(tmp_path / "pipe")
    with (
        open_stream(pipe, begins_s=0.1, silent_s=0.1) as unwritten,
        pytest.raises(TimeoutError, match=r"nobody writes within 0\.1 s"),
    ):
        ends(lambda: unwritten.read(1), pipe)
    with open_stream(pipe, begins_s=0.05, silent_s=0.3) as stream:
        fd = os.open(pipe, os.O_WRONLY)
        os.write(fd, b"ab")
        assert stream.read(2) == b"ab"
        with pytest.raises(TimeoutError, match=r"nothing is written for 0\.3 s"):
            ends(lambda: stream.read(1), pipe)
        os.write(fd, b"c")
        os.close(fd)
        assert stream.read() == b"c"


def test_a_device_without_end_is_not_read_for_ever() -> None:
    """What an operator names by mistake ends with an error; /dev/null is an empty file."""
    with pytest.raises(OSError, match="more than 16 MiB"):
        read_short(Path("/dev/zero"))
    assert read_short(Path("/dev/null")) == b""


def test_what_is_missing_or_a_directory_is_the_systems_error(tmp_path: Path) -> None:
    """As every program reports it."""
    with pytest.raises(FileNotFoundError):
        read_short(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        read_short(tmp_path)
