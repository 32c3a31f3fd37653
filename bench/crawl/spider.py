"""`python -m bench.crawl.spider URL [NAME=VALUE ...]`: crawl a site under these settings; print the stats as JSON.

The stats are Scrapy's, and `rss_bytes_max`: the most memory that the process took. `alone FILTER REQUESTS` crawls
nothing: the duplicate filter gets so many new fingerprints, then the same again, without a `JOBDIR`; `us` are the
microseconds of processor time of a request, without those of its fingerprint.
"""

import json
import resource
import sys
from collections.abc import Iterator, Sequence
from time import process_time
from typing import Any

from scrapy import Spider
from scrapy.crawler import CrawlerProcess
from scrapy.dupefilters import RFPDupeFilter
from scrapy.http import Request, Response, TextResponse

from streamdedup.contrib.scrapy import DupeFilter

RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
SETTINGS: dict[str, Any] = {
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "LOG_LEVEL": "WARNING",
    "REMOTE_CONTROL_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
}


ALONE, FILTERS = "alone", {"scrapy": RFPDupeFilter, "ours": DupeFilter}


class Counter:
    """A fingerprinter that costs next to nothing: the number of the request, spread over 20 bytes."""

    def __init__(self) -> None:
        self.number = 0

    def fingerprint(self, _request: Request) -> bytes:
        """Return the next fingerprint."""
        self.number += 1
        return (self.number * 0x9E3779B97F4A7C15F39CC0605CEDC835).to_bytes(24, "big")[:20]


class SiteSpider(Spider):
    """Follows every link of the site."""

    name = "site"

    def parse(self, response: Response, **_kwargs: object) -> Iterator[Request]:
        """Yield a request for each link."""
        if isinstance(response, TextResponse):
            yield from response.follow_all(css="a")


def main() -> None:
    """Crawl; with `CRAWLS=N`, by N crawlers in this process, each with a directory of its own below `JOBDIR`."""
    url, *given = sys.argv[1:]
    stats = _alone(*given) if url == ALONE else _crawl(url, given)
    rss_bytes_max = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES
    print(json.dumps({**stats, "rss_bytes_max": rss_bytes_max}, default=str))


def _crawl(url: str, given: Sequence[str]) -> dict[str, Any]:
    settings = SETTINGS | dict(setting.split("=", 1) for setting in given)
    crawls = int(settings.pop("CRAWLS", 1))
    process = CrawlerProcess(settings)
    spiders = [SiteSpider]
    if crawls > 1:
        spiders = [_in(settings["JOBDIR"], number) for number in range(crawls)]
    crawlers = [process.create_crawler(spider) for spider in spiders]
    for crawler in crawlers:
        process.crawl(crawler, start_urls=[url])
    process.start()
    return dict(crawlers[0].stats.get_stats() if crawlers[0].stats else {})


def _alone(which: str, count: str) -> dict[str, Any]:
    fingerprinter, requests, request = Counter(), int(count), Request("http://example.com/")
    filter_ = FILTERS[which](fingerprinter=fingerprinter)
    filter_.open()
    took = -process_time()
    for _ in range(2):
        fingerprinter.number = 0
        for _ in range(requests):
            filter_.request_seen(request)
    took += process_time()
    return {"us": took / 2 / requests * 1e6}


def _in(directory: str, number: int) -> type[SiteSpider]:
    """Return a spider with a job directory of its own."""
    return type(
        "OwnSpider", (SiteSpider,), {"custom_settings": {"JOBDIR": f"{directory}/{number}"}}
    )


if __name__ == "__main__":
    main()
