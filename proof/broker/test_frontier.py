"""The frontier of docs/crawler.md against a real broker: config/crawler.yaml as it stands, by the page's commands."""

import asyncio
import gzip
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.resources import files
from pathlib import Path

import pytest
from aiohttp import web
from w3lib.url import canonicalize_url

from examples.fetcher import fetch
from tests.broker.base import DEADLINE_S, Broker, admin_client, wait_until
from tests.broker.test_walkthrough import awaited, bin_directory, commands, values
from tests.broker.topics import Event, create_topic, end_offsets, produce, unique_name
from tests.deployment import drained
from tests.local import until

ROOT = Path(__file__).parents[2]
TOPICS = ("urls-found", "urls-by-key", "urls-due", "urls-malformed")
PARTITIONS = 2


class Frontier:
    """config/crawler.yaml in a directory of its own, with topics of its own, and the page's commands."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        self._suffix = unique_name("")
        config = (ROOT / "config" / "crawler.yaml").read_text("utf-8")
        for name in TOPICS:
            config = re.sub(rf"topic: {name}\b(?!-)", f"topic: {self.topic(name)}", config)
        for old, new in (
            ("localhost:9092", bootstrap),
            (": frontier ", f": frontier{self._suffix} "),
            ("partitions: 12 ", f"partitions: {PARTITIONS} "),
            ("capacity: 10M ", "capacity: 100k "),
        ):
            assert old in config
            config = config.replace(old, new)
        (directory / "config").mkdir()
        (directory / "config" / "crawler.yaml").write_text(config, "utf-8")
        path = f"{bin_directory(directory)}:{os.environ['PATH']}"
        self._environ = {**os.environ, "PATH": path}
        create_topic(bootstrap, self.topic("urls-found"), PARTITIONS)

    def topic(self, name: str) -> str:
        """The name of a topic of the page, in a broker that others use."""
        return f"{name}{self._suffix}"

    def feed(self, urls: list[str]) -> None:
        """Write URLs as crawlers that found them do, to any partition."""
        events: list[Event] = [
            (n % PARTITIONS, None, json.dumps({"url": url}).encode(), [], None)
            for n, url in enumerate(urls)
        ]
        produce(self.bootstrap, self.topic("urls-found"), events)

    def values(self, name: str) -> list[bytes]:
        """What stands in a topic of the page."""
        return values(self.bootstrap, self.topic(name))

    def is_made(self) -> bool:
        """Whether the worker has made the topic of URLs that are due."""
        topics = admin_client(self.bootstrap).list_topics(timeout=DEADLINE_S).topics
        return self.topic("urls-due") in topics

    def held(self, name: str) -> int:
        """How many offsets a topic has: its events, and a marker for each transaction."""
        try:
            return sum(end_offsets(self.bootstrap, self.topic(name)).values())
        except LookupError:  # the worker has not made it yet
            return 0

    @asynccontextmanager
    async def fetched(self) -> AsyncIterator[None]:
        """Run the fetcher during the block, without the pause before it tries again."""
        found, due = self.topic("urls-found"), self.topic("urls-due")
        await asyncio.to_thread(create_topic, self.bootstrap, f"{due}-retry")
        # The fetcher waits 40 s for a topic, and the worker, which makes this one, may take longer to start.
        await asyncio.to_thread(wait_until, self.is_made, DEADLINE_S, lambda: f"no topic {due}")
        task = asyncio.create_task(
            fetch(self.bootstrap, found, due, retry_s=0.5, allows=lambda _: True)
        )
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @contextmanager
    def running(self) -> Iterator[None]:
        """Type the commands of the page up to `run`; the worker is drained at the end."""
        lines = commands(ROOT / "docs" / "crawler.md")
        at = lines.index("streamdedup run -c my.yaml")
        for line in lines[:at]:
            subprocess.run(line, shell=True, check=True, cwd=self.directory, env=self._environ)  # noqa: S602
        with drained(subprocess.Popen(lines[at].split(), cwd=self.directory, env=self._environ)):
            yield


@pytest.fixture
def frontier(broker: Broker, tmp_path: Path) -> Frontier:
    """A frontier that nobody has written to."""
    return Frontier(broker.bootstrap_servers, tmp_path)


def test_home_pages_come_out_once(frontier: Frontier) -> None:
    """Of 29,596 distinct home pages 29,509 are left: 29,490 of the web come out once, 19 are dead letters."""
    packed = files("streamdedup").joinpath("data/homepages.txt.gz").read_bytes()
    pages = sorted(set(gzip.decompress(packed).decode().splitlines()))
    assert len(pages) == 29_596

    def are_out() -> bool:
        return (
            frontier.held("urls-due") >= 29_490
            and len(frontier.values("urls-due")) >= 29_490
            and len(frontier.values("urls-malformed")) >= 19
        )

    with frontier.running():
        frontier.feed(pages)
        wait_until(are_out, DEADLINE_S, lambda: f"{len(frontier.values('urls-due'))} are due")
    found = [json.loads(value)["url"] for value in frontier.values("urls-due")]
    letters = frontier.values("urls-malformed")
    assert (len(found), len(letters)) == (29_490, 19)
    assert {canonicalize_url(url) for url in found} == {
        canonicalize_url(page) for page in pages if not page.startswith(("ftp:", "gopher:"))
    }


PAGES = {
    "/": '<a href="/a">a</a> <a href="a#top">again</a> <a href="/b?y=2&x=1">b</a> <a href="mailto:a@b.c">',
    "/a": '<a href="/">home</a> <a href="/%62?x=1&y=2">b</a> <a href="/moved">m</a> <a href="http://[">',
    "/b": '<a href="/late">late</a> <a href="http://c%6Frp.example./">c</a> <A HREF=//x.corp.example>x</A>',
    "/late": "the end",
}
WANTED = {"/": 1, "/a": 1, "/b": 1, "/moved": 1, "/late": 2}


class Site:
    """A site on this machine, and how often each of its pages was asked for, by which host."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        """Give a page. One is late, and one has moved to a host on the list."""
        path = request.path
        self.asked[request.host.partition(":")[0], path] += 1
        if path == "/late" and self.asked["localhost", path] == 1:
            return web.Response(status=503)
        if path == "/moved":
            return web.Response(status=302, headers={"Location": f"http://0x7f.1:{self.port}/a"})
        return web.Response(text=PAGES[path], content_type="text/html")

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Serve it."""
        application = web.Application()
        application.router.add_get("/{path:.*}", self.answer)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()


async def test_the_walk_through(frontier: Frontier) -> None:
    """The commands succeed; the fetcher gets each page once, one of them at its second try, and no host of the list."""
    site, wanted = Site(), {("localhost", path): times for path, times in WANTED.items()}
    with frontier.running():
        async with site.served(), frontier.fetched():
            urls = [f"http://localhost:{site.port}/", "no URL"]
            await asyncio.to_thread(frontier.feed, urls)
            await until(lambda: site.asked == wanted, lambda: f"asked: {site.asked}")
            letters = frontier.topic("urls-malformed")
            await asyncio.to_thread(awaited, frontier.bootstrap, letters, urls[1:], "url")
    assert len(await asyncio.to_thread(frontier.values, "urls-due")) == len(WANTED)
    assert site.asked == wanted
