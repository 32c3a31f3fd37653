"""The other workers of `server.peers`, as each answers about itself: asked only while somebody looks at this one.

Each is asked for its `/api/status?local` at its address, at most every `EVERY_S`, within `ANSWER_S_MAX` and
`ANSWER_BYTES_MAX`; nobody else is asked, and no redirect is followed. What it answers is kept only as far as it has the
shape of a worker's document. All of it runs on the server's loop.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11

from streamdedup import shape

EVERY_S = 2.0
ANSWER_S_MAX = 1.0
ANSWER_BYTES_MAX = 256_000
RESOLVED_S = 10.0  # for which the addresses of a name are kept
OLD_S = 10.0  # older answers are not shown before they are asked for again
ASKED_MAX = 8  # at a time: more would take descriptors from Kafka's connections
READ_BYTES = 1 << 16
TARGET = "/api/status?local"

Address = tuple[str, int]
Resolve = Callable[[str, int], Sequence[str]]


class PeerError(Exception):
    """A peer does not answer as one. The message says how, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What is known of a peer: its document, or why there is none; since when; times in s since 1970."""

    address: str
    asked_at: float
    since: float
    instance: str = ""
    error: str | None = None
    status: str = "null"  # its document as JSON, made once

    def as_json(self) -> str:
        """Return it as it is in the document of `/api/status`."""
        about = {
            "address": self.address,
            "answers": self.error is None,
            "asked_at": self.asked_at,
            "since": self.since,
            "error": self.error,
        }
        return f'{encoded(about)[:-1]},"status":{self.status}}}'


def encoded(value: object) -> str:
    """Return a value as compact JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


class Peers:
    """The peers at `places`, hosts with ports. `instance` is that of this worker, which is no peer of itself."""

    def __init__(
        self,
        places: Iterable[Address],
        instance: str,
        clock: Callable[[], float] = time.monotonic,
        resolve: Resolve | None = None,
    ) -> None:
        self._instance, self._clock = instance, clock
        self._names = [_Name(host, port, resolve or addresses_of) for host, port in places]
        self._known: dict[str, Peer] = {}
        self._asking: asyncio.Task[None] | None = None
        self._asked_at: float | None = None
        self._text = "[]"

    async def get(self) -> str:
        """Return the peers as a JSON array; if what is known is older than `OLD_S`, once they are asked."""
        now = self._clock()
        age = None if self._asked_at is None else now - self._asked_at
        if (self._asking is None or self._asking.done()) and (age is None or age >= EVERY_S):
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask_all())
        if self._asking is not None and (age is None or age >= OLD_S):
            await asyncio.shield(self._asking)
        return self._text

    async def _ask_all(self) -> None:
        now = self._clock()
        await asyncio.gather(*(name.look_up(now) for name in self._names))
        unknown = [name for name in self._names if name.error]
        at = {label(address): address for name in self._names for address in name.addresses}
        places = asyncio.Semaphore(ASKED_MAX)
        asked = list(at.items())[: shape.PEERS_MAX]
        found = await asyncio.gather(*(self._ask(places, *each) for each in asked))
        found += [self._failed(label(name.place), name.error or "") for name in unknown]
        self._known = {peer.address: peer for peer in found}
        self._text = f"[{','.join(peer.as_json() for peer in self._others(found))}]"

    def _others(self, found: Iterable[Peer]) -> Iterable[Peer]:
        """Yield each worker but this one once, even if it has several addresses."""
        met = {self._instance}
        for peer in found:
            if not peer.instance or peer.instance not in met:
                met.add(peer.instance)
                yield peer

    async def _ask(self, places: asyncio.Semaphore, at: str, address: Address) -> Peer:
        async with places:
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    body = await answer_of(address)
                instance, status = await asyncio.to_thread(_document, body)
            except TimeoutError:
                return self._failed(at, f"it does not answer within {ANSWER_S_MAX:g} s")
            except PeerError as error:
                return self._failed(at, str(error))
            except (OSError, h11.RemoteProtocolError) as error:
                reason = getattr(error, "strerror", None) or "no answer of HTTP/1.1"
                return self._failed(at, f"it does not answer: {reason}")
        now = time.time()
        before = self._known.get(at)
        since = before.since if before and before.instance == instance else now
        return Peer(at, now, since, instance, status=status)

    def _failed(self, at: str, error: str) -> Peer:
        now = time.time()
        before = self._known.get(at)
        return Peer(at, now, before.since if before and before.error else now, error=error)


def _document(body: bytes) -> tuple[str, str]:
    """Return the instance and the JSON of a peer's document. PeerError if it is none."""
    found = shape.read(body)
    if found is None:
        raise PeerError("what answers there is no worker of this version")
    found.pop("peers", None)
    text = encoded(found)
    if len(text) > ANSWER_BYTES_MAX:  # a worker encodes alike; others may be three times as short
        raise _too_long()
    return found["worker"]["instance"], text


async def answer_of(address: Address, target: str = TARGET) -> bytes:
    """Return the body of the answer of the worker at an address to GET `target`.

    Raises OSError, RemoteProtocolError or PeerError if there is none.
    """
    reader, writer = await asyncio.open_connection(*address)
    try:
        http = h11.Connection(h11.CLIENT)
        headers = [
            ("Host", label(address)),
            ("Accept", "application/json"),
            ("Connection", "close"),
        ]
        request = h11.Request(method="GET", target=target, headers=headers)
        writer.write((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
        return await _body(http, reader)
    finally:
        writer.transport.abort()


async def _body(http: h11.Connection, reader: asyncio.StreamReader) -> bytes:
    body, taken = bytearray(), 0
    while True:
        event: Any = http.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(READ_BYTES)
            taken += len(data)
            if taken > ANSWER_BYTES_MAX:
                raise _too_long()
            http.receive_data(data)
        elif isinstance(event, h11.Response):
            if event.status_code != 200:
                raise PeerError(f"it answers with status {event.status_code}")
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)
        elif not isinstance(event, h11.InformationalResponse):
            raise PeerError("it closes the connection")


def _too_long() -> PeerError:
    return PeerError(f"its answer has more than {ANSWER_BYTES_MAX:,} bytes")


class _Name:
    """A host with a port, and its addresses: looked up one at a time, in a thread that ends with the process."""

    def __init__(self, host: str, port: int, resolve: Resolve) -> None:
        self.place = host, port
        self._resolve = resolve
        self.addresses: Sequence[Address] = ()
        self.error: str | None = None
        self._looked_at: float | None = None
        self._looking: threading.Thread | None = None
        self._found = asyncio.Event()

    async def look_up(self, now: float) -> None:
        """Wait for the addresses, for `ANSWER_S_MAX` at most. Until they are known, those before count."""
        if self._looking is None or not self._looking.is_alive():
            if self._looked_at is not None and now - self._looked_at < RESOLVED_S:
                return
            self._looked_at = now
            self._start()
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._found.wait()

    def _start(self) -> None:
        loop, self._found = asyncio.get_running_loop(), asyncio.Event()
        host, port = self.place

        def look() -> None:
            try:
                found = [(address, port) for address in self._resolve(host, port)]
                self.addresses, self.error = found, None
            except (OSError, UnicodeError):
                self.addresses, self.error = (), f"the name {host} has no address"
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._found.set)

        self._looking = threading.Thread(target=look, name="peers", daemon=True)
        self._looking.start()


def addresses_of(host: str, port: int) -> list[str]:
    """Return the addresses of a host, at most `PEERS_MAX`; of IPv4 alone if it has such. Blocking. OSError if none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    of_4 = [each for each in found if each[0] == socket.AF_INET]
    return list(dict.fromkeys(str(address[0]) for *_, address in of_4 or found))[: shape.PEERS_MAX]


def label(address: Address) -> str:
    """Return an address as text: `10.0.0.2:9464`, `[::1]:9464`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
