"""Claims about `lists build`: every input it takes, every input it refuses, in memory that it states beforehand.

A build that fails leaves the list as it was.
"""

import bz2
import codecs
import gzip
import itertools
import lzma
import random
import stat
import zipfile
from pathlib import Path

import pytest

from streamdedup.errors import ConfigError, SnapshotError, StreamdedupError
from streamdedup.filters.kinds import LISTABLE
from streamdedup.keys.options import EmailRules
from streamdedup.lists import load
from streamdedup.lists.build import needs as memory
from streamdedup.lists.build.builder import build
from streamdedup.lists.build.proof import prove
from streamdedup.lists.build.rejects import Rejects
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.normalization import Normalizing
from streamdedup.named_files import open_stream
from tests.fifos import ends, fifo
from tests.filters.cases import HASH_KEY
from tests.lists.tools import (
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
from tests.rows import every

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
    rows: list[str | bytes] = [
        *("name,mail", '"Doe, J",j@x.com', '"two', 'lines","q""q"', "", "empty,", "short"),
        *('z,"@d"', b"latin,\xff"),
    ]
    options = ("--column", column, "--bad-max", "2", "--check")
    listed, _ = lists.built(rows, *options, name=f"in.csv{ending}")
    assert holds(listed, "j@x.com", 'q"q', "@d")
    assert len(listed.addresses) == 3 + (column == "2")  # the first line is data then
    assert lists.rejected() == [
        (7, "the line has too few columns", "short"),
        (9, "the line is not UTF-8", "latin,\ufffd"),
    ]


@pytest.mark.parametrize("name", ["in.jsonl", "in.ndjson.gz", "in.jsonl.zst"])
def test_json_lines_are_read_by_a_field(name: str, lists: Commands) -> None:
    """As the worker reads its events: strings and integers, by a path."""
    rows = ['{"u": {"mail": "a@x.com"}}', "", '{"u": {"mail": 7}}', '{"u": {"mail": "#tag"}}']
    listed, _ = lists.built(rows, "--field", "u.mail", name=name)
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
    _, errors = lists.built(rows, "--normalize", "email", *options, "--check", name=name)
    *_, last = errors.splitlines()
    assert f"{said}; fuse" in last
    assert ": 1 entry (" in last
    shown = lists("inspect", "out.list").out.decode()
    (row,) = (line for line in shown.splitlines() if line.startswith("left out"))
    assert row.endswith(said)


def test_an_exact_list_shows_how_rarely_it_errs(lists: Commands) -> None:
    """Whatever rate was asked for."""
    written(lists.directory / "bad.txt", ["a@b.de"])
    found = lists("build", "bad.txt", "-o", "out.list", "--normalize", "email", "--kind", "exact")
    for shown in (found.errors, lists("inspect", "out.list").out.decode()):
        assert "error rate n/2^64" in shown


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
    assert holds(lists.built(["x;y,a"], "--format", "csv", "--column", "2")[0], "a")


@pytest.mark.parametrize("kind", LISTABLE)
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


def test_a_truncated_input_is_told(lists: Commands, tmp_path: Path) -> None:
    """Wherever it ends; the list that was there stays."""

    def check(row: tuple[str, float]) -> None:
        ending, kept = row
        lists.directory = tmp_path / f"{kept}{ending}"
        lists.directory.mkdir()
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

    every(itertools.product([".gz", ".zst"], [0.0, 0.02, 0.3, 0.5, 0.99]), check)


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
    listed, _ = lists.built(["plain", "Zoë".encode("latin-1"), "Zoë"], "--bad-max", "1")
    assert holds(listed, "plain", "Zoë")
    assert listed.facts.counts.bad == 1
    rejected = (lists.directory / "out.list.rejects").read_bytes()
    assert rejected == b"in.txt\t2\tthe line is not UTF-8\tZo\xeb\n"


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
    given = ["a@x.com", *bad, "b@x.com"]
    listed, errors = lists.built(given, "--normalize", "email", "--bad-max", "5")
    path = lists.directory / "out.list.rejects"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert all(row.startswith("in.txt\t") for row in path.read_text().splitlines())
    expected = list(enumerate((line[:300] for line in bad), 2))
    assert [(number, line) for number, _, line in lists.rejected()] == expected
    reasons = ("the key is not", "the entry is not")
    assert all(reason.startswith(reasons) for _, reason, _ in lists.rejected())
    assert "5 bad lines of 7 (71.43%) left out: the key is not an e-mail address: " in errors
    assert "; they are in out.list.rejects; the first: in.txt line 2" in errors
    assert "no_domain" not in errors
    assert listed.facts.counts.bad == 5


REASONS = ["*@w.secret", "secret.example", "nobody", "a@b@c", "*@v.secret"]


@pytest.mark.parametrize(
    ("good", "bad", "options", "limit"),
    [
        (990, 10, (), None),
        (989, 11, (), "10 are accepted (1 %)"),
        (1, 7, ("--bad-max", "6"), "6 are accepted"),
        (1, 7, ("--bad-max", "7"), None),
    ],
)
def test_too_many_bad_lines_build_nothing(
    good: int, bad: int, options: tuple[str, ...], limit: str | None, lists: Commands
) -> None:
    """Above one in a hundred, or --bad-max: all are counted, the first named, none quoted; the list stays as it was.

    The report has the three most frequent reasons.
    """
    lines = [*(f"u{n}@x.example" for n in range(good)), *(REASONS * 3)[:bad]]
    written(lists.directory / "in.txt", lines)
    (lists.directory / "out.list").write_bytes(b"as it was")
    said = lists("build", "in.txt", "-o", "out.list", "--normalize", "email", *options)
    assert said.status == (limit is not None), said.errors
    assert "secret" not in said.errors
    assert f"{bad} bad lines of {good + bad:,} ({bad / (good + bad):.2%}) left out: " in said.errors
    assert "the entry has a wildcard" in said.errors
    assert "; other reasons (" in said.errors
    assert f"; the first: in.txt line {good + 1}" in said.errors
    assert len(lists.rejected()) == bad
    if limit is not None:
        assert f"{limit}, so nothing was built" in said.errors
        assert f"accept them by --bad-max {bad}\n" in said.errors
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


def test_what_does_not_fit_is_refused(lists: Commands) -> None:
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

    def check(row: tuple[tuple[str, ...], str]) -> None:
        arguments, said = row
        found = lists("build", *arguments)
        assert found.status == 2, found.errors
        assert said in found.errors
        assert "secret" not in found.errors
        assert left_in(lists.directory) == before

    every(
        [
            (("in.txt", "-o", "in.txt"), "in.txt is an input and would be overwritten"),
            (("in.txt", "-o", "link.txt"), "link.txt is an input and would be overwritten"),
            (("in.txt", "-o", "o", "--rejects", "in.txt"), "in.txt is an input"),
            (("in.txt", "-o", "o", "--rejects", "o"), "the list and the file of bad lines"),
            (("nowhere.txt", "-o", "o"), "nowhere.txt: No such file or directory"),
            (("-", "-", "-o", "o"), "can be read only once"),
            (("in.csv", "-o", "o"), "--column is required for csv"),
            (("in.jsonl", "-o", "o"), "--field is required for jsonl"),
            (("in.txt", "-o", "o", "--column", "x"), "--column is for csv, and no input has that"),
            (
                ("in.tsv", "-o", "o", "--column", "x"),
                "give --format csv --separator tab, or delete",
            ),
            (("in.TSV.gz", "-o", "o", "--column", "1"), "csv --separator tab, or delete the opt"),
            (("in.jsonl", "in.tsv", "-o", "o", "--column", "1", "--field", "k"), "--separator tab"),
            (
                ("bz.txt", "-o", "o"),
                "compressed by bzip2, which is not read; pipe it through: bzip2",
            ),
            (
                ("xz.csv", "-o", "o", "--column", "1"),
                "is compressed by xz, which is not read; pipe",
            ),
            (("zip.jsonl", "-o", "o", "--field", "k"), "is a ZIP archive or a workbook of Excel"),
            (("in.txt", "-o", "o", "--separator", ";"), "--separator is for csv, and no input has"),
            (("in.csv", "-o", "o", "--column", "0"), "columns are counted from 1"),
            (("-", "-o", "o", "--kind", "bloom"), "--capacity is required"),
            (("-", "-o", "o", "--check"), "--check reads the inputs twice"),
            (("in.txt", "-o", "o", "--email-preset", "strict"), "--email-preset is for"),
            (("in.txt", "-o", "o", "--kind", "fuse", "--error-rate", "1e-12"), "--kind fuse"),
            (
                ("in.txt", "-o", "o", "--capacity", "1", "--kind", "exact"),
                "more than 1 entries, wh",
            ),
            (("in.txt", "-o", "o", "--capacity", "10G", "--kind", "exact"), "are available; raise"),
            (("in.txt", "-o", "o", "--hash", "siphash"), "siphash takes 16 bytes"),
            (("in.txt", "-o", "o", "--name", "a\nb"), "--name"),
        ],
        check,
    )


def test_a_list_goes_only_where_a_file_can_be(lists: Commands) -> None:
    """Which is known before the inputs are read."""
    (lists.directory / "there").mkdir()
    for output, said in (("there", "it is a directory"), ("no/where", "there is no directory")):
        found = lists("build", "nowhere.txt", "-o", output)
        assert found.status == 1
        assert said in found.errors


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


def test_more_than_is_available_is_refused_with_both_figures() -> None:
    """Exactly as much is accepted. If the available memory is unknown, the build is tried."""
    needed = memory.needs("bloom", 1_000_000, 0, 0.01)
    needed.refuse_above(needed.total_bytes)
    needed.refuse_above(None)
    with pytest.raises(
        ConfigError, match=r"needs about 301 MB of memory.*, and 301 MB are available"
    ):
        needed.refuse_above(needed.total_bytes - 1)


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


@pytest.mark.parametrize("part", ["check", "inspect"])
def test_a_pipe_is_no_list(part: str, lists: Commands) -> None:
    """A list is mapped, so it must be a regular file."""
    pipe = fifo(lists.directory / "block.list")
    said = ends(lambda: lists(part, pipe, *(["a"] if part == "check" else [])), pipe, 60)
    assert said.status == 1
    assert "it is no regular file, but a pipe (FIFO); name a regular file" in said.errors
