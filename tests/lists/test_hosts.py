"""Claims about hosts on a list, with `--normalize url`: they stand for their URLs, however these are written."""

import pytest

from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.hashing import MURMUR3
from streamdedup.keys.normalizers.url import UrlNormalizer
from streamdedup.keys.options import UrlRules
from streamdedup.lists.changed_list import ChangedList
from streamdedup.lists.control import read_change
from streamdedup.lists.exact_store import ExactStore, place_of
from streamdedup.lists.key_list import KeyList
from streamdedup.lists.normalization import Normalizing
from streamdedup.lists.overlay import Changes
from streamdedup.lists.verified_list import VerifiedList
from streamdedup.rules.lists import Match, Matcher
from tests.lists.tools import Commands, built, lists
from tests.rows import every, table

__all__ = ["lists"]

URL = Normalizing("url", UrlRules())
ENTRIES = ["@evil.com", ".tree.example", "@127.0.0.1", "@[::1]", "@faß.de", "http://page.example/x"]

# What somebody may write whose host is on the list; all ways to write a host by itself: tests/keys/test_hosts.py.
AROUND = [
    *("http://evil.com", "HTTPS://EVIL.com:8443/x?y#z", "http://evil.com./", "http://evil.com../"),
    *("http://good.com@evil.com/", "http://good.com:80@evil.com", "http://u:p@evil.com"),
    *("http://good.com%2F@evil.com", "http://good.com%5C@evil.com", "http://a@b@evil.com"),
    *("http://evil.com#@good.com", "http://evil.com?@good.com", "http://evil.com\\@good.com"),
    *("http:\\\\evil.com", "http:/\\evil.com", "ht\ttp://ev\til.c\nom/", "  http://evil.com \x01"),
    *("http://evil%2ecom%2e:80/", "http://ev\u00adil.com", "http://\uff45vil\u3002com"),
    *("http://tree.example", "http://a.tree.example", "http://a.b.c.tree.example."),
    *("http://%2e.tree.example", "http://a..tree.example", "http://a%00b.tree.example"),
    *("http://*.tree.example", "http://a b.tree.example", "http://a%zz.tree.example"),
    *("http://xn--a.tree.example", "http://-.tree.example", "http://[::ffff:127.0.0.1]:80"),
    *("http://0x7f.1:8080/", "http://2130706433", "http://u@127.1", "http://u:p@[0::1]:80"),
    *("http://[::1%25lo]", "http://fa%C3%9F.de", "http://xn--fa-hia.de", "http://FA\u1e9e.de"),
]
# What looks like it and is not.
OTHERS = [
    *("http://good.com", "http://notevil.com", "http://a.evil.com", "http://evil.com.good.com"),
    "http://evil.org",
    *("http://evil.com@good.com", "http://evil.com:80@good.com/", "http://good.com/@evil.com"),
    "http://good.com?evil.com",
    *("http://good.com#@evil.com", "http://good.com\\evil.com", "http://good.com/evil.com"),
    "http://evil-com",
    *("http://nottree.example", "http://tree.example.org", "http://example", "http://tree"),
    "http://a-tree.example",
    *("http://127.0.0.2", "http://127.0.0.1.example", "http://1.127.0.0.1", "http://[::2]"),
    "http://0.0.0.1",
    *("http://page.example", "http://page.example/y", "http://x.faß.de", "http://xn--fa-hia.com"),
]


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> KeyList:
    """A list of hosts and a URL."""
    directory = tmp_path_factory.mktemp("hosts")
    return built(directory, ENTRIES, normalizing=URL, kind="bloom", exact=True)


def matched(listed: Matcher, *urls: str) -> list[Match]:
    """What a list says of URLs, as they are found."""
    normal = URL.normalizer()
    assert normal is not None
    keys = Column.of([normal.of_key(url.encode()) for url in urls])
    return [Match(match) for match in listed.match(keys, MURMUR3.of_column(keys))]


def changed(listed: KeyList, **messages: str) -> ChangedList:
    """The list with these messages of a control topic: `add` or `remove`, and the entry."""
    changes = Changes()
    for op, entry in messages.items():
        found = read_change(entry.encode(), b'{"op": "%b"}' % op.encode(), URL.normalizer())
        changes.apply(MURMUR3.digests(list(found.keys)), [found.change], [0])
    return ChangedList(listed, changes.overlay(), 7)


def test_no_way_to_write_a_host_gets_around_a_list(listed: KeyList) -> None:
    """It is blocked by its host, or it is no URL."""

    def check(url: str) -> None:
        try:
            found = matched(listed, url)
        except MalformedError:
            assert "\\@" in url or url.startswith("http:/\\")
        else:
            assert found == [Match.DOMAIN]

    every(AROUND, check)


def test_others_pass(listed: KeyList) -> None:
    """Those whose host only contains one of the list, or has it at another place."""

    def check(url: str) -> None:
        assert matched(listed, url) == [Match.NONE]

    every(OTHERS, check)


@table(
    [
        *("http://good.com\\@evil.com", "http://good.com:81\\@evil.com/", "http://evil.com\\@good.com"),
        *("http:\\\\good.com\\x@evil.com", "http://good.com\\x\\y@evil.com?x", "http://@good.com\\@evil.com#x"),
    ]
)  # fmt: skip
def test_a_url_of_two_hosts_is_malformed(url: str) -> None:
    """A browser asks the first, and curl the second."""
    with pytest.raises(MalformedError, match="clients disagree about its host"):
        UrlNormalizer(UrlRules()).of_key(url.encode())


@pytest.mark.parametrize(
    "url",
    ["http://good.com/\\@evil.com", "http://good.com?\\@evil.com", "http://good.com#\\@evil.com"],
)
def test_a_backslash_after_the_host_is_of_no_matter(listed: KeyList, url: str) -> None:
    """All clients ask the same host."""
    assert matched(listed, url) == [Match.NONE]


def test_a_list_of_hosts_may_have_urls(listed: KeyList) -> None:
    """In the same list, as keys."""
    assert matched(listed, "HTTP://Page.example/%78#top") == [Match.ADDRESS]


def test_hosts_are_added_and_removed_while_a_worker_runs(listed: KeyList) -> None:
    """A record key is a host in its one spelling."""
    added = changed(listed, add=".new.example", remove="@evil.com")
    assert matched(added, "http://x.new.example.") == [Match.DOMAIN]
    assert matched(added, "http://evil.com", "http://127.1") == [Match.NONE, Match.DOMAIN]
    with pytest.raises(MalformedError, match="the record key is not normalized"):
        changed(listed, add="@0x7f.1")


def test_the_exact_store_knows_hosts(listed: KeyList) -> None:
    """What a worker with `on_positive: verify` asks."""
    assert listed.path is not None
    verified = VerifiedList(listed, ExactStore.open(place_of(listed.path), listed))
    urls = ["http://evil.com", "http://x.tree.example", "http://2130706433", "http://good.com"]
    assert matched(verified, *urls) == [*[Match.DOMAIN] * 3, Match.NONE]


def test_the_commands(lists: Commands) -> None:
    """`lists build` finds each entry again, counts what is no host, and `check` takes URLs as they are found."""
    given = [*ENTRIES, "evil.com", ".10.0.0.1", "@a.example:80"]
    lists.built(given, "--normalize", "url", "--bad-max", "4", "--check")
    bare, below, port = (reason for _, reason, _ in lists.rejected())
    assert "the entry is a host without a mark: write @bad.example for all URLs" in bare
    assert "write @ADDRESS" in below
    assert "without scheme, user, port or path" in port
    said = lists("check", "out.list", "HTTP://0x7f.1:80/x", "http://good.com/", "ftp://evil.com")
    first, second, third = said.out.decode().splitlines()
    assert (first, second) == ("blocked\tdomain\tHTTP://0x7f.1:80/x", "pass\t-\thttp://good.com/")
    assert third.startswith("malformed\t")
