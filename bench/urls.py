"""`python -m bench urls`: how many URLs a second are normalized, beside w3lib, and how many e-mail addresses.

The home pages are the demo's data. The made corpus is theirs, with what links have besides: 40 % get a query, 16 % a
word, half of which need escapes, others a fragment, capitals, or a path that only Python can read. Keys must be those
of w3lib. Rates are of one core, by the time that the process has of it.
"""

import gzip
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from random import Random
from urllib.parse import quote

from w3lib.url import canonicalize_url

from bench.harness import machine_text, print_rates
from streamdedup.errors import MalformedError
from streamdedup.events import Column
from streamdedup.keys.normalizers.email import EmailNormalizer
from streamdedup.keys.normalizers.url import UrlNormalizer
from streamdedup.keys.normalizers.url_column import plain
from streamdedup.keys.options import EmailRules, UrlRules

ROUNDS = 7
CORPUS, SOME = 100_000, 10_000
PYTHONS = 256  # addresses that Python reads
QUERIES, ESCAPES, FRAGMENTS, CAPITALS, LETTERS, ODD = 0.4, 0.16, 0.1, 0.02, 0.01, 0.01
NAMES = ("id", "page", "q", "lang", "ref", "sort", "utm_source", "utm_medium", "view", "tag")
WORDS = (
    "docs",
    "user guide",
    "release notes",
    "C++",
    "a/b",
    "download",
    "about us",
    "2024",
    "index.html",
    "über",
)


def main() -> int:
    """Print it. The status is 1 if a result is not w3lib's."""
    print(machine_text("numpy", "numba", "w3lib", "email-validator", "idna"))
    pages = homepages()
    wrong = 0
    for name, urls in (("home pages", pages), ("made corpus", corpus(pages, CORPUS))):
        wrong += _measured(name, urls)
    _addresses()
    return int(wrong > 0)


def homepages() -> list[str]:
    """The demo's home pages, one for each package, repetitions included."""
    packed = files("streamdedup").joinpath("data/homepages.txt.gz").read_bytes()
    return gzip.decompress(packed).decode().splitlines()


def corpus(pages: Sequence[str], count: int) -> list[str]:
    """Return `count` URLs, made of home pages of the web; the same in each run."""
    random, web = Random(25), [page for page in pages if page.startswith("http")]
    return [_link(random, random.choice(web)) for _ in range(count)]


def _link(random: Random, page: str) -> str:
    url = page.partition("#")[0].partition("?")[0]
    if random.random() < CAPITALS:
        url = url.replace("://", "://WWW.", 1)
    if random.random() < ESCAPES:
        url = f"{url.rstrip('/')}/{quote(random.choice(WORDS))}"
    elif random.random() < LETTERS:
        url = f"{url.rstrip('/')}/{random.choice('äéøжあ')}"
    elif random.random() < ODD:
        url = f"{url.rstrip('/')}/{random.choice(('./', '../', 'x;v=1', 'a/../b'))}"
    if random.random() < QUERIES:
        names = random.sample(NAMES, random.randint(1, 4))
        url += "?" + "&".join(f"{name}={random.randrange(10**4)}" for name in names)
    return f"{url}#part{random.randrange(9)}" if random.random() < FRAGMENTS else url


def _measured(name: str, urls: Sequence[str]) -> int:
    """Print the rates of one corpus, and return how many of its keys are not w3lib's."""
    url, column = UrlNormalizer(UrlRules()), Column.of([each.encode() for each in urls])
    keys, malformed = url.of_column(column)
    wrong = sum(
        key is not None and key.decode() != canonicalize_url(given)
        for key, given in zip(keys, urls, strict=True)
    )
    left = [
        given for given, size in zip(urls, plain(column, UrlRules()).sizes, strict=True) if size < 0
    ]
    print(
        f"\n{name}: {len(urls):,} URLs, {len({*urls}):,} distinct, {len({*keys} - {None}):,} keys,"
        f" {len(malformed):,} malformed, {wrong:,} unlike w3lib"
    )
    shares = f"with a query {_share(urls, '?')}, with an escape {_share(urls, '%')}"
    print(f"{shares}, read by Python {len(left) / len(urls):.2%}")
    encoded, some = [each.encode() for each in left], urls[:SOME]
    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "the column, kernel and Python": (len(urls), lambda: url.of_column(column)),
        "the kernel alone": (len(urls), lambda: plain(column, UrlRules())),
        "Python, what the kernel leaves": (len(left), lambda: _each(url, encoded)),
        "Python, any of them": (len(some), lambda: _each(url, [one.encode() for one in some])),
        "w3lib, any of them": (len(some), lambda: [canonicalize_url(one) for one in some]),
    }
    print_rates(calls, ROUNDS)
    return wrong


def _each(url: UrlNormalizer, keys: Sequence[bytes]) -> None:
    for key in keys:
        try:
            url.of_key(key)
        except MalformedError:
            continue


def _share(urls: Sequence[str], sign: str) -> str:
    return f"{sum(sign in url for url in urls) / len(urls):.1%}"


def _addresses() -> None:
    """Print what e-mail addresses take, by what they look like."""
    random, email = Random(1), EmailNormalizer(EmailRules.of("provider"))
    greek = [chr(letter) for letter in range(0x3B1, 0x3C9) if letter != 0x3C2]
    kinds: dict[str, tuple[int, Callable[[], str]]] = {
        "ASCII": (SOME, lambda: f"{_user(random)}@example.com"),
        "capitals, dots, a tag, an alias": (
            SOME,
            lambda: f"{_user(random).title()}+shop@GoogleMail.com",
        ),
        "an international domain": (
            PYTHONS,
            lambda: f"{_user(random)}@bücher-{random.randrange(10**4)}.example",
        ),
        "long labels of other letters": (  # the worst that is known
            PYTHONS,
            lambda: f"a@{'.'.join(''.join(random.sample(greek, 20)) for _ in range(5))}.com",
        ),
        "no address": (PYTHONS, lambda: f"{_user(random)} at example.com"),
    }
    print("\ne-mail addresses")
    calls = {}
    for name, (count, make) in kinds.items():
        column = Column.of([make().encode() for _ in range(count)])
        email.of_column(column)  # compiled once
        calls[name] = count, partial(email.of_column, column)
    print_rates(calls, ROUNDS)


def _user(random: Random) -> str:
    return f"{random.choice('abcdefgh')}{random.randrange(10**6)}.{random.choice('uvwxyz')}{random.randrange(10**4)}"


if __name__ == "__main__":
    sys.exit(main())
