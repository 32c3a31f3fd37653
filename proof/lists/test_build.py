"""Claims about `lists build`: every input it takes, every input it refuses, in memory that it states beforehand.

A build that fails leaves the list as it was.
"""

import gzip
import io
import os
import random
import re
import socket
import threading
from pathlib import Path

import cramjam
import pytest

from streamdedup.lists import load
from streamdedup.lists.build import needs as memory
from streamdedup.lists.build.blocks import LINE_BYTES_MAX, blocks
from streamdedup.progress import Progress
from streamdedup.units import counted
from tests.cli.test_escaping import Terminal
from tests.fifos import ends, fifo, writing
from tests.lists.test_build import ADDRESSES, holds, left_in, tables
from tests.lists.tools import PEAK, Commands, child, written

MEGABYTE = 1_000_000
GROWTH = f"""{PEAK}
def build(source):
    options = ["--allow-empty", "--bad-max", "1", *sys.argv[2:]]
    return main(["lists", "build", source, "-o", "out.list", *options])
assert build("small.txt") == 0
before = peak()
assert build(sys.argv[1]) == 0
print(peak() - before)
"""


@pytest.mark.parametrize(
    "options", [(), ("--format", "csv", "--column", "1"), ("--format", "jsonl", "--field", "x")]
)
def test_a_line_without_an_end_is_passed_over_in_bounded_memory(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """Of 100 MB, from a sparse file and from a pipe: it is one bad line, and what comes after it is read."""
    written(tmp_path / "small.txt", ["{}"])
    long = tmp_path / "long.txt"
    with long.open("wb") as file:
        file.truncate(100 * MEGABYTE)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"x": "a"}\n')
    os.mkfifo(tmp_path / "pipe")
    for source in ("long.txt", "pipe"):
        feeder = threading.Thread(target=_feed, args=(long, tmp_path / "pipe"))
        if source == "pipe":
            feeder.start()
        done = child(GROWTH, source, "--capacity", "10", *options, directory=tmp_path)
        if source == "pipe":
            feeder.join()
        assert int(done.stdout) < 30 * MEGABYTE
        rejected = (tmp_path / "out.list.rejects").read_bytes()
        assert rejected.startswith(
            f"{source}\t1\tthe line is longer than 1,048,576 bytes\t".encode()
        )
        assert len(rejected) < 400
        assert load(tmp_path / "out.list").facts.counts.addresses == 1


def _feed(source: Path, pipe: Path) -> None:
    with source.open("rb") as file, pipe.open("wb", buffering=0) as out:
        while chunk := file.read(MEGABYTE):
            out.write(chunk)


STATED = f"""{PEAK}
assert main(["lists", "build", "in.txt.gz", "-o", "out.list", "--kind", sys.argv[1]]) == 0
print(peak())
"""


@pytest.mark.parametrize("kind", ["bloom", "fuse"])
def test_two_million_addresses_take_no_more_memory_than_stated(kind: str, tmp_path: Path) -> None:
    """What the first line says is not reached by the whole process, once the kernels are compiled."""
    with gzip.open(tmp_path / "in.txt.gz", "wb", compresslevel=1) as file:
        for start in range(0, 2 * MEGABYTE, 100_000):
            file.write(b"".join(b"%d@example.com\n" % i for i in range(start, start + 100_000)))
    child(STATED, kind, directory=tmp_path)
    done = child(STATED, kind, directory=tmp_path)
    stated = re.search(r"needs about ([\d.]+) MB of memory", done.stderr)
    assert stated is not None
    assert int(done.stdout) < float(stated[1]) * MEGABYTE
    assert load(tmp_path / "out.list").facts.counts.addresses == pytest.approx(2 * MEGABYTE, abs=20)


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (["a@x.com", "b@x.com", "@x.org", ".x.net", "x"], (), "2 of 5 entries look like e-mail addresses, and 2 like"),
        (["a@x.com", "A@x.com", "x"], ("--normalize", "trim"), "but for white space around it, and @example.org"),
        (["a@x.com"], ("--normalize", "lowercase"), "1 of 1 entries look like e-mail addresses, and 0 like domains"),
        (["a@x.com", "x"], (), ""),
        (["a@x.com", "x", "y", "# z@x.com"], (), ""),
        (["a@x.com", "@x.org"], ("--normalize", "email"), ""),
        ([], ("--allow-empty",), ""),
    ],
)  # fmt: skip
def test_addresses_that_are_taken_as_they_stand_are_warned_of(
    rows: list[str], options: tuple[str, ...], said: str, lists: Commands
) -> None:
    """Their list would block almost nobody; so with those of CSV."""
    written(lists.directory / "in.txt", rows)
    written(lists.directory / "in.csv", [f'"{row}",1' for row in rows if row[0] != "#"])
    for given in (("in.txt",), ("in.csv", "--column", "1")):
        found = lists("build", *given, "-o", "out.list", *options)
        assert found.status == 0, found.errors
        assert ("without --normalize email" in found.errors) == bool(said)
        assert said in found.errors
        assert "x.com" not in found.errors


def test_json_lines_of_which_a_part_does_not_decode(lists: Commands) -> None:
    """They are entries, also behind byte order marks; a wrong line has the construct and the byte as its reason."""
    rows = [
        '\ufeff{"k": "a"}',
        '\ufeff{"k": "b", "x": NaN}',
        r'{"k": "c", "\ud83e": 1e999}',
        '{"k": "d", "x": [1, 2}',
        '{"k": "e\t"}',
    ]
    listed, _ = lists.built(rows, "--field", "k", "--bad-max", "2", name="in.jsonl")
    assert holds(listed, *"abc")
    assert len(listed.addresses) == 3
    assert [row[:2] for row in lists.rejected()] == [
        (4, "the value is not valid JSON: a comma or a closing bracket is missing, at byte 22"),
        (5, "the value is not valid JSON: a control character is in a string, at byte 9"),
    ]


@pytest.mark.parametrize(
    ("data", "bad", "said"),
    [
        (b"a\rb\rc\r", 1, "carriage return before its end"),
        (b"a\rb\nc\n", 1, "carriage return before its end"),
        (b"a\r\r\nc\r\n", 1, "carriage return before its end"),
        (b"# a\rb\nc\n", 1, "carriage return before its end"),
        (b"# a\r\n\r\nc\r\n# d\r", 0, ""),
        (b"c\r\nd\r\n\r\ne\r", 0, ""),
        ("a\nb\n".encode("utf-16-le"), 3, "a byte 0; if the file is UTF-16"),
        ("a\nb\n".encode("utf-16-be"), 2, "a byte 0; if the file is UTF-16"),
        (b"c\na\x00b\n", 1, "a byte 0; if the file is UTF-16"),
    ],
)
def test_bytes_that_no_text_has_within_a_line_are_bad_lines(
    data: bytes, bad: int, said: str, lists: Commands
) -> None:
    """Of a file whose lines end in another way, or that is UTF-16 without a mark: all of it might be one entry."""
    (lists.directory / "in.txt").write_bytes(data)
    build = ("build", "in.txt", "-o", "out.list", "--allow-empty", "--check")
    refused = lists(*build)
    assert (refused.status == 0) == (not bad)
    built = lists(*build, "--bad-max", "3")
    assert built.status == 0
    assert said in built.errors
    assert f"{bad} bad line" in built.errors or not bad
    if b"c" in data.replace(b"\r\n", b"\n").split(b"\n"):
        assert holds(load(lists.directory / "out.list"), "c")


def test_a_stray_quote_counts_as_the_lines_that_its_record_takes(lists: Commands) -> None:
    """If so many bad lines are accepted, all other entries are on the list."""
    mails = [b"user%d@bad.example" % number for number in range(5000)]
    written(lists.directory / "in.csv", [b"mail", mails[0], b'"' + mails[1], *mails[2:]])
    build = ("build", "in.csv", "-o", "out.list", "--column", "mail")
    place = "the record at line 3 takes 4,999 lines: an unclosed quote?"
    for most, status in (("1000", 1), ("10k", 0)):
        said = lists(*build, "--bad-max", most, "--check")
        assert said.status == status
        assert place in said.errors
    listed = load(lists.directory / "out.list")
    assert listed.facts.counts.bad >= 4999
    assert holds(listed, *(mail.decode() for mail in [mails[0], *mails[2:]]))


@pytest.mark.parametrize(
    ("rows", "bad"),
    [
        (['2,"b@x.com', "3,c@x.com", '4,"d@x.com"', "5,e@x.com"], [3]),
        (['2,"b@x.com"x,"', "evil@x.com", '"', "5,e@x.com"], [3, 4, 5]),
        (['2,"b@x.com', 'c@x.com"', "5,e@x.com"], [3, 4]),
        (['2,nobody,"a', "note", 'of some lines"', "5,e@x.com"], [3, 4, 5]),
        (['2,"b@x.com', "c@x.com", *["3,c@x.com"] * 3, '4,"d@x.com"', "5,e@x.com"], list(range(3, 9))),
        (["2,nobody", "5,e@x.com"], [3]),
        (["2,b@x.com,y" + "y" * LINE_BYTES_MAX, "5,e@x.com"], [3]),
    ],
    ids=["unclosed", "stray in several", "two lines", "note", "unclosed, then closed", "no address", "long"],
)  # fmt: skip
def test_each_line_of_csv_is_an_entry_or_a_bad_line(
    rows: list[str], bad: list[int], lists: Commands
) -> None:
    """Of a record that is bad as a whole, each is counted and written; what is read again is on the list."""
    lines = ["id,mail", "1,a@x.com", *rows]
    options = ("--column", "mail", "--normalize", "email", "--bad-max", "9", "--check")
    listed, errors = lists.built(lines, *options, name="in.csv")
    assert f"{counted(len(bad), 'bad line')} of {len(rows) + 1} (" in errors
    found = lists.rejected()
    assert [(n, line) for n, _, line in found] == [(n, lines[n - 1][:300]) for n in bad]
    assert listed.facts.counts.bad == len(bad)
    kept = [line for number, line in enumerate(lines, 1) if number > 1 and number not in bad]
    assert holds(listed, *(line.split(",")[1].strip('"') for line in kept))
    assert len(listed.addresses) == len(kept)


@pytest.mark.parametrize("lines", [1, 19])
def test_lines_that_two_strays_swallow_are_named(lines: int, lists: Commands) -> None:
    """Also without --check: a record of few lines is believed."""
    rows = [[b"user%d@bad.example" % number, b"Anna"] for number in range(40)]
    rows[5][1] = b'"Anna'
    rows[5 + lines][1] = b"6'2\""
    given = [b"mail,name", *map(b",".join, rows)]
    listed, errors = lists.built(given, "--column", "mail", name="in.csv")
    named = f"{counted(lines, 'line')} read as parts of other records, though they are records by"
    assert f"warning: {named} themselves; the first: in.csv line 8, in the record" in errors
    assert listed.facts.counts.addresses == 40 - lines


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "mark"])
@pytest.mark.parametrize(("name", "separator"), [(",", ","), (";", ";"), ("tab", "\t"), ("|", "|")])
def test_csv_may_have_other_separators(
    name: str, separator: str, mark: str, lists: Commands
) -> None:
    """A comma is then text. Before a quoted name there may be a byte order mark."""
    rows = [f'{mark}"mail"{separator}n', f"a@x.com{separator}1,2", f'"b@x.com"{separator}x']
    listed, _ = lists.built(rows, "--separator", name, "--column", "mail", name="in.csv")
    assert holds(listed, "a@x.com", "b@x.com")
    assert (len(listed.addresses), listed.facts.counts.bad) == (2, 0)


def test_the_file_of_bad_lines_is_that_of_the_last_build(lists: Commands) -> None:
    """It is there if and only if there were some; a place of the operator's choice is taken."""
    path = lists.directory / "out.list.rejects"
    path.write_text("of a build before")
    written(lists.directory / "in.txt", ["a@x.com"])
    assert lists("build", "in.txt", "-o", "out.list").status == 0
    assert not path.exists()
    written(lists.directory / "in.txt", ["a@x.com", "b"])
    options = ("--normalize", "email", "--rejects", "bad.txt", "--bad-max", "1")
    assert lists("build", "in.txt", "-o", "out.list", *options).status == 0
    assert left_in(lists.directory) == {"in.txt", "out.list", "bad.txt"}


@pytest.mark.parametrize("link", [False, True], ids=["itself", "linked"])
def test_a_list_replaces_only_a_regular_file(link: bool, lists: Commands) -> None:
    """A device, which root could replace, a pipe and a socket stay as they are."""
    written(lists.directory / "in.txt", ["a"])
    os.mkfifo(lists.directory / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(lists.directory / "socket"))
    paths = [lists.directory / "fifo", lists.directory / "socket", Path("/dev/null")]
    for path, kind in zip(paths, ("a pipe (FIFO)", "a socket", "a device"), strict=True):
        output = path
        if link:
            output = lists.directory / f"to-{path.name}"
            output.symlink_to(path)
        before = path.stat()
        found = lists("build", "in.txt", "-o", output)
        assert found.status == 1
        assert f"cannot write {output}: it is {kind}; name another file" in found.errors
        assert path.stat().st_mode == before.st_mode
        assert output.is_symlink() == link
    with (lists.directory / "open").open(
        "w"
    ) as file:  # what /dev/stdout is, if it is a regular file
        for place in filter(Path.exists, map(Path, ("/dev/fd", "/proc/self/fd"))):
            output = lists.directory / f"to-{place.parts[1]}"
            output.symlink_to(place / str(file.fileno()))
            found = lists("build", "in.txt", "-o", output)
            assert found.status == 1
            assert f"cannot write {output}: it is a link to an open file" in found.errors
            assert output.is_symlink()
    for name in ("new.list", "new.list", "to-nothing"):
        if name == "to-nothing":
            (lists.directory / name).symlink_to("nothing")
        assert lists("build", "in.txt", "-o", name).status == 0


def test_a_small_file_may_become_a_large_text(lists: Commands) -> None:
    """A zstd file of a few kilobytes is unpacked as it is read, not at once."""
    (lists.directory / "in.txt.zst").write_bytes(bytes(cramjam.zstd.compress(b"a\n" * 20_000_000)))
    said = lists("build", "in.txt.zst", "-o", "out.list")
    assert said.status == 0
    assert load(lists.directory / "out.list").facts.counts.duplicates == 19_999_999


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("600000000\n", 500_000_000), ("max\n", 8_000_000_000), (None, 8_000_000_000)],
    ids=["limited", "unlimited", "no group"],
)
def test_what_is_available_is_what_the_control_group_leaves(
    limit: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container the machine has more than we may take; pages of files do not count, since they are given back."""
    (tmp_path / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable:    7812500 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.stat").write_text("anon 100000000\nfile 300000000\n")
    assert memory.available_bytes() == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_any_chunking_gives_the_same_lines(size: int) -> None:
    """Wherever the input is cut: lines, their numbers, and ends that are two bytes."""
    text = b"\xef\xbb\xbfone\r\n\r\nthree\n\rfour\nfive\r"
    found = [
        (block.first + row, line)
        for block in blocks(text[i : i + size] for i in range(0, len(text), size))
        for row, line in enumerate(block.lines)
    ]
    expected = [b"one", b"", b"three", b"\rfour", b"five"]
    assert found == list(enumerate(expected, 1))


@pytest.mark.parametrize("is_one", [True, False], ids=["terminal", "file"])
def test_progress_tells_rate_and_time_left_five_times_a_second(is_one: bool) -> None:
    """On a terminal in one line that is written again; at the end come the totals, which are written in any case."""
    now = [0.0]
    out = Terminal() if is_one else io.StringIO()
    progress = Progress(out, live=True, clock=lambda: now[0])
    progress.begin("reading", 1000)
    for _ in progress.through([b"x" * 9 + b"\n"] * 100):
        now[0] += 0.01
    update = r"reading: \d+ bytes of 1.0 kB \(\d+%\), [\d.]+ s left, [\d,]+ lines/s"
    updates = re.findall(update, out.getvalue())
    assert len(updates) in (4, 5)
    assert out.getvalue().count("\r") == (len(updates) if is_one else 0)
    progress.end()
    assert "reading: 100 lines, 1.0 kB in 1.0 s (100 lines/s)\n" in out.getvalue()


def test_progress_that_nobody_sees_is_not_written() -> None:
    """But for the totals."""
    now = [0.0]
    out = io.StringIO()
    progress = Progress(out, live=False, clock=lambda: now[0])
    progress.begin("reading", None)
    now[0] += 1
    assert list(progress.through([b"a"])) == [b"a"]
    assert out.getvalue() == ""
    progress.end()
    assert out.getvalue() == "streamdedup: reading: 1 line, 1 byte in 1.0 s (1 lines/s)\n"


def test_memory_is_stated_before_anything_is_read(lists: Commands) -> None:
    """The totals of what was counted, read and checked come after each step."""
    written(lists.directory / "in.txt", ADDRESSES)
    said = lists("build", "in.txt", "-o", "out.list", "--check", "--progress")
    order = [
        said.errors.index(part)
        for part in ("counting: 2,000", "needs about", "reading: 2,000", "checking: 2,000")
    ]
    assert order == sorted(order)
    assert re.search(
        r"out.list is the list out, version 20\S+Z-[0-9a-f]{8}: 2,000 entries", said.errors
    )


def test_pipes_are_read_once(lists: Commands) -> None:
    """`<(zcat ...)` and a named pipe are inputs like standard input: read once, beside files."""
    pipe = fifo(lists.directory / "more.txt.gz")
    writing(pipe, gzip.compress(b"b\n" * 300_000))
    out, into = os.pipe()
    os.write(into, b"c\nd\n")
    os.close(into)
    path = written(lists.directory / "in.txt", ["a"])
    said = ends(lambda: lists("build", path, pipe, f"/dev/fd/{out}", "-o", "out.list"), pipe, 60)
    os.close(out)
    assert said.status == 0, said.errors
    assert "how many entries the inputs have is not known yet" in said.errors
    listed = load(lists.directory / "out.list")
    assert holds(listed, "a", "b", "c", "d")
    assert listed.facts.counts.addresses == 4


def test_bad_lines_are_not_written_to_a_pipe(lists: Commands) -> None:
    """Nobody may read it, and the build would wait for that; nor is the mode of a device changed."""
    pipe = fifo(lists.directory / "bad")
    path = written(lists.directory / "in.txt", ["a", b"\xff"])
    said = ends(lambda: lists("build", path, "-o", "out.list", "--rejects", pipe), pipe, 60)
    assert said.status == 1
    assert "bad: " in said.errors
    assert "name another file by --rejects" in said.errors


def test_standard_input_makes_the_same_list_as_a_file(
    lists: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nobody knows beforehand how many entries come, and so how many parts there will be."""
    monkeypatch.setattr("streamdedup.filters.fuse.fuse.PART_KEYS", 300)
    path = written(lists.directory / "in.txt", ADDRESSES)
    assert lists("build", path, "-o", "file.list").status == 0
    said = lists("build", "-", "-o", "in.list", stdin=path.read_bytes())
    assert "needs about 440 MB of memory, the filter, and 14 bytes for each entry" in said.errors
    assert tables(load(lists.directory / "in.list")) == tables(load(lists.directory / "file.list"))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_an_input_that_is_not_what_its_name_says_is_told(ending: str, lists: Commands) -> None:
    """Text by the name of something compressed, and compressed data that was damaged."""
    path = lists.directory / f"in.txt{ending}"
    noise = random.Random(3)
    whole = written(path, [noise.randbytes(9).hex() for _ in range(20_000)]).read_bytes()
    middle = len(whole) // 2
    for data in (b"a\nb\n", whole[:middle] + bytes(64) + whole[middle + 64 :]):
        path.write_bytes(data)
        said = lists("build", path, "-o", "out.list")
        assert said.status == 1
        assert f"{path} is damaged, or no" in said.errors
        assert left_in(lists.directory) == {path.name}


@pytest.mark.parametrize("blank", [b"\x1f", b"\x0b \t", b"\x1c\x1d\x1e"])
def test_a_check_takes_no_white_space_for_an_entry(blank: bytes, lists: Commands) -> None:
    """All of ASCII's, as the build."""
    assert "all 2 entries are found" in lists.built([b"a", blank, b"b"], "--check")[1]
