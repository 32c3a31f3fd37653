"""A browser, and a server of the page that answers with a document of the test's choice."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from streamdedup.server.files import files
from streamdedup.server.gate import Gate
from streamdedup.server.listener import Listener
from streamdedup.server.request import HTML, Refused, Request, as_json, json_body
from streamdedup.server.request import Page as Answer
from streamdedup.server.route import Route, Routes
from streamdedup.server.token import Token
from tests.programs import program_of_debian

HOST = "127.0.0.1"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TOKEN = "a-token-of-the-operator"  # noqa: S105 - of a test
WIDTH, HEIGHT, NARROW = 1280, 900, 320


class Served:
    """The page and its routes, as a worker serves them. `document` is the answer to /api/status; None: it is away."""

    def __init__(self, token_file: Path) -> None:
        """Start to serve."""
        self.document: Mapping[str, Any] | None = None
        self.asked = list[Any]()
        self.acted = list[str]()
        self.states = [{"state": "done", "text": "", "said": [], "status": 0}]
        token_file.write_text(TOKEN)
        token = Token(token_file)
        token.look()
        self._listener = Listener(HOST, 0, Routes(self._routes(), Gate((), token)))
        self.address = f"http://{HOST}:{self._listener.port}/"

    def close(self) -> None:
        """Stop."""
        self._listener.close()

    def _routes(self) -> Iterator[Route]:
        yield from files()
        yield Route("/api/status", self._status, gated=True)
        yield Route("/runbook/", self._runbook, gated=True, segment=True)
        asking = partial(Route, gated=True, token=True)
        yield asking("/api/explain", self._explain, method="POST")
        yield asking("/api/explain/", self._answer, segment=True)
        for act in ("snapshot", "drain", "lists/reload"):
            yield asking(f"/api/{act}", self._act, method="POST")

    def _status(self, _: Request) -> Answer:
        if self.document is None:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "it rests")
        return as_json(self.document)

    def _runbook(self, request: Request) -> Answer:
        return Answer(HTTPStatus.OK, f"<!doctype html><title>{request.rest}</title>", HTML)

    def _explain(self, request: Request) -> Answer:
        self.asked.append(json_body(request))
        return as_json({"id": "an-id"}, HTTPStatus.ACCEPTED)

    def _answer(self, _: Request) -> Answer:
        return as_json(self.states.pop(0) if len(self.states) > 1 else self.states[0])

    def _act(self, request: Request) -> Answer:
        self.acted.append(request.path)
        return as_json({"done": "It is done."}, HTTPStatus.ACCEPTED)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that asks nobody for anything by itself."""
    path = program_of_debian("chromium", "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


class Tab:
    """The page in a tab, at a time that stands still; and all that went wrong in it."""

    def __init__(self, browser: Browser, served: Served, now: float, **options: Any) -> None:
        """Open it, without going anywhere."""
        options = {"viewport": {"width": WIDTH, "height": HEIGHT}, **options}
        self.context: BrowserContext = browser.new_context(timezone_id="UTC", **options)
        self.served = served
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.errors = list[str]()
        self.requests = list[str]()
        self.page.on("console", lambda said: self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.clock.set_fixed_time(now * 1000)

    def show(self, document: Mapping[str, Any] | None) -> Page:
        """Load the page, with this document."""
        self.served.document = document
        self.page.goto(self.served.address)
        self.page.wait_for_selector("#now[class~=ready], #now:not([class='now'])")
        return self.page

    @property
    def foreign(self) -> list[str]:
        """What was asked of others."""
        return [url for url in self.requests if not url.startswith(self.served.address)]
