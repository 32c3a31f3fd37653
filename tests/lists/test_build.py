"""Claims about `lists build`: every input it takes, every input it refuses, in memory that it states beforehand.

A build that fails leaves the list as it was.
"""

import bz2
import codecs
import gzip
import io
import lzma
import os
import random
import re
import socket
import stat
import zipfile
from pathlib import Path

import cramjam
import pytest

from streamdedup.errors import ConfigError, SnapshotError, StreamdedupError
from streamdedup.keys.options import EmailRules
from streamdedup.lists import load
from streamdedup.lists.build import needs as memory
from streamdedup.lists.build.blocks import LINE_BYTES_MAX, blocks
from streamdedup.lists.build.builder import build
from streamdedup.lists.build.proof import prove
from streamdedup.lists.build.rejects import Rejects
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.normalization import Normalizing
from streamdedup.lists.progress import BuildProgress
from streamdedup.named_files import open_stream
from streamdedup.units import counted
from tests.fifos import ends, fifo, writing
from tests.filters.cases import HASH_KEY
from tests.lists.tools import (
    KINDS,
    PROVIDER,
    Commands,
    built,
    inputs,
    packed,
    quiet,
    recipe,
    written,
    zstd,
)

ADDRESSES = [f"user{i}@example.com" for i in range(2000)]


CONFIG = """\
kafka: {bootstrap_servers: localhost:9092, group_id: dedup}
source: {topic: events}
key: {from: json, field: id, normalize: email, email_preset: strict}
filter: {capacity: 1000, hash: siphash, hash_key_file: key}
sink: {topic: events-unique}
snapshot: {directory: var/snapshots}
"""


def holds(listed: KeyList, *keys: str) -> bool:
    """Whether all of `keys`, as they stand in the list, are there."""
    return bool(listed.addresses.contains_many(listed.addresses.digests(list(keys))).all())


def tables(listed: KeyList) -> list[bytes]:
    """Copy its buffers."""
    return [bytes(table) for table in listed.buffers()]


def left_in(directory: Path) -> set[str]:
    """The names of the files."""
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["unix", "windows"])
def test_text_is_read_line_by_line(ending: str, newline: str, lists: Commands) -> None:
    """Comments, blank lines, a byte order mark and line ends are no part of an entry; a last newline may be missing."""
    text = newline.join(["\ufeff# block these", "", "a@x.com", " \t", " b ", "c # no comment", "d"])
    name = f"in.txt{ending}"
    (lists.directory / name).write_bytes(packed(ending, text.encode()))
    said = lists("build", name, "-o", "out.list")
    assert said.status == 0, said.errors
    listed = load(lists.directory / "out.list")
    assert holds(listed, "a@x.com", " b ", "c # no comment", "d")
    assert listed.facts.counts.addresses == 4
    assert listed.facts.counts.bad == 0


@pytest.mark.parametrize("column", ["mail", "2"])
@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_csv_is_read_by_a_column(column: str, ending: str, lists: Commands) -> None:
    """By the name in its first line, or by number; quoted cells may hold commas, quotes and line ends."""
    rows = [
        "name,mail",
        '"Doe, J",j@x.com',
        '"two',
        'lines","q""q"',
        "",
        "empty,",
        "short",
        'z,"@d"',
    ]
    path = written(lists.directory / f"in.csv{ending}", rows)
    said = lists("build", path, "-o", "out.list", "--column", column, "--bad-max", "1", "--check")
    assert said.status == 0, said.errors
    listed = load(lists.directory / "out.list")
    assert holds(listed, "j@x.com", 'q"q', "@d")
    assert len(listed.addresses) == 3 + (column == "2")  # the first line is data then
    rejected = (lists.directory / "out.list.rejects").read_text()
    assert rejected == f"{path}\t7\tthe line has too few columns\tshort\n"


@pytest.mark.parametrize("name", ["in.jsonl", "in.ndjson.gz", "in.jsonl.zst"])
def test_json_lines_are_read_by_a_field(name: str, lists: Commands) -> None:
    """As the worker reads its events: strings and integers, by a path."""
    rows = ['{"u": {"mail": "a@x.com"}}', "", '{"u": {"mail": 7}}', '{"u": {"mail": "#tag"}}']
    path = written(lists.directory / name, rows)
    said = lists("build", path, "-o", "out.list", "--field", "u.mail")
    assert said.status == 0, said.errors
    listed = load(lists.directory / "out.list")
    assert holds(listed, "a@x.com", "7", "#tag")
    assert len(listed.addresses) == 3


@pytest.mark.parametrize(
    ("name", "rows", "options", "said"),
    [
        (
            "in.txt", ["#a@x.com", "# note", "", " \t", "b@x.com", "#é@x.com", "# @"], (),
            "6 comments and blank lines (3 comments hold an @)",
        ),
        ("in.txt", ["#", "b@x.com"], (), "1 comment or blank line"),
        (
            "in.csv", ["id,mail", "1,", "2,  ", '3,""', "", "4,b@x.com"], ("--column", "mail"),
            "1 comment or blank line, 3 empty values",
        ),
        ("in.jsonl", ['{"k": ""}', "", '{"k": "b@x.com"}'], ("--field", "k"), "1 comment or blank line, 1 empty value"),
        (
            "in.txt", ["127.0.0.1 localhost", "! c", "0.0.0.0 x.com # y", "# c@d"], ("--entries", "hosts"),
            "3 comments and blank lines (1 comment holds an @)",
        ),
        ("in.txt", ["b@x.com", "b@x.com"], (), "1 duplicate, 0 bad lines"),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_counted(
    name: str, rows: list[str], options: tuple[str, ...], said: str, lists: Commands
) -> None:
    """In the build's last line, and in the header. A line that begins with # may have been meant as an address."""
    written(lists.directory / name, rows)
    found = lists("build", name, "-o", "out.list", "--normalize", "email", *options, "--check")
    assert found.status == 0, found.errors
    *_, last = found.errors.splitlines()
    assert f"{said}; fuse" in last
    assert "1 entries (" in last
    shown = lists("inspect", "out.list").out.decode()
    (row,) = (line for line in shown.splitlines() if line.startswith("left out"))
    assert row.endswith(said)


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
    path = written(lists.directory / "in.jsonl", rows)
    said = lists("build", path, "-o", "out.list", "--field", "k", "--bad-max", "2")
    assert said.status == 0, said.errors
    listed = load(lists.directory / "out.list")
    assert holds(listed, *"abc")
    assert len(listed.addresses) == 3
    rejected = (lists.directory / "out.list.rejects").read_text().splitlines()
    assert [line.split("\t")[1:3] for line in rejected] == [
        ["4", "the value is not valid JSON: a comma or a closing bracket is missing, at byte 22"],
        ["5", "the value is not valid JSON: a control character is in a string, at byte 9"],
    ]


def test_inputs_of_all_formats_make_one_list(lists: Commands) -> None:
    """Each by its own name's ending, standard input among them."""
    one = written(lists.directory / "a.txt", ["a"])
    two = written(lists.directory / "b.csv.gz", ["k", "b"])
    three = written(lists.directory / "c.jsonl", ['{"k": "c"}'])
    options = ("--column", "k", "--field", "k", "-o", "out.list")
    said = lists("build", one, two, three, "-", *options, stdin=b"d\ne")
    assert said.status == 0, said.errors
    listed = load(lists.directory / "out.list")
    assert holds(listed, *"abcde")
    assert len(listed.addresses) == 5


def test_a_format_may_be_told(lists: Commands) -> None:
    """If the name says another one, or none."""
    path = written(lists.directory / "in.txt", ["x;y,a"])
    assert lists("build", path, "-o", "o.list", "--format", "csv", "--column", "2").status == 0
    assert holds(load(lists.directory / "o.list"), "a")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_built_from_files_and_from_standard_input(kind: str, lists: Commands) -> None:
    """All entries are found, and counted; an entry that comes again is a duplicate."""
    path = written(lists.directory / "in.txt", [*ADDRESSES, *ADDRESSES[:100]])
    rate = ("--error-rate", "1e-3")
    said = lists("build", path, "-o", "file.list", "--kind", kind, "--check", *rate)
    assert said.status == 0, said.errors
    assert "all 2,100 entries are found in file.list" in said.errors
    options = ("--kind", kind, "--capacity", "3000", *rate)
    assert lists("build", "-", "-o", "in.list", *options, stdin=path.read_bytes()).status == 0
    for name in ("file.list", "in.list"):
        listed = load(lists.directory / name)
        assert holds(listed, *ADDRESSES)
        assert listed.facts.counts.duplicates == pytest.approx(100, abs=8)  # and false ones of it
        assert sum((listed.facts.counts.addresses, listed.facts.counts.duplicates)) == 2100


def test_the_worker_s_configuration_says_how_keys_are_made(lists: Commands) -> None:
    """With -c, normalizer, its rules, hash and secret are those of the worker; saying them again is refused."""
    (lists.directory / "key").write_text(HASH_KEY.hex())
    (lists.directory / "dedup.yaml").write_text(CONFIG)
    path = written(lists.directory / "in.txt", ["A.B+c@GoogleMail.com"])
    assert lists("build", path, "-o", "out.list", "-c", "dedup.yaml").status == 0
    listed = load(lists.directory / "out.list", hash_key=HASH_KEY)
    assert holds(listed, "a.b+c@googlemail.com")
    assert listed.facts.normalizing == Normalizing("email", EmailRules.of("strict"))
    asked = lists("check", "out.list", "-c", "dedup.yaml", "A.B+C@googlemail.com")
    assert asked.out == b"blocked\taddress\tA.B+C@googlemail.com\n"
    twice = ("--hash", "murmur3")
    said = lists("build", path, "-o", "out.list", "-c", "dedup.yaml", *twice)
    assert said.status == 2
    assert "-c takes --hash from the configuration; delete one of the two" in said.errors


@pytest.mark.parametrize(("kind", "stored"), [("bloom", True), ("exact", False)])
def test_a_list_for_a_worker_that_verifies_gets_its_store(
    kind: str, stored: bool, lists: Commands
) -> None:
    """Without being asked for: the worker would refuse it. One that is exact, as an allow list, has none."""
    (lists.directory / "key").write_text(HASH_KEY.hex())
    verifying = "blocklist:\n  file: out.list\n  on_positive: verify\n"
    (lists.directory / "dedup.yaml").write_text(CONFIG + verifying)
    path = written(lists.directory / "in.txt", ["a@x.com"])
    said = lists("build", path, "-o", "out.list", "-c", "dedup.yaml", "--kind", kind, "--check")
    assert said.status == 0, said.errors
    assert (lists.directory / "out.list.exact").exists() is stored


def test_a_keyed_list_is_built_with_the_secret_of_a_file(lists: Commands) -> None:
    """As the worker's own `hash_key_file`."""
    (lists.directory / "key").write_text(HASH_KEY.hex() + "\n")
    path = written(lists.directory / "in.txt", ["a"])
    options = ("--hash", "siphash", "--hash-key-file", "key")
    assert lists("build", path, "-o", "out.list", *options).status == 0
    assert holds(load(lists.directory / "out.list", hash_key=HASH_KEY), "a")


@pytest.mark.parametrize("kind", ["bitmap", "blocked", "bloom", "exact", "fuse"])
def test_the_order_of_entries_does_not_matter(kind: str, tmp_path: Path) -> None:
    """The same entries in another order, over other files, make the same tables and the same checksum."""
    entries = [*ADDRESSES, ".example.org", "@example.net", ".googlemail.com"]
    one = built(tmp_path, entries, kind=kind, normalizing=PROVIDER)
    first, checksum = tables(one), one.facts.checksum
    random.Random(1).shuffle(entries)
    halves = [
        written(tmp_path / "a.txt.gz", entries[:700]),
        written(tmp_path / "b.txt", [entry.upper() for entry in entries[700:]]),
    ]
    same = recipe(kind=kind, normalizing=PROVIDER)
    rejects = Rejects(tmp_path / "r", 0)
    other = build(same, inputs(*halves), tmp_path / "other.list", rejects, quiet())
    assert (tables(other), other.facts.checksum) == (first, checksum)


def test_a_list_of_many_parts_is_built_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the hash splits it, as it does with more than four million entries."""
    monkeypatch.setattr("streamdedup.filters.fuse.fuse.PART_KEYS", 300)
    one = built(tmp_path, ADDRESSES)
    assert one.addresses.header()["parts"] == 7
    assert holds(one, *ADDRESSES)
    first = tables(one)
    assert tables(built(tmp_path, ADDRESSES[::-1])) == first


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
@pytest.mark.parametrize("kept", [0.0, 0.02, 0.3, 0.5, 0.99])
def test_a_truncated_input_is_told(ending: str, kept: float, lists: Commands) -> None:
    """Wherever it ends; the list that was there stays."""
    noise = random.Random(3)
    path = written(
        lists.directory / f"in.txt{ending}", [noise.randbytes(9).hex() for _ in range(20_000)]
    )
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    (lists.directory / "out.list").write_bytes(b"as it was")
    said = lists("build", path, "-o", "out.list")
    assert said.status == 1
    assert f"{path} is cut short" in said.errors
    assert (lists.directory / "out.list").read_bytes() == b"as it was"
    assert left_in(lists.directory) == {path.name, "out.list"}


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


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(b"a"), "is compressed by gzip; give it a name that ends in .gz"),
        (zstd(b"a"), "is compressed by zstd; give it a name that ends in .zst"),
        ("a\nb".encode("utf-16"), "is UTF-16; convert it first"),
        (codecs.BOM_UTF16_BE + "a\nb".encode("utf-16-be"), "is UTF-16; convert it first"),
    ],
    ids=["gzip", "zstd", "utf-16", "utf-16-be"],
)
def test_what_is_no_text_is_refused_by_its_first_bytes(
    data: bytes, said: str, lists: Commands
) -> None:
    """From a file and from standard input: some of it might pass for entries."""
    (lists.directory / "in.txt").write_bytes(data)
    for given, stdin in (("in.txt", b""), ("-", data)):
        found = lists("build", given, "-o", "out.list", stdin=stdin)
        assert found.status == 2
        assert f"{given} {said}" in found.errors
    assert left_in(lists.directory) == {"in.txt"}


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


@pytest.mark.parametrize("option", ["-o", "--output", "--rejects"])
def test_a_file_is_not_standard_output(option: str, lists: Commands) -> None:
    """It is replaced as a whole; a file of that name is not made."""
    written(lists.directory / "in.txt", ["a"])
    named = ("-o", "out.list", option) if option == "--rejects" else (option,)
    with pytest.raises(SystemExit) as refused:
        lists("build", "in.txt", *named, "-")
    assert refused.value.code == 2
    assert left_in(lists.directory) == {"in.txt"}


def test_lines_that_are_not_utf8_are_bad(lists: Commands) -> None:
    """As of a file in Latin-1; those that are text are taken."""
    written(lists.directory / "in.txt", ["plain", "Zoë".encode("latin-1"), "Zoë"])
    assert lists("build", "in.txt", "-o", "out.list", "--bad-max", "1").status == 0
    listed = load(lists.directory / "out.list")
    assert holds(listed, "plain", "Zoë")
    assert listed.facts.counts.bad == 1
    rejected = (lists.directory / "out.list.rejects").read_bytes()
    assert rejected == b"in.txt\t2\tthe line is not UTF-8\tZo\xeb\n"


@pytest.mark.parametrize(
    ("rows", "numbers"),
    [
        (["a,b", 'a,"open', "x,still", "x,open"], [2]),
        (["a,b", 'x,y"z"', 'x,"y"z', "x,z"], [3]),
        ([b"a,b", b"x,\xff", b"x,z"], [2]),
        (["a,b", "x,y" + "y" * LINE_BYTES_MAX, "x,z"], [2]),
        (["a,b", 'x,"two', 'lines"', "x,z"], [2, 3]),
        (["a,b", 'x,"y"z,"', "evil", '"', "x,z"], [2, 3, 4]),
    ],
    ids=["open", "stray", "latin-1", "long line", "two lines", "stray in several"],
)
def test_csv_that_is_none_is_bad_by_its_line(
    rows: list[str | bytes], numbers: list[int], lists: Commands
) -> None:
    """Quotes that do not match, other encodings and what is too long cost one record, not the rest."""
    written(lists.directory / "in.csv", rows)
    options = ("--column", "b", "--allow-empty", "--bad-max", "99")
    said = lists("build", "in.csv", "-o", "out.list", *options)
    assert said.status == 0, said.errors
    rejected = (lists.directory / "out.list.rejects").read_bytes().splitlines()
    found = [int(line.split(b"\t")[1]) for line in rejected]
    assert found == numbers
    listed = load(lists.directory / "out.list")
    assert not holds(listed, "evil")
    assert holds(listed, "z") or holds(listed, "still", "open")


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize(
    ("strays", "takes"),
    [({3: b'"%b'}, 4998), ({3: b'"%b', 4000: b'%b"'}, 3998), ({3: b'"%b', 4000: b'"%b'}, 3998)],
    ids=["one", "a pair", "two that open"],
)
def test_a_stray_quote_is_named_and_costs_its_line(
    strays: dict[int, bytes], takes: int, columns: int, lists: Commands
) -> None:
    """It counts as many bad lines as its record takes. If these are accepted, all other entries are on the list."""
    mails = [b"user%d@bad.example" % number for number in range(5001)]
    rows = [(mail, b"Anna")[:columns] for mail in mails]
    for number, stray in strays.items():
        rows[number - 1] = (*rows[number - 1][:-1], stray % rows[number - 1][-1])
    written(lists.directory / "in.csv", [b"mail,name", *map(b",".join, rows[1:5000])])
    build = ("build", "in.csv", "-o", "out.list", "--column", "mail")
    said = lists(*build, "--bad-max", "1000")
    place = f"the record at line 3 takes {takes:,} lines: an unclosed quote?"
    assert said.status == 1
    assert place in said.errors
    said = lists(*build, "--bad-max", "10k", "--check")
    assert said.status == 0
    assert place in said.errors
    listed = load(lists.directory / "out.list")
    assert listed.facts.counts.bad >= takes
    assert holds(listed, *(mails[i].decode() for i in range(1, 5000) if i + 1 not in strays))


@pytest.mark.parametrize(
    ("rows", "bad"),
    [
        (['2,"b@x.com', "3,c@x.com", '4,"d@x.com"', "5,e@x.com"], [3]),
        (['2,"b@x.com"x,"', "evil@x.com", '"', "5,e@x.com"], [3, 4, 5]),
        (['2,"b@x.com', 'c@x.com"', "5,e@x.com"], [3, 4]),
        (['2,nobody,"a', "note", 'of some lines"', "5,e@x.com"], [3, 4, 5]),
        (['2,"b@x.com', "c@x.com", *["3,c@x.com"] * 3, '4,"d@x.com"', "5,e@x.com"], list(range(3, 9))),
        (["2,nobody", "5,e@x.com"], [3]),
    ],
)  # fmt: skip
def test_each_line_of_csv_is_an_entry_or_a_bad_line(
    rows: list[str], bad: list[int], lists: Commands
) -> None:
    """Of a record that is bad as a whole, each is counted and written; what is read again is on the list."""
    path = written(lists.directory / "in.csv", ["id,mail", "1,a@x.com", *rows])
    options = ("--column", "mail", "--normalize", "email", "--bad-max", "9", "--check")
    said = lists("build", "in.csv", "-o", "out.list", *options)
    assert said.status == 0, said.errors
    assert f"{counted(len(bad), 'bad line')} of {len(rows) + 1} (" in said.errors
    lines = path.read_bytes().splitlines()
    rejected = (lists.directory / "out.list.rejects").read_bytes().splitlines()
    assert [
        (int(number), line) for _, number, _, line in (row.split(b"\t") for row in rejected)
    ] == [(number, lines[number - 1]) for number in bad]
    listed = load(lists.directory / "out.list")
    assert listed.facts.counts.bad == len(bad)
    kept = [line for number, line in enumerate(lines, 1) if number > 1 and number not in bad]
    assert holds(listed, *(line.split(b",")[1].strip(b'"').decode() for line in kept))
    assert len(listed.addresses) == len(kept)


@pytest.mark.parametrize("lines", [1, 2, 10, 19])
def test_lines_that_two_strays_swallow_are_named(lines: int, lists: Commands) -> None:
    """Also without --check: a record of few lines is believed."""
    rows = [[b"user%d@bad.example" % number, b"Anna"] for number in range(40)]
    rows[5][1] = b'"Anna'
    rows[5 + lines][1] = b"6'2\""
    written(lists.directory / "in.csv", [b"mail,name", *map(b",".join, rows)])
    said = lists("build", "in.csv", "-o", "out.list", "--column", "mail")
    assert said.status == 0
    named = f"{counted(lines, 'line')} read as parts of other records, though they are records by"
    assert f"warning: {named} themselves; the first: in.csv line 8, in the record" in said.errors
    assert load(lists.directory / "out.list").facts.counts.addresses == 40 - lines


@pytest.mark.parametrize("blank", [b"\x1f", b"\x0b \t", b"\x1c\x1d\x1e"])
def test_a_check_takes_no_white_space_for_an_entry(blank: bytes, lists: Commands) -> None:
    """All of ASCII's, as the build."""
    written(lists.directory / "in.txt", [b"a", blank, b"b"])
    said = lists("build", "in.txt", "-o", "out.list", "--check")
    assert (said.status, "all 2 entries are found" in said.errors) == (0, True)


@pytest.mark.parametrize("line", ["evil@bad.example", "evil@bad.example " * 20_000])
def test_a_long_note_chooses_no_entries(line: str, lists: Commands) -> None:
    """However many lines it has, and however long they are: it is one cell."""
    note = "\n".join([line] * (3 + 200_000 // len(line)))
    written(lists.directory / "in.csv", ["mail,note", f'a@x.com,"{note}"', "b@x.com,"])
    said = lists("build", "in.csv", "-o", "out.list", "--column", "mail", "--check")
    assert said.status == 0, said.errors
    listed = load(lists.directory / "out.list")
    assert holds(listed, "a@x.com", "b@x.com")
    assert (len(listed.addresses), listed.facts.counts.bad) == (2, 0)


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "mark"])
@pytest.mark.parametrize(("name", "separator"), [(",", ","), (";", ";"), ("tab", "\t"), ("|", "|")])
def test_csv_may_have_other_separators(
    name: str, separator: str, mark: str, lists: Commands
) -> None:
    """A comma is then text. Before a quoted name there may be a byte order mark."""
    rows = [f'{mark}"mail"{separator}n', f"a@x.com{separator}1,2", f'"b@x.com"{separator}x']
    written(lists.directory / "in.csv", rows)
    given = ("build", "in.csv", "-o", "out.list", "--separator", name)
    said = lists(*given, "--column", "mail")
    assert said.status == 0, said.errors
    listed = load(lists.directory / "out.list")
    assert holds(listed, "a@x.com", "b@x.com")
    assert (len(listed.addresses), listed.facts.counts.bad) == (2, 0)


def test_an_unknown_column_is_refused_before_anything_is_counted(lists: Commands) -> None:
    """The message names the columns that there are, and what separates them."""
    written(lists.directory / "good.csv", ["mail", *ADDRESSES])
    written(lists.directory / "in.csv", ["id;e-mail", *ADDRESSES])
    said = lists("build", "good.csv", "in.csv", "-o", "out.list", "--column", "mail")
    assert said.status == 2
    assert "in.csv has 0 columns with that name among 1: id;e-mail; " in said.errors
    assert "--separator ';'" in said.errors
    assert "counting" not in said.errors


def test_bad_lines_are_counted_and_written_to_a_file(lists: Commands) -> None:
    """For its owner only: input, line, reason and the line; the message has the reason and not the line."""
    bad = ["no address", "@", "a@b@c.com", "@no_domain", "x" * 400]
    written(lists.directory / "in.txt", ["a@x.com", *bad, "b@x.com"])
    said = lists("build", "in.txt", "-o", "out.list", "--normalize", "email", "--bad-max", "5")
    assert said.status == 0, said.errors
    path = lists.directory / "out.list.rejects"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert [row[:2] for row in rows] == [["in.txt", str(number)] for number in range(2, 7)]
    assert all(row[2].startswith(("the key is not", "the entry is not")) for row in rows)
    assert [row[3] for row in rows] == [line[:300] for line in bad]
    assert "5 bad lines of 7 (71.43%) left out: the key is not an e-mail address: " in said.errors
    assert "; they are in out.list.rejects; the first: in.txt line 2" in said.errors
    assert "no_domain" not in said.errors
    assert load(lists.directory / "out.list").facts.counts.bad == 5


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


@pytest.mark.parametrize(("most", "status"), [(6, 1), (7, 0)])
def test_too_many_bad_lines_build_nothing(most: int, status: int, lists: Commands) -> None:
    """One above the limit: all are counted, the first named, none quoted, and the list that was there stays."""
    written(lists.directory / "in.txt", ["a@x.com", *["secret"] * 7])
    (lists.directory / "out.list").write_bytes(b"as it was")
    options = ("--normalize", "email", "--bad-max", str(most))
    said = lists("build", "in.txt", "-o", "out.list", *options)
    assert said.status == status, said.errors
    assert "secret" not in said.errors
    if status:
        assert "7 bad lines of 8 (87.50%) left out" in said.errors
        assert "6 are accepted, so nothing was built" in said.errors
        assert "accept them by --bad-max 7\n" in said.errors
        assert "in.txt line 2: the key is not an e-mail address" in said.errors
        assert (lists.directory / "out.list").read_bytes() == b"as it was"
        assert left_in(lists.directory) == {"in.txt", "out.list", "out.list.rejects"}


@pytest.mark.parametrize(
    ("rows", "options", "status", "said"),
    [
        ([], (), 1, "the list would be empty"),
        (["# only", ""], (), 1, "of 2 lines none is an entry"),
        (["nobody"], ("--normalize", "email", "--bad-max", "1"), 1, "1 bad line of 1 (100.00%)"),
        ([], ("--allow-empty",), 0, "0 entries"),
    ],
    ids=["nothing", "comments", "bad lines", "allowed"],
)
def test_an_empty_list_is_refused_unless_it_is_meant(
    rows: list[str], options: tuple[str, ...], status: int, said: str, lists: Commands
) -> None:
    """It would block nobody, or, in the wrong place, exempt nobody."""
    written(lists.directory / "in.txt", rows)
    found = lists("build", "in.txt", "-o", "out.list", *options)
    assert found.status == status
    assert said in found.errors
    assert (lists.directory / "out.list").exists() == (status == 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("in.txt", "-o", "in.txt"), "in.txt is an input and would be overwritten"),
        (("in.txt", "-o", "link.txt"), "link.txt is an input and would be overwritten"),
        (("in.txt", "-o", "o", "--rejects", "in.txt"), "in.txt is an input"),
        (("in.txt", "-o", "o", "--rejects", "o"), "the list and the file of bad lines"),
        (("nowhere.txt", "-o", "o"), "nowhere.txt: No such file or directory"),
        (("-", "-", "-o", "o"), "can be read only once"),
        (("in.csv", "-o", "o"), "--column is required for csv"),
        (("in.jsonl", "-o", "o"), "--field is required for jsonl"),
        (
            ("in.txt", "-o", "o", "--column", "x"),
            "--column is for csv, and no input has that format",
        ),
        (
            ("in.tsv", "-o", "o", "--column", "x"),
            "give --format csv --separator tab, or delete the option",
        ),
        (("in.TSV.gz", "-o", "o", "--column", "1"), "give --format csv --separator tab, or delete"),
        (
            ("in.jsonl", "in.tsv", "-o", "o", "--column", "1", "--field", "k"),
            "csv --separator tab, or",
        ),
        (
            ("bz.txt", "-o", "o"),
            "bz.txt is compressed by bzip2, which is not read; pipe it through: bzip2 -dc",
        ),
        (
            ("xz.csv", "-o", "o", "--column", "1"),
            "xz.csv is compressed by xz, which is not read; pipe it",
        ),
        (
            ("zip.jsonl", "-o", "o", "--field", "k"),
            "zip.jsonl is a ZIP archive or a workbook of Excel, which",
        ),
        (("in.txt", "-o", "o", "--separator", ";"), "--separator is for csv, and no input has"),
        (("in.csv", "-o", "o", "--column", "0"), "columns are counted from 1"),
        (("-", "-o", "o", "--kind", "bloom"), "--capacity is required"),
        (("-", "-o", "o", "--check"), "--check reads the inputs twice"),
        (("in.txt", "-o", "o", "--email-preset", "strict"), "--email-preset is for"),
        (("in.txt", "-o", "o", "--kind", "fuse", "--error-rate", "1e-12"), "--kind fuse"),
        (
            ("in.txt", "-o", "o", "--capacity", "1", "--kind", "exact"),
            "more than 1 entries, which is the capacity",
        ),
        (("in.txt", "-o", "o", "--capacity", "10G", "--kind", "exact"), "are available; raise"),
        (("in.txt", "-o", "o", "--hash", "siphash"), "siphash takes 16 bytes"),
        (("in.txt", "-o", "o", "--name", "a\nb"), "--name"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: tuple[str, ...], said: str, lists: Commands
) -> None:
    """With status 2 and what to do, before anything is written; data is never quoted."""
    written(lists.directory / "in.txt", ["secret one", "secret two"])
    written(lists.directory / "in.csv", ["secret"])
    written(lists.directory / "in.jsonl", ["{}"])
    written(lists.directory / "bz.txt", [bz2.compress(b"secret")])
    written(lists.directory / "xz.csv", [lzma.compress(b"secret")])
    with zipfile.ZipFile(lists.directory / "zip.jsonl", "w") as archive:
        archive.writestr("x", "secret")
    (lists.directory / "link.txt").symlink_to("in.txt")
    before = left_in(lists.directory)
    found = lists("build", *arguments)
    assert found.status == 2, found.errors
    assert said in found.errors
    assert "secret" not in found.errors
    assert left_in(lists.directory) == before


def test_a_list_goes_only_where_a_file_can_be(lists: Commands) -> None:
    """Which is known before the inputs are read."""
    (lists.directory / "there").mkdir()
    for output, said in (("there", "it is a directory"), ("no/where", "there is no directory")):
        found = lists("build", "nowhere.txt", "-o", output)
        assert found.status == 1
        assert said in found.errors


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


def test_a_check_misses_what_is_not_in_the_file(tmp_path: Path) -> None:
    """A new entry of the inputs, an address or a domain, is reported by its line; so is a damaged file."""
    made, path = recipe(normalizing=PROVIDER), tmp_path / "out.list"
    built(tmp_path, ["a@x.com", "@y.com"], normalizing=PROVIDER)
    given = inputs(tmp_path / "in.txt")
    assert prove(path, made, given, Rejects(tmp_path / "bad"), quiet()) == 2
    for entry in ("b@x.com", "@x.com", ".y.com"):
        written(tmp_path / "in.txt", ["a@x.com", "# here", entry])
        with pytest.raises(StreamdedupError, match=r"in.txt line 3: its entry is not found in"):
            prove(path, made, given, Rejects(tmp_path / "bad"), quiet())
    written(tmp_path / "in.txt", ["a@x.com"])
    with pytest.raises(ConfigError, match="normalized by"):
        prove(path, recipe(), given, Rejects(tmp_path / "bad"), quiet())
    data = bytearray(path.read_bytes())
    data[4096] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match="damaged"):
        prove(path, made, given, Rejects(tmp_path / "bad"), quiet())


def test_a_check_looks_for_entries_in_the_very_file(tmp_path: Path) -> None:
    """A file that is whole and holds something else does not pass for the one that was built."""
    built(tmp_path, ["other"])
    written(tmp_path / "in.txt", ["a"])
    with pytest.raises(StreamdedupError, match="line 1: its entry is not found"):
        found = inputs(tmp_path / "in.txt")
        prove(tmp_path / "out.list", recipe(), found, Rejects(tmp_path / "bad"), quiet())


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


def test_more_than_is_available_is_refused_with_both_figures() -> None:
    """Exactly as much is accepted. If the available memory is unknown, the build is tried."""
    needed = memory.needs("bloom", 1_000_000, 0, 0.01)
    needed.refuse_above(needed.total_bytes)
    needed.refuse_above(None)
    with pytest.raises(
        ConfigError, match=r"needs about 301 MB of memory.*, and 301 MB are available"
    ):
        needed.refuse_above(needed.total_bytes - 1)


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


class _Terminal(io.StringIO):
    """A file of text that says whether somebody sees it."""

    def __init__(self, *, is_one: bool) -> None:
        super().__init__()
        self._is_one = is_one

    def isatty(self) -> bool:
        """Whether this stands for a terminal."""
        return self._is_one


@pytest.mark.parametrize("is_one", [True, False], ids=["terminal", "file"])
def test_progress_tells_rate_and_time_left_five_times_a_second(is_one: bool) -> None:
    """On a terminal in one line that is written again; at the end come the totals, which are written in any case."""
    now = [0.0]
    out = _Terminal(is_one=is_one)
    progress = BuildProgress(out, live=True, clock=lambda: now[0])
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
    out = _Terminal(is_one=False)
    progress = BuildProgress(out, live=False, clock=lambda: now[0])
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


def test_a_pipe_that_nobody_writes_ends_the_build(
    lists: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a deadline, with its name and the reason; the list stays as it was."""
    monkeypatch.setattr(open_stream, "__defaults__", (0.1, 0.1))
    pipe = fifo(lists.directory / "in.txt")
    said = ends(lambda: lists("build", pipe, "-o", "out.list"), pipe, 60)
    assert said.status == 1
    assert f"{pipe} cannot be read: it is a pipe to which nobody writes within 0.1 s" in said.errors
    assert left_in(lists.directory) == {"in.txt"}


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("in.txt", ("--check",), "--check reads the inputs twice, and standard input or a pipe"),
        ("in.txt", ("--kind", "bloom"), "--capacity is required: the entries of the pipe"),
        ("in.txt.zst", (), "is a pipe, and zstd is read from regular files only"),
    ],
)
def test_what_a_pipe_cannot_do_is_refused_at_once(
    name: str, options: tuple[str, ...], why: str, lists: Commands
) -> None:
    """Nobody waits for whoever may write to it."""
    pipe = fifo(lists.directory / name)
    said = ends(lambda: lists("build", pipe, "-o", "out.list", *options), pipe, 60)
    assert said.status == 2
    assert why in said.errors


def test_bad_lines_are_not_written_to_a_pipe(lists: Commands) -> None:
    """Nobody may read it, and the build would wait for that; nor is the mode of a device changed."""
    pipe = fifo(lists.directory / "bad")
    path = written(lists.directory / "in.txt", ["a", b"\xff"])
    said = ends(lambda: lists("build", path, "-o", "out.list", "--rejects", pipe), pipe, 60)
    assert said.status == 1
    assert "bad: " in said.errors
    assert "name another file by --rejects" in said.errors


@pytest.mark.parametrize("part", ["check", "inspect"])
def test_a_pipe_is_no_list(part: str, lists: Commands) -> None:
    """A list is mapped, so it must be a regular file."""
    pipe = fifo(lists.directory / "block.list")
    said = ends(lambda: lists(part, pipe, *(["a"] if part == "check" else [])), pipe, 60)
    assert said.status == 1
    assert "it is no regular file, but a pipe (FIFO); name a regular file" in said.errors
