"""`python -m bench.crawl.alone scrapy|ours REQUESTS`: one duplicate filter alone, without a crawl or a `JOBDIR`.

It gets so many new fingerprints, then the same again. Prints the microseconds of processor time of a request, without
those of its fingerprint, and the most memory of the process in MB.
"""

import resource
import sys
from time import process_time

from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter

from bench.crawl.spider import RSS_UNIT_BYTES
from streamdedup.contrib.scrapy import DupeFilter

SIZES = (20_000, 1_000_000, 5_000_000)


class Counter:
    """A fingerprinter that costs next to nothing: the number of the request, spread over 20 bytes."""

    def __init__(self) -> None:
        self.number = 0

    def fingerprint(self, _request: Request) -> bytes:
        """Return the next fingerprint."""
        self.number += 1
        return (self.number * 0x9E3779B97F4A7C15F39CC0605CEDC835).to_bytes(24, "big")[:20]


def main() -> None:
    """Print the two figures."""
    which, requests = sys.argv[1], int(sys.argv[2])
    fingerprinter = Counter()
    filter_ = {"scrapy": RFPDupeFilter, "ours": DupeFilter}[which](fingerprinter=fingerprinter)
    filter_.open()
    request = Request("http://example.com/")
    took = -process_time()
    for _ in range(2):
        fingerprinter.number = 0
        for _ in range(requests):
            filter_.request_seen(request)
    took += process_time()
    rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES
    print(f"{took / 2 / requests * 1e6:.2f} {rss_bytes / 1e6:.0f}")


if __name__ == "__main__":
    main()
