"""Claims about URLs: all cases of w3lib's own tests, all home pages, and the kernel under all rules."""

import gzip
import json
from importlib.resources import files
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

from w3lib.url import canonicalize_url

from streamdedup.events import Column
from streamdedup.keys.normalizers.url import UrlNormalizer
from tests.keys.test_url import NONE, SOME_RULES, check, oracle, url_agrees
from tests.rows import every, table

# The URLs of the web in w3lib's own tests of `canonicalize_url` and `safe_url_string`, and what 2.5.0 makes of each;
# null if it refuses it.
W3LIB_CASES: list[tuple[str, str | None]] = json.loads(
    Path(__file__).with_name("w3lib_urls.json").read_text(encoding="utf-8")
)


def homepages() -> list[str]:
    """The distinct home pages of the demo's data."""
    packed = files("streamdedup").joinpath("data/homepages.txt.gz").read_bytes()
    return sorted(set(gzip.decompress(packed).decode().splitlines()))


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


@table(W3LIB_CASES)
def test_the_cases_of_w3lib_have_its_keys(url: str, expected: str | None) -> None:
    """Each has the key that w3lib's tests want, or a reason."""
    assert oracle(url) == expected
    check(url)


def test_the_kernel_never_says_otherwise_at_the_edges() -> None:
    """Under each rule, and all of them."""
    every(product(SOME_RULES, EDGES), lambda row: url_agrees(*row))


# Where the kernel's rules begin and end: every byte, dots, ports, ends, hosts, and numbers of parameters.
EDGES = [
    [f"http://a.b/x{chr(char)}y?{chr(char)}=1&a{chr(char)}" for char in range(256)],
    [f"http://a{chr(char)}b/" for char in range(256)],
    [f"http://a.b/%{char:02x}%{char:02X}?a%{char:02x}=1&a%{char:02X}" for char in range(256)],
    [
        f"http://a.b/{dots}{end}"
        for dots in (".", "..", "...", ".a", "a.", "%2e")
        for end in ("", "/", "/b")
    ],
    [
        f"http://a.b:{port}{end}"
        for port in ("", "0", "00", "65535", "65536", "99999999")
        for end in ("", "/")
    ],
    [
        *("http://www.a.b", "http://WWW.a.b/x//?", "https://www.com", "http://www./"),
        *("http://a/#", "http://a/#b"),
    ],
    [
        f"{scheme}://{host}{port}{end}"
        for scheme in ("http", "https")
        for host in ("a.b", "a.b.", "a.b..", ".", "..", "www.a.b.", "www.b.")
        for port in ("", ":", ":80", ":443", ":0", ":080", ":8080")
        for end in ("", "/x")
    ],
    [f"http://a/?{'&'.join(f'p{n % 40}' for n in range(count))}" for count in (1, 2, 32, 33, 80)],
]
