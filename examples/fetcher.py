"""A small fetcher on the frontier of docs/crawler.md: `python examples/fetcher.py my.yaml`, the worker's configuration.

It fetches each URL that is due, and writes the links of the page to the frontier. At least once: after a crash some
pages are fetched again. It reads no robots.txt, and asks a host as often as its pages are due. Strangers write the
links, so it connects to public addresses only: no link makes it ask a host behind the firewall, or this machine.
"""

import asyncio
import errno
import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from html.parser import HTMLParser
from ipaddress import IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from streamdedup.settings import load

AT_ONCE = 20
PAGE_BYTES_MAX = 1 << 20  # links after that are not found
TRIES_MAX = 3
RETRY_S = 60.0
# RFC 6052: the last four bytes are an IPv4 address, of any network.
NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the internet: not of a private network, this machine, or a cloud's own."""
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        within = ip_address(int(ip) & 0xFFFFFFFF) if ip in NAT64 else None
        if inner := ip.ipv4_mapped or ip.sixtofour or within:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast and not getattr(ip, "is_site_local", False)


def only_to(allows: Callable[[str], bool]) -> TCPConnector:
    """Return a connector that connects only to addresses that `allows` returns True for.

    It looks at the very address of each connection, so neither a name that leads there, nor one that is resolved twice
    in two ways, gets through.
    """

    def made(address: Any) -> socket.socket:
        family, kind, protocol, _, (host, *_) = address
        if not allows(host):
            raise OSError(errno.EACCES, "it is no public address")
        return socket.socket(family, kind, protocol)

    return TCPConnector(socket_factory=made)


class Links(HTMLParser):
    """The links of a page, as they are written."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the link of an `a`."""
        if tag == "a":
            self.found += [link for name, link in attrs if name == "href" and link]


async def links_of(session: ClientSession, url: str) -> list[str]:
    """Fetch a page, and return its links. ClientError or TimeoutError if it may be there later.

    A redirect is a link. Followed here, it would lead to hosts that the frontier has not judged.
    """
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status == 429 or answer.status >= 500:
            answer.raise_for_status()
        if "Location" in answer.headers:
            found = [answer.headers["Location"]]
        elif answer.content_type == "text/html":
            found = Links(
                (await answer.content.read(PAGE_BYTES_MAX)).decode(errors="replace")
            ).found
        else:
            found = []
    links = list[str]()
    for link in found:
        with suppress(ValueError):  # it is none
            links.append(urljoin(url, link))
    return [link for link in links if link.startswith("http")]


async def fetch(
    bootstrap: Any,
    found: str,
    due: str,
    *,
    retry_s: float = RETRY_S,
    allows: Callable[[str], bool] = is_public,
) -> None:
    """Fetch what is in the topic `due`, and write links to the topic `found`, until cancelled.

    Of the addresses of hosts it connects to those that `allows` returns True for.

    A URL that fails goes to a topic of the fetcher's own, `due` and `-retry`. It is tried again `retry_s` later,
    TRIES_MAX times in all.
    """
    retries = f"{due}-retry"

    async def one(event: Any, wait_s: float) -> None:
        await asyncio.sleep(min(wait_s, event.timestamp / 1000 + wait_s - time.time()))
        job = json.loads(event.value)
        tries = job.get("tries", 0) + 1
        try:
            links = await links_of(session, job["url"])
        except (ClientError, TimeoutError, ValueError):
            if tries < TRIES_MAX:
                await send(retries, url=job["url"], tries=tries)
        else:
            for link in links:
                await send(found, url=link)

    async def send(topic: str, **value: Any) -> None:
        await producer.send(topic, json.dumps(value).encode())

    async def work(topic: str, wait_s: float) -> None:
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"{topic}-fetchers",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            while True:
                batches = await consumer.getmany(timeout_ms=1000, max_records=AT_ONCE)
                events = [event for batch in batches.values() for event in batch]
                await asyncio.gather(*(one(event, wait_s) for event in events))
                # The links are in the frontier before the page counts as fetched.
                await producer.flush()
                await consumer.commit()

    async with (
        ClientSession(timeout=ClientTimeout(total=30), connector=only_to(allows)) as session,
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
    ):
        await asyncio.gather(work(due, 0), work(retries, retry_s))


def main() -> None:
    """Fetch for the frontier whose configuration is named, until interrupted."""
    settings = load(Path(sys.argv[1]))
    found, due = settings.source.topic or "", settings.sink.topic
    with suppress(KeyboardInterrupt):
        asyncio.run(fetch(settings.kafka.bootstrap_servers, found, due))


if __name__ == "__main__":
    main()
