"""The duplicate filter of Scrapy: what its own is tested for, settings, job directory, kills, several crawlers."""

import json
import logging
from pathlib import Path
from typing import Any, cast

import pytest
from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.test import get_crawler

from streamdedup import load
from streamdedup.contrib.scrapy import KINDS, REPORT_EVERY, DupeFilter, Options
from streamdedup.errors import ConfigError, SnapshotError

CLASS = "streamdedup.contrib.scrapy.DupeFilter"
FIRST, SECOND = Request("http://example.com/1"), Request("http://example.com/2")


class ByHost:
    """A fingerprinter for which all pages of a host are one."""

    def fingerprint(self, request: Request) -> bytes:
        """Return the host."""
        return request.url.split("/")[2].encode()


def _crawler(**settings: Any) -> Crawler:
    return get_crawler(Spider, {"DUPEFILTER_CLASS": CLASS, **settings})


def _opened(**settings: Any) -> DupeFilter:
    dupefilter = DupeFilter.from_crawler(_crawler(**settings))
    dupefilter.open()
    return dupefilter


def _warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


def _stopped(job: Path, *requests: Request, **settings: Any) -> None:
    """See the requests, and stop cleanly."""
    dupefilter = _opened(JOBDIR=str(job), **settings)
    for request in requests:
        dupefilter.request_seen(request)
    dupefilter.close("finished")


def _killed(job: Path, *requests: Request, **settings: Any) -> None:
    """See the requests, and leave what a kill leaves after a beat of the log."""
    dupefilter = _opened(JOBDIR=str(job), **settings)
    for request in requests:
        dupefilter.request_seen(request)
    assert dupefilter._seen is not None
    dupefilter._seen.close()


def _queues(job: Path, *, written: bool) -> None:
    """Leave what Scrapy's scheduler leaves: its folder at the start, `active.json` at a clean stop."""
    queue = job / "requests.queue"
    queue.mkdir(parents=True, exist_ok=True)
    if written:
        (queue / "active.json").write_text(json.dumps({"slot": [0]}))


def _stats(crawler: Crawler) -> dict[str, Any]:
    assert crawler.stats is not None
    return crawler.stats.get_stats()


class TestFiltering:
    """It answers as Scrapy's own does, and keeps no set."""

    @pytest.mark.parametrize("opened", [False, True])
    def test_it_says_that_it_lists_no_fingerprints(self, opened: bool) -> None:
        """Scrapy's own has them; the message names what to ask instead, not an attribute of ours."""
        dupefilter = _opened() if opened else DupeFilter()
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

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("on_full", ["grow", "warn"])
    def test_a_request_is_new_once(self, kind: str, on_full: str) -> None:
        """In every kind, fixed and growing: equal requests are seen, others are not."""
        settings = {"STREAMDEDUP_KIND": kind, "STREAMDEDUP_ON_FULL": on_full}
        dupefilter = _opened(STREAMDEDUP_CAPACITY=64, STREAMDEDUP_ERROR_RATE="1e-4", **settings)
        assert isinstance(dupefilter, RFPDupeFilter)
        requests = [Request(f"http://example.com/{number}") for number in range(60)]
        assert not any(map(dupefilter.request_seen, requests))
        assert all(map(dupefilter.request_seen, requests))
        dupefilter.close("finished")

    def test_it_compares_as_scrapy_does(self) -> None:
        """By the canonical URL, the method and the body."""
        dupefilter = _opened()
        assert not dupefilter.request_seen(Request("http://example.com/?a=1&b=2"))
        assert dupefilter.request_seen(Request("http://example.com/?b=2&a=1#top"))
        assert not dupefilter.request_seen(Request("http://example.com/?a=1&b=2", method="POST"))
        assert not dupefilter.request_seen(Request("http://example.com/?a=1&b=2", body=b"x"))

    def test_the_fingerprinter_of_the_settings_is_asked(self) -> None:
        """`REQUEST_FINGERPRINTER_CLASS` decides what is equal."""
        dupefilter = _opened(REQUEST_FINGERPRINTER_CLASS=ByHost)
        assert not dupefilter.request_seen(FIRST)
        assert dupefilter.request_seen(SECOND)
        assert not dupefilter.request_seen(Request("http://example.org/1"))

    def test_it_has_no_set(self) -> None:
        """If code asks for Scrapy's set, it gets an error, and no empty set."""
        dupefilter = _opened()
        dupefilter.request_seen(FIRST)
        assert not hasattr(dupefilter, "_fingerprints")

    def test_scrapys_scheduler_makes_it(self) -> None:
        """By `DUPEFILTER_CLASS`, with `DUPEFILTER_DEBUG`."""
        scheduler = Scheduler.from_crawler(_crawler(DUPEFILTER_DEBUG=True))
        assert isinstance(scheduler.df, DupeFilter)
        assert scheduler.df.debug

    def test_it_is_made_without_a_crawler(self) -> None:
        """As Scrapy's own, by its defaults."""
        dupefilter = DupeFilter()
        dupefilter.open()
        assert not dupefilter.request_seen(FIRST)
        assert dupefilter.request_seen(FIRST)


class TestLog:
    """The log names the first filtered request, or with `DUPEFILTER_DEBUG` each of them; the stats count them."""

    @pytest.mark.parametrize(("debug", "lines"), [(False, 1), (True, 3)])
    def test_duplicates_are_logged_and_counted(
        self, caplog: pytest.LogCaptureFixture, debug: bool, lines: int
    ) -> None:
        """As by Scrapy's own."""
        caplog.set_level(logging.DEBUG)
        crawler = _crawler(DUPEFILTER_DEBUG=debug)
        spider = Spider.from_crawler(crawler, name="test")
        dupefilter = DupeFilter.from_crawler(crawler)
        dupefilter.open()
        for _ in range(3):
            dupefilter.log(FIRST, spider)
        texts = [record.getMessage() for record in caplog.records]
        assert len([text for text in texts if "Filtered duplicate request" in text]) == lines
        assert _stats(crawler)["dupefilter/filtered"] == 3

    def test_the_stats_say_how_many_errors_are_expected(self) -> None:
        """At the end: keys, bytes, and the sum of the errors over the new requests of this crawl."""
        crawler = _crawler(
            STREAMDEDUP_KIND="bloom",
            STREAMDEDUP_CAPACITY=1000,
            STREAMDEDUP_ERROR_RATE=0.01,
            STREAMDEDUP_ON_FULL="warn",
        )
        dupefilter = DupeFilter.from_crawler(crawler)
        dupefilter.open()
        assert _stats(crawler)["dupefilter/streamdedup/seen"] == 0
        for number in range(1000):
            dupefilter.request_seen(Request(f"http://example.com/{number}"))
        dupefilter.close("finished")
        stats = _stats(crawler)
        assert 980 <= stats["dupefilter/streamdedup/seen"] <= 1000
        assert stats["dupefilter/streamdedup/size_bytes"] == pytest.approx(1200, rel=0.1)
        # The error grows from 0 to 1 % as the filter fills up, so the sum is far below 10.
        assert 0.5 < stats["dupefilter/streamdedup/filtered_wrongly_expected"] < 3

    def test_the_stats_are_renewed_while_it_runs(self) -> None:
        """A crawl that goes on for weeks shows how full it is."""
        crawler = _crawler(STREAMDEDUP_CAPACITY=2 * REPORT_EVERY, STREAMDEDUP_ON_FULL="warn")
        dupefilter = DupeFilter.from_crawler(crawler)
        dupefilter.open()
        for number in range(REPORT_EVERY):
            dupefilter.request_seen(Request(f"http://example.com/{number}"))
        assert _stats(crawler)["dupefilter/streamdedup/seen"] == REPORT_EVERY

    def test_a_full_filter_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        """With the setting to raise; it goes on."""
        dupefilter = _opened(STREAMDEDUP_CAPACITY=10, STREAMDEDUP_ON_FULL="warn")
        for number in range(30):
            dupefilter.request_seen(Request(f"http://example.com/{number}"))
        dupefilter.close("finished")
        (record,) = _warnings(caplog)
        assert "holds more than 10" in record.getMessage()
        assert "set STREAMDEDUP_CAPACITY higher" in record.getMessage()


class TestSettings:
    """Settings are Scrapy's, under one prefix; each is checked at the start."""

    def test_values_may_be_text(self) -> None:
        """As from `scrapy crawl -s`."""
        crawler = _crawler(
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

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"KIND": "window"}, "STREAMDEDUP_KIND is 'window'; choose one of: blocked, bloom"),
            ({"KIND": "blocked"}, "STREAMDEDUP_ERROR_RATE"),
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
        ],
    )
    def test_a_wrong_one_is_refused(self, settings: dict[str, Any], message: str) -> None:
        """By its name, before the crawl begins."""
        named = {f"STREAMDEDUP_{name}": value for name, value in settings.items()}
        with pytest.raises(ConfigError) as error:
            _opened(**named)
        assert message in str(error.value)


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

    def test_the_file_is_one_of_the_library(self, tmp_path: Path) -> None:
        """`streamdedup.load` reads it; the fingerprints are its keys."""
        _stopped(tmp_path, FIRST)
        fingerprint = RFPDupeFilter().request_fingerprint(FIRST)
        assert fingerprint in load(tmp_path / "streamdedup" / "seen.filter")

    def test_a_new_max_size_is_taken(self, tmp_path: Path) -> None:
        """A crawl whose filter is full goes on with more memory."""
        _stopped(tmp_path, FIRST, STREAMDEDUP_CAPACITY=1000, STREAMDEDUP_MAX_SIZE="20KiB")
        crawler = _crawler(
            JOBDIR=str(tmp_path), STREAMDEDUP_CAPACITY=1000, STREAMDEDUP_MAX_SIZE="200KiB"
        )
        dupefilter = DupeFilter.from_crawler(crawler)
        dupefilter.open()
        assert dupefilter.request_seen(FIRST)
        assert 100_000 < cast("Any", dupefilter._filter).size_bytes_max <= 200 * 1024
        dupefilter.close("finished")

    @pytest.mark.parametrize(
        ("name", "value"),
        [("KIND", "bloom"), ("CAPACITY", 10), ("ERROR_RATE", 0.1), ("ON_FULL", "warn")],
    )
    def test_other_settings_are_refused(self, tmp_path: Path, name: str, value: object) -> None:
        """They would have no effect on the filter that is there."""
        _stopped(tmp_path, FIRST)
        dupefilter = DupeFilter.from_crawler(
            _crawler(JOBDIR=str(tmp_path), **{f"STREAMDEDUP_{name}": value})
        )
        with pytest.raises(
            ConfigError, match=f"STREAMDEDUP_{name} is {value}, but .*; set it back"
        ):
            dupefilter.open()
        dupefilter.close("shutdown")
        _stopped(tmp_path)

    def test_a_truncated_filter_is_refused(self, tmp_path: Path) -> None:
        """It is not taken for a new crawl, and the lock is let go."""
        _stopped(tmp_path, FIRST)
        path = tmp_path / "streamdedup" / "seen.filter"
        path.write_bytes(path.read_bytes()[:-1])
        dupefilter = DupeFilter(str(tmp_path))
        with pytest.raises(SnapshotError, match="its length is not"):
            dupefilter.open()
        dupefilter.close("shutdown")
        path.unlink()
        _stopped(tmp_path)

    def test_a_truncated_log_is_used_up_to_the_cut(self, tmp_path: Path) -> None:
        """As after a loss of power: what is whole counts."""
        _killed(tmp_path, FIRST)
        with (tmp_path / "streamdedup" / "seen.log").open("ab") as log:
            log.write(b"\1\0\0\0torn")
        dupefilter = DupeFilter(str(tmp_path))
        dupefilter.open()
        assert dupefilter.request_seen(FIRST)
        dupefilter.close("finished")

    def test_one_crawl_at_a_time(self, tmp_path: Path) -> None:
        """A second one is refused before Scrapy's scheduler opens the queues of the first."""
        first = _opened(JOBDIR=str(tmp_path))
        with pytest.raises(ConfigError, match="is in use by another crawl"):
            Scheduler.from_crawler(_crawler(JOBDIR=str(tmp_path)))
        assert not (tmp_path / "requests.queue").exists()
        first.close("finished")
        _stopped(tmp_path)

    def test_several_crawlers_share_nothing(self, tmp_path: Path) -> None:
        """In one process, each has its own filter, stats and directory."""
        crawlers = [_crawler(JOBDIR=str(tmp_path / name)) for name in ("a", "b")]
        one, other = map(DupeFilter.from_crawler, crawlers)
        one.open()
        other.open()
        assert not one.request_seen(FIRST)
        assert not other.request_seen(FIRST)
        assert not one.request_seen(SECOND)
        one.close("finished")
        other.close("finished")
        seen = [_stats(crawler)["dupefilter/streamdedup/seen"] for crawler in crawlers]
        assert seen == [2, 1]


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
        _queues(tmp_path, written=False)
        if stopped_before:
            _stopped(tmp_path, SECOND)
            _queues(tmp_path, written=True)
        _killed(tmp_path, FIRST)
        caplog.clear()
        dupefilter = _opened(JOBDIR=str(tmp_path), STREAMDEDUP_AFTER_CRASH=after_crash)
        assert dupefilter.request_seen(FIRST) == known
        assert dupefilter.request_seen(SECOND) == (known and stopped_before)
        dupefilter.close("finished")
        (record,) = _warnings(caplog)
        assert "was killed" in record.getMessage()

    def test_what_is_left_of_the_queue_is_moved_before_scrapy_opens_it(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Otherwise Scrapy would wait for ever for what a killed crawl had taken out. The warning says where it is."""
        _queues(tmp_path, written=False)
        _stopped(tmp_path, SECOND)
        _queues(tmp_path, written=True)
        (tmp_path / "requests.queue" / "0").write_bytes(b"left")
        _killed(tmp_path, FIRST)
        scheduler = Scheduler.from_crawler(_crawler(JOBDIR=str(tmp_path)))
        assert list((tmp_path / "requests.queue").iterdir()) == []
        moved = tmp_path / "requests.queue.lost"
        assert (moved / "0").read_bytes() == b"left"
        caplog.clear()
        scheduler.df.open()
        scheduler.df.close("finished")
        (record,) = _warnings(caplog)
        assert f"moved to {moved}." in record.getMessage()

    def test_a_queue_that_cannot_be_moved_is_named(self, tmp_path: Path) -> None:
        """And `JOBDIR` is free again."""
        _queues(tmp_path, written=False)
        _killed(tmp_path, FIRST)
        (tmp_path / "requests.queue" / "0").write_bytes(b"left")
        (tmp_path / "requests.queue.lost").write_bytes(b"no folder")
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"cannot move .*requests\.queue, .*; remove it"):
                _opened(JOBDIR=str(tmp_path))

    def test_a_start_that_is_refused_leaves_the_crawl_killed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Scrapy then writes that nothing is queued; if the next start believed that, it would end at once."""
        _queues(tmp_path, written=False)
        _killed(tmp_path, FIRST)
        refused = DupeFilter.from_crawler(_crawler(JOBDIR=str(tmp_path), STREAMDEDUP_ERROR_RATE=2))
        with pytest.raises(ConfigError):
            refused.open()
        _queues(tmp_path, written=True)
        refused.close("shutdown")
        caplog.clear()
        dupefilter = _opened(JOBDIR=str(tmp_path))
        assert not dupefilter.request_seen(FIRST)
        dupefilter.close("finished")
        (record,) = _warnings(caplog)
        assert "was killed" in record.getMessage()

    def test_nothing_is_forgotten_if_the_queues_were_written(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A stop, and a kill between the end of the queues and ours."""
        _queues(tmp_path, written=False)
        _killed(tmp_path, FIRST)
        _queues(tmp_path, written=True)
        dupefilter = _opened(JOBDIR=str(tmp_path))
        assert dupefilter.request_seen(FIRST)
        dupefilter.close("finished")
        assert not _warnings(caplog)

    def test_a_scheduler_without_such_queues_decides_itself(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without `requests.queue`, what was seen is kept."""
        _killed(tmp_path, FIRST)
        dupefilter = _opened(JOBDIR=str(tmp_path))
        assert dupefilter.request_seen(FIRST)
        dupefilter.close("finished")
        assert not _warnings(caplog)

    def test_a_damaged_filter_may_be_forgotten(self, tmp_path: Path) -> None:
        """It is not even read."""
        _queues(tmp_path, written=False)
        _killed(tmp_path, FIRST)
        (tmp_path / "streamdedup" / "seen.filter").write_bytes(b"damaged")
        dupefilter = _opened(JOBDIR=str(tmp_path))
        assert not dupefilter.request_seen(FIRST)
        dupefilter.close("finished")
