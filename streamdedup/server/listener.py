"""The HTTP server: GET and HEAD of a few pages, from a thread with a loop of its own.

A connection serves one request. Whatever clients do is bounded, in places, bytes, seconds and work, by the constants
below. If no place is free, a new connection takes that of the slowest client: so a probe always has one.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import NamedTuple

import structlog
from typing_extensions import override

from streamdedup.errors import ConfigError
from streamdedup.kafka.client.connection import describe_error
from streamdedup.server.kept import Kept

log = structlog.get_logger(__name__)

CONNECTIONS_MAX = 32
HEAD_BYTES_MAX = 8192
HEAD_S_MAX = 5.0
SEND_S_MAX = 5.0
HEAD_REST_S = 0.1  # a head in parts is read ten times a second, however many parts there are

# Together 200 connections a second, which take about 3 % of a processor; more than these wait, in their order.
ACCEPTS, ACCEPT_REST_S = 8, 0.04
WAITING_MAX = 128  # they are served within 0.64 s, and Kubernetes gives a probe a second

PLAIN_TEXT = "text/plain; charset=utf-8"
HEAD_END = b"\r\n\r\n"


class Page(NamedTuple):
    """An answer to a request."""

    status: HTTPStatus
    text: str
    content_type: str = PLAIN_TEXT


Make = Callable[[], Page]


class Listener:
    """Serves `pages`, by path, from its creation until it is closed.

    Those of the paths `kept` take long: they are made at most once at a time, in another thread, and kept for a
    second. All others must be made in microseconds.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, Make],
        kept: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start to listen. Blocking. ConfigError if nothing can listen there."""
        try:
            self._socket = _bound(host, port)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no host can have that name"
            raise ConfigError(
                f"server.port = {port}: cannot listen at {host}:{port} ({reason}); set another port (0 takes any free"
                " one) or another server.host"
            ) from None
        self.port = int(self._socket.getsockname()[1])
        self._pages = pages
        self._kept = {path: Kept(partial(self._made, path), clock) for path in kept}
        # The connections in the order in which they came: those whose head is not whole yet, and the others.
        self._asking: dict[socket.socket, asyncio.Task[None]] = {}
        self._answering: dict[socket.socket, asyncio.Task[None]] = {}
        self._closing = asyncio.Event()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering soon. Returns at once."""
        self._loop.call_soon_threadsafe(self._closing.set)

    def join(self, within_s: float) -> None:
        """Wait until the thread has ended after `close`, for at most `within_s` seconds. This blocks."""
        self._thread.join(within_s)

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        """Serve until `close`; the runner then ends the conversations."""
        accepting = asyncio.create_task(self._accept())
        await self._closing.wait()
        accepting.cancel()
        await asyncio.wait([accepting])
        self._socket.close()

    async def _accept(self) -> None:
        """Give places to those who connect, at the pace of `ACCEPTS`."""
        while True:
            for _ in range(ACCEPTS):
                with suppress(OSError):  # the client has gone, or we have no descriptor left
                    connection, _ = await self._loop.sock_accept(self._socket)
                    self._admit(connection)
                await asyncio.sleep(0)  # so that a whole head is read before anyone takes its place
            await rest(ACCEPT_REST_S)

    def _admit(self, connection: socket.socket) -> None:
        """Give a place to `connection`, that of the slowest client if none is free."""
        if len(self._asking) + len(self._answering) >= CONNECTIONS_MAX:
            slowest = self._asking or self._answering
            slowest.pop(next(iter(slowest))).cancel()
        task = self._loop.create_task(self._converse(connection))
        task.add_done_callback(lambda _: self._leave(connection))
        self._asking[connection] = task

    def _leave(self, connection: socket.socket) -> None:
        self._asking.pop(connection, None)
        self._answering.pop(connection, None)
        connection.close()

    async def _converse(self, connection: socket.socket) -> None:
        """Serve one request. A client that goes away or is too slow is dropped: neither is a fault of ours."""
        with suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(HEAD_S_MAX):
                head = await self._head(connection)
            self._answering[connection] = self._asking.pop(connection)
            answer = await self._answer(head)
            async with asyncio.timeout(SEND_S_MAX):
                await self._loop.sock_sendall(connection, answer)
            connection.shutdown(socket.SHUT_WR)

    async def _head(self, connection: socket.socket) -> bytes:
        """Read up to the empty line, or `HEAD_BYTES_MAX` or more without one. ConnectionError if neither comes."""
        head = await self._loop.sock_recv(connection, HEAD_BYTES_MAX)
        while head and HEAD_END not in head and len(head) < HEAD_BYTES_MAX:
            await rest(HEAD_REST_S)
            part = await self._loop.sock_recv(connection, HEAD_BYTES_MAX)
            head = head + part if part else b""
        if not head:
            raise ConnectionError("the client went away")
        return head

    async def _answer(self, head: bytes) -> bytes:
        request = _Request(head)
        if request.is_valid:
            request.answer(await self._page(request))
        return request.answered

    async def _page(self, request: "_Request") -> Page:
        path = request.path.partition("?")[0]
        if path not in self._pages:
            there = " ".join(self._pages)
            return Page(HTTPStatus.NOT_FOUND, f"no such page; the pages are {there}\n")
        if request.command not in ("GET", "HEAD"):
            return Page(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n")
        return await self._kept[path].get() if path in self._kept else self._made(path)

    def _made(self, path: str) -> Page:
        try:
            return self._pages[path]()
        except Exception as error:
            log.error("page_failed", page=path, **describe_error(error))
            return Page(
                HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; see the log for the reason\n"
            )


async def rest(seconds: float) -> None:
    """Let clients wait, so that their number and their haste do not set how much work the server does."""
    await asyncio.sleep(seconds)


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens. OSError or UnicodeError if that is not possible."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        # Connections that were closed a moment ago do not block the port. A port in use is still refused.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(WAITING_MAX)
    except BaseException:
        listening.close()
        raise
    return listening


class _Request(BaseHTTPRequestHandler):
    """A request and the answer to it, both in memory. If it is not valid, `answered` says so already."""

    server_version, sys_version = "streamdedup", ""
    # For a request that names no version. With 0.9, answers would have no status.
    default_request_version = "HTTP/1.0"
    error_content_type, error_message_format = PLAIN_TEXT, "%(message)s\n"

    def __init__(self, head: bytes) -> None:  # the base class would read it from a socket
        self.rfile, self.wfile = BytesIO(head), BytesIO()
        self.raw_requestline = self.rfile.readline()
        self.close_connection = True
        self.is_valid = False
        if HEAD_END not in head:
            self.requestline, self.request_version, self.command = "", "", ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            self.is_valid = self.parse_request()

    def answer(self, page: Page) -> None:
        """Answer with `page`."""
        body = page.text.encode()
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if page.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def answered(self) -> bytes:
        """The bytes of the answer."""
        self.wfile.seek(0)
        return self.wfile.read()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: probes and scrapes come all the time."""
