"""Claims about URLs: the rules are those of w3lib 2.5.0, and the kernel never says otherwise than they do."""

import gzip
import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from importlib.resources import files
from itertools import product
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from w3lib.url import canonicalize_url

from streamdedup.errors import ConfigError, MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers.base import NO_TEXT, NOT_UTF8
from streamdedup.keys.normalizers.tracking import is_tracking, tracking_names
from streamdedup.keys.normalizers.url import (
    AUTHORITY_CHARACTERS_MAX,
    TOO_LONG,
    TWO_NAMES,
    URL_BYTES_MAX,
    UrlNormalizer,
)
from streamdedup.keys.normalizers.url_column import plain
from streamdedup.keys.normalizers.url_query import PARAMETERS_MAX
from streamdedup.keys.options import URL_SWITCHES, UrlRules

NONE = UrlRules()
RULES = [
    UrlRules.of(**dict(zip(URL_SWITCHES, switches, strict=True)))
    for switches in product((False, True), repeat=len(URL_SWITCHES))
]
ALL = len(URL_SWITCHES) - 1
SOME_RULES = [  # at most one, and all
    *(rules for rules in RULES if rules.names.count("+") in (0, ALL)),
    UrlRules.of(["b", "Utm_source", "é", "a[b]"]),
    UrlRules.of(["b"], port=True, dot=True, order=True, www=True, scheme=True, tracking=True),
]
# The URLs of the web in w3lib's own tests of `canonicalize_url` and `safe_url_string`, and what 2.5.0 makes of each;
# null if it refuses it.
W3LIB_CASES: list[tuple[str, str | None]] = json.loads(
    Path(__file__).with_name("w3lib_urls.json").read_text(encoding="utf-8")
)

STARTS = [
    *("http://", "https://", "http://a.b", "https://www.a.b/?", "http://a.b/c?b=2&a=1&"),
    *("HTTP:", "//", "", "http://a.b/c;", "http://[::1]", "http://u:p@"),
    *("http://a.b:80", "https://A.b.:443/?", "https://a.b:80/?B=1&b=2&%62=3&c&"),
]
PIECES = [
    *("/", "?", "#", "&", "&", "=", "+", "%", "%2", "%41", "%2F", "%2f", "%25", "%3b", "%3F"),
    *("%e9", "%C3%A9", "%zz", "%2e", "%26", "%3d", "%20", "%2B", "%00", ";", "..", ".", "/./"),
    *("/../", "@", ":", "80", "008", ":80", ":70000", "[", "]", "[::1]", "[::ffff:1.2.3.4]"),
    *("[fe80::1%25ETH]", "v1.a", "www.", "Www.", "www.com", "example.com", "é", "ß", "İ", "。"),
    *("\uff0e", "\u00ad", "\uff20", "ª", "🄰", "\uff45", "\u212a", "x\u0301\u0323", "\\", " "),
    *("\t", "\n", ".", ":443", ":0080", "é=1", "%C3%A9=2", "a[b]=1", "A%5bB%5d=2"),
    *("\r", "\x01", "\x7f", "'", '"', "|", "^", "~", "!", "*", "(", ")", "$", ",", "-", "_"),
    *("a", "b", "B", "a=1", "b=2", "utm_source=x", "gclid=1", "gc", "xn--", "<", ">", "`", "{"),
]
urls = st.builds(
    lambda start, pieces: start + "".join(pieces),
    st.sampled_from(STARTS),
    st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12),
)


def fixed_urls() -> Iterator[str]:
    """A corpus that is the same in each run."""
    random = Random(25)
    for _ in range(20_000):
        yield random.choice(STARTS) + "".join(random.choices(PIECES, k=random.randint(1, 10)))


def homepages() -> list[str]:
    """The distinct home pages of the demo's data."""
    packed = files("streamdedup").joinpath("data/homepages.txt.gz").read_bytes()
    return sorted(set(gzip.decompress(packed).decode().splitlines()))


def key_of(url: str, rules: UrlRules = NONE) -> str:
    """The key, or the reason why there is none."""
    try:
        return UrlNormalizer(rules).of_key(url.encode()).decode()
    except MalformedError as reason:
        return str(reason)


def oracle(url: str, *, fragments: bool = False) -> str | None:
    """What w3lib makes of it; None if it refuses it."""
    try:
        return canonicalize_url(url, keep_fragments=fragments)
    except ValueError:
        return None


def check(url: str) -> None:
    """Compare ours with w3lib's; of an IPv4 address in an IPv6 one, from Python 3.13 on, w3lib depends on Python."""
    for rules in (NONE, UrlRules(fragments=True)):
        ours, theirs = key_of(url, rules), oracle(url, fragments=rules.fragments)
        if ours.startswith("the key"):
            assert theirs is None or refuses_more(url, ours), (url, ours, theirs)
        elif "[::ffff:" not in ours:
            assert ours == theirs, url


def refuses_more(url: str, reason: str) -> bool:
    """Whether it is one of the reasons that w3lib does not have: we only take what is text, on the web, with a host."""
    own = (
        "scheme is not",
        "has no scheme",
        "is empty",
        "has no host",
        "host is too long",
        "more than 8,192",
        "zero byte",
        "clients disagree",
    )
    return any(words in reason for words in own) or "\0" in url


def test_the_oracle_is_the_version_that_is_frozen() -> None:
    """Another version has other rules: `url/1` is not theirs."""
    assert version("w3lib") == "2.5.0"


def test_every_home_page_is_as_w3lib_has_it() -> None:
    """29,596 are 29,509 then: 19 are of ftp and gopher, so no URLs of the web; the others are 29,490."""
    pages = homepages()
    assert (len(pages), len({canonicalize_url(page) for page in pages})) == (29_596, 29_509)
    found, malformed = UrlNormalizer(NONE).of_column(Column.of([page.encode() for page in pages]))
    for row, (page, key) in enumerate(zip(pages, found, strict=True)):
        if row in malformed:
            assert malformed[row].endswith("its scheme is not http or https")
            assert urlsplit(page).scheme in {"ftp", "gopher"}
        else:
            assert key == canonicalize_url(page).encode()
    assert (len(malformed), len(set(found) - {None})) == (19, 29_490)


@pytest.mark.parametrize(("url", "expected"), W3LIB_CASES)
def test_the_cases_of_w3lib_have_its_keys(url: str, expected: str | None) -> None:
    """Each has the key that w3lib's tests want, or a reason."""
    assert oracle(url) == expected
    check(url)


def test_a_fixed_corpus_is_as_w3lib_has_it() -> None:
    """Most of it is no URL, but thousands are."""
    for url in fixed_urls():
        check(url)
    assert sum(not key_of(url).startswith("the key") for url in fixed_urls()) > 8_000


@given(url=urls)
@example(url="http://a/%%34%31")
@example(url="http://[::ffff:0:1%Zone]:080/")
@example(url=f"http://{'é' * 64}.a/")
@example(url=f"http://a{'.é' * 125}/")
@settings(deadline=None)
def test_generated_urls_are_as_w3lib_has_them(url: str) -> None:
    """Whatever pieces they are made of."""
    check(url)


@pytest.mark.parametrize("rules", SOME_RULES, ids=lambda rules: rules.names or "none")
@given(texts=st.lists(urls, max_size=8))
@settings(deadline=None, max_examples=30)  # compiled within
@example(texts=[f"http://a.b/x{chr(char)}y?{chr(char)}=1&a{chr(char)}" for char in range(256)])
@example(texts=[f"http://a{chr(char)}b/" for char in range(256)])
@example(
    texts=[f"http://a.b/%{char:02x}%{char:02X}?a%{char:02x}=1&a%{char:02X}" for char in range(256)]
)
@example(
    texts=[
        f"http://a.b/{dots}{end}"
        for dots in (".", "..", "...", ".a", "a.", "%2e")
        for end in ("", "/", "/b")
    ]
)
@example(
    texts=[
        f"http://a.b:{port}{end}"
        for port in ("", "0", "00", "65535", "65536", "99999999")
        for end in ("", "/")
    ]
)
@example(
    texts=[
        "http://www.a.b",
        "http://WWW.a.b/x//?",
        "https://www.com",
        "http://www./",
        "http://a/#",
        "http://a/#b",
    ]
)
@example(
    texts=[
        f"{scheme}://{host}{port}{end}"
        for scheme in ("http", "https")
        for host in ("a.b", "a.b.", "a.b..", ".", "..", "www.a.b.", "www.b.")
        for port in ("", ":", ":80", ":443", ":0", ":080", ":8080")
        for end in ("", "/x")
    ]
)
@example(
    texts=[
        f"http://a/?{'&'.join(f'p{n % 40}' for n in range(count))}" for count in (1, 2, 32, 33, 80)
    ]
)
def test_the_kernel_never_says_otherwise(rules: UrlRules, texts: list[str]) -> None:
    """What it knows is what the reference makes of the URL; what that refuses it does not know."""
    url = UrlNormalizer(rules)
    cells = [text.encode("utf-8", "replace") for text in texts]
    for cell, found in zip(cells, plain(Column.of(cells), rules), strict=True):
        if found is not None:
            assert url.of_key(cell) == found
    keys, malformed = url.of_column(Column.of([None, *cells]))
    for row, (cell, key) in enumerate(zip(cells, list(keys)[1:], strict=True), 1):
        wanted = key_of(cell.decode(), rules)
        assert wanted == (malformed[row] if key is None else key.decode())


@pytest.mark.parametrize(
    "rules", [NONE, UrlRules(slash=True, www=True, scheme=True, tracking=True)]
)
def test_the_kernel_never_says_otherwise_of_a_fixed_corpus(rules: UrlRules) -> None:
    """Nor of the home pages, of which it reads nearly all."""
    url = UrlNormalizer(rules)
    for given_urls, share in ((homepages(), 0.99), (list(fixed_urls()), 0.07)):
        cells = [each.encode() for each in given_urls]
        found = list(plain(Column.of(cells), rules))
        assert sum(key is not None for key in found) >= share * len(found)
        for cell, key in zip(cells, found, strict=True):
            assert key is None or key == url.of_key(cell)


@pytest.mark.parametrize(
    ("rules", "key"),
    [
        (NONE, "https://www.a.b/x/?id=1&utm_source=y"),
        (UrlRules(tracking=True), "https://www.a.b/x/?id=1"),
        (UrlRules(slash=True), "https://www.a.b/x?id=1&utm_source=y"),
        (UrlRules(www=True), "https://a.b/x/?id=1&utm_source=y"),
        (UrlRules(scheme=True), "http://www.a.b/x/?id=1&utm_source=y"),
        (UrlRules(fragments=True), "https://www.a.b/x/?id=1&utm_source=y#top"),
        (UrlRules(order=True), "https://www.a.b/x/?utm_source=y&id=1"),
        (UrlRules.of(["ID"]), "https://www.a.b/x/?utm_source=y"),
        (UrlRules.of(["id", "Utm_Source"]), "https://www.a.b/x/"),
    ],
)
def test_each_rule_is_a_switch(rules: UrlRules, key: str) -> None:
    """It does one thing by itself, whether the kernel reads the URL or not."""
    url = "https://www.a.b/x/?utm_source=y&id=1#top"
    assert key_of(url, rules) == key
    (found,), _ = UrlNormalizer(rules).of_column(Column.of([url.encode()]))
    assert found == key.encode()


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://www.com/", "http://www.com/"),
        ("http://www.com./", "http://www.com./"),
        ("http://www.u.com..", "http://u.com../"),
        ("http://WWW.u.com:80", "http://u.com:80/"),
        ("http://a@www.u.com", "http://a@u.com/"),
        ("http://a/x//", "http://a/x"),
        ("http://a//", "http://a/"),
        ("http://a/x/;p", "http://a/x/;p"),
        ("https://a/?fbclid=1&UTM_source=2&%75tm_id=3&b", "http://a/?UTM_source=2&b="),
        ("http://a/?gclid", "http://a/"),
    ],
)
def test_the_rules_remove_no_more_than_they_say(url: str, key: str) -> None:
    """A host stays that is nothing without its www., and a root; names of parameters count as they are meant."""
    rules = UrlRules(tracking=True, slash=True, www=True, scheme=True)
    assert key_of(url, rules) == key
    assert list(UrlNormalizer(rules).of_column(Column.of([url.encode()]))[0]) == [key.encode()]


@pytest.mark.parametrize(
    ("rules", "url", "key"),
    [
        (UrlRules(port=True), "http://h:80/", "http://h/"),
        (UrlRules(port=True), "https://h:443", "https://h/"),
        (UrlRules(port=True), "http://h:0080/x", "http://h/x"),
        (UrlRules(port=True), "http://h:443/", "http://h:443/"),
        (UrlRules(port=True), "https://h:80/", "https://h:80/"),
        (UrlRules(port=True), "http://h:8080/", "http://h:8080/"),
        (UrlRules(port=True), "http://u:p@[::1]:80/", "http://u:p@[::1]/"),
        (UrlRules(port=True, scheme=True), "https://h:443/", "http://h/"),
        (UrlRules(port=True, scheme=True), "https://h:80/", "http://h:80/"),
        (UrlRules(dot=True), "http://h.example./", "http://h.example/"),
        (UrlRules(dot=True), "http://h.example..:80/", "http://h.example:80/"),
        (UrlRules(dot=True), "http://bücher.example。/", "http://xn--bcher-kva.example/"),
        (UrlRules(dot=True), "http://1.2.3.4./", "http://1.2.3.4/"),
        (UrlRules(dot=True, www=True), "http://www.h.example./", "http://h.example/"),
        (UrlRules(dot=True, www=True), "http://www.example./", "http://www.example/"),
        (UrlRules(dot=True), "http://./", "http://./"),
        (UrlRules.of(["sid", "phpsessid"]), "http://h/?sid=1&a=2&PHPSESSID=3", "http://h/?a=2"),
        (UrlRules.of(["sid"]), "http://h/?%73id=1&sid&SID=&xsid=4&sidx=5", "http://h/?sidx=5&xsid=4"),
        (UrlRules.of(["é"]), "http://h/?é=1&%C3%A9=2&b=3", "http://h/?b=3"),
        (UrlRules.of(["a[b]"]), "http://h/?a[b]=1&a%5Bb%5D=2&a=3", "http://h/?a=3"),
        (UrlRules.of(["s"]), "http://h/?s=1&S&st=2", "http://h/?st=2"),
        (UrlRules.of(["k"]), "http://h/?\u212a=1", "http://h/?%E2%84%AA=1"),
        (UrlRules(order=True), "http://h/?b=2&&a=%20x&b=1&c", "http://h/?b=2&a=+x&b=1&c="),
        (UrlRules.of(["a"], order=True), "http://h/?b=2&a=1&a=3", "http://h/?b=2"),
    ],
)  # fmt: skip
def test_a_rule_changes_what_it_names_alone(rules: UrlRules, url: str, key: str) -> None:
    """By itself and with others, in Python and in a column; without it, all of that counts, as in w3lib."""
    assert key_of(url, rules) == key
    assert list(UrlNormalizer(rules).of_column(Column.of([url.encode()]))[0]) == [key.encode()]
    assert key_of(url) == oracle(url)


@pytest.mark.parametrize("rules", [UrlRules(port=True), UrlRules(dot=True), UrlRules(order=True)])
@pytest.mark.parametrize("url", ["http://h.:80/x?b=1&a=2", "https://www.h.example.:443/?c&b"])
def test_the_kernel_follows_the_rules_of_ports_dots_and_order(rules: UrlRules, url: str) -> None:
    """No URL costs more by one of these."""
    assert list(plain(Column.of([url.encode()]), rules)) == [key_of(url, rules).encode()]


@pytest.mark.parametrize(
    "name", ["", "a b", "utm_*", "a=b", "a&b", "x" * 101, "%61", "a,b", "\ud83e"]
)
def test_what_no_parameter_is_called_is_not_ignored(name: str) -> None:
    """It would remove nothing, in silence."""
    with pytest.raises(ConfigError, match="url_ignore has a name that no parameter has"):
        UrlRules.of(["sid", name])


NO_SCHEME = "it has no scheme: write http:// or https:// before it"
PORT = "its port is not a number from 0 to 65535"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "its scheme is not http or https") for text in ("ftp://Q9Z/", "mailto:Q9Z", "Q9Z.com:80/x")),
        *((text, NO_SCHEME) for text in ("Q9Z", "Q9Z.com/x", "//Q9Z/", "/Q9Z", "?Q9Z", "://Q9Z", "é.Q9Z")),
        ("", "it is empty"),
        *((f"http:{rest}", "it has no host") for rest in ("", "Q9Z", "///Q9Z", "//Q9Z@/", "//:80/Q9Z")),
        *((f"http://{host}/", "its host is not valid") for host in ("[Q9Z]", "[::1", "Q9Z\uff20", "a[::1]", "[1.2.3]")),
        *((f"http://{host}/", TWO_NAMES) for host in ("é.Q9Z%41", "Q9Z%C2%ADé", "u@Q9Zé%:1", "é\u0345\u0301.Q9Z")),
        *((f"http://Q9Z:{port}/", PORT) for port in ("x", "65536", "-1", "9" * 9)),
        (f"http://{'é' * (AUTHORITY_CHARACTERS_MAX + 1)}/Q9Z", "its host is too long"),
        ("http://Q9Z/" + "Q9Z" * 3_000, "it has more than 8,192 bytes"),
        ("http://Q9Z/" + "é" * 4_096, "it has more than 8,192 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_url_has_a_reason(text: str, why: str) -> None:
    """It says what is wrong, and holds nothing of the URL."""
    keys, malformed = UrlNormalizer(NONE).of_column(Column.of([text.encode()]))
    assert list(keys) == [None]
    assert malformed == {0: f"the key is not a URL: {why}"}
    assert not re.search("Q9Z", malformed[0])


def test_what_is_no_text_has_the_reason_of_other_normalizers() -> None:
    """Also if the kernel could drop it, as a part of a fragment."""
    cells: list[bytes | None] = [b"http://a/\xff", b"http://a/#\xff", b"http://a/#\0"]
    keys, malformed = UrlNormalizer(NONE).of_column(Column.of(cells))
    assert list(keys) == [None] * 3
    assert malformed == {0: NOT_UTF8, 1: NOT_UTF8, 2: NO_TEXT}


def test_a_url_is_not_normalized_twice() -> None:
    """w3lib's result is not always its own result, so a key that was made by it is not its own key."""
    assert key_of("http://a/%%34%31") == "http://a/%41"
    assert key_of("http://a/%41") == "http://a/A"
    assert list(plain(Column.of([b"http://a/%%34%31"]), NONE)) == [b"http://a/%41"]


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "https://Example.com:8080/a/b.html",
        "http://example.com/?b=2&a=1&a=%20x+y",
        "http://example.com/~user/(x)%20y/%7e?q=http://x/#top",
        " https://example.com/x?\r",
    ],
)
def test_ordinary_urls_go_by_the_kernel(url: str) -> None:
    """Python is not asked for what nearly all URLs look like."""
    assert list(plain(Column.of([url.encode()]), NONE)) == [key_of(url).encode()]


@pytest.mark.parametrize("count", [PARAMETERS_MAX, PARAMETERS_MAX + 1, 4_000])
def test_the_kernel_sorts_a_bounded_number_of_parameters(count: int) -> None:
    """Sorting by insertion takes time by the square; others are left to Python, which sorts in less."""
    url = "http://a/?" + "&".join("b" if at % 2 else "a" for at in range(count))
    (found,) = plain(Column.of([url.encode()]), NONE)
    assert (found is not None) == (count <= PARAMETERS_MAX)
    assert key_of(url) == "http://a/?" + "&".join(
        ["a="] * (count - count // 2) + ["b="] * (count // 2)
    )


def test_the_longest_url_is_read_and_one_byte_more_is_not() -> None:
    """White space around it does not count."""
    url = "http://a/" + "x" * (URL_BYTES_MAX - 9)
    cells = [
        f" {url}\n".encode(),
        f"{url}y".encode(),
        (" " * 100_000 + url).encode(),
        (url * 100).encode(),
    ]
    keys, malformed = UrlNormalizer(NONE).of_column(Column.of(cells))
    assert list(keys) == [url.encode(), None, url.encode(), None]
    assert malformed == {1: TOO_LONG, 3: TOO_LONG}


def test_the_table_of_tracking_parameters_is_consistent() -> None:
    """A name once, of plain characters, with its source."""
    text = files("streamdedup.data").joinpath("tracking_parameters.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    assert len({name for name, _ in rows}) == len(rows)
    for name, source in rows:
        assert re.fullmatch(r"\w{2,}\*?", name, re.ASCII)
        assert urlsplit(source).scheme == "https"
    names, beginnings = tracking_names()
    assert len(names) + len(beginnings) == len(rows)
    assert is_tracking(b"utm_x")
    assert not is_tracking(b"utm")


def test_other_rules_have_another_identity() -> None:
    """Other rules make other keys, so a snapshot or list of them is not taken for one of these."""
    several = [*RULES, UrlRules.of(["a"]), UrlRules.of(["a", "b"]), UrlRules.of(["ab"])]
    identities = {UrlNormalizer(rules).id for rules in several}
    assert len(identities) == len(several)
    assert all(identity.startswith("url/1, ") for identity in identities)
    assert UrlNormalizer(NONE).rules_id == "url/1"
    assert UrlRules.of(["SID", "b", "b"]) == UrlRules.of(["b", "sid"])
