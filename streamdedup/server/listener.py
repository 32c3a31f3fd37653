"""The HTTP server: GET and HEAD of a few pages, from threads of its own. Everything that a client can do is bounded.

A connection serves one request. Its head is limited to `HEAD_BYTES_MAX` and `HEAD_S_MAX`, and sending the answer to
`SEND_S_MAX`.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from socketserver import ThreadingTCPServer
from typing import NamedTuple

import structlog
from typing_extensions import override

from streamdedup.errors import ConfigError
from streamdedup.kafka.client.connection import describe_error

log = structlog.get_logger(__name__)

CONNECTIONS_MAX = 32
HEAD_BYTES_MAX = 8192
HEAD_S_MAX = 5.0
SEND_S_MAX = 5.0
POLL_S = 0.1
PLAIN_TEXT = "text/plain; charset=utf-8"
HEAD_END = b"\r\n\r\n"


class Page(NamedTuple):
    """An answer to a request."""

    status: HTTPStatus
    text: str
    content_type: str = PLAIN_TEXT


Make = Callable[[], Page]
Request = socket.socket | tuple[bytes, socket.socket]


class Listener:
    """Serves `pages`, by path, from its creation until it is closed."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Make]) -> None:
        """Start to listen. Blocking. ConfigError if nothing can listen there."""
        try:
            self._server = _Server(host, port, pages)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no host can have that name"
            raise ConfigError(
                f"server.port = {port}: cannot listen at {host}:{port} ({reason}); set another port (0 takes any free"
                " one) or another server.host"
            ) from None
        _in_thread(self._serve)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop answering within `POLL_S`. Returns at once."""
        _in_thread(self._server.shutdown)

    def _serve(self) -> None:
        self._server.serve_forever(POLL_S)
        self._server.server_close()


def _in_thread(call: Callable[[], None]) -> None:
    """Run `call` in a thread of its own, because a slow disk may hold up all threads of the loop's pool."""
    threading.Thread(target=call, name="server", daemon=True).start()


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    # Connections that were closed a moment ago do not block the port. A port in use is still refused.
    allow_reuse_address = True
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, host: str, port: int, pages: Mapping[str, Make]) -> None:
        self.pages = pages
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self.address_family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        super().__init__(address, _Handler)  # type: ignore[arg-type] # an IPv6 address has four parts

    @override
    def process_request(self, request: Request, client_address: object) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # the thread could not be started
            self._places.release()
            raise

    @override
    def process_request_thread(self, request: Request, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    @override
    def handle_error(self, request: Request, client_address: object) -> None:
        """Ignore a client that went away or was too slow: neither is a fault of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "streamdedup", ""
    # For a request that names no version. With 0.9, answers would have no status.
    default_request_version = "HTTP/1.0"
    error_content_type, error_message_format = PLAIN_TEXT, "%(message)s\n"

    @override
    def handle(self) -> None:
        """Answer one request."""
        head = self._head()
        self.connection.settimeout(SEND_S_MAX)
        self.rfile = BytesIO(head)
        self.raw_requestline = self.rfile.readline()
        self.close_connection = True
        if HEAD_END not in head:
            self.requestline, self.request_version, self.command = "", "", ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self.parse_request():
            self._answer(self._page())

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: probes and scrapes come all the time."""

    def _head(self) -> bytes:
        """Read up to the empty line. TimeoutError or ConnectionError if it does not come."""
        ends_at, head = time.monotonic() + HEAD_S_MAX, b""
        while HEAD_END not in head and len(head) < HEAD_BYTES_MAX:
            left_s = ends_at - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self.connection.settimeout(left_s)
            part = self.connection.recv(HEAD_BYTES_MAX)
            if not part:
                raise ConnectionError("the client went away")
            head += part
        return head

    def _page(self) -> Page:
        make = self.server.pages.get(self.path.partition("?")[0])
        if make is None:
            there = " ".join(self.server.pages)
            return Page(HTTPStatus.NOT_FOUND, f"no such page; the pages are {there}\n")
        if self.command not in ("GET", "HEAD"):
            return Page(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n")
        try:
            return make()
        except Exception as error:
            log.error("page_failed", page=self.path.partition("?")[0], **describe_error(error))
            return Page(
                HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; see the log for the reason\n"
            )

    def _answer(self, page: Page) -> None:
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
