"""What outsiders can do to the HTTP server: to make room for others, to be read in parts, to read slowly."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http import HTTPStatus

import pytest

from streamdedup.server import listener as listener_module
from streamdedup.server.kept import KEPT_S, Kept
from streamdedup.server.listener import Listener
from streamdedup.server.request import Page
from streamdedup.server.route import Routes, at_once
from tests.broker.base import DEADLINE_S, wait_until
from tests.server.test_hostile_clients import (
    SLOW,
    Clock,
    Renderings,
    connected,
    is_well,
)
from tests.server.test_hostile_clients import clock as clock  # noqa: PLC0414 - a fixture
from tests.server.test_hostile_clients import listener as listener  # noqa: PLC0414 - a fixture
from tests.server.test_hostile_clients import renderings as renderings  # noqa: PLC0414 - a fixture
from tests.server.test_hostile_clients import worker as worker  # noqa: PLC0414 - a fixture
from tests.server.test_server import HOST, ask


def is_open(connection: socket.socket) -> bool:
    """Whether the server has not closed it, and not answered."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def wait_until_open(connections: Sequence[socket.socket], expected: list[bool]) -> None:
    """Wait until these are open, and the others closed."""
    wait_until(
        lambda: [is_open(connection) for connection in connections] == expected,
        DEADLINE_S,
        lambda: f"open are {[is_open(connection) for connection in connections]}",
    )


def test_slow_clients_have_no_more_places_than_there_are(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who came last are waited for, as many as there are places but the one of the last probe."""
    monkeypatch.setattr(listener_module, "REQUEST_S_MAX", DEADLINE_S)
    with ExitStack() as held:
        slow = [held.enter_context(connected(listener.port)) for _ in range(SLOW)]
        assert is_well(listener.port, "/livez")
        left = listener_module.CONNECTIONS_MAX - 1
        wait_until_open(slow, [False] * (SLOW - left) + [True] * left)


def test_the_slowest_head_makes_room(
    worker: Listener, renderings: Renderings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has asked, and waits for its page, keeps its place even if it came before."""
    monkeypatch.setattr(listener_module, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(listener_module, "REQUEST_S_MAX", DEADLINE_S)
    with ThreadPoolExecutor() as clients, ExitStack() as held:
        with renderings.held_up():
            asked = clients.submit(ask, worker.port, "/metrics")
            renderings.wait()
            slow = [held.enter_context(connected(worker.port)) for _ in range(3)]
            assert is_well(worker.port, "/livez")
            wait_until_open(slow, [False, False, True])
        assert asked.result(DEADLINE_S)[0] == 200


def test_a_head_in_many_parts_costs_few_reads(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two reads the server rests; what came meanwhile, in however many parts, is one read."""
    rests: Counter[float] = Counter()
    resting, go_on = threading.Event(), threading.Event()

    async def rest(seconds: float) -> None:
        rests[seconds] += 1
        if seconds == listener_module.READ_REST_S:
            resting.set()
            await asyncio.to_thread(go_on.wait, DEADLINE_S)

    monkeypatch.setattr(listener_module, "rest", rest)
    with connected(listener.port, b"G") as connection:
        assert resting.wait(DEADLINE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"ET /livez HTTP/1.1\r\nHost: h\r\n\r\n":
            connection.sendall(bytes([byte]))
        go_on.set()
        assert b"200 OK" in connection.recv(4096)
    assert rests[listener_module.READ_REST_S] == 1


def test_connections_are_taken_at_a_pace(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many the server rests, however many wait; then it goes on."""
    resting, go_on = threading.Event(), threading.Event()

    async def rest(_: float) -> None:
        resting.set()
        await asyncio.to_thread(go_on.wait, DEADLINE_S)

    monkeypatch.setattr(listener_module, "rest", rest)
    whole = b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n"
    with ExitStack() as held:
        waiting = [
            held.enter_context(connected(listener.port, whole))
            for _ in range(listener_module.ACCEPTS + 1)
        ]
        assert resting.wait(DEADLINE_S)
        *taken, last = waiting
        assert all(b"200 OK" in connection.recv(4096) for connection in taken)
        assert is_open(last)
        last.settimeout(DEADLINE_S)
        go_on.set()
        assert b"200 OK" in last.recv(4096)


def test_a_rendering_that_takes_long_is_the_only_one(
    worker: Listener, renderings: Renderings, clock: Clock
) -> None:
    """Even if others ask after its second, and after the one who asked first has gone."""
    asks = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
    with ExitStack() as held:
        with renderings.held_up():
            with connected(worker.port, asks):
                renderings.wait()
            clock.now_s += 10 * KEPT_S
            other = held.enter_context(connected(worker.port, asks))
            assert is_well(worker.port, "/livez")  # so the other has been heard, too
        assert b"200 OK" in other.recv(4096)
    assert (renderings.begun, renderings.together) == (1, 1)


async def test_a_caller_who_is_dropped_takes_nothing_from_the_others() -> None:
    """What is being made for several is made to its end, once, even if the first of them makes room for another."""
    begun, go_on = Counter[str](), threading.Event()

    def make() -> int:
        begun["making"] += 1
        assert go_on.wait(DEADLINE_S)
        return begun["making"]

    kept = Kept(make, Clock())
    first, second = (asyncio.create_task(kept.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    go_on.set()
    assert await second == 1


def test_an_answer_that_is_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """When its time is over, the connection is closed, and its place is free."""
    monkeypatch.setattr(listener_module, "SEND_S_MAX", 0.2)
    large = Page(HTTPStatus.OK, "x" * 30_000_000)
    made = Listener(HOST, 0, Routes([at_once("/large", lambda: large)]))
    with connected(made.port, b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n"):
        wait_until(lambda: len(made._answering) == 1, DEADLINE_S, lambda: "it is not heard")
        wait_until(lambda: not made._answering, DEADLINE_S, lambda: "it is still waited for")
    made.close()
