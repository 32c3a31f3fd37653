"""Claims about what an entry of a list is: nothing that would match no key stands on a list in silence."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

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
from tests.lists.tools import PROVIDER, Commands, written
from tests.rows import every, table

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


def test_what_is_written_otherwise_here_says_how(lists: Commands) -> None:
    """A bare domain, as lists of disposable addresses have it; other forms by the option that reads them."""

    def check(row: tuple[str, str, str]) -> None:
        name, entry, hint = row
        written(lists.directory / "in.txt", ["@ok.example", entry])
        said = lists("build", "in.txt", "-o", "out.list", "--normalize", name, "--bad-max", "1")
        assert said.status == 0, said.errors
        ((number, reason),) = rejected(lists.directory)
        assert number == 2
        assert hint in reason
        assert entry not in said.errors

    every(
        [
            *(
                ("email", entry, MARKED)
                for entry in ("evil.example", "Mail.Evil.example.", "x-1.co.uk", "bücher.example")
            ),
            *(
                ("url", entry, MARKED)
                for entry in ("evil.example", "www.evil.example.", "127.0.0.1")
            ),
            *(
                ("email", entry, MAILBOXES)
                for entry in ("mailto:a@b.example", "Anna <a@b.example>", "<a@b.example>")
            ),
            *(
                ("email", entry, HOSTS)
                for entry in ("0.0.0.0 h.example", "127.0.0.1\th.example", "||h.example^")
            ),
            *(
                ("url", entry, HOSTS)
                for entry in ("0.0.0.0 h.example", "::1 h.example", "||h.example^")
            ),
        ],
        check,
    )


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


def test_what_is_no_host_or_domain_says_why(lists: Commands) -> None:
    """The reason is of what the option reads."""

    def check(row: tuple[str, tuple[str, str, str]]) -> None:
        name, (entries, entry, said) = row
        written(lists.directory / "in.txt", ["ok.example", entry])
        options = ("--normalize", name, "--entries", entries, "--bad-max", "1", "--check")
        found = lists("build", "in.txt", "-o", "out.list", *options)
        assert found.status == 0, found.errors
        ((number, reason),) = rejected(lists.directory)
        assert number == 2
        assert said in reason

    every(
        itertools.product(
            ["email", "url"],
            [
                *(
                    ("hosts", entry, f"{ADDRESS} --entries hosts each is a host")
                    for entry in ("a@b.example", "é@b.example")
                ),
                *(
                    ("domains", entry, f"{ADDRESS} --entries domains each is a domain")
                    for entry in ("a@b.example", " A@b.c ")
                ),
                *(
                    ("hosts", entry, NO_NAME)
                    for entry in (
                        "https://h.example/",
                        "h.example/",
                        "h.example:8080",
                        "http://a@h.example",
                    )
                ),
                *(
                    ("domains", entry, NO_NAME)
                    for entry in ("http://h.example", "h.example/x", "h.example:80", "no domain")
                ),
                *(
                    ("hosts", entry, NO_IP)
                    for entry in ('local-zone: "x" static', "ads h.example", "x localhost")
                ),
                ("hosts", "Anna Berg <a@b.example>", NO_IP),
                *(
                    ("hosts", f"{ip} h.example", NO_BLOCK)
                    for ip in ("10.0.0.1", "fe80::1", "fe80::1%lo0", "255.255.255.255")
                ),
            ],
        ),
        check,
    )


@table(
    [
        *(
            ("email", entry, ALONE)
            for entry in ("mailto:a@b.example", "A <a@b.example>", "<a@b.example>")
        ),
        *(
            ("email", entry, MARKED)
            for entry in ("0.0.0.0 h.example", "||h.example^", "evil.example")
        ),
        *(("url", entry, MARKED) for entry in ("::1 h.example", "||h.example^", "evil.example")),
    ]
)
def test_a_single_change_has_no_options_of_a_build(row: tuple[str, str, str]) -> None:
    """So none is named."""
    name, entry, said = row
    with pytest.raises(MalformedError, match=said) as raised:
        control_key(entry.encode(), normalizer("email" if name == "email" else "url"))
    assert "--entries" not in str(raised.value)


def test_an_address_beside_a_name(lists: Commands) -> None:
    """With `--entries mailboxes`; two addresses, none, or a wildcard, are a bad line."""

    def check(row: tuple[str, str | None]) -> None:
        entry, address = row
        written(lists.directory / "in.txt", ["z@z.example", entry])
        options = ("--normalize", "email", "--entries", "mailboxes", "--bad-max", "1", "--check")
        said = lists("build", "in.txt", "-o", "out.list", *options)
        assert said.status == 0, said.errors
        listed = load(lists.directory / "out.list")
        assert listed.facts.counts.bad == (address == "")
        if address:
            assert matches(listed, address) == [Match.ADDRESS]

    every(
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
        check,
    )


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
