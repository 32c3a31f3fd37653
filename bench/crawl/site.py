"""A site of so many pages, on a local port. Each page links to its two children, and to pages that were met before.

The children make a tree, so every page can be found from page 1. The other links are traps for a crawler that
compares URLs as they stand: each names a page by another URL of the same meaning (an order of parameters, a fragment,
an escape).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs, urlsplit

from typing_extensions import override

TRAPS = (
    "/page?site=a&n={n}",
    "/page?n={n}&site=a#top",
    "/p%61ge?n={n}&site=a",
    "/page?n={n}&site=%61",
)
REPEATED = 6  # links to earlier pages, on each page


class Site:
    """What the server counts: the fetches of each page, by its number."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.fetched = Counter[int]()
        self.url = ""
        self._lock = Lock()

    def page(self, number: int) -> bytes:
        """Count the fetch of a page; return its HTML."""
        with self._lock:
            self.fetched[number] += 1
        links = "".join(f'<a href="{link}">{link}</a>' for link in self._links(number))
        return f"<html><title>{number}</title>{links}</html>".replace("&", "&amp;").encode()

    def _links(self, number: int) -> Iterator[str]:
        for child in (2 * number, 2 * number + 1):
            if child <= self.pages:
                yield TRAPS[child % 4].format(n=child)
        for i in range(REPEATED):
            earlier = 1 + (number * 2654435761 + i * 40503) % number
            yield TRAPS[i % 4].format(n=earlier)


class _Server(ThreadingHTTPServer):
    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: a crawl that is killed leaves its connections open."""


@contextmanager
def serving(pages: int) -> Iterator[Site]:
    """Serve the site within the context, from a thread for each connection."""
    site = Site(pages)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            number = parse_qs(urlsplit(self.path).query).get("n", ["0"])[0]
            body = site.page(int(number))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Do not log."""

    server = _Server(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}/page?n=1&site=a"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
