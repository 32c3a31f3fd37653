"""`python -m bench crawl`: a crawl of 20,000 local pages with Scrapy's own duplicate filter, and with ours.

Each filter crawls once to the end, once with a stop and once with a kill on the way; with ours, what follows the kill
is played for both values of STREAMDEDUP_AFTER_CRASH. Then each filter alone takes fingerprints, without a crawl: the
time of a request, and the memory. It prints the machine, the versions and the tables.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.crawl.run import OURS, Crawl, crawl
from bench.crawl.site import Site, serving
from bench.harness import machine_text

PAGES = 20_000
SIZES = (20_000, 1_000_000, 5_000_000)
FILTERS: Mapping[str, Mapping[str, object]] = {"Scrapy's own": {}, "streamdedup": OURS}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench crawl", description=__doc__)
    parser.add_argument("pages", nargs="?", type=int, default=PAGES)
    pages = parser.parse_args().pages
    print(machine_text("scrapy", "twisted", "numba"))
    print(f"\n{'crawl':<34}{'pages':>8}{'fetches':>9}{'filtered':>10}{'seconds':>9}{'MB':>7}")
    with serving(pages) as site, TemporaryDirectory() as directory:
        for name, settings in FILTERS.items():
            _to_the_end(site, name, settings)
            _stopped(site, name, settings, Path(directory, name, "stopped"))
            _killed(site, name, settings, Path(directory, name, "killed"))
    print(f"\n{'filter alone':<34}{'requests':>10}{'us a request':>14}{'MB':>8}", flush=True)
    for requests in SIZES:
        for name in FILTERS:
            which = "ours" if FILTERS[name] else "scrapy"
            command = [sys.executable, "-m", "bench.crawl.spider", "alone", which, str(requests)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            told = json.loads(done.stdout)
            mb = told["rss_bytes_max"] / 1e6
            print(f"{name:<34}{requests:>10,}{told['us']:>14.2f}{mb:>8.0f}", flush=True)


def _to_the_end(site: Site, name: str, settings: Mapping[str, object]) -> None:
    site.fetched.clear()
    _print(site, name, crawl(site, settings))


def _stopped(site: Site, name: str, settings: Mapping[str, object], job: Path) -> None:
    site.fetched.clear()
    settings = {**settings, "JOBDIR": job}
    _print(
        site,
        f"{name}, stopped",
        crawl(site, {**settings, "CLOSESPIDER_PAGECOUNT": site.pages // 2}),
    )
    _print(site, f"{name}, resumed", crawl(site, settings))


def _killed(site: Site, name: str, settings: Mapping[str, object], job: Path) -> None:
    site.fetched.clear()
    third = site.pages // 3
    crawl(site, {**settings, "JOBDIR": job}, kill_when=lambda: site.fetched.total() >= third)
    at_the_kill = site.fetched.copy()
    print(f"{name + ', killed':<34}{len(site.fetched):>8,}{site.fetched.total():>9,}", flush=True)
    for choice in ("keep", "forget") if settings else ("",):
        site.fetched.clear()
        site.fetched.update(at_the_kill)
        again = job.with_name(f"again {choice}")
        shutil.copytree(job, again)
        own = {"STREAMDEDUP_AFTER_CRASH": choice} if choice else {}
        _print(
            site,
            f"{name}, again, {choice}".rstrip(", "),
            crawl(site, {**settings, **own, "JOBDIR": again}),
        )


def _print(site: Site, name: str, played: Crawl) -> None:
    print(
        f"{name:<34}{len(site.fetched):>8,}{site.fetched.total():>9,}{played.stats['dupefilter/filtered']:>10,}"
        f"{played.stats['elapsed_time_seconds']:>9.1f}{played.stats['rss_bytes_max'] / 1e6:>7.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
