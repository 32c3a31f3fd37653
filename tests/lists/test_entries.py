"""Claims about what an entry of a list is: nothing that would match no key stands on a list in silence."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import Normalization, UrlRules
from streamdedup.lists.build import formats
from streamdedup.lists.build.blocks import Block
from streamdedup.lists.build.entries import Entries
from streamdedup.lists.control import control_key
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.normalization import Normalizing
from streamdedup.rules.lists import Match
from tests.lists.tools import PROVIDER, Commands, written
from tests.rows import table

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
    lists.built(
        ["@ok.example", *entries], "--normalize", normalizing.name, "--bad-max", "99", "--check"
    )
    found = lists.rejected()
    assert [number for number, *_ in found] == list(range(2, len(entries) + 2))
    for _, reason, entry in found:
        assert reason.startswith("the entry has a wildcard"), entry
        assert MARKED in reason
        assert ".bad.example" in reason
    normal = normalizer(normalizing.name, normalizing.rules)
    for entry in entries:
        with pytest.raises(MalformedError, match=MARKED):
            control_key(entry.encode(), normal)


NO_NAME = "it must be a name"
BESIDE_A_NAME = ["mailto:a@b.example", "Anna <a@b.example>", "<a@b.example>"]
OF_HOSTS = {
    "is an address, and with --entries hosts each is a host": ["a@b.example", "é@b.example"],
    NO_NAME: ["https://h.example/", "h.example/", "h.example:8080", "http://a@h.example"],
    "first word is not an IP address": [
        *('local-zone: "x" static', "ads h.example", "x localhost", "Anna Berg <a@b.example>")
    ],
    "127.0.0.1, :: or ::1": [
        f"{ip} h.example" for ip in ("10.0.0.1", "fe80::1", "fe80::1%lo0", "255.255.255.255")
    ],
}
OF_DOMAINS = {
    "is an address, and with --entries domains each is a domain": ["a@b.example", " A@b.c "],
    NO_NAME: ["http://h.example", "h.example/x", "h.example:80", "no domain"],
}


@pytest.mark.parametrize(
    ("name", "entries", "reasons"),
    [
        ("email", "addresses", {
            MARKED: ["evil.example", "Mail.Evil.example.", "x-1.co.uk", "bücher.example"],
            MAILBOXES: BESIDE_A_NAME,
            HOSTS: ["0.0.0.0 h.example", "127.0.0.1\th.example", "||h.example^"],
        }),
        ("url", "addresses", {
            MARKED: ["evil.example", "www.evil.example.", "127.0.0.1"],
            HOSTS: ["0.0.0.0 h.example", "::1 h.example", "||h.example^"],
        }),
        *((name, "hosts", OF_HOSTS) for name in ("email", "url")),
        *((name, "domains", OF_DOMAINS) for name in ("email", "url")),
    ],
)  # fmt: skip
def test_what_is_written_otherwise_here_says_how(
    name: str, entries: str, reasons: Mapping[str, Sequence[str]], lists: Commands
) -> None:
    """A bare domain, as lists of disposable addresses have it; other forms by the option that reads them."""
    rows = [(entry, said) for said, given in reasons.items() for entry in given]
    options = ("--normalize", name, "--entries", entries, "--bad-max", "99", "--check")
    _, errors = lists.built(["@ok.example", *(entry for entry, _ in rows)], *options)
    found = lists.rejected()
    assert [number for number, *_ in found] == list(range(2, len(rows) + 2))
    for (entry, said), (_, reason, _line) in zip(rows, found, strict=True):
        assert said in reason, (entry, reason)
        assert entry not in errors


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
    options = ("--normalize", "email", "--entries", "domains", "--bad-max", "5", "--check")
    listed, _ = lists.built(["# domains", *given, *bad], *options)
    assert [line for *_, line in lists.rejected()] == bad
    blocked = [
        "bad.example",
        "mail.bad2.example",
        "one.example",
        "a.tree.example",
        "bücher.example",
    ]
    assert matches(listed, *(f"x@{domain}" for domain in blocked)) == [Match.DOMAIN] * 5
    assert matches(listed, "x@a.bad.example", "x@bad2.example", "a@b.example") == [Match.NONE] * 3
    assert listed.facts.counts.addresses == 0


@pytest.mark.parametrize("name", ["email", "url"])
def test_a_hosts_file_and_a_filter_list_are_read(name: str, lists: Commands) -> None:
    """Of `0.0.0.0 h` that host, of `||h^` it and all below; the names of the machine itself are none."""
    bad = [
        *("@@||ok.example^", "||x.example^$third-party", "||x.example/ads^"),
        *("10.0.0.1 nas.example", "||*.x.example^", "/ads/"),
    ]
    options = ("--normalize", name, "--entries", "hosts", "--bad-max", "6", "--check")
    listed, _ = lists.built([*HOSTS_FILE.splitlines(), *bad], *options)
    assert [line for *_, line in lists.rejected()] == bad
    hosts = ["one.example", "two.example", "three.example", "four.example", "five.example.org"]
    hosts += ["below.example", "a.below.example", "a.important.example", "bare.example"]
    hosts += ["marked.example", "a.tree.example"]
    passed = ["a.one.example", "a.bare.example", "ok.example", "x.example", "nas.example"]
    form = "x@{}" if name == "email" else "http://{}/x"
    assert matches(listed, *map(form.format, hosts)) == [Match.DOMAIN] * len(hosts)
    assert matches(listed, *map(form.format, passed)) == [Match.NONE] * len(passed)
    assert listed.facts.counts.domains == 10


@table(
    [
        ("email", "write the address alone, as in b@example.com", BESIDE_A_NAME),
        ("email", MARKED, ["0.0.0.0 h.example", "||h.example^", "evil.example"]),
        ("url", MARKED, ["::1 h.example", "||h.example^", "evil.example"]),
    ]
)
def test_a_single_change_has_no_options_of_a_build(
    name: Normalization, said: str, entries: Sequence[str]
) -> None:
    """So none is named."""
    for entry in entries:
        with pytest.raises(MalformedError, match=said) as raised:
            control_key(entry.encode(), normalizer(name))
        assert "--entries" not in str(raised.value)


def test_an_address_beside_a_name(lists: Commands) -> None:
    """With `--entries mailboxes`; two addresses, none, or a wildcard, are a bad line."""
    given = {
        "mailto:A1@b.example": "a1@b.example",
        "MAILTO:a2%2Bc@b.example?subject=x@y.example": "a2+c@b.example",
        "Anna <a3@b.example>": "a3@b.example",
        '"Berg, <Anna>" <a4@b.example> ': "a4@b.example",
        "<mailto:a5@b.example>": "a5@b.example",
        "Ännchen <a6@b.example>": "a6@b.example",
        "a7@b.example": "a7@b.example",
        "mailto://a8@b.example": "a8@b.example",
    }
    bad = [
        *("Anna <a@b.example> <c@d.example>", "Anna <*@b.example>", "Anna <>", "a@b.example <>"),
        *("mailto:a@b.example,c@d.example", "<mailto:>", "mailto:%20", "mailto:?to=a@b.example"),
    ]
    options = ("--normalize", "email", "--entries", "mailboxes", "--bad-max", "99", "--check")
    listed, _ = lists.built([*given, "@d.example", *bad], *options)
    assert matches(listed, *given.values()) == [Match.ADDRESS] * len(given)
    assert (listed.facts.counts.addresses, listed.facts.counts.domains) == (len(given), 1)
    assert [line for *_, line in lists.rejected()] == bad


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
