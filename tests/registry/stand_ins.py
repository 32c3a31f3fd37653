"""In place of a registry: one over HTTP with given answers, and a client that a test can play with."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from streamdedup.keys.formats.schema import Schema
from streamdedup.registry.client import UnknownSchemaError
from tests.keys.avro import record

UNKNOWN = (404, {"error_code": 40403, "message": "Schema not found"})


class Answers:
    """What the registry answers, by path, and what it was asked, with the headers."""

    def __init__(self, answers: Mapping[str, tuple[int, Any]]) -> None:
        self.by_path = dict(answers)
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.url = ""


@contextmanager
def answering(
    answers: Mapping[str, tuple[int, Any]], tls: ssl.SSLContext | None = None
) -> Iterator[Answers]:
    """Serve answers of a status and a body: bytes, or what becomes JSON. Every other path is an unknown schema."""
    served = Answers(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            served.asked.append(
                (self.path, {name.lower(): of for name, of in self.headers.items()})
            )
            status, body = served.by_path.get(self.path, UNKNOWN)
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", f"{len(content)}")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    served.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}/api"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class PlayedClient:
    """A client without a network: it has `schemas`, or raises `error`; `asked` has the ids."""

    def __init__(self, schemas: Mapping[int, Schema] | None = None) -> None:
        self.schemas: dict[int | str, Schema] = dict((schemas or {}).items())
        self.error: Exception | None = None
        self.asked: list[int | str] = []

    def check(self) -> None:
        """As the client's."""
        if self.error:
            raise self.error

    def schema(self, number: int | str) -> Schema:
        """As the client's."""
        self.asked.append(number)
        self.check()
        if number not in self.schemas:
            raise UnknownSchemaError
        return self.schemas[number]


def avro(*fields: tuple[str, Any], name: str = "Event") -> Schema:
    """Return the schema of a record of these fields."""
    return Schema("AVRO", json.dumps(record(*fields, name=name)))
