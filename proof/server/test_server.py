"""What is claimed of the HTTP server and its probes, in rare moments."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from types import SimpleNamespace

import pytest

from streamdedup.errors import ConfigError
from streamdedup.server import listener as listener_module
from streamdedup.server import pulse as pulse_module
from streamdedup.server.listener import Listener
from streamdedup.server.pulse import Pulse
from streamdedup.server.request import Page
from streamdedup.server.route import Routes, at_once, kept
from tests.broker.base import DEADLINE_S, wait_until
from tests.server.test_server import (
    HOST,
    ask,
    page,
)
from tests.server.test_server import listener as listener  # noqa: PLC0414 - a fixture


@pytest.mark.parametrize("more", [b"", b"h"], ids=["silent", "a byte now and then"])
def test_who_is_slow_is_dropped(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, more: bytes
) -> None:
    """A request that is not whole in time is answered so, even where a byte comes now and then."""
    monkeypatch.setattr(listener_module, "REQUEST_S_MAX", 0.2)
    with socket.create_connection((HOST, listener.port), timeout=DEADLINE_S) as connection:
        connection.sendall(b"GET /page HTTP/1.1\r\n")
        answered: list[bytes] = []

        def dropped() -> bool:
            try:
                connection.sendall(more)
                connection.setblocking(False)
                answered.append(connection.recv(4096))
                return answered[-1] == b""
            except BlockingIOError:
                return False
            except ConnectionError:
                return True

        wait_until(dropped, DEADLINE_S, lambda: "it is still waited for")
        assert answered[0].startswith(b"HTTP/1.1 408 ")


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound the one that waits longest is closed; when others have gone, there is room again."""
    monkeypatch.setattr(listener_module, "CONNECTIONS_MAX", 2)
    entered, go_on = threading.Event(), threading.Event()

    def slow() -> Page:
        entered.set()
        go_on.wait(DEADLINE_S)
        return Page(HTTPStatus.OK, "slow\n")

    made = Listener(HOST, 0, Routes([kept("/slow", slow), at_once("/page", page)]))
    with ThreadPoolExecutor() as clients:
        first = clients.submit(ask, made.port, "/slow")
        assert entered.wait(DEADLINE_S)
        others = [clients.submit(ask, made.port, "/slow")]
        wait_until(lambda: len(made._answering) == 2, DEADLINE_S, lambda: "it is not heard")
        others.append(clients.submit(ask, made.port, "/slow"))
        with pytest.raises(ConnectionError):
            first.result(DEADLINE_S)
        assert ask(made.port, "/page")[0] == 200
        go_on.set()
        answers = sum(other.exception(DEADLINE_S) is None for other in others)
        assert answers == 1
        assert ask(made.port, "/slow")[0] == 200
    made.close()


def test_a_host_that_is_none_of_ours_is_refused() -> None:
    """An address of another machine, or a name that can be none, is the operator's mistake."""
    for host in ("192.0.2.1", "no..name"):
        with pytest.raises(ConfigError, match=rf"at {host}:0 \(.+\)"):
            Listener(host, 0, Routes([]))


def test_a_closed_server_answers_no_more() -> None:
    """The port is free again soon after."""
    made = Listener(HOST, 0, Routes([at_once("/page", page)]))
    assert ask(made.port, "/page")[0] == 200
    made.close()

    def free() -> bool:
        try:
            Listener(HOST, made.port, Routes([])).close()
        except ConfigError:
            return False
        return True

    wait_until(free, DEADLINE_S, lambda: "the port is still taken")


def test_the_longest_stall_is_forgotten_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept for a minute, whoever reads it, and no longer than ten seconds more."""
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(pulse_module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    pulse = Pulse()
    pulse._note(0.7)
    pulse._note(0.1)
    for _ in range(2):
        assert pulse.longest_s == 0.7
    for later_s, longest_s in ((50, 0.7), (59, 0.7), (71, 0.2)):
        clock.now_s = pulse._due_at = 1000.0 + later_s
        pulse._note(0.2)
        assert pulse.longest_s == longest_s, later_s
