"""Claims about the files of `pipe`: inputs, the output, and the filter that is saved between runs."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

import streamdedup
from tests.broker.base import DEADLINE_S
from tests.cli.processes import COMMAND, Call

SMALL = ("--capacity", "1000", "--error-rate", "1e-9")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory with two inputs; a mark begins the second, and no newline ends the first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one").write_bytes(b"a\nb\na")
    (tmp_path / "two").write_bytes(b"\xef\xbb\xbfb\nc\n")
    return tmp_path


def test_inputs_are_read_one_after_the_other(call: Call) -> None:
    """A line ends with its file, whose mark is dropped if it is not the first; options may stand between them."""
    done = call("pipe", "one", *SMALL, "two", "-", "--on-full", "stop", given=b"d\na\ne")
    assert (done.returncode, done.stdout) == (0, b"a\nb\nc\nd\ne")
    assert b"8 lines: 5 passed, 3 duplicates;" in done.stderr
    assert call("pipe", "two", "one").stdout == b"\xef\xbb\xbfb\nc\na\n"
    Path("one").write_bytes(b"c\na")
    assert call("pipe", "one", "two").stdout == b"c\na\nb\n"


def test_lines_are_counted_through_all_inputs(call: Call) -> None:
    """So the first malformed one has the number that it has in the joined text."""
    Path("one").write_bytes(b'{"id": 1}\n{"id": 2}')
    Path("two").write_bytes(b'{"id": 1}\nno json\n')
    done = call("pipe", "one", "two", "--key", "json:id")
    assert done.stdout == b'{"id": 1}\n{"id": 2}\nno json\n'
    assert b"; first at line 4" in done.stderr


def test_the_header_passes_once(call: Call) -> None:
    """Further inputs must have the same; one without any line has none."""
    Path("one").write_bytes(b"id,n\n1,a\n2,b")
    Path("two").write_bytes(b"\xef\xbb\xbfid,n\r\n2,c\n3,d\n")
    Path("none").write_bytes(b"")
    done = call("pipe", "none", "one", "none", "two", "--key", "csv:id")
    assert (done.returncode, done.stdout) == (0, b"id,n\n1,a\n2,b\n3,d\n")
    Path("two").write_bytes(b"n,id\n2,c\n")
    done = call("pipe", "one", "two", "--key", "csv:id")
    assert (done.returncode, done.stdout) == (2, b"id,n\n1,a\n2,b")
    assert b"FILE 2: its first line differs from that of the first FILE" in done.stderr


def test_an_input_that_cannot_be_read_is_refused_before_a_line_is_written(call: Call) -> None:
    """It is named by its place, and by its name unless that may be a secret."""
    Path("directory").mkdir()
    for wrong, shown in (
        ("missing", "FILE 2"),
        ("a\0b", "FILE 2"),
        ("directory", "FILE 2 (directory)"),
        ("missing.csv", "FILE 2 (missing.csv)"),
        ("directory/missing", "FILE 2 (directory/missing)"),
    ):
        done = call("pipe", "one", wrong)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.decode().startswith(f"streamdedup: {shown}: ")
        assert done.stderr.endswith(b"; name a file, or - for standard input\n")


def test_a_compressed_input_is_refused(call: Call) -> None:
    """By its name: its lines would be pieces of what is packed. From standard input it is taken."""
    Path("one").rename("one.GZ")
    done = call("pipe", "one.GZ")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"FILE (one.GZ) is compressed, by its name" in done.stderr
    assert b"; give them by zcat FILE | streamdedup pipe\n" in done.stderr


def test_an_error_comes_last(call: Call) -> None:
    """After the summary, which there is only if a line was read."""
    Path("one").write_bytes(b"id,n\n1,a\n")
    done = call("pipe", "one", "--key", "csv:name", "--count")
    assert (done.returncode, done.stdout) == (2, b"")
    assert len(done.stderr.splitlines()) == 1
    done = call("pipe", "one", "--capacity", "1", "--on-full", "stop", "--count", "--progress")
    assert (done.returncode, done.stdout) == (1, b"passed 1\ndropped 0\n")
    read, summary, _, error = done.stderr.decode().splitlines()
    assert "reading: 2 lines, 9 bytes" in read
    assert summary.startswith("1 line: 1 passed")
    assert error.startswith("streamdedup: the filter is full")


def test_the_output_is_a_file(call: Call) -> None:
    """It is emptied only once all options and inputs are right, and is never an input."""
    done = call("pipe", "one", "--output", "out")
    assert (done.returncode, done.stdout, Path("out").read_bytes()) == (0, b"", b"a\nb\n")
    for wrong in (("missing",), ("one", "--max-size", "1KiB"), ("one", "--key", "id"), ("out",)):
        assert call("pipe", *wrong, "-o", "out").returncode == 2
        assert Path("out").read_bytes() == b"a\nb\n"
    assert call("pipe", "two", "-o", "out").returncode == 0
    assert Path("out").read_bytes() == b"\xef\xbb\xbfb\nc\n"
    assert call("pipe", "one", "-o", "out").returncode == 0
    assert Path("out").read_bytes() == b"a\nb\n"
    done = call("pipe", "one", "-o", "none/out")
    assert done.returncode == 2
    assert b"--output: No such file or directory; name a file that can be" in done.stderr


def test_standard_input_is_not_the_output(directory: Path) -> None:
    """Of a real process, whose shell has opened it."""
    with (directory / "one").open("rb") as one:
        done = subprocess.run(
            [*COMMAND, "pipe", "-o", "one"], stdin=one, capture_output=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == b"streamdedup: the input is also the output; write to another file\n"
    assert (directory / "one").read_bytes() == b"a\nb\na"


def test_a_count_takes_the_place_of_the_lines(call: Call) -> None:
    """Of those that pass, and of the others; with --repeated, the other way round."""
    assert call("pipe", "one", "two", "--count").stdout == b"passed 3\ndropped 2\n"
    assert call("pipe", "one", "two", "--count", "--repeated").stdout == b"passed 2\ndropped 3\n"


def test_what_is_repeated_is_what_else_is_dropped(call: Call) -> None:
    """Lines without a key are none of either kind, and pass unless only repeated ones are asked for."""
    given = b'{"id": 1}\nno json\n{"id": 1}\nno json\n{"id": 2}\n{"id": 1, "n": 3}\n'
    done = call("pipe", "--key", "json:id", "--repeated", given=given)
    assert done.stdout == b'{"id": 1}\n{"id": 1, "n": 3}\n'
    said = b"6 lines: 4 dropped (2 malformed, dropped unjudged), 2 duplicates passed;"
    assert said in done.stderr
    given = b"id,n\n1,a\n2,b\n1,c\n"
    assert call("pipe", "--key", "csv:id", "--repeated", given=given).stdout == b"id,n\n1,c\n"


@pytest.mark.parametrize(
    ("option", "end"),
    [(("-z",), b"\0"), (("--delimiter", ";"), b";"), (("--delimiter", "tab"), b"\t")],
)
def test_lines_may_end_otherwise(call: Call, option: tuple[str, ...], end: bytes) -> None:
    """Then a newline is text, and so is the mark of UTF-16 if a NUL ends lines."""
    lines = [b"\xff\xfea\n", b"b", b"\xff\xfea\n", b"b\r", b"b"]
    done = call("pipe", *option, given=end.join(lines))
    assert done.stdout == end.join([lines[0], b"b", b"b\r"]) + end
    given = end.join([b'{"id": 1}', b"no json", b'{"id":\n1}', b"no json"])
    done = call("pipe", *option, "--key", "json:id", given=given)
    assert done.stdout == end.join([b'{"id": 1}', b"no json", b"no json"])
    assert b"first at line 2" in done.stderr
    assert call("pipe", *option, "--key", "csv:1").returncode == 2


@pytest.mark.parametrize("wrong", ["", "ab", "ä"])
def test_one_character_ends_a_line(call: Call, wrong: str) -> None:
    """Of ASCII, so that it is one byte."""
    with pytest.raises(SystemExit, match="2"):
        call("pipe", "--delimiter", wrong)


def test_progress_is_one_line_on_a_terminal(directory: Path) -> None:
    """It is erased before the totals, which stay; the lines are not among it."""
    (directory / "one").write_bytes(b"".join(b"%d\n" % i for i in range(100_000)))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "pipe", "one", "--progress", "-o", "out"], stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while piece := os.read(ours, 1 << 16):
                said += piece
        except OSError:  # the terminal is closed
            pass
        assert process.wait(DEADLINE_S) == 0
    os.close(ours)
    assert b"\r\x1b[Kstreamdedup: reading: 100,000 lines, 589 kB in " in said
    assert (directory / "out").stat().st_size == (directory / "one").stat().st_size


def test_a_filter_is_saved_between_runs(call: Call) -> None:
    """What earlier runs let pass is dropped; the first run finds no file. A program can load it, too."""
    both = ("--load", "seen", "--save", "seen")
    done = call("pipe", "one", *SMALL, *both)
    assert (done.returncode, done.stdout) == (0, b"a\nb\n")
    assert b"seen is not there yet, so nothing has come before\n" in done.stderr
    assert Path("seen").stat().st_mode & 0o777 == 0o600
    assert call("pipe", "two", *both).stdout == b"c\n"
    done = call("pipe", "--load", "seen", given=b"a\nb\nc\nd\n")
    assert done.stdout == b"d\n"
    assert "c" in streamdedup.load("seen")
    assert "d" not in streamdedup.load("seen")


def test_what_is_to_be_loaded_must_be_there(call: Call) -> None:
    """Unless the run saves it in its place: a name with an error in it would let all lines pass again."""
    for options in ((), ("--save", "other")):
        done = call("pipe", "one", "--load", "seen", *options)
        assert (done.returncode, done.stdout) == (2, b"")
        assert (
            b"--load: there is no such file; correct its name, or give --save with" in done.stderr
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kind", "bloom"), "--kind is bloom, and was cuckoo when it was saved; give the same"),
        (("--capacity", "7"), "--capacity is 7, and was 1000 when it was saved"),
        (("--error-rate", "1e-12"), "--error-rate is 1e-12, and was 1e-09 when it was saved"),
        (("--hash", "murmur3"), "--hash is murmur3, and was siphash when it was saved"),
        (("--key", "json:id"), "--key is json:id, and was line when it was saved"),
        (("--normalize", "trim"), "--normalize (with its rules) is trim"),
        (("--max-size", "1KiB"), "--max-size 1024 is 1,024 bytes, and the first stage"),
    ],
)
def test_other_options_than_those_of_the_file_are_refused(
    call: Call, options: tuple[str, ...], said: str
) -> None:
    """With both values. The same again are taken, and so is a higher error rate."""
    call("pipe", "one", *SMALL, "--save", "seen")
    done = call("pipe", "one", "--load", "seen", *options)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr.decode()
    done = call("pipe", "one", "--load", "seen", "--capacity", "1k", "--error-rate", "0.1")
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_run_that_fails_saves_nothing(call: Call) -> None:
    """Then the same input lets the same lines pass again: if the filter is full, an input fails, nobody reads."""
    call("pipe", "one", "--capacity", "2", "--on-full", "stop", "--save", "seen")
    before = Path("seen").read_bytes()
    both = ("--load", "seen", "--save", "seen")
    done = call("pipe", "two", *both)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"warning: seen is not written, because not all lines were copied" in done.stderr
    assert Path("seen").read_bytes() == before
    Path("wide").write_bytes("a".encode("utf-16"))
    done = call("pipe", "one", "wide", "--save", "other")
    assert (done.returncode, done.stdout, Path("other").exists()) == (2, b"a\nb\n", False)
    reader, writer = os.pipe()
    os.close(reader)
    for lines in (("two",), ("one", "--load", "seen")):  # of which none is written
        done = subprocess.run(
            [*COMMAND, "pipe", *lines, "--save", "other"],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
        assert (done.returncode, Path("other").exists()) == (0, False)
        assert b"other is not written" in done.stderr
    os.close(writer)


def test_a_run_that_a_signal_ends_saves_nothing() -> None:
    """Although it had copied all lines that had come."""
    with subprocess.Popen(
        [*COMMAND, "pipe", "--save", "seen"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"a\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM
        assert b"warning: seen is not written" in process.stderr.read()
    assert not Path("seen").exists()


def test_a_filter_that_was_loaded_grows_further(call: Call) -> None:
    """Up to another --max-size, which need not be the one of the run that made it."""
    given = b"".join(b"%d\n" % i for i in range(5000))
    options = ("--load", "seen", "--save", "seen")
    done = call("pipe", "--capacity", "100", "--max-size", "64KiB", *options, given=given)
    assert (done.returncode, done.stdout) == (0, given)
    more = b"".join(b"%d\n" % i for i in range(60_000))
    done = call("pipe", *options, given=more)
    assert done.returncode == 1
    assert b"; give a larger --max-size, or --on-full warn" in done.stderr
    done = call("pipe", "--max-size", "1MiB", *options, given=more)
    assert (done.returncode, done.stdout) == (0, more.removeprefix(given))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"kind": "bitmap", "range": [0, 9]}, "it is not for the keys of lines"),
        ({"kind": "fuse", "keys": ["a"]}, "it is not for the keys of lines"),
        ({"kind": "bloom", "capacity": 9, "normalize": "trim"}, "it is not for the keys of lines"),
        ({"kind": "window", "capacity": 9, "retention": 9}, "it forgets by time, and lines have none"),
        ({"kind": "bloom", "capacity": 9, "hash": "siphash", "hash_key": bytes(16)}, "is in no file"),
    ],
    ids=["range", "fuse", "normalize", "window", "secret"],
)  # fmt: skip
def test_a_filter_that_takes_no_lines_is_refused(
    call: Call, config: dict[str, object], said: str
) -> None:
    """Others that a program has saved are taken."""
    streamdedup.save(streamdedup.build(config), "saved")
    done = call("pipe", "one", "--load", "saved")
    assert (done.returncode, done.stdout) == (2, b"")
    assert said.encode() in done.stderr
    made = streamdedup.build({"kind": "bloom", "capacity": 9})
    made.add("a")
    streamdedup.save(made, "saved")
    assert call("pipe", "one", "--load", "saved").stdout == b"b\n"


def test_a_place_where_nothing_can_be_saved_is_refused_before_anything_is_read(call: Call) -> None:
    """So is an input or the output."""
    done = call("pipe", "one", "--save", "none/seen")
    assert (done.returncode, done.stdout) == (1, b"")
    for options in (("--save", "one"), ("-o", "out", "--save", "./out")):
        done = call("pipe", "one", *options)
        assert (done.returncode, done.stdout) == (2, b"")
        assert not Path("out").exists()
    Path("out").touch()
    Path("link").hardlink_to("out")
    done = call("pipe", "one", "-o", "link", "--save", "out")
    assert b"--save: the file is also an input or the output; name another" in done.stderr
    assert Path("one").read_bytes() == b"a\nb\na"


def test_the_standard_streams_are_not_replaced_by_a_filter() -> None:
    """The shell has opened them, so what is written would be in a file without a name, and what is read be gone."""
    for arguments in ("--save one <one", "one --save out >out"):
        done = subprocess.run(
            ["bash", "-c", f'"$@" {arguments}', "_", *COMMAND, "pipe"],
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"--save: the file is also an input or the output; name another" in done.stderr
    assert (Path("one").read_bytes(), Path("out").read_bytes()) == (b"a\nb\na", b"")


def test_the_output_does_not_replace_what_is_loaded(call: Call) -> None:
    """It would be emptied once it is read, and keys of many nights be lost."""
    call("pipe", "one", *SMALL, "--save", "seen")
    before = Path("seen").read_bytes()
    done = call("pipe", "two", "--load", "seen", "-o", "seen")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--load: the file is also the output; name another one" in done.stderr
    assert Path("seen").read_bytes() == before


def test_a_loaded_filter_that_is_full_names_what_would_help(call: Call) -> None:
    """Its capacity, and whether it grows, are those of the run that made it."""
    call("pipe", "one", "--on-full", "stop", "--capacity", "2", "--save", "seen")
    done = call("pipe", "two", "--load", "seen")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"; begin another file with a larger --capacity, or give --on-full warn" in done.stderr
    done = call("pipe", "two", "--load", "seen", "--on-full", "warn")
    assert (done.returncode, done.stdout) == (0, b"c\n")
    assert b"; begin another file with a larger --capacity\n" in done.stderr


def test_what_is_loaded_does_not_grow_unless_it_was_made_to(call: Call) -> None:
    """By the option that asks for it."""
    call("pipe", "one", "--on-full", "stop", *SMALL, "--save", "seen")
    for options in (("--on-full", "grow"), ("--max-size", "1GiB")):
        done = call("pipe", "one", "--load", "seen", *options)
        assert done.returncode == 2
        assert options[0] in done.stderr.decode()
        assert b"the filter of --load seen does not grow; leave it out" in done.stderr
