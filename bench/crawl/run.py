"""Crawls in processes of their own, one of which may be killed on its way."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bench.crawl.site import Site

OURS = {"DUPEFILTER_CLASS": "streamdedup.contrib.scrapy.DupeFilter"}
DEADLINE_S = 3600.0


class Crawl(NamedTuple):
    """What a crawl printed: Scrapy's stats, empty if it was killed, and its log."""

    stats: Mapping[str, Any]
    log: str


def crawl(
    site: Site, settings: Mapping[str, object], *, kill_when: Callable[[], bool] | None = None
) -> Crawl:
    """Crawl the site from its first page; kill the process by SIGKILL when `kill_when()` says so.

    RuntimeError, with the log, if it ends in another way than it should. TimeoutExpired if it does not.
    """
    given = [f"{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "bench.crawl.spider", site.url, *given]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            if kill_when:
                while process.poll() is None and not kill_when():
                    time.sleep(0.01)
                process.kill()
            out, log = process.communicate(timeout=DEADLINE_S)
        except BaseException:
            process.kill()
            raise
    stats = json.loads(out) if out else {}
    status = -9 if kill_when else 0
    if process.returncode != status or not (kill_when or "finish_reason" in stats):
        raise RuntimeError(f"the crawl ended with status {process.returncode}:\n{log}")
    return Crawl(stats, log)
