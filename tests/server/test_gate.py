"""What is claimed of the gate: under which hosts the page is served, and who may ask and act."""

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from streamdedup.secret import TOKEN_CHARACTERS, read_token
from streamdedup.server.gate import Gate, host_of
from streamdedup.server.listener import Listener
from streamdedup.server.request import Page, Refused, Request
from streamdedup.server.route import Route, Routes, at_once
from streamdedup.server.token import Token
from tests.server.test_requests import answer
from tests.server.test_server import HOST

TOKEN = "-".join(["known", "to", "the", "operator"])


def page() -> Page:
    """A page."""
    return Page(HTTPStatus.OK, "text\n")


def asked(host: str | None, authorization: str | None = None) -> Request:
    """A request for this host."""
    headers = {"host": host, "authorization": authorization}
    return Request(
        "POST",
        "/act",
        headers={name: value for name, value in headers.items() if value is not None},
    )


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """The file of the token."""
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def listener(token_file: Path) -> Iterator[Listener]:
    """A server with a page behind the gate, a probe before it, and an action."""
    routes = [
        at_once("/probe", page),
        at_once("/", page, gated=True),
        Route("/act", lambda _: page(), method="POST", gated=True, token=True),
    ]
    made = Listener(HOST, 0, Routes(routes, Gate(["Dedup.example.org"], Token(token_file))))
    yield made
    made.close()


# --- hosts ---


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:9464",
        "10.1.2.3",
        "[::1]",
        "[2001:DB8::1]:9464",
        "localhost",
        "LocalHost.:80",
        "dedup.example.org",
        "DEDUP.example.ORG:443",
        "dedup.example.org.",
    ],
)
def test_the_page_is_served_under_its_own_hosts(listener: Listener, host: str) -> None:
    """An address, localhost, a name that is listed; with any port, in any case."""
    request = f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    assert answer(listener.port, request)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:9464",
        "example.org",
        "dedup.example.org.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:80:80",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "::1",
        "[::1",
        "[localhost]",
        "localhost]",
        "localhost:evil",
        "evil.example@localhost",
        "localhost evil.example",
    ],
)
def test_under_another_host_only_probes_are_served(listener: Listener, host: str) -> None:
    """A site that leads its visitors here by its own name gets 421, with the remedy."""
    head = f"HTTP/1.1\r\nHost: {host}\r\n\r\n"
    status, text = answer(listener.port, f"GET / {head}".encode())
    assert status == 421
    assert "server.hosts" in text
    assert answer(listener.port, f"GET /probe {head}".encode())[0] == 200


def test_a_request_of_the_old_version_without_host_is_refused(listener: Listener) -> None:
    """HTTP/1.0 needs no host; the page does."""
    assert answer(listener.port, b"GET / HTTP/1.0\r\n\r\n")[0] == 421
    assert answer(listener.port, b"GET /probe HTTP/1.0\r\n\r\n")[0] == 200


def test_a_host_is_read_without_port() -> None:
    """What has none is empty, which is no host of ours."""
    assert host_of("Example.org:80") == "example.org"
    assert host_of("[::1]:80") == "::1"
    assert host_of("[::1]80") == ""


# --- the token ---


def test_who_has_the_token_may_act(listener: Listener) -> None:
    """The scheme in any case."""
    for scheme in ("Bearer", "bearer"):
        request = (
            f"POST /act HTTP/1.1\r\nHost: localhost\r\nAuthorization: {scheme} {TOKEN}\r\n\r\n"
        )
        assert answer(listener.port, request.encode())[0] == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        TOKEN,
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}, Bearer {TOKEN}",
        "Bearer \xe4\xff",
    ],
)
def test_who_has_not_may_not(token_file: Path, authorization: str | None) -> None:
    """401, whatever is wrong, and no word of the token."""
    with pytest.raises(Refused) as refused:
        Gate(token=Token(token_file)).check_token(asked("localhost", authorization))
    assert refused.value.page.status == 401
    assert TOKEN not in refused.value.page.text


def test_a_get_does_nothing(listener: Listener) -> None:
    """Neither with the token nor without: it is not a method of the path."""
    request = f"GET /act HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    assert answer(listener.port, request.encode())[0] == 405


def test_ten_thousand_wrong_tokens_open_nothing(token_file: Path) -> None:
    """Each is refused like the first, and the right one is still taken."""
    gate = Gate(token=Token(token_file))
    for number in range(10_000):
        with pytest.raises(Refused):
            gate.check_token(asked("localhost", f"Bearer {number:022}"))
    gate.check_token(asked("localhost", f"Bearer {TOKEN}"))


def test_without_a_token_there_is_nothing_to_ask() -> None:
    """The path is 404, with the option that turns it on."""
    routes = Routes([Route("/act", lambda _: page(), method="POST", gated=True, token=True)])
    with pytest.raises(Refused, match=r"server\.token_file") as refused:
        routes.admit(asked("localhost", f"Bearer {TOKEN}"))
    assert refused.value.page.status == 404


def test_a_new_token_counts_once_its_file_was_looked_at(token_file: Path) -> None:
    """The old one counts no more. A file that holds none closes the door until it holds one."""
    token = Token(token_file)
    gate = Gate(token=token)

    def replaced(by: str, *, opens: str | None) -> None:
        new = token_file.with_suffix(".new")
        new.write_text(by)
        new.replace(token_file)
        token.look()
        for given in (TOKEN, "another-of-the-operator", "short"):
            if given == opens:
                gate.check_token(asked("localhost", f"Bearer {given}"))
            else:
                with pytest.raises(Refused):
                    gate.check_token(asked("localhost", f"Bearer {given}"))

    replaced("another-of-the-operator", opens="another-of-the-operator")
    replaced("short", opens=None)
    replaced("", opens=None)
    replaced(TOKEN, opens=TOKEN)
    token_file.unlink()
    token.look()
    with pytest.raises(Refused):
        gate.check_token(asked("localhost", f"Bearer {TOKEN}"))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n",
        "x" * 15,
        "two words of a token",
        "x" * 1025,
        "tökenwithanumlaut",
        "line\nline line line",
    ],
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    """With what it must hold, and how to make one."""
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(ValueError, match="openssl rand"):
        read_token(path)


def test_the_longest_and_the_shortest_token_are_read(tmp_path: Path) -> None:
    """White space around it does not count."""
    path = tmp_path / "token"
    for length in TOKEN_CHARACTERS:
        path.write_text(f" {'x' * length}\r\n")
        assert read_token(path) == b"x" * length
