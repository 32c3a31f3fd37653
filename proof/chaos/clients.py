"""`python -m proof.chaos.clients PORT PROBE_PORT TOKEN`: all who may visit a worker at once, until standard input ends.

Slow clients send byte by byte, hungry ones ask for /metrics without pause, viewers look at the page, and those with the
token ask about a key. A thread of its own asks as probes do. Each goes on if the server cuts it off. At the end, a line
of JSON says what came of it.
"""

import asyncio
import json
import resource
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

HOST = "127.0.0.1"
SLOW, ASKERS, VIEWERS, EXPLAINS = 1000, 24, 20, 2
DESCRIPTORS = 4 * SLOW
SLOW_BYTE_EVERY_S = 0.2
AGAIN_S = 0.1  # until a client that was cut off connects again
LOOK_EVERY_S = 2.0  # as the page does
PROBE_EVERY_S = 0.2
PROBE_S_MAX = 1.0  # what Kubernetes gives a probe if nothing else is configured
CLIENT_S_MAX = 10.0
STARTED = "started"
KEY = "visitor7@example.com"


@dataclass
class Counts:
    """What came of it so far."""

    scrapes: int = 0
    views: int = 0
    explained: int = 0
    probes: int = 0
    unanswered: int = 0
    slowest_probe_s: float = 0.0


class Visitors:
    """Those of one port, on one loop."""

    def __init__(self, port: int, token: str, counts: Counts) -> None:
        self._port, self._counts = port, counts
        self._authorization = f"Authorization: Bearer {token}\r\n"

    async def visit(self, end: asyncio.Event) -> None:
        """Visit until `end`."""
        deeds: Mapping[Callable[[], Awaitable[None]], int] = {
            self._ask_slowly: SLOW,
            self._scrape: ASKERS,
            self._view: VIEWERS,
            self._explain: EXPLAINS,
        }
        tasks = [
            asyncio.create_task(self._go_on(deed))
            for deed, number in deeds.items()
            for _ in range(number)
        ]
        print(STARTED, flush=True)
        await end.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def _go_on(self, deed: Callable[[], Awaitable[None]]) -> None:
        while True:
            with suppress(OSError):  # TimeoutError is one
                await deed()
            await asyncio.sleep(AGAIN_S)

    async def _ask_slowly(self) -> None:
        _, writer = await asyncio.open_connection(HOST, self._port)
        try:
            for byte in b"GET /livez HTTP/1.1\r\nslow: " + b"y" * 1000:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(SLOW_BYTE_EVERY_S)
        finally:
            writer.close()

    async def _scrape(self) -> None:
        while b" 200 " in await self._answer("GET /metrics"):
            self._counts.scrapes += 1

    async def _view(self) -> None:
        for path in ("/", "/api/status"):
            self._counts.views += b" 200 " in await self._answer(f"GET {path}")
        await asyncio.sleep(LOOK_EVERY_S)

    async def _explain(self) -> None:
        asked = await self._answer("POST /api/explain", json.dumps({"key": KEY}))
        head, _, text = asked.partition(b"\r\n\r\n")
        path = f"GET /api/explain/{json.loads(text)['id']}" if b" 202 " in head else None
        while path and b'"running"' in await self._answer(path):
            await asyncio.sleep(0.5)
        self._counts.explained += path is not None

    async def _answer(self, line: str, body: str = "") -> bytes:
        declared = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        head = f"{line} HTTP/1.1\r\nHost: {HOST}\r\n{self._authorization}{declared}\r\n{body}"
        async with asyncio.timeout(CLIENT_S_MAX):
            reader, writer = await asyncio.open_connection(HOST, self._port)
            try:
                writer.write(head.encode())
                return await reader.read()
            finally:
                writer.close()


def probe(port: int, counts: Counts, ending: threading.Event) -> None:
    """Ask as Kubernetes does; a probe is answered if the whole answer came in time."""
    while not ending.wait(PROBE_EVERY_S):
        began, answer = time.monotonic(), b""
        path = (b"/livez", b"/readyz")[counts.probes % 2]
        with suppress(OSError), socket.create_connection((HOST, port), PROBE_S_MAX) as connection:
            connection.sendall(b"GET %b HTTP/1.1\r\nHost: worker\r\n\r\n" % path)
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        seconds = time.monotonic() - began
        counts.probes += 1
        counts.unanswered += not (b" 200 " in answer and seconds <= PROBE_S_MAX)
        counts.slowest_probe_s = max(counts.slowest_probe_s, seconds)


async def main(port: int, probe_port: int, token: str) -> None:
    """Visit until standard input ends, and print what came of it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, most), most))
    counts, ending, end = Counts(), threading.Event(), asyncio.Event()
    prober = threading.Thread(target=probe, args=(probe_port, counts, ending))
    visiting = asyncio.create_task(Visitors(port, token, counts).visit(end))
    prober.start()
    await asyncio.to_thread(sys.stdin.read)
    ending.set()
    end.set()
    await visiting
    await asyncio.to_thread(prober.join)
    print(json.dumps(asdict(counts)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
