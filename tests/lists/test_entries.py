"""Claims about what an entry of a list is: nothing that would match no key stands on a list in silence."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from streamdedup.commands import list_changes
from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import UrlRules
from streamdedup.lists import load
from streamdedup.lists.build import formats
from streamdedup.lists.build.blocks import Block
from streamdedup.lists.build.entries import Entries
from streamdedup.lists.control import control_key
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.normalization import Normalizing
from streamdedup.rules.lists import Match
from tests.lists.tools import PROVIDER, Commands, built, written

URL = Normalizing("url", UrlRules())
MAILBOXES, HOSTS = "--entries mailboxes", "--entries hosts"
MARKED = "write @bad.example for all"
HOSTS_FILE = """\
# a hosts file
127.0.0.1 localhost
::1 ip6-localhost ip6-loopback
255.255.255.255\tbroadcasthost
fe80::1%lo0 localhost
0.0.0.0 0.0.0.0

0.0.0.0 one.example
127.0.0.1\ttwo.example three.example # both
:: Four.Example
0 five.example.org
! a comment of a filter list
[Adblock Plus 2.0]
||below.example^
||important.example^$important
bare.example
@marked.example
.tree.example
"""


def matches(listed: KeyList, *keys: str) -> list[int]:
    """What the list says of each key."""
    made = listed.normalizer()
    assert made is not None
    column, malformed = made.of_column(Column.of([key.encode() for key in keys]))
    assert not malformed
    found: list[int] = listed.match(column, listed.hash.of_column(column)).tolist()
    return found


def rejected(directory: Path) -> list[tuple[int, str]]:
    """The line and the reason of each bad line of `out.list`."""
    rows = (directory / "out.list.rejects").read_text().splitlines()
    return [(int(row.split("\t")[1]), row.split("\t")[2]) for row in rows]


WILD_ADDRESSES = [
    *("*@bad.example", "%@bad.example", "ads+*@bad.example", "*", "*bad.example", "a*b@bad.example"),
    *("ads%@bad.example", "%ads@bad.example", "?@bad.example", "ads???@bad.example", "a@*.bad.example"),
    *("@*.bad.example", "@*", ".*.bad.example", "@bad.*", "a@%.bad.example", " *@bad.example "),
    *("^.*@bad\\.example$", "*@*", "é*@bad.example", "@%.bad.example", "*.bad.example", "ads+*@gmail.com"),
]  # fmt: skip
WILD_URLS = [
    *("https://host/*", "http://*.host/", "http*://host/", "*://host/x", "*.host", "http://host*"),
    *("https://host/ads/*", "https://host/*/x", "https://host/x?id=*", "http://%.host/", "https://host/%"),
    *("@*.host.example", ".*.host.example", "https://host.*/", "http://host/*.js", "http://u:*@host/"),
    *("*", "https://*", "HTTPS://Host/Ads*", "http://host/x#*"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("normalizing", "entries"),
    [(PROVIDER, WILD_ADDRESSES), (URL, WILD_URLS)],
    ids=["addresses", "URLs"],
)
def test_a_wildcard_is_a_bad_line_that_says_how_it_is_written(
    normalizing: Normalizing, entries: Sequence[str], lists: Commands
) -> None:
    """In an address and a URL, which may hold such characters, and in a domain; for `lists add`, too."""
    written(lists.directory / "in.txt", ["@ok.example", *entries])
    options = ("--normalize", normalizing.name, "--bad-max", "99", "--check")
    said = lists("build", "in.txt", "-o", "out.list", *options)
    assert said.status == 0, said.errors
    found = rejected(lists.directory)
    assert [number for number, _ in found] == list(range(2, len(entries) + 2))
    for number, reason in found:
        assert reason.startswith("the entry has a wildcard"), entries[number - 2]
        assert MARKED in reason
        assert ".bad.example" in reason
    normal = normalizer(normalizing.name, normalizing.rules)
    for entry in entries:
        with pytest.raises(MalformedError, match=MARKED):
            control_key(entry.encode(), normal)


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


@pytest.mark.parametrize(
    ("name", "entry", "hint"),
    [
        *(("email", entry, MARKED) for entry in ("evil.example", "Mail.Evil.example.", "x-1.co.uk", "bücher.example")),
        *(("url", entry, MARKED) for entry in ("evil.example", "www.evil.example.", "127.0.0.1")),
        *(("email", entry, MAILBOXES) for entry in ("mailto:a@b.example", "Anna <a@b.example>", "<a@b.example>")),
        *(("email", entry, HOSTS) for entry in ("0.0.0.0 h.example", "127.0.0.1\th.example", "||h.example^")),
        *(("url", entry, HOSTS) for entry in ("0.0.0.0 h.example", "::1 h.example", "||h.example^")),
    ],
)  # fmt: skip
def test_what_is_written_otherwise_here_says_how(
    name: str, entry: str, hint: str, lists: Commands
) -> None:
    """A bare domain, as lists of disposable addresses have it; other forms by the option that reads them."""
    written(lists.directory / "in.txt", ["@ok.example", entry])
    said = lists("build", "in.txt", "-o", "out.list", "--normalize", name, "--bad-max", "1")
    assert said.status == 0, said.errors
    ((number, reason),) = rejected(lists.directory)
    assert number == 2
    assert hint in reason
    assert entry not in said.errors


def test_a_domain_a_line_is_that_domain_alone(lists: Commands) -> None:
    """With `--entries domains`; marks are taken as they are, and what is no domain is a bad line."""
    given = [
        "bad.example",
        " Mail.Bad2.example. ",
        "@one.example",
        ".tree.example",
        "bücher.example",
    ]
    bad = ["a@b.example", "*.wild.example", "no domain", "0.0.0.0 h.example", "localhost"]
    written(lists.directory / "in.txt", ["# domains", *given, *bad])
    options = ("--normalize", "email", "--entries", "domains", "--bad-max", "5", "--check")
    said = lists("build", "in.txt", "-o", "out.list", *options)
    assert said.status == 0, said.errors
    assert [number for number, _ in rejected(lists.directory)] == list(range(7, 12))
    listed = load(lists.directory / "out.list")
    blocked = [
        "x@bad.example",
        "x@mail.bad2.example",
        "x@one.example",
        "x@a.tree.example",
        "x@bücher.example",
    ]
    assert matches(listed, *blocked) == [Match.DOMAIN] * 5
    assert matches(listed, "x@a.bad.example", "x@bad2.example", "a@b.example") == [Match.NONE] * 3
    assert listed.facts.counts.addresses == 0


@pytest.mark.parametrize("name", ["email", "url"])
def test_a_hosts_file_and_a_filter_list_are_read(name: str, lists: Commands) -> None:
    """Of `0.0.0.0 h` that host, of `||h^` it and all below; the names of the machine itself are none."""
    bad = [
        "@@||ok.example^",
        "||x.example^$third-party",
        "||x.example/ads^",
        "10.0.0.1 nas.example",
        "||*.x.example^",
        "/ads/",
    ]
    (lists.directory / "in.txt").write_text(HOSTS_FILE + "\n".join(bad))
    options = ("--normalize", name, "--entries", "hosts", "--bad-max", "6", "--check")
    said = lists("build", "in.txt", "-o", "out.list", *options)
    assert said.status == 0, said.errors
    assert [number for number, _ in rejected(lists.directory)] == list(range(19, 25))
    listed = load(lists.directory / "out.list")
    hosts = ["one.example", "two.example", "three.example", "four.example", "five.example.org"]
    hosts += ["below.example", "a.below.example", "a.important.example", "bare.example"]
    hosts += ["marked.example", "a.tree.example"]
    passed = ["a.one.example", "a.bare.example", "ok.example", "x.example", "nas.example"]
    form = "x@{}" if name == "email" else "http://{}/x"
    assert matches(listed, *map(form.format, hosts)) == [Match.DOMAIN] * len(hosts)
    assert matches(listed, *map(form.format, passed)) == [Match.NONE] * len(passed)
    assert listed.facts.counts.domains == 10


ADDRESS, NO_IP, NO_BLOCK = (
    "is an address, and with",
    "first word is not an IP address",
    "127.0.0.1, :: or ::1",
)
NO_NAME, ALONE = "it must be a name", "write the address alone, as in b@example.com"


@pytest.mark.parametrize("name", ["email", "url"])
@pytest.mark.parametrize(
    ("entries", "entry", "said"),
    [
        *(("hosts", entry, f"{ADDRESS} --entries hosts each is a host") for entry in ("a@b.example", "é@b.example")),
        *(("domains", entry, f"{ADDRESS} --entries domains each is a domain") for entry in ("a@b.example", " A@b.c ")),
        *(("hosts", entry, NO_NAME) for entry in ("https://h.example/", "h.example/", "h.example:8080", "http://a@h.example")),
        *(("domains", entry, NO_NAME) for entry in ("http://h.example", "h.example/x", "h.example:80", "no domain")),
        *(("hosts", entry, NO_IP) for entry in ('local-zone: "x" static', "ads h.example", "x localhost")),
        ("hosts", "Anna Berg <a@b.example>", NO_IP),
        *(("hosts", f"{ip} h.example", NO_BLOCK) for ip in ("10.0.0.1", "fe80::1", "fe80::1%lo0", "255.255.255.255")),
    ],
)  # fmt: skip
def test_what_is_no_host_or_domain_says_why(
    name: str, entries: str, entry: str, said: str, lists: Commands
) -> None:
    """The reason is of what the option reads."""
    written(lists.directory / "in.txt", ["ok.example", entry])
    options = ("--normalize", name, "--entries", entries, "--bad-max", "1", "--check")
    found = lists("build", "in.txt", "-o", "out.list", *options)
    assert found.status == 0, found.errors
    ((number, reason),) = rejected(lists.directory)
    assert number == 2
    assert said in reason


@pytest.mark.parametrize(
    ("name", "entry", "said"),
    [
        *(("email", entry, ALONE) for entry in ("mailto:a@b.example", "A <a@b.example>", "<a@b.example>")),
        *(("email", entry, MARKED) for entry in ("0.0.0.0 h.example", "||h.example^", "evil.example")),
        *(("url", entry, MARKED) for entry in ("::1 h.example", "||h.example^", "evil.example")),
    ],
)  # fmt: skip
def test_a_single_change_has_no_options_of_a_build(name: str, entry: str, said: str) -> None:
    """So none is named."""
    with pytest.raises(MalformedError, match=said) as raised:
        control_key(entry.encode(), normalizer("email" if name == "email" else "url"))
    assert "--entries" not in str(raised.value)


def test_a_host_that_is_none_costs_the_others_of_its_line_nothing(lists: Commands) -> None:
    """It is a bad line, and they are on the list."""
    written(lists.directory / "in.txt", ["0.0.0.0 a.example b_.-example c.example"])
    options = ("--normalize", "email", "--entries", "hosts", "--bad-max", "1", "--check")
    assert lists("build", "in.txt", "-o", "out.list", *options).status == 0
    assert len(rejected(lists.directory)) == 1
    listed = load(lists.directory / "out.list")
    assert matches(listed, "x@a.example", "x@c.example") == [Match.DOMAIN] * 2


@pytest.mark.parametrize(
    ("entry", "address"),
    [
        ("mailto:A@b.example", "a@b.example"),
        ("MAILTO:a%2Bc@b.example?subject=x@y.example", "a+c@b.example"),
        ("Anna <a@b.example>", "a@b.example"),
        ('"Berg, <Anna>" <a@b.example> ', "a@b.example"),
        ("<mailto:a@b.example>", "a@b.example"),
        ("Ännchen <a@b.example>", "a@b.example"),
        ("a@b.example", "a@b.example"),
        ("@b.example", None),
        ("Anna <a@b.example> <c@d.example>", ""),
        ("Anna <*@b.example>", ""),
        ("mailto:a@b.example,c@d.example", ""),
        ("mailto://a@b.example", "a@b.example"),
        ("Anna <>", ""),
        ("a@b.example <>", ""),
        ("<mailto:>", ""),
        ("mailto:%20", ""),
        ("mailto:?to=a@b.example", ""),
    ],
)
def test_an_address_beside_a_name(entry: str, address: str | None, lists: Commands) -> None:
    """With `--entries mailboxes`; two addresses, none, or a wildcard, are a bad line."""
    written(lists.directory / "in.txt", ["z@z.example", entry])
    options = ("--normalize", "email", "--entries", "mailboxes", "--bad-max", "1", "--check")
    said = lists("build", "in.txt", "-o", "out.list", *options)
    assert said.status == 0, said.errors
    listed = load(lists.directory / "out.list")
    assert listed.facts.counts.bad == (address == "")
    if address:
        assert matches(listed, address) == [Match.ADDRESS]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--entries", "domains"), "--entries domains is for --normalize email or url"),
        (("--entries", "hosts", "--normalize", "trim"), "--entries hosts is for --normalize email or url"),
        (("--entries", "mailboxes", "--normalize", "url"), "--entries mailboxes is for --normalize email;"),
    ],
)  # fmt: skip
def test_entries_that_a_normalization_does_not_have_are_refused(
    options: tuple[str, ...], said: str, lists: Commands
) -> None:
    """Before anything is read."""
    written(lists.directory / "in.txt", ["a"])
    found = lists("build", "in.txt", "-o", "out.list", *options)
    assert found.status == 2
    assert said in found.errors


# --- line ends ---


def test_changes_are_read_from_lines_of_each_kind(
    lists: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of an old Mac has as many entries as lines, too."""
    found = list[bytes]()

    async def write(_tree: object, _op: str, entries: list[bytes], _reason: str) -> int:
        found.extend(entries)
        return len(entries)

    monkeypatch.setattr(list_changes, "write", write)
    config = Path(__file__).parents[2] / "config" / "dedup.yaml"
    topic = ("--set", "blocklist.control_topic=changes")
    said = lists("add", "-c", config, *topic, "-", stdin=b"a\rb\r\n# c\r\r\nd\n e \r")
    assert said.status == 0, said.errors
    assert found == [b"a", b"b", b"d", b"e"]


# --- what was left out ---


@pytest.mark.parametrize(
    ("good", "bad", "options", "status"),
    [
        (990, 10, (), 0),
        (989, 11, (), 1),
        (50, 1, (), 1),
        (50, 1, ("--bad-max", "1"), 0),
        (0, 3, (), 1),
        (10_000, 5, ("--bad-max", "4"), 1),
    ],
)
def test_more_than_one_line_in_a_hundred_needs_bad_max(
    good: int, bad: int, options: tuple[str, ...], status: int, lists: Commands
) -> None:
    """All are counted, to the end, and the report has the three most frequent reasons."""
    wrong = ["*@w.example", "bare.example", "nobody", "a@b@c", "*@v.example"]
    lines = [*(f"u{n}@x.example" for n in range(good)), *(wrong * 3)[:bad]]
    written(lists.directory / "in.txt", lines)
    said = lists("build", "in.txt", "-o", "out.list", "--normalize", "email", *options)
    assert said.status == status, said.errors
    total = good + bad
    assert (
        f"{bad} bad line{'s' * (bad > 1)} of {total:,} ({bad / total:.2%}) left out: "
        in said.errors
    )
    assert "the entry has a wildcard" in said.errors
    assert len(rejected(lists.directory)) == bad
    if bad == 11:
        assert "(5); the entry is a domain without a mark: " in said.errors
        assert "; other reasons (2);" in said.errors
        assert "10 are accepted (1 %), so nothing was built" in said.errors
        assert "accept them by --bad-max 11\n" in said.errors
    assert (lists.directory / "out.list").exists() == (status == 0)


# --- the check reads by other code ---


def test_a_check_sees_what_the_reader_of_the_build_loses(
    lists: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that skips every third line passes its own check; not this one."""
    whole = formats._of_text

    def losing(block: Block) -> Entries:
        found = whole(block)
        kept = np.array([row for row in range(len(found.numbers)) if row % 3 != 2])
        return Entries(found.cells.take(kept), found.lines.take(kept), found.numbers[kept], {})

    monkeypatch.setattr(formats, "_of_text", losing)
    written(lists.directory / "in.txt", ["# comment", "", *"abcdefg"])
    said = lists("build", "in.txt", "-o", "out.list", "--check")
    assert said.status == 1
    assert "in.txt line 5: its entry is not found" in said.errors


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
            ["n,mail", '"D, J","j@x.example"', '"two', 'lines","q@x.example"', "", "z,y@x.example", "e,"],
            ("--column", "mail"),
            3,
        ),
        (
            "in.csv",
            ['\ufeff"mail",n', 'a@x.example,"x, ""y"" z"', 'b@x.example,"a', 'and "" c,', 'd"', "e@x.example,"],
            ("--column", "mail"),
            3,
        ),
        ("in.csv", ["a@x.example", "", "b@x.example,more"], ("--column", "1"), 2),
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
    written(lists.directory / name, rows)
    said = lists("build", name, "-o", "out.list", "--normalize", "email", *options, "--check")
    assert said.status == 0, said.errors
    assert f"all {count} entries are found in out.list" in said.errors


def test_a_check_passes_over_what_was_reported(lists: Commands) -> None:
    """Also what its reader could read: of the build's reasons none is a fault of the list."""
    rows = [
        '{"m": "a@x.example"}',
        '{"m": "b@x.example", "m": 1e999}',
        "no",
        '{"m": "c@x.example"}',
    ]
    written(lists.directory / "in.jsonl", rows)
    options = ("--field", "m", "--normalize", "email", "--bad-max", "4", "--check")
    said = lists("build", "in.jsonl", "-o", "out.list", *options)
    assert said.status == 0, said.errors


@pytest.mark.parametrize("pairs", [2, 3, 30])
def test_a_check_counts_no_entry_that_was_left_out(pairs: int, lists: Commands) -> None:
    """Its own reader takes some lines for records that the build found bad: they are not on the list."""
    rows = [f'm{n}@x.example,a"b"c"\nn{n}@x.example,"n{n}' for n in range(pairs)]
    written(lists.directory / "in.csv", ["mail,note", *rows])
    options = ("--column", "mail", "--normalize", "email", "--bad-max", "100", "--check")
    said = lists("build", "in.csv", "-o", "out.list", *options)
    assert said.status == 0, said.errors
    count = load(lists.directory / "out.list").facts.counts.addresses
    assert f"all {count} entries are found in out.list" in said.errors
