"""Requests and answers of HTTP/1.1, as values: no sockets here. `h11` parses and writes them.

A connection has one request. A wrong one raises `Refused`, which has the page that says why. The head alone decides
whether a request is served, before its body is read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

import h11

from streamdedup.units import escaped

HEAD_BYTES_MAX = 8192
HEADERS_MAX = 100
BODY_BYTES_MAX = 64 << 10
# With the frames of its chunks. Chunks of one byte take six bytes each, and no client needs them.
SENT_BYTES_MAX = HEAD_BYTES_MAX + 2 * BODY_BYTES_MAX
ALONE_BYTES_MIN = 16 << 10  # of a content that is sent without being copied behind its head

PLAIN_TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
JSON = "application/json"
HEAD_END = b"\r\n\r\n"

# A browser loads for a page only what this server has, shows it in no frame of another, and sends no form anywhere.
ALWAYS = (
    ("Cache-Control", "no-store"),
    ("Connection", "close"),
    (
        "Content-Security-Policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("Server", "streamdedup"),
    ("X-Content-Type-Options", "nosniff"),
)


class Page(NamedTuple):
    """An answer to a request. `headers` are those that not every answer has.

    `shared` has the text as bytes, in place of `text`, if many clients get the same page: so they are in memory once.
    """

    status: HTTPStatus
    text: str
    content_type: str = PLAIN_TEXT
    headers: tuple[tuple[str, str], ...] = ()
    shared: bytes | None = None

    def for_many(self) -> "Page":
        """Return the same page, with its bytes made for all who get it."""
        return self._replace(text="", shared=self.content)

    @property
    def content(self) -> bytes:
        """The text as it is sent."""
        return self.text.encode(errors="replace") if self.shared is None else self.shared


class Refused(Exception):  # noqa: N818 - no error of ours, but an answer
    """A request that is not served, with the page that says why."""

    def __init__(self, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.page = Page(status, f"{text}\n", headers=headers)


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `path` and `query` are as they were sent; the names of `headers` are in lower case.

    `peer` is the address of the client, and `rest` the last segment of the path, if its route leaves that open.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""
    rest: str = ""


def as_json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Page:
    """Return the page of a value, as JSON."""
    return Page(status, json.dumps(value, separators=(",", ":"), allow_nan=False) + "\n", JSON)


def json_body(request: Request) -> object:
    """Return the JSON of a body. Refused if it is not JSON, not declared as such, or nested too deeply.

    An object that repeats a name is not JSON here, and neither is a text that is not Unicode.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body must be JSON; set Content-Type: {JSON}"
        )
    try:
        value = json.loads(
            request.body.decode("utf-8"),
            object_pairs_hook=_distinct,
            parse_constant=_no_number,
        )
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # half of a surrogate pair is no text
    except UnicodeError:
        raise Refused(HTTPStatus.BAD_REQUEST, "the body is not UTF-8; send JSON in it") from None
    except RecursionError:
        raise Refused(
            HTTPStatus.BAD_REQUEST, "the body is JSON that is nested too deeply"
        ) from None
    except ValueError as error:
        raise Refused(
            HTTPStatus.BAD_REQUEST, f"the body is no JSON: {escaped(str(error))}"
        ) from None
    return value


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return values


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


class Exchange:
    """A request, from its bytes as they come, and the answer to it, as bytes."""

    def __init__(self, peer: str = "") -> None:
        self._peer = peer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._taken = 0
        self._head = bytearray()
        self.method = ""  # once the head is whole
        self._body = bytearray()
        self._is_whole = False

    @property
    def has_begun(self) -> bool:
        """Whether the client has sent anything."""
        return self._taken > 0

    @property
    def is_read(self) -> bool:
        """Whether all that the client has to send was taken."""
        return self._is_whole and not self._http.trailing_data[0]

    @property
    def room(self) -> int:
        """How many bytes may be taken next."""
        return HEAD_BYTES_MAX - len(self._head) if not self.method else HEAD_BYTES_MAX

    def head(self, data: bytes) -> Request | None:
        """Take `data`; return the request without its body, or None if the head is not whole yet. Refused if wrong."""
        self._head += data
        if self._head.partition(HEAD_END)[0].count(b"\n") > HEADERS_MAX:
            raise Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEADERS_MAX} headers"
            )
        event = self._next(data)
        if isinstance(event, h11.Request):
            return self._begun(event)
        if len(self._head) >= HEAD_BYTES_MAX:
            raise Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head above {HEAD_BYTES_MAX} bytes"
            )
        return None

    def body(self, data: bytes = b"") -> bytes | None:
        """Take `data`; return the whole body, or None if more of it must come. Refused if it is wrong, or too large."""
        event = self._next(data)
        while isinstance(event, h11.Data):
            self._body += event.data
            if len(self._body) > BODY_BYTES_MAX:
                raise _too_large()
            event = self._next()
        if isinstance(event, h11.EndOfMessage):
            self._is_whole = True
            return bytes(self._body)
        if self._taken > SENT_BYTES_MAX:
            raise _too_large()
        return None

    @property
    def go_on(self) -> bytes:
        """What the client waits for before it sends its body; empty if it does not wait."""
        if not self._http.they_are_waiting_for_100_continue:
            return b""
        return self._sent(
            h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
        )

    def answer(self, page: Page) -> list[bytes]:
        """Return the bytes of the answer, in one part or two: a long content is not copied."""
        content = page.content
        headers = [
            ("Date", formatdate(usegmt=True)),
            ("Content-Type", page.content_type),
            ("Content-Length", str(len(content))),
            *ALWAYS,
            *page.headers,
        ]
        head = h11.Response(
            status_code=page.status, headers=headers, reason=page.status.phrase.encode()
        )
        sent = self._sent(head)
        if self.method == "HEAD":
            return [sent]
        # Short parts are sent at once: the system would hold the second back until the first has arrived.
        return [sent, content] if len(content) > ALONE_BYTES_MIN else [sent + content]

    def _begun(self, event: h11.Request) -> Request:
        names = [name for name, _ in event.headers]
        if event.http_version not in (b"1.0", b"1.1"):
            raise Refused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 and HTTP/1.0")
        if {b"content-length", b"transfer-encoding"} <= set(names):
            raise Refused(
                HTTPStatus.BAD_REQUEST, "Content-Length and Transfer-Encoding in one request"
            )
        if not event.target.startswith(b"/"):
            raise Refused(HTTPStatus.BAD_REQUEST, "the target of a request must be a path")
        headers = dict[str, str]()
        for name, value in event.headers:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        if int(headers.get("content-length", "0")) > BODY_BYTES_MAX:
            raise _too_large()
        self.method = event.method.decode("latin-1")
        path, _, query = event.target.decode("latin-1").partition("?")
        return Request(self.method, path, query, headers, peer=self._peer)

    def _next(self, data: bytes = b"") -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            if data:
                self._taken += len(data)
                self._http.receive_data(data)
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            what = str(error).partition(": bytearray")[0]  # after it, h11 quotes what was sent
            raise Refused(status, f"no request of HTTP/1.1: {escaped(what)}") from None

    def _sent(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""


def _too_large() -> Refused:
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body above {BODY_BYTES_MAX} bytes is not taken"
    )
