"""`python -m bench.crawl.spider URL [NAME=VALUE ...]`: crawl a site under these settings; print the stats as JSON.

The stats are Scrapy's, and `rss_bytes_max`: the most memory that the process took.
"""

import json
import resource
import sys
from collections.abc import Iterator
from typing import Any

from scrapy import Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import Request, Response, TextResponse

RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
SETTINGS: dict[str, Any] = {
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "LOG_LEVEL": "WARNING",
    "REMOTE_CONTROL_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
}


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
    stats = dict(crawlers[0].stats.get_stats() if crawlers[0].stats else {})
    stats["rss_bytes_max"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES
    print(json.dumps(stats, default=str))


def _in(directory: str, number: int) -> type[SiteSpider]:
    """Return a spider with a job directory of its own."""
    return type(
        "OwnSpider", (SiteSpider,), {"custom_settings": {"JOBDIR": f"{directory}/{number}"}}
    )


if __name__ == "__main__":
    main()
