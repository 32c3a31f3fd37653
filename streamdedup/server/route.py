"""Which requests are served: by path, method, host and token, decided on the head of a request alone."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from http import HTTPStatus
from inspect import isawaitable
from time import monotonic

import structlog

from streamdedup.kafka.client.connection import describe_error
from streamdedup.server.gate import Gate
from streamdedup.server.kept import Kept
from streamdedup.server.request import Page, Refused, Request

log = structlog.get_logger(__name__)

Make = Callable[[], Page]
Answer = Callable[[Request], Page | Awaitable[Page]]

_SEGMENT = re.compile(r"[A-Za-z0-9._~-]{0,256}")


@dataclass(frozen=True, slots=True)
class Route:
    """What is served at a path, by one method. HEAD goes with GET.

    `answer` is called on the server's loop: a plain function takes microseconds, another one is awaited. With `segment`
    the path ends with a slash, and stands for each path of one segment more, `Request.rest`, which may be empty. If it
    is `gated`, a browser must not reach it by the name of another site; with `token` it is only for who has that.
    """

    path: str
    answer: Answer
    method: str = "GET"
    gated: bool = False
    token: bool = False
    segment: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are allowed."""
        return ("GET", "HEAD") if self.method == "GET" else (self.method,)


def at_once(path: str, make: Make, *, gated: bool = False) -> Route:
    """Return the route of a page that is made in microseconds, for each request."""
    return Route(path, lambda _: make(), gated=gated)


def kept(
    path: str, make: Make, clock: Callable[[], float] = monotonic, *, gated: bool = False
) -> Route:
    """Return the route of a page that takes long: made in a thread, once for all who ask within a second."""
    page = Kept(lambda: _made(path, make).for_many(), clock)

    async def answer(_: Request) -> Page:
        return await page.get()

    return Route(path, answer, gated=gated)


def _made(path: str, make: Make) -> Page:
    try:
        return make()
    except Exception as error:
        return _failed(path, error)


def _failed(path: str, error: Exception) -> Page:
    log.error("page_failed", page=path, **describe_error(error))
    return Page(HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; see the log for the reason\n")


class Routes:
    """The routes of a server, and who may take them."""

    def __init__(self, routes: Iterable[Route], gate: Gate | None = None) -> None:
        self._routes = {route.path: route for route in routes}
        self._gate = gate or Gate()

    @property
    def paths(self) -> list[str]:
        """The paths, as messages name them."""
        return list(self._routes)

    def admit(self, request: Request) -> tuple[Route, Request]:
        """Return the route of a request, and the request as its answer takes it. Refused if it is not served."""
        route = self._found(request.path)
        if route.gated:
            self._gate.check_host(request)
        if route.token and not self._gate.has_token:
            raise Refused(
                HTTPStatus.NOT_FOUND,
                "asking and acting over HTTP are off; set server.token_file in the worker's configuration",
            )
        if request.method not in route.methods:
            allowed = ", ".join(route.methods)
            raise Refused(
                HTTPStatus.METHOD_NOT_ALLOWED, f"the methods are {allowed}", ("Allow", allowed)
            )
        if route.token:
            self._gate.check_token(request)
        rest = request.path.removeprefix(route.path) if route.segment else ""
        return route, replace(request, rest=rest)

    def _found(self, path: str) -> Route:
        route = self._routes.get(path)
        if route is not None and not route.segment:
            return route
        above, _, rest = path.rpartition("/")
        route = self._routes.get(f"{above}/")
        if route is not None and route.segment and _SEGMENT.fullmatch(rest):
            return route
        raise Refused(HTTPStatus.NOT_FOUND, f"no such page; the pages are {' '.join(self._routes)}")


async def answered(route: Route, request: Request) -> Page:
    """Return the page that answers a request."""
    try:
        page = route.answer(request)
        return await page if isawaitable(page) else page
    except Refused as refused:
        return refused.page
    except Exception as error:
        return _failed(route.path, error)
