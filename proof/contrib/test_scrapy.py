"""The duplicate filter of Scrapy: its log and its stats, and what is rare after a kill."""

from pathlib import Path
from typing import Any, cast

import pytest
from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter

import streamdedup
from streamdedup.contrib.scrapy import REPORT_EVERY, DupeFilter
from streamdedup.errors import ConfigError
from tests.contrib.test_scrapy import (
    FIRST,
    crawler_of,
    killed,
    leave_queues,
    opened,
    stats_of,
    stopped,
    warnings_in,
)


class TestLog:
    """The stats and the log of a crawl."""

    def test_the_stats_say_how_many_errors_are_expected(self) -> None:
        """At the end: keys, bytes, and the sum of the errors over the new requests of this crawl."""
        crawler = crawler_of(
            STREAMDEDUP_KIND="bloom",
            STREAMDEDUP_CAPACITY=1000,
            STREAMDEDUP_ERROR_RATE=0.01,
            STREAMDEDUP_ON_FULL="warn",
        )
        dupefilter = DupeFilter.from_crawler(crawler)
        dupefilter.open()
        assert stats_of(crawler)["dupefilter/streamdedup/seen"] == 0
        for number in range(1000):
            dupefilter.request_seen(Request(f"http://example.com/{number}"))
        dupefilter.close("finished")
        stats = stats_of(crawler)
        assert 980 <= stats["dupefilter/streamdedup/seen"] <= 1000
        assert stats["dupefilter/streamdedup/size_bytes"] == pytest.approx(1200, rel=0.1)
        # The error grows from 0 to 1 % as the filter fills up, so the sum is far below 10.
        assert 0.5 < stats["dupefilter/streamdedup/filtered_wrongly_expected"] < 3

    def test_the_stats_are_renewed_while_it_runs(self) -> None:
        """A crawl that goes on for weeks shows how full it is."""
        crawler = crawler_of(STREAMDEDUP_CAPACITY=2 * REPORT_EVERY, STREAMDEDUP_ON_FULL="warn")
        dupefilter = DupeFilter.from_crawler(crawler)
        dupefilter.open()
        for number in range(REPORT_EVERY):
            dupefilter.request_seen(Request(f"http://example.com/{number}"))
        assert stats_of(crawler)["dupefilter/streamdedup/seen"] == REPORT_EVERY

    def test_a_full_filter_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        """With the setting to raise; it goes on."""
        dupefilter = opened(STREAMDEDUP_CAPACITY=10, STREAMDEDUP_ON_FULL="warn")
        for number in range(30):
            dupefilter.request_seen(Request(f"http://example.com/{number}"))
        dupefilter.close("finished")
        (record,) = warnings_in(caplog)
        assert "holds more than 10" in record.getMessage()
        assert "set STREAMDEDUP_CAPACITY higher" in record.getMessage()


class TestJobDirectory:
    """What was seen is found again in `JOBDIR`."""

    def test_the_files_are_those_of_the_library(self, tmp_path: Path) -> None:
        """`streamdedup.open` reads them; the fingerprints are the keys."""
        stopped(tmp_path, FIRST)
        fingerprint = RFPDupeFilter().request_fingerprint(FIRST)
        with streamdedup.open(tmp_path / "streamdedup") as seen:
            assert fingerprint in seen

    def test_a_new_max_size_is_taken(self, tmp_path: Path) -> None:
        """A crawl whose filter is full goes on with more memory."""
        stopped(tmp_path, FIRST, STREAMDEDUP_CAPACITY=1000, STREAMDEDUP_MAX_SIZE="20KiB")
        crawler = crawler_of(
            JOBDIR=str(tmp_path), STREAMDEDUP_CAPACITY=1000, STREAMDEDUP_MAX_SIZE="200KiB"
        )
        dupefilter = DupeFilter.from_crawler(crawler)
        dupefilter.open()
        assert dupefilter.request_seen(FIRST)
        assert 100_000 < cast("Any", dupefilter._filter).size_bytes_max <= 200 * 1024
        dupefilter.close("finished")


class TestAfterAKill:
    """What a killed crawl left."""

    def test_a_queue_that_cannot_be_moved_is_named(self, tmp_path: Path) -> None:
        """And `JOBDIR` is free again."""
        leave_queues(tmp_path, written=False)
        killed(tmp_path, FIRST)
        (tmp_path / "requests.queue" / "0").write_bytes(b"left")
        (tmp_path / "requests.queue.lost").write_bytes(b"no folder")
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"cannot move .*requests\.queue, .*; remove it"):
                opened(JOBDIR=str(tmp_path))

    def test_a_start_that_is_refused_leaves_the_crawl_killed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Scrapy then writes that nothing is queued; if the next start believed that, it would end at once."""
        leave_queues(tmp_path, written=False)
        killed(tmp_path, FIRST)
        refused = DupeFilter.from_crawler(
            crawler_of(JOBDIR=str(tmp_path), STREAMDEDUP_ERROR_RATE=2)
        )
        with pytest.raises(ConfigError):
            refused.open()
        leave_queues(tmp_path, written=True)
        refused.close("shutdown")
        caplog.clear()
        dupefilter = opened(JOBDIR=str(tmp_path))
        assert not dupefilter.request_seen(FIRST)
        dupefilter.close("finished")
        (record,) = warnings_in(caplog)
        assert "was killed" in record.getMessage()

    def test_a_scheduler_without_such_queues_decides_itself(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without `requests.queue`, what was seen is kept."""
        killed(tmp_path, FIRST)
        dupefilter = opened(JOBDIR=str(tmp_path))
        assert dupefilter.request_seen(FIRST)
        dupefilter.close("finished")
        assert not warnings_in(caplog)

    def test_a_damaged_filter_may_be_forgotten(self, tmp_path: Path) -> None:
        """It is not even read."""
        leave_queues(tmp_path, written=False)
        killed(tmp_path, FIRST)
        (tmp_path / "streamdedup" / "00000001.filter").write_bytes(b"damaged")
        dupefilter = opened(JOBDIR=str(tmp_path))
        assert not dupefilter.request_seen(FIRST)
        dupefilter.close("finished")
