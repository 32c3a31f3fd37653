"""Claims about the made corpus of URLs: it has what links have, and the kernel reads nearly all of it."""

from w3lib.url import canonicalize_url

from bench.urls import corpus, homepages
from streamdedup.events import Column
from streamdedup.keys.normalizers.url import UrlNormalizer
from streamdedup.keys.normalizers.url_column import plain
from streamdedup.keys.options import UrlRules


def test_the_made_corpus_has_what_links_have() -> None:
    """At least 30 % queries and 5 % escapes, the same in each run; each key is w3lib's, and the kernel leaves few."""
    urls = corpus(homepages(), 10_000)
    assert urls == corpus(homepages(), 10_000)
    for sign, share in (("?", 0.3), ("%", 0.05)):
        assert sum(sign in url for url in urls) >= share * len(urls)
    column = Column.of([url.encode() for url in urls])
    keys, malformed = UrlNormalizer(UrlRules()).of_column(column)
    assert not malformed
    assert list(keys) == [canonicalize_url(url).encode() for url in urls]
    assert (plain(column, UrlRules()).sizes >= 0).sum() > 0.97 * len(urls)
