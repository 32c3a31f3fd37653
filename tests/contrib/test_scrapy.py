"""The duplicate filter of Scrapy: what its own is tested for, settings, job directory, kills, several crawlers."""

import json
import logging
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.test import get_crawler

from streamdedup.contrib.scrapy import KINDS, DupeFilter, Options
from streamdedup.errors import ConfigError
from tests.rows import every

CLASS = "streamdedup.contrib.scrapy.DupeFilter"
FIRST, SECOND = Request("http://example.com/1"), Request("http://example.com/2")


class ByHost:
    """A fingerprinter for which all pages of a host are one."""

    def fingerprint(self, request: Request) -> bytes:
        """Return the host."""
        return request.url.split("/")[2].encode()


def crawler_of(**settings: Any) -> Crawler:
    """Return a crawler with our filter."""
    return get_crawler(Spider, {"DUPEFILTER_CLASS": CLASS, **settings})


def opened(**settings: Any) -> DupeFilter:
    """Return a filter that is open."""
    dupefilter = DupeFilter.from_crawler(crawler_of(**settings))
    dupefilter.open()
    return dupefilter


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the warnings."""
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


def stopped(job: Path, *requests: Request, **settings: Any) -> None:
    """See the requests, and stop cleanly."""
    dupefilter = opened(JOBDIR=str(job), **settings)
    for request in requests:
        dupefilter.request_seen(request)
    dupefilter.close("finished")


def killed(job: Path, *requests: Request, **settings: Any) -> None:
    """See the requests, and leave what a kill leaves after a beat of the log."""
    dupefilter = opened(JOBDIR=str(job), **settings)
    for request in requests:
        dupefilter.request_seen(request)
    assert dupefilter._kept is not None
    dupefilter._kept.close()


def leave_queues(job: Path, *, written: bool) -> None:
    """Leave what Scrapy's scheduler leaves: its folder at the start, `active.json` at a clean stop."""
    queue = job / "requests.queue"
    queue.mkdir(parents=True, exist_ok=True)
    if written:
        (queue / "active.json").write_text(json.dumps({"slot": [0]}))


def stats_of(crawler: Crawler) -> dict[str, Any]:
    """Return what the crawler has counted."""
    assert crawler.stats is not None
    return crawler.stats.get_stats()


class TestFiltering:
    """It answers as Scrapy's own does, and keeps no set."""

    @pytest.mark.parametrize("is_open", [False, True])
    def test_it_says_that_it_lists_no_fingerprints(self, is_open: bool) -> None:
        """Scrapy's own has them; the message names what to ask instead, not an attribute of ours."""
        dupefilter = opened() if is_open else DupeFilter()
        with pytest.raises(AttributeError, match=r"keeps no fingerprints, .* ask request_seen"):
            _ = dupefilter.fingerprints
        assert not hasattr(dupefilter, "fingerprints")

    def test_it_is_asked_once_it_is_open(self) -> None:
        """Before, the message says what to call, and names no attribute of ours; nothing is remembered."""
        dupefilter = DupeFilter()
        with pytest.raises(RuntimeError, match=r"not open, .* call open\(\) before request_seen"):
            dupefilter.request_seen(FIRST)
        dupefilter.open()
        assert not dupefilter.request_seen(FIRST)

    def test_a_request_is_new_once(self) -> None:
        """In every kind, fixed and growing: equal requests are seen, others are not."""

        def check(row: tuple[str, str]) -> None:
            kind, on_full = row
            settings = {"STREAMDEDUP_KIND": kind, "STREAMDEDUP_ON_FULL": on_full}
            dupefilter = opened(STREAMDEDUP_CAPACITY=64, STREAMDEDUP_ERROR_RATE="1e-4", **settings)
            assert isinstance(dupefilter, RFPDupeFilter)
            requests = [Request(f"http://example.com/{number}") for number in range(60)]
            assert not any(map(dupefilter.request_seen, requests))
            assert all(map(dupefilter.request_seen, requests))
            dupefilter.close("finished")

        every(product(KINDS, ["grow", "warn"]), check)

    def test_it_compares_as_scrapy_does(self) -> None:
        """By the canonical URL, the method and the body."""
        dupefilter = opened()
        assert not dupefilter.request_seen(Request("http://example.com/?a=1&b=2"))
        assert dupefilter.request_seen(Request("http://example.com/?b=2&a=1#top"))
        assert not dupefilter.request_seen(Request("http://example.com/?a=1&b=2", method="POST"))
        assert not dupefilter.request_seen(Request("http://example.com/?a=1&b=2", body=b"x"))

    def test_the_fingerprinter_of_the_settings_is_asked(self) -> None:
        """`REQUEST_FINGERPRINTER_CLASS` decides what is equal."""
        dupefilter = opened(REQUEST_FINGERPRINTER_CLASS=ByHost)
        assert not dupefilter.request_seen(FIRST)
        assert dupefilter.request_seen(SECOND)
        assert not dupefilter.request_seen(Request("http://example.org/1"))

    def test_scrapys_scheduler_makes_it(self) -> None:
        """By `DUPEFILTER_CLASS`, with `DUPEFILTER_DEBUG`."""
        scheduler = Scheduler.from_crawler(crawler_of(DUPEFILTER_DEBUG=True))
        assert isinstance(scheduler.df, DupeFilter)
        assert scheduler.df.debug


class TestLog:
    """The log names the first filtered request, or with `DUPEFILTER_DEBUG` each of them; the stats count them."""

    @pytest.mark.parametrize(("debug", "lines"), [(False, 1), (True, 3)])
    def test_duplicates_are_logged_and_counted(
        self, caplog: pytest.LogCaptureFixture, debug: bool, lines: int
    ) -> None:
        """As by Scrapy's own."""
        caplog.set_level(logging.DEBUG)
        crawler = crawler_of(DUPEFILTER_DEBUG=debug)
        spider = Spider.from_crawler(crawler, name="test")
        dupefilter = DupeFilter.from_crawler(crawler)
        dupefilter.open()
        for _ in range(3):
            dupefilter.log(FIRST, spider)
        texts = [record.getMessage() for record in caplog.records]
        assert len([text for text in texts if "Filtered duplicate request" in text]) == lines
        assert stats_of(crawler)["dupefilter/filtered"] == 3


class TestSettings:
    """Settings are Scrapy's, under one prefix; each is checked at the start."""

    def test_values_may_be_text(self) -> None:
        """As from `scrapy crawl -s`."""
        crawler = crawler_of(
            STREAMDEDUP_KIND="bloom",
            STREAMDEDUP_ERROR_RATE="0.001",
            STREAMDEDUP_CAPACITY="2M",
            STREAMDEDUP_MAX_SIZE="1GiB",
        )
        filter_ = Options.of(crawler.settings).empty()
        assert filter_.header()["stages"][0]["kind"] == "bloom"
        assert (filter_.header()["capacity"], filter_.error_rate) == (2_000_000, 0.001)
        assert filter_.header()["size_bytes_max"] <= 1 << 30

    def test_the_default_is_a_growing_cuckoo_filter(self) -> None:
        """At 1e-9, each under a secret of its own."""
        one, other = Options().empty(), Options().empty()
        assert one.header()["stages"][0]["kind"] == "cuckoo"
        assert (one.error_rate, one.hash.name, one.hash.drawn) == (1e-9, "siphash", True)
        assert one.hash.key != other.hash.key

    def test_a_wrong_one_is_refused(self) -> None:
        """By its name, before the crawl begins."""

        def check(row: tuple[dict[str, Any], str]) -> None:
            settings, message = row
            named = {f"STREAMDEDUP_{name}": value for name, value in settings.items()}
            with pytest.raises(ConfigError) as error:
                opened(**named)
            assert message in str(error.value)

        wrong: list[tuple[dict[str, Any], str]] = [
            ({"KIND": "window"}, "STREAMDEDUP_KIND is 'window'; choose one of: blocked, bloom"),
            ({"KIND": "blocked"}, "STREAMDEDUP_KIND blocked: its lowest error rate is 1e-09"),
            ({"ON_FULL": "stop"}, "STREAMDEDUP_ON_FULL is 'stop'; choose one of: grow, warn"),
            (
                {"AFTER_CRASH": "hope"},
                "STREAMDEDUP_AFTER_CRASH is 'hope'; choose one of: forget, keep",
            ),
            ({"ERROR_RATE": "low"}, "STREAMDEDUP_ERROR_RATE is 'low'; it must be a number"),
            ({"ERROR_RATE": 2}, "STREAMDEDUP_ERROR_RATE is 2.0; it must be a number above 0"),
            ({"CAPACITY": "many"}, "STREAMDEDUP_CAPACITY 'many'"),
            ({"CAPACITY": 0}, "STREAMDEDUP_CAPACITY is 0"),
            ({"MAX_SIZE": "1KiB"}, "STREAMDEDUP_MAX_SIZE"),
            ({"MAX_SIZE": "1GiB", "ON_FULL": "warn"}, "STREAMDEDUP_MAX_SIZE"),
            (
                {"CAPACTIY": 10},
                "STREAMDEDUP_CAPACTIY is unknown; did you mean STREAMDEDUP_CAPACITY?",
            ),
        ]
        every(wrong, check)


class TestJobDirectory:
    """What was seen is found again in `JOBDIR`."""

    def test_a_clean_stop_is_resumed(self, tmp_path: Path) -> None:
        """By a filter that was made without a crawler, too."""
        first = DupeFilter(str(tmp_path))
        first.open()
        assert not first.request_seen(FIRST)
        first.close("finished")
        second = DupeFilter(str(tmp_path))
        second.open()
        assert second.request_seen(FIRST)
        assert not second.request_seen(SECOND)
        second.close("finished")

    @pytest.mark.parametrize(
        ("name", "value"),
        [("KIND", "bloom"), ("CAPACITY", 10), ("ERROR_RATE", 0.1), ("ON_FULL", "warn")],
    )
    def test_other_settings_are_refused(self, tmp_path: Path, name: str, value: object) -> None:
        """They would have no effect on the filter that is there."""
        stopped(tmp_path, FIRST)
        dupefilter = DupeFilter.from_crawler(
            crawler_of(JOBDIR=str(tmp_path), **{f"STREAMDEDUP_{name}": value})
        )
        with pytest.raises(
            ConfigError, match=f"STREAMDEDUP_{name} is {value}, but .*; set it back"
        ):
            dupefilter.open()
        dupefilter.close("shutdown")
        stopped(tmp_path)

    def test_one_crawl_at_a_time(self, tmp_path: Path) -> None:
        """A second one is refused before Scrapy's scheduler opens the queues of the first."""
        first = opened(JOBDIR=str(tmp_path))
        with pytest.raises(ConfigError, match="is in use by another crawl"):
            Scheduler.from_crawler(crawler_of(JOBDIR=str(tmp_path)))
        assert not (tmp_path / "requests.queue").exists()
        first.close("finished")
        stopped(tmp_path)

    def test_a_smaller_size_holds_for_what_comes_after(self, tmp_path: Path) -> None:
        """What a crawl had seen within a greater one is replayed within that one."""
        settings = {"STREAMDEDUP_KIND": "bloom", "STREAMDEDUP_CAPACITY": 100}
        seen = [Request(f"http://example.com/{number}") for number in range(2000)]
        stopped(tmp_path, *seen, **settings, STREAMDEDUP_MAX_SIZE="1MiB")
        dupefilter = opened(JOBDIR=str(tmp_path), **settings, STREAMDEDUP_MAX_SIZE="2KiB")
        assert all(map(dupefilter.request_seen, seen))
        assert not dupefilter.request_seen(Request("http://example.com/new"))
        dupefilter.close("finished")


class TestAfterAKill:
    """Scrapy writes its queues at a clean stop only, so after a kill the setting decides what is known."""

    @pytest.mark.parametrize(("after_crash", "known"), [("forget", False), ("keep", True)])
    @pytest.mark.parametrize("stopped_before", [False, True])
    def test_the_setting_decides_what_counts(
        self,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        after_crash: str,
        known: bool,
        stopped_before: bool,
    ) -> None:
        """After a kill in the first crawl, and in one that had gone on from a clean stop."""
        leave_queues(tmp_path, written=False)
        if stopped_before:
            stopped(tmp_path, SECOND)
            leave_queues(tmp_path, written=True)
        killed(tmp_path, FIRST)
        caplog.clear()
        dupefilter = opened(JOBDIR=str(tmp_path), STREAMDEDUP_AFTER_CRASH=after_crash)
        assert dupefilter.request_seen(FIRST) == known
        assert dupefilter.request_seen(SECOND) == (known and stopped_before)
        dupefilter.close("finished")
        (record,) = warnings_in(caplog)
        assert "was killed" in record.getMessage()

    def test_what_is_left_of_the_queue_is_moved_before_scrapy_opens_it(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Otherwise Scrapy would wait for ever for what a killed crawl had taken out. The warning says where it is."""
        leave_queues(tmp_path, written=False)
        stopped(tmp_path, SECOND)
        leave_queues(tmp_path, written=True)
        (tmp_path / "requests.queue" / "0").write_bytes(b"left")
        killed(tmp_path, FIRST)
        scheduler = Scheduler.from_crawler(crawler_of(JOBDIR=str(tmp_path)))
        assert list((tmp_path / "requests.queue").iterdir()) == []
        moved = tmp_path / "requests.queue.lost"
        assert (moved / "0").read_bytes() == b"left"
        caplog.clear()
        scheduler.df.open()
        scheduler.df.close("finished")
        (record,) = warnings_in(caplog)
        assert f"moved to {moved}." in record.getMessage()

    def test_nothing_is_forgotten_if_the_queues_were_written(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A stop, and a kill between the end of the queues and ours."""
        leave_queues(tmp_path, written=False)
        killed(tmp_path, FIRST)
        leave_queues(tmp_path, written=True)
        dupefilter = opened(JOBDIR=str(tmp_path))
        assert dupefilter.request_seen(FIRST)
        dupefilter.close("finished")
        assert not warnings_in(caplog)
