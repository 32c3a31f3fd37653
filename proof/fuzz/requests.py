"""Requests of HTTP, as the server reads them: piece by piece, up to the answer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from random import Random

import h11

from proof.fuzz.mutations import SIZE_BYTES_MAX, mutated
from streamdedup.server.gate import Gate
from streamdedup.server.request import (
    BODY_BYTES_MAX,
    Exchange,
    Page,
    Refused,
    Request,
    as_json,
    json_body,
)
from streamdedup.server.route import Route, Routes, at_once

PIECE_BYTES = 7
_LINES = (
    *(b"Host: evil.example", b"Host:", b"Content-Length: 5", b"Content-Length: 65537"),
    *(b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Authorization: Bearer x"),
    *(b"Connection: upgrade", b"Content-Type: text/plain", b" folded", b"x" * 9000, b"\0: y"),
)


def _echoed(request: Request) -> Page:
    return as_json([json_body(request), request.rest])


def _found(request: Request) -> Page:
    return Page(HTTPStatus.OK, f"{request.rest}\n")


ROUTES = Routes(
    [
        Route("/api/explain", _echoed, method="POST", gated=True),
        Route("/api/explain/", _found, gated=True, segment=True),
        at_once("/readyz", lambda: Page(HTTPStatus.OK, "ready\n")),
    ],
    Gate(("dedup.example",)),
)


def requests_target(data: bytes) -> None:
    """Read a request at once, and again in small pieces. Both have the same answer, and a client can read that."""
    once, pieces = _answer(data, SIZE_BYTES_MAX), _answer(data, PIECE_BYTES)
    assert (once is None) == (pieces is None)
    if once is None or pieces is None:  # the server would wait for more
        return
    if isinstance(once, Refused):
        assert isinstance(pieces, Refused)
        raise once
    assert once == pieces


def _answer(data: bytes, piece_bytes: int) -> Page | Refused | None:
    exchange = Exchange("192.0.2.1")
    pieces = _pieces(data, lambda: min(exchange.room, piece_bytes))
    try:
        request = _request(exchange, pieces)
        if request is None:
            return None
        page: Page | Refused = _page(request)
    except Refused as refused:
        page = refused
    answer = exchange.answer(page.page if isinstance(page, Refused) else page)
    _check(b"".join(answer), exchange.method)
    return page


def _pieces(data: bytes, size: Callable[[], int]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        piece = data[at : at + size()]
        at += len(piece)
        yield piece


def _request(exchange: Exchange, pieces: Iterator[bytes]) -> Request | None:
    head = next(filter(None, map(exchange.head, pieces)), None)
    if head is None:
        return None
    assert head.path.startswith("/")
    assert all(name == name.lower() for name in head.headers)
    _, admitted = ROUTES.admit(head)
    body = exchange.body()
    while body is None and admitted.method == "POST":
        if (piece := next(pieces, None)) is None:
            return None
        body = exchange.body(piece)
    assert len(body or b"") <= BODY_BYTES_MAX
    return replace(admitted, body=body or b"")


def _page(request: Request) -> Page:
    route, _ = ROUTES.admit(request)
    page = route.answer(request)
    assert isinstance(page, Page)
    return page


def _check(answer: bytes, method: str) -> None:
    """Have a client read the answer to its end."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method or "GET", target="/", headers=[("Host", "h")]))
    client.send(h11.EndOfMessage())
    client.receive_data(answer)
    events = list(iter(client.next_event, h11.NEED_DATA))[:3]
    assert isinstance(events[0], h11.Response)
    assert any(isinstance(event, h11.EndOfMessage) for event in events)


def made() -> Iterator[bytes]:
    """Yield requests as clients send them."""
    head = (
        b"POST /api/explain HTTP/1.1\r\nHost: 127.0.0.1:9464\r\nContent-Type: application/json\r\n"
    )
    body = b'{"key": "jane@example.org"}'
    yield head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    yield head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    yield head + b'Transfer-Encoding: chunked\r\n\r\n2;x="y"\r\n{}\r\n0\r\ntrailer: z\r\n\r\n'
    yield head + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n[]GET / HTTP/1.1\r\n\r\n"
    yield b"GET /readyz HTTP/1.1\r\nHost: worker\r\nAccept: */*\r\n\r\n"
    yield b"HEAD /readyz?x HTTP/1.0\r\n\r\n"
    yield b"GET /api/explain/a-B_3.~ HTTP/1.1\r\nHost: [::1]:9464\r\nCookie: a=b\r\n\r\n"
    yield b"GET /api/explain/1 HTTP/1.1\r\nHost: Dedup.example:80\r\nX: 1\r\nX: 2\r\n\r\n"


def mutated_request(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return a request with a line of another one, or with one that changes how it is read; or as any bytes change."""
    if random.random() < 0.5:
        return mutated(random, data, others)
    head, end, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    theirs = random.choice(others).partition(b"\r\n\r\n")[0].split(b"\r\n")
    line = random.choice([*_LINES, *theirs])
    at = random.randrange(len(lines) + 1)
    lines[at : at + random.randint(0, 1)] = [line] * random.choice((1, 1, 1, 2, 120))
    return (b"\r\n".join(lines) + end + body)[:SIZE_BYTES_MAX]
