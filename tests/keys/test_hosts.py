"""Claims about the hosts of URLs: whoever fetches a URL asks the host by which a list holds it."""

import ada_url
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers.address_limits import LABELS_MAX
from streamdedup.keys.normalizers.base import DomainEntry
from streamdedup.keys.normalizers.host_column import candidates, find, hosts
from streamdedup.keys.normalizers.hosts import (
    DECODED_CHARACTERS_MAX,
    LABEL_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    SIGN,
    authority_of,
    canonical,
    cell_of,
    of_host_entry,
)
from streamdedup.keys.normalizers.url import UrlNormalizer
from streamdedup.keys.options import UrlRules
from tests.keys.test_url import urls
from tests.rows import every, table

URL = UrlNormalizer(UrlRules())
WWW = UrlNormalizer(UrlRules(www=True))

# Ways to write a host, most of which some client takes for example.com, 127.0.0.1 or ::1.
HOSTS = [
    *("example.com", "EXAMPLE.com", "example.com.", "example.com..", "www.example.com"),
    "a.b.example.com",
    *("ex%61mple.com", "example%2ecom", "%65%78ample%2Ecom%2e", "ex%C2%ADample.com"),
    "ex\u00adample.com",
    *("example\u3002com", "example\uff0ecom", "example\uff61com", "example\u2024com"),
    "ex\uff41mple.com",
    *("ex\u200bample.com", "ⓔxample.com", "ex\u2060ample.com", "exa\ufe0fmple.com"),
    "example.\u217dom",
    *("127.0.0.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.1", "0x7f000001", "127.0.0.1."),
    "127.0.1",
    *("017700000001", "0x0000000000000000000000007f.1", "12\uff17.0.0.1", "%31%32%37.1"),
    "1.2.3.4.5",
    "256.1",
    *("08.1", "1.0x", "1..2", "0", "0x", "4294967296", "00000000000000000000001", "1.1.1.65536"),
    *("[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[::127.0.0.1]"),
    "[1::0:0:1]",
    *("bücher.example", "B\u00dcCHER.example", "bu\u0308cher.example", "xn--bcher-kva.example"),
    "XN--bcher-kva.example",
    *("faß.de", "fass.de", "xn--fa-hia.de", "faẞ.de", "βόλος.com", "xn--nxasmm1c.com"),
    *("βόλοσ.com", "\u0646\u0627\u0645\u0647\u200c\u0627\u06cc.com"),
    *("xn--mgba3gch31f060k.com", "xn--", "xn--a", "xn--0", "xn--é", "xn--a-", "xn--999999b"),
    "xn--zn7c.com",
    *("日本.jp", "xn--wgv71a.jp", "a_b.example", "-a-.example", "a!b'c.example", "ex ample.com"),
    *("a%00b", "%", "%zz"),
    *("\u2488com", "\u1806x.com", "\u10a0.com", "\u13a0.com", "\uab70.com", "İ.com", "K.com"),
    *("\u0345.com", "℡.com", "ex\u3164ample.com", "ex\u3164%61mple.com", "bücher%C2%AD.example"),
    *("xn-\u115f-bcher-kva.example", "\U000e0100xn--fa-hia.de", "\u03b2\u0345\u0301\u03bb.com"),
]
BEFORE = ["", "", "user@", "u:p@", "good.com@", "good.com:80@", "a@b@", "%40@", ":@", "@"]
AFTER = [
    "",
    "",
    "/",
    ":80",
    ":080/",
    ":",
    "?",
    "#",
    "/@good.com",
    "?@good.com",
    "#@good.com",
    "\\",
    "/..//x",
    ":/x",
]


def cell(url: str, normalizer: UrlNormalizer = URL) -> bytes | None:
    """The host by which lists match a URL, after a slash; None if the URL is malformed."""
    try:
        key = normalizer.of_key(url.encode())
    except MalformedError:
        return None
    (found,) = hosts(Column.of([key]), drops_www=normalizer.rules.www)
    assert found == cell_of(authority_of(key), drops_www=normalizer.rules.www)
    return found


def asked(url: str) -> str | None:
    """The host that a client of the standard asks for; None if it refuses the URL."""
    try:
        return ada_url.URL(url).hostname
    except ValueError:
        return None


def check(url: str) -> None:
    """What a client of the standard would ask is what lists match, if there is a key."""
    found, host = cell(url), asked(url)
    if found is not None and host is not None and may_exist(host):
        assert found == SIGN + canonical(host).encode(), url


def may_exist(host: str) -> bool:
    """Whether it is short enough for a name; we decode no others."""
    labels = host.split(".")
    return len(host) <= NAME_CHARACTERS_MAX and max(map(len, labels)) <= LABEL_CHARACTERS_MAX


def test_hosts_are_those_of_the_standard() -> None:
    """In every way to write them that we know."""
    every((f"http://{host}/" for host in HOSTS), check)


@settings(deadline=None)
@given(
    url=urls
    | st.builds(
        "http://{}{}{}".format, st.sampled_from(BEFORE), st.text(max_size=9), st.sampled_from(AFTER)
    )
)
@example(url="http://a\u0345\u200cb")
@example(url="http://example.com.\u3164/")
@example(url="http://" + "a\u3164." * 76 + "ex\u3164ample.com")  # as a key, it has 800 characters
def test_hosts_are_those_of_the_standard_in_any_url(url: str) -> None:
    """Of any text."""
    check(url)


def by_python(urls: Column, *, drops_www: bool = False) -> list[int]:
    """The rows that the kernel leaves to Python."""
    starts, sizes = np.empty((2, len(urls)), dtype=np.int64)
    find(
        np.uint8(drops_www),
        np.frombuffer(urls.buffer, np.uint8),
        urls.starts,
        urls.sizes,
        starts,
        sizes,
    )
    rows: list[int] = np.flatnonzero(sizes < 0).tolist()
    return rows


# --- the kernel ---


@pytest.mark.bounds
@settings(deadline=None)
@given(
    cells=st.lists(
        st.none()
        | st.builds(
            "{}{}{}".format,
            st.sampled_from(["http://", "https://", "http:/", ""]),
            st.text("axn-01256._:@[]w", max_size=12) | st.sampled_from(HOSTS),
            st.sampled_from(AFTER),
        ).map(str.encode)
    ),
    drops_www=st.booleans(),
)
@example(
    cells=[b"http://www.www.a.b", b"http://www.com", b"https://a", b"http://", b""], drops_www=True
)
def test_the_kernel_finds_the_same(cells: list[bytes | None], drops_www: bool) -> None:
    """Where it finds a host, Python finds the same; nulls stay nulls."""
    found = hosts(Column.of(cells), drops_www=drops_www)
    assert list(found) == [
        None if url is None else cell_of(authority_of(url), drops_www=drops_www) for url in cells
    ]


@table(
    [
        *(b"http://a.b/", b"https://a_b-c.d:80/x", b"http://a.b?x", b"http://a.b.#x"),
        b"http://1.a",
        *(b"http://127.0.0.1/", b"https://255.255.255.255:1", b"http://0.0.0.0", b"http://a"),
    ]
)
def test_plain_hosts_need_no_python(url: bytes) -> None:
    """Names of letters, digits, dashes and underscores, also with a dot at the end, and IPv4 addresses."""
    assert by_python(Column.of([url])) == []


@pytest.mark.bounds
def test_places_outside_of_the_buffer_have_no_host() -> None:
    """Nothing there is read."""
    places = np.array([2**63 - 1, -1, 3, 0]), np.array([8, 8, 8, 2**63 - 1])
    assert by_python(Column(b"http://a", *places)) == [0, 1, 2, 3]


# --- the keys of a host, and of an entry ---


@table(
    [
        (b"http://a.b.example/x", [b"/a.b.example", b"a.b.example", b"b.example", b"example"]),
        (b"http://example.:80", [b"/example", b"example"]),
        (b"http://127.1", [b"/127.0.0.1"]),
        (b"http://[::1]/", [b"/[::1]"]),
        (
            "http://bücher.example".encode(),
            ["/bücher.example".encode(), "bücher.example".encode(), b"example"],
        ),
        (b"http://a%2fb.c", [b"/a/b.c", b"a/b.c", b"c"]),
    ]
)
def test_the_keys_of_a_host(url: bytes, keys: list[bytes]) -> None:
    """It after a slash, then it and each domain above it; nothing above an IP address."""
    rows, found = candidates(Column.of([None, url, url]), drops_www=False)
    assert list(zip(rows.tolist(), found, strict=True)) == [
        (row, key) for row in (1, 2) for key in keys
    ]


def test_no_host_takes_long() -> None:
    """Nothing is decoded that cannot be a name, since the time for that grows with the square."""
    long = "xn--" + "z" * (LABEL_CHARACTERS_MAX - 3)
    assert canonical(long) == long
    many = ".".join(["xn--bcher-kva"] * (DECODED_CHARACTERS_MAX // 14))
    assert "xn--" not in canonical(many)
    assert canonical(f"{many}.{many}") == f"{many}.{many}"


def test_many_labels_have_few_keys() -> None:
    """As many as an entry may have."""
    assert (
        len(candidates(Column.of([b"http://" + b"a." * 2000 + b"b"]), drops_www=False)[0])
        == 1 + LABELS_MAX
    )


@table(
    [
        ("@Example.com", "@example.com", ["/example.com"]),
        (" .example.com. ", ".example.com", ["example.com"]),
        ("@faß.de", "@fass.de", ["/fass.de"]),
        (".xn--bcher-kva.example", ".bücher.example", ["bücher.example"]),
        ("@0x7f.1", "@127.0.0.1", ["/127.0.0.1"]),
        ("@[0::1]", "@[::1]", ["/[::1]"]),
        ("@[::ffff:127.0.0.1]", "@127.0.0.1", ["/127.0.0.1"]),
        ("@localhost", "@localhost", ["/localhost"]),
        (".com", ".com", ["com"]),
        ("@a_b.example", "@a_b.example", ["/a_b.example"]),
        ("@www.example.com", "@www.example.com", ["/www.example.com"]),
    ]
)
def test_an_entry_for_a_host(entry: str, text: str, keys: list[str]) -> None:
    """It has one text and one key, whose text is the same entry."""
    found = DomainEntry(text.encode(), [key.encode() for key in keys])
    assert URL.of_domain_entry(entry.encode()) == found
    assert URL.of_domain_entry(found.text) == found


@table(
    [
        ("@www.example.com", "@example.com", ["/example.com"]),
        ("@www.www.example.com", "@example.com", ["/example.com"]),
        ("@www.com", "@www.com", ["/www.com"]),
        (".example.com", ".example.com", ["example.com"]),
        (".www.example.com", ".www.example.com", ["www.example.com", "/example.com"]),
    ]
)
def test_an_entry_without_www(entry: str, text: str, keys: list[str]) -> None:
    """With `url_www`, which drops it from the keys, too."""
    found = DomainEntry(text.encode(), [key.encode() for key in keys])
    assert WWW.of_domain_entry(entry.encode()) == found
    assert set(found.keys) & set(
        candidates(Column.of([WWW.of_key(b"http://" + entry[1:].encode())]), drops_www=True)[1]
    )


def test_www_is_dropped_however_it_is_written() -> None:
    """Also where the key has it still."""
    for host in (
        "www.a.b",
        "WWW.a.b",
        "w%57w.a.b",
        "www%2ea.b",
        "\uff57ww\u3002a.b",
        "www.www.a.b",
        "www.a.b.",
    ):
        assert cell(f"http://{host}/", WWW) == b"/a.b", host
    for host in ("www.com", "www.com.", "www%2ecom.", "www\uff0ecom\uff0e"):
        assert cell(f"http://{host}/", WWW) == b"/www.com", host


@table(
    [
        *("@", ".", "", "example.com", "http://example.com/", "@http://example.com"),
        *("@example.com/", "@a.b:80"),
        *("@user@example.com", "@a b.example", "@a..b", "@.example.com", "..example.com"),
        *("@*.example.com", "@::1"),
        *("@[::1", "@1.2.3.4.5", "@256.1", "@a.1", "@xn--a", "@xn--999999b", "@a%2fb"),
        "@\ufdd0.example",
        *(".127.0.0.1", ".0x7f.1", ".[::1]", "." + "a." * LABELS_MAX + "b"),
        "@" + "a" * (NAME_CHARACTERS_MAX + 1),
    ]
)
def test_what_is_no_host(entry: str) -> None:
    """It is malformed: a name that no client looks up, an address with what is below it, more than a host."""
    with pytest.raises(MalformedError, match=r"^the entry is "):
        URL.of_domain_entry(entry.encode())


@settings(deadline=None)
@given(host=st.sampled_from(HOSTS) | st.text(max_size=9))
def test_a_canonical_host_stays(host: str) -> None:
    """If it is one of an entry, so a normalized entry is normalized."""
    try:
        found = of_host_entry(f"@{host}".encode(), drops_www=False)
    except (MalformedError, UnicodeEncodeError):
        return
    assert of_host_entry(found.text, drops_www=False) == found
