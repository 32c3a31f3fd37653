"""The check of a build reads each format, and sees what the reader lost."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from streamdedup.commands.lists import write as write_module
from streamdedup.lists.normalization import Normalizing
from streamdedup.rules.lists import Match
from tests.lists.test_entries import URL, matches
from tests.lists.tools import PROVIDER, Commands, built, written


@pytest.mark.parametrize(
    ("normalizing", "entries"),
    [
        (PROVIDER, ["a%b@x.example", "a_b@x.example", "a+b@x.example", "{a}@x.example"]),
        (URL, ["http://h/a*b?300*250", "http://h/100%25", "http://h/%2A?%x", "http://h?a=1*2&b"]),
    ],
    ids=["addresses", "URLs"],
)
def test_what_is_no_wildcard_is_an_entry(
    normalizing: Normalizing, entries: Sequence[str], tmp_path: Path
) -> None:
    """Addresses and URLs that are in use stand for themselves."""
    listed = built(tmp_path, entries, normalizing=normalizing)
    assert matches(listed, *entries) == [Match.ADDRESS] * len(entries)


def test_a_host_that_is_none_costs_the_others_of_its_line_nothing(lists: Commands) -> None:
    """It is a bad line, and they are on the list."""
    options = ("--normalize", "email", "--entries", "hosts", "--bad-max", "1", "--check")
    listed, _ = lists.built(["0.0.0.0 a.example b_.-example c.example"], *options)
    assert len(lists.rejected()) == 1
    assert matches(listed, "x@a.example", "x@c.example") == [Match.DOMAIN] * 2


@pytest.mark.parametrize("most", [0, 99])
@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (["a@x.example,1", 'b@x.example,"2', "c@x.example,3", "d@x.example,4", 'e@x.example,"5"'], 4),
        (["a@x.example,1", '"b@x.example",2', 'c@x.example,"3', "d@x.example,4", 'e@x.example,5"'], 5),
        (['a@x.example,"1', *(f"u{n}@x.example,2" for n in range(10)), 'z@x.example,"'], 3),
    ],
)  # fmt: skip
def test_a_check_sees_lines_that_an_open_quote_swallows(
    most: int, rows: list[str], line: int, lists: Commands
) -> None:
    """They are records by themselves. A note may be written so, too: as many as may be bad are only reported."""
    written(lists.directory / "in.csv", ["mail,id", *rows])
    options = ("--column", "mail", "--normalize", "email", "--bad-max", str(most), "--check")
    said = lists("build", "in.csv", "-o", "out.list", *options)
    if "bad line" not in said.errors:  # else the build's reader saw it
        assert (
            f"records by themselves; the first: in.csv line {line}, in the record at" in said.errors
        )
        assert said.status == (most == 0)


@pytest.mark.parametrize(
    ("name", "rows", "options", "count"),
    [
        (
            "in.csv",
            ['\ufeff"mail",n', 'a@x.example,"x, ""y"" z"', 'b@x.example,"a', 'and "" c,', 'd"', "e@x.example,"],
            ("--column", "mail"),
            3,
        ),
        (
            "in.jsonl",
            ['{"u": {"m": "a@x.example"}}', "", '{"u": {"m": ""}}', '{"u": {"m": "b", "m": "\\u0063@x.example"}}'],
            ("--field", "u.m"),
            2,
        ),
        (
            "in.ndjson.gz",
            ['{"a/b": ["x", "a@x.example"]}', '{"a/b": ["", "b@x.example"], "n": 1e3}'],
            ("--field", "/a~1b/1"),
            2,
        ),
        ("in.txt.zst", ["\ufeff# comment", "a@x.example\r", " b@x.example ", "\r", "@c.example"], (), 3),
    ],
)  # fmt: skip
def test_a_check_reads_each_format(
    name: str, rows: list[str], options: tuple[str, ...], count: int, lists: Commands
) -> None:
    """By its own code, with the same entries."""
    _, errors = lists.built(rows, "--normalize", "email", *options, "--check", name=name)
    assert f"all {count} entries are found in out.list" in errors


def test_a_check_passes_over_what_was_reported(lists: Commands) -> None:
    """Also what its reader could read: of the build's reasons none is a fault of the list."""
    rows = [
        '{"m": "a@x.example"}',
        '{"m": "b@x.example", "m": 1e999}',
        "no",
        '{"m": "c@x.example"}',
    ]
    options = ("--field", "m", "--normalize", "email", "--bad-max", "4", "--check")
    assert len(lists.built(rows, *options, name="in.jsonl")[0].addresses) == 2


@pytest.mark.parametrize("pairs", [2, 3, 30])
def test_a_check_counts_no_entry_that_was_left_out(pairs: int, lists: Commands) -> None:
    """Its own reader takes some lines for records that the build found bad: they are not on the list."""
    rows = [f'm{n}@x.example,a"b"c"\nn{n}@x.example,"n{n}' for n in range(pairs)]
    options = ("--column", "mail", "--normalize", "email", "--bad-max", "100", "--check")
    listed, errors = lists.built(["mail,note", *rows], *options, name="in.csv")
    assert f"all {listed.facts.counts.addresses} entries are found in out.list" in errors


def test_changes_are_read_from_lines_of_each_kind(
    lists: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of an old Mac has as many entries as lines, too."""
    found = list[bytes]()

    async def write(
        _tree: object, _op: str, entries: list[bytes], _reason: str, _actor: str
    ) -> int:
        found.extend(entries)
        return len(entries)

    monkeypatch.setattr(write_module, "write", write)
    config = Path(__file__).parents[2] / "config" / "dedup.yaml"
    topic = ("--set", "blocklist.control_topic=changes")
    said = lists("add", "-c", config, *topic, "-", stdin=b"a\rb\r\n# c\r\r\nd\n e \r")
    assert said.status == 0, said.errors
    assert found == [b"a", b"b", b"d", b"e"]
