"""Real crawls by Scrapy of a local site with traps: each page once, over stops and after kills."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.crawl.run import OURS, crawl
from bench.crawl.site import Site, serving

LOG = "streamdedup/00000001.log"
PAGES = 150
PART = 50  # pages, after which a crawl is stopped or killed
DIGEST_BYTES = 16
DELAY_S = 0.02  # between two requests, so that the log is written before the site is done


@pytest.fixture
def site() -> Iterator[Site]:
    """Return a site that has not been visited."""
    with serving(PAGES) as served:
        yield served


def test_a_crawl_that_stops_and_goes_on_fetches_each_page_once(site: Site, tmp_path: Path) -> None:
    """But for the first page, which the spider asks for at each start, without asking the filter."""
    settings = {**OURS, "JOBDIR": tmp_path}
    stopped = crawl(site, {**settings, "CLOSESPIDER_PAGECOUNT": PART})
    assert stopped.stats["finish_reason"] == "closespider_pagecount"
    assert PART <= len(site.fetched) < PAGES
    resumed = crawl(site, settings)
    assert resumed.stats["finish_reason"] == "finished"
    assert resumed.stats["dupefilter/streamdedup/seen"] == PAGES
    assert resumed.stats["dupefilter/filtered"] > PAGES
    assert resumed.log == ""
    assert set(site.fetched) == set(range(1, PAGES + 1))
    assert {page for page, fetches in site.fetched.items() if fetches > 1} <= {1}


def test_a_killed_crawl_finds_its_pages_again_or_keeps_what_it_saw(
    site: Site, tmp_path: Path
) -> None:
    """`forget`, the default, fetches all pages; `keep` fetches nothing that was queued. Both open, and warn."""
    killed, kept = tmp_path / "killed", tmp_path / "kept"
    log = killed / LOG

    def has_logged() -> bool:
        return len(site.fetched) >= PART and log.stat().st_size > (PART + 10) * DIGEST_BYTES

    crawl(site, {**OURS, "JOBDIR": killed, "DOWNLOAD_DELAY": DELAY_S}, kill_when=has_logged)
    shutil.copytree(killed, kept)
    fetched = len(site.fetched)

    keeping = crawl(site, {**OURS, "JOBDIR": kept, "STREAMDEDUP_AFTER_CRASH": "keep"})
    assert keeping.stats["finish_reason"] == "finished"
    assert keeping.stats["dupefilter/streamdedup/seen"] >= PART
    assert "What it had seen is kept" in keeping.log
    assert len(site.fetched) < PAGES

    forgetting = crawl(site, {**OURS, "JOBDIR": killed})
    assert forgetting.stats["finish_reason"] == "finished"
    assert "What it had seen is forgotten" in forgetting.log
    assert set(site.fetched) == set(range(1, PAGES + 1))
    assert site.fetched.total() > PAGES + fetched


def test_a_crawl_that_is_killed_after_it_had_gone_on_starts_again(
    site: Site, tmp_path: Path
) -> None:
    """Scrapy's queue of the stop does not fit what was taken out since, so it is moved away: all pages are fetched."""
    log = tmp_path / LOG
    settings = {**OURS, "JOBDIR": tmp_path, "DOWNLOAD_DELAY": DELAY_S}
    crawl(site, {**settings, "CLOSESPIDER_PAGECOUNT": PART})
    fetched, size_bytes = len(site.fetched), log.stat().st_size

    def has_gone_on() -> bool:
        return (
            len(site.fetched) >= fetched + 10
            and log.stat().st_size > size_bytes + 10 * DIGEST_BYTES
        )

    crawl(site, settings, kill_when=has_gone_on)
    site.fetched.clear()
    again = crawl(site, {**OURS, "JOBDIR": tmp_path})
    assert again.stats["finish_reason"] == "finished"
    assert "requests.queue.lost" in again.log
    assert set(site.fetched) == set(range(1, PAGES + 1))


def test_two_crawls_in_a_process_share_nothing(site: Site, tmp_path: Path) -> None:
    """Each fetches all pages, and is saved in its own directory."""
    crawl(site, {**OURS, "JOBDIR": tmp_path, "CRAWLS": 2})
    assert set(site.fetched) == set(range(1, PAGES + 1))
    assert {page for page, fetches in site.fetched.items() if fetches != 2} <= {1}
    assert (tmp_path / "0" / "streamdedup" / "00000001.filter").exists()
    assert (tmp_path / "1" / "streamdedup" / "00000001.filter").exists()
