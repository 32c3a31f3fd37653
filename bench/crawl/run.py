"""Crawls in processes of their own, one of which may be killed on its way."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from bench.crawl.site import Site

OURS = {"DUPEFILTER_CLASS": "streamdedup.contrib.scrapy.DupeFilter"}
DEADLINE_S = 3600.0


class Crawl(NamedTuple):
    """What a crawl printed: Scrapy's stats, empty if it was killed, and its log."""

    stats: Mapping[str, Any]
    log: str


def crawl(site: Site, settings: Mapping[str, object], *, kill_after: int = 0) -> Crawl:
    """Crawl the site from its first page; with `kill_after`, kill the process by SIGKILL after so many fetches.

    RuntimeError, with the log, if it ends in another way than it should. TimeoutExpired if it does not.
    """
    given = [f"{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "bench.crawl.spider", site.url, *given]
    before = site.fetched.total()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            if kill_after:
                _wait(site, process, before + kill_after)
                process.kill()
            out, log = process.communicate(timeout=DEADLINE_S)
        except BaseException:
            process.kill()
            raise
    stats = json.loads(out) if out else {}
    if process.returncode != (-9 if kill_after else 0) or ("finish_reason" in stats) == bool(
        kill_after
    ):
        raise RuntimeError(f"the crawl ended with status {process.returncode}:\n{log}")
    return Crawl(stats, log)


def _wait(site: Site, process: "subprocess.Popen[str]", fetches: int) -> None:
    while site.fetched.total() < fetches and process.poll() is None:
        time.sleep(0.01)
