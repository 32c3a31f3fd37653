"""Claims about URLs: the rules are those of w3lib 2.5.0, and the kernel never says otherwise than they do."""

import re
from importlib.metadata import version
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from w3lib.url import canonicalize_url

from streamdedup.errors import ConfigError, MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers.base import NO_TEXT, NOT_UTF8
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
from tests.keys.reading import agrees
from tests.rows import table

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


@given(url=urls)
@example(url="http://a/%%34%31")
@example(url="http://[::ffff:0:1%Zone]:080/")
@example(url=f"http://{'é' * 64}.a/")
@example(url=f"http://a{'.é' * 125}/")
@settings(deadline=None)
def test_generated_urls_are_as_w3lib_has_them(url: str) -> None:
    """Whatever pieces they are made of."""
    check(url)


def url_agrees(rules: UrlRules, texts: list[str]) -> None:
    """Compare the kernel with the reference; it knows no URL that that refuses."""
    agrees(UrlNormalizer(rules), lambda cells: plain(cells, rules), texts)


@given(rules=st.sampled_from(SOME_RULES), texts=st.lists(urls, max_size=8))
@settings(deadline=None)  # compiled within
def test_the_kernel_never_says_otherwise(rules: UrlRules, texts: list[str]) -> None:
    """Of any URLs, under any rules."""
    url_agrees(rules, texts)


URL = "https://www.a.b/x/?utm_source=y&id=1#top"
FOUR = UrlRules(tracking=True, slash=True, www=True, scheme=True)


@table(      [
    (NONE, URL, "https://www.a.b/x/?id=1&utm_source=y"),
    (UrlRules(tracking=True), URL, "https://www.a.b/x/?id=1"),
    (UrlRules(slash=True), URL, "https://www.a.b/x?id=1&utm_source=y"),
    (UrlRules(www=True), URL, "https://a.b/x/?id=1&utm_source=y"),
    (UrlRules(scheme=True), URL, "http://www.a.b/x/?id=1&utm_source=y"),
    (UrlRules(fragments=True), URL, "https://www.a.b/x/?id=1&utm_source=y#top"),
    (UrlRules(order=True), URL, "https://www.a.b/x/?utm_source=y&id=1"),
    (UrlRules.of(["ID"]), URL, "https://www.a.b/x/?utm_source=y"),
    (UrlRules.of(["id", "Utm_Source"]), URL, "https://www.a.b/x/"),
    # A host stays that is nothing without its www., and a root; names of parameters count as they are meant.
    (FOUR, "http://www.com/", "http://www.com/"),
    (FOUR, "http://www.com./", "http://www.com./"),
    (FOUR, "http://www.u.com..", "http://u.com../"),
    (FOUR, "http://WWW.u.com:80", "http://u.com:80/"),
    (FOUR, "http://a@www.u.com", "http://a@u.com/"),
    (FOUR, "http://a/x//", "http://a/x"),
    (FOUR, "http://a//", "http://a/"),
    (FOUR, "http://a/x/;p", "http://a/x/;p"),
    (FOUR, "https://a/?fbclid=1&UTM_source=2&%75tm_id=3&b", "http://a/?UTM_source=2&b="),
    (FOUR, "http://a/?gclid", "http://a/"),
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
])  # fmt: skip
def test_a_rule_changes_what_it_names_alone(rules: UrlRules, url: str, key: str) -> None:
    """By itself and with others, in Python and in a column; without it, all of that counts, as in w3lib."""
    assert key_of(url, rules) == key
    assert list(UrlNormalizer(rules).of_column(Column.of([url.encode()]))[0]) == [key.encode()]
    assert key_of(url) == oracle(url)


@table(["", "a b", "utm_*", "a=b", "a&b", "x" * 101, "%61", "a,b", "\ud83e"])
def test_what_no_parameter_is_called_is_not_ignored(name: str) -> None:
    """It would remove nothing, in silence."""
    with pytest.raises(ConfigError, match="url_ignore has a name that no parameter has"):
        UrlRules.of(["sid", name])


NO_SCHEME = "it has no scheme: write http:// or https:// before it"
PORT = "its port is not a number from 0 to 65535"


@table(      [
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
])  # fmt: skip
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


@table(
    [
        (NONE, "http://example.com"),
        (NONE, "https://Example.com:8080/a/b.html"),
        (NONE, "http://example.com/?b=2&a=1&a=%20x+y"),
        (NONE, "http://example.com/~user/(x)%20y/%7e?q=http://x/#top"),
        (NONE, " https://example.com/x?\r"),
        *product(
            [UrlRules(port=True), UrlRules(dot=True), UrlRules(order=True)],
            ["http://h.:80/x?b=1&a=2", "https://www.h.example.:443/?c&b"],
        ),
    ]
)
def test_ordinary_urls_go_by_the_kernel(rules: UrlRules, url: str) -> None:
    """Python is not asked for what nearly all URLs look like, nor for a rule of ports, dots or order."""
    assert list(plain(Column.of([url.encode()]), rules)) == [key_of(url, rules).encode()]


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


def test_other_rules_have_another_identity() -> None:
    """Other rules make other keys, so a snapshot or list of them is not taken for one of these."""
    several = [*RULES, UrlRules.of(["a"]), UrlRules.of(["a", "b"]), UrlRules.of(["ab"])]
    identities = {UrlNormalizer(rules).id for rules in several}
    assert len(identities) == len(several)
    assert all(identity.startswith("url/1, ") for identity in identities)
    assert UrlNormalizer(NONE).rules_id == "url/1"
    assert UrlRules.of(["SID", "b", "b"]) == UrlRules.of(["b", "sid"])
