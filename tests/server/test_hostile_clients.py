"""What outsiders can do to the HTTP server: ask slowly, ask all the time. None of it costs a probe."""

import json
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http import HTTPStatus

import prometheus_client
import pytest

from streamdedup.server.kept import KEPT_S
from streamdedup.server.listener import Listener
from streamdedup.server.pulse import Pulse
from streamdedup.server.request import Page, Request
from streamdedup.server.route import Routes, answered, at_once, kept
from streamdedup.server.routes import Served, all_routes
from streamdedup.server.status_routes import status_routes
from streamdedup.settings import ServerOptions
from tests.broker.base import DEADLINE_S, wait_until
from tests.server.test_server import HOST, ask, page, status

PROBES = 30
SLOW = 40
ASKERS = 24
UNREADING = 8
LARGE_BYTES = 8 << 20
LARGE_ASKED = b"GET /large HTTP/1.1\r\nHost: worker\r\n\r\n"


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A server of two probes."""
    made = Listener(HOST, 0, Routes(at_once(path, page) for path in ("/livez", "/readyz")))
    yield made
    made.close()


class Renderings:
    """Counts how often /metrics is rendered, and how often at the same time. It may be held up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = self.together = self._now = 0
        self.go_on = threading.Event()
        self.go_on.set()
        self._render = prometheus_client.generate_latest
        monkeypatch.setattr("streamdedup.server.routes.generate_latest", self._counted)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Let none end before this does."""
        self.go_on.clear()
        try:
            yield
        finally:
            self.go_on.set()

    def wait(self) -> None:
        """Wait until the first has begun."""
        wait_until(lambda: self.begun > 0, DEADLINE_S, lambda: "it is not rendered")

    def _counted(self, registry: prometheus_client.CollectorRegistry) -> bytes:
        self.begun += 1
        self._now += 1
        self.together = max(self.together, self._now)
        try:
            assert self.go_on.wait(DEADLINE_S)
            return self._render(registry)
        finally:
            self._now -= 1


class Clock:
    """Stands still unless it is set."""

    now_s = 1000.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """The clock of `worker`."""
    return Clock()


@pytest.fixture
def worker(clock: Clock) -> Iterator[Listener]:
    """The pages of a worker, as it serves them."""
    made = Listener(HOST, 0, Routes(all_routes(Served(status({}), Pulse()), clock)))
    yield made
    made.close()


@pytest.fixture
def renderings(monkeypatch: pytest.MonkeyPatch) -> Renderings:
    """Those of `worker`."""
    return Renderings(monkeypatch)


def connected(port: int, request: bytes = b"GET /livez HTTP/1.1\r\n") -> socket.socket:
    """A connection that has sent this, by default half of a head."""
    connection = socket.create_connection((HOST, port), timeout=DEADLINE_S)
    connection.sendall(request)
    return connection


def is_well(port: int, path: str) -> bool:
    """Whether a probe is answered, and well."""
    try:
        return ask(port, path)[0] == HTTPStatus.OK
    except OSError:
        return False


# --- those who ask slowly ---


def test_slow_clients_starve_no_probe(listener: Listener) -> None:
    """Beside more slow clients than there are places, each probe of both kinds is answered."""
    with ExitStack() as held:
        for _ in range(SLOW):
            held.enter_context(connected(listener.port))
        paths = ("/livez", "/readyz") * PROBES
        assert sum(is_well(listener.port, path) for path in paths) == len(paths)


# --- those who do not read the answer ---


@contextmanager
def large() -> Iterator[Listener]:
    """A server of a page that is larger than what the system holds of an answer."""
    text = "x" * LARGE_BYTES
    made = Listener(HOST, 0, Routes([kept("/large", lambda: Page(HTTPStatus.OK, text))]))
    try:
        yield made
    finally:
        made.close()
        made.join(DEADLINE_S)


def test_those_who_do_not_read_share_one_answer() -> None:
    """However many they are, its bytes are in memory once."""
    with large() as listener, ExitStack() as held:
        tracemalloc.start()
        held.callback(tracemalloc.stop)
        for _ in range(UNREADING):
            client = held.enter_context(connected(listener.port, LARGE_ASKED))
            assert client.recv(1)  # the answer has begun
        assert tracemalloc.get_traced_memory()[0] < 2 * LARGE_BYTES


def test_the_system_holds_little_of_an_answer_that_is_not_read() -> None:
    """Whoever does not read gets no more than that, once the server has gone."""
    with ExitStack() as held:
        with large() as listener:
            client = held.enter_context(connected(listener.port, LARGE_ASKED))
            assert client.recv(1)  # the answer has begun
        assert sum(map(len, iter(lambda: client.recv(1 << 16), b""))) < 1 << 20


async def test_those_who_ask_for_the_status_share_one_answer(clock: Clock) -> None:
    """One with the peers and one without, which differ, until the document is made anew."""
    of = status({})
    of.source = None  # it has not joined
    (route,) = status_routes(of, Pulse(), ServerOptions(port=0), clock)
    asked = [Request("GET", "/api/status", query) for query in ("", "local", "", "local")]
    every, local, again, local_again = [await answered(route, request) for request in asked]
    assert every.content is again.content
    assert local.content is local_again.content
    assert set(json.loads(every.content)) - set(json.loads(local.content)) == {"peers"}


# --- those who ask all the time ---


def test_those_who_ask_at_once_get_one_rendering(worker: Listener, renderings: Renderings) -> None:
    """It is made once for all of them, even if it takes longer than it is kept."""
    with ThreadPoolExecutor(ASKERS) as clients:
        with renderings.held_up():
            answers = [clients.submit(ask, worker.port, "/metrics") for _ in range(ASKERS)]
            renderings.wait()
            assert is_well(worker.port, "/livez")  # meanwhile
        texts = {answer.result(DEADLINE_S)[:2] for answer in answers}
    assert (len(texts), renderings.begun, renderings.together) == (1, 1, 1)


def test_metrics_are_rendered_once_a_second(
    worker: Listener, renderings: Renderings, clock: Clock
) -> None:
    """However often they are asked for: once, and again when the second is over."""
    for second in range(1, 4):
        for part in (0.0, 0.5, 0.99):
            clock.now_s = 1000.0 + second * KEPT_S + part * KEPT_S
            assert ask(worker.port, "/metrics")[0] == 200
            assert ask(worker.port, "/metrics", "HEAD")[0] == 200
        assert renderings.begun == second
