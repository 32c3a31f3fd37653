"""What is claimed of requests: which bytes are one, with which body, and what is said of all others."""

import json
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from streamdedup.server.listener import Listener
from streamdedup.server.request import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    SENT_BYTES_MAX,
    Exchange,
    Page,
    Refused,
    Request,
    as_json,
    json_body,
)
from streamdedup.server.route import Route, Routes, at_once
from tests.server.test_server import HOST, ask, say

HEAD = b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
LARGEST = b"[" + b" " * (BODY_BYTES_MAX - 2) + b"]"


def sized(body: bytes, length: int | None = None) -> bytes:
    """The rest of a request with this body."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body) if length is None else length, body)


def chunks(body: bytes, size: int) -> bytes:
    """A body in chunks."""
    parts = (body[at : at + size] for at in range(0, len(body), size))
    return CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def echo(request: Request) -> Page:
    """What was asked."""
    return as_json([json_body(request), request.query, request.rest, request.peer])


async def later(request: Request) -> Page:
    """Refuse what is asked, after a while."""
    raise Refused(HTTPStatus.CONFLICT, f"not {request.rest}")


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A server that reads bodies, at `/echo`, and one segment, at `/later/`."""
    routes = [
        Route("/echo", echo, method="POST"),
        Route("/later/", later, segment=True),
        at_once("/page", lambda: Page(HTTPStatus.OK, "text\n")),
    ]
    made = Listener(HOST, 0, Routes(routes))
    yield made
    made.close()


def answer(port: int, request: bytes) -> tuple[int, str]:
    """The status and the text that answer these bytes."""
    head, _, text = say(port, request).partition(b"\r\n\r\n")
    return int(head.split()[1]), text.decode()


@pytest.mark.parametrize(
    "rest",
    [sized(b'["k"]'), chunks(b'["k"]', 1), chunks(b'["k"]', 5), b"Expect: x\r\n" + sized(b'["k"]')],
    ids=["by length", "in chunks of a byte", "in a chunk", "with another expectation"],
)
def test_a_body_is_read(listener: Listener, rest: bytes) -> None:
    """By its length or in chunks; what a client sends after it is not a second request."""
    status, text = answer(listener.port, HEAD + rest + b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (status, json.loads(text)) == (200, [["k"], "", "", HOST])


@pytest.mark.parametrize("rest", [sized(LARGEST), chunks(LARGEST, 4096)], ids=["length", "chunks"])
def test_the_largest_body_is_read(listener: Listener, rest: bytes) -> None:
    """Of 64 KiB, to its last byte."""
    assert answer(listener.port, HEAD + rest)[0] == 200


@pytest.mark.parametrize(
    "rest",
    [
        sized(LARGEST + b" "),
        sized(b"", 10**18),
        chunks(LARGEST + b" ", 4096),
        CHUNKED + b"1\r\n \r\n" * SENT_BYTES_MAX,
        CHUNKED + b"FFFFFFFFFFFF\r\n" + b" " * SENT_BYTES_MAX,
    ],
    ids=["a byte more", "without end", "a chunk more", "tiny chunks without end", "a huge chunk"],
)
def test_a_larger_body_is_refused(listener: Listener, rest: bytes) -> None:
    """By 413, without reading on, also while the client still sends."""
    assert answer(listener.port, HEAD + rest)[0] == 413
    assert ask(listener.port, "/page")[0] == 200


def test_who_waits_to_send_a_body_is_told_to_go_on() -> None:
    """With 100, but only if the body is taken."""
    exchange = Exchange()
    assert exchange.head(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert exchange.body() is None
    assert exchange.go_on == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert exchange.body(b"{}") == b"{}"
    exchange = Exchange()
    with pytest.raises(Refused, match="65536"):
        exchange.head(HEAD + b"Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n")


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n[]",
        b"Content-Length: 2\r\n" + chunks(b"[]", 2),
        b"Content-Length: +2\r\n\r\n[]",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 2, 3\r\n\r\n[]",
        b"Content-Length : 2\r\n\r\n[]",
        b"Host: other\r\n" + sized(b"[]"),
        CHUNKED + b"2\r\n[]]\r\n0\r\n\r\n",
        CHUNKED + b"zz\r\n[]\r\n0\r\n\r\n",
        b"x: \x00\r\n" + sized(b"[]"),
        b" folded: x\r\nbad header\r\n" + sized(b"[]"),
    ],
)
def test_what_two_servers_would_read_differently_is_refused(
    listener: Listener, rest: bytes
) -> None:
    """By 400: two lengths, a length and chunks, two hosts, frames that are none."""
    assert answer(listener.port, HEAD + rest)[0] == 400


def test_another_coding_is_not_implemented(listener: Listener) -> None:
    """Only chunks are."""
    assert answer(listener.port, HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n")[0] == 501


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET http://h/page HTTP/1.1", 400),
        (b"GET * HTTP/1.1", 400),
        (b"GET /p\xc3\xa4ge HTTP/1.1", 400),
        (b"GET /pa%67e HTTP/1.1", 404),
        (b"GET //page HTTP/1.1", 404),
        (b"GET /later HTTP/1.1", 404),
        (b"GET /later/ HTTP/1.1", 409),
        (b"GET /later/a/b HTTP/1.1", 404),
        (b"GET /later/%2e%2e HTTP/1.1", 404),
        (b"GET /later/" + b"a" * 257 + b" HTTP/1.1", 404),
        (b"GET /later/a-1.b?c HTTP/1.1", 409),
        (b"GET /page?/later/a HTTP/1.1", 200),
    ],
)
def test_a_path_is_taken_as_it_is_sent(listener: Listener, line: bytes, status: int) -> None:
    """It is not decoded, and only a path; where a segment is open, it has letters, digits and `._~-`."""
    assert answer(listener.port, line + b"\r\nHost: h\r\n\r\n")[0] == status


def test_a_request_without_host_is_refused(listener: Listener) -> None:
    """As HTTP/1.1 wants it; HTTP/1.0 has none."""
    assert answer(listener.port, b"GET /page HTTP/1.1\r\n\r\n")[0] == 400
    assert answer(listener.port, b"GET /page HTTP/1.0\r\n\r\n")[0] == 200


def test_many_headers_cost_one_head(listener: Listener) -> None:
    """Of 100,000 only those are read that 8 KiB hold."""
    assert answer(listener.port, HEAD + b"x: y\r\n" * 100_000 + sized(b"[]"))[0] == 431
    exchange = Exchange()
    with pytest.raises(Refused, match=str(HEAD_BYTES_MAX)):
        exchange.head((b"GET /" + b"x" * HEAD_BYTES_MAX)[:HEAD_BYTES_MAX])
    assert exchange.room == 0


def test_no_page_is_shown_or_read_by_another_site(listener: Listener) -> None:
    """Each answer says so to browsers, also that of a refusal; none allows another origin anything."""
    for method, path in (("GET", "/page"), ("GET", "/none"), ("OPTIONS", "/echo")):
        _, _, headers = ask(listener.port, path, method)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert not [name for name in headers if name.lower().startswith("access-control-")]


# --- JSON ---


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[" * BODY_BYTES_MAX, "nested"),
        (b'{"a":' * 10_000, "nested"),
        (b'"\xff"', "UTF-8"),
        (b'"\\ud800"', "UTF-8"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"[NaN]", "no number"),
        (b"9" * 10_000, "no JSON"),
    ],
    ids=[
        "empty",
        "cut",
        "deep",
        "deep objects",
        "no UTF-8",
        "half a pair",
        "a name twice",
        "NaN",
        "a number of 10,000 digits",
    ],
)
def test_what_is_no_json_is_refused(body: bytes, reason: str) -> None:
    """With the reason, and without a word of the body."""
    headers = {"content-type": "application/json; charset=utf-8"}
    with pytest.raises(Refused, match=reason) as refused:
        json_body(Request("POST", "/", headers=headers, body=body))
    assert refused.value.page.status == 400


@pytest.mark.parametrize("declared", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_a_form_could_send_is_refused(declared: str) -> None:
    """It must be declared as JSON, which the form of another site cannot do."""
    with pytest.raises(Refused, match="application/json"):
        json_body(Request("POST", "/", headers={"content-type": declared}, body=b"{}"))
