"""The HTTP server: a thread with a loop of its own, which serves `Routes`.

A connection serves one request. Whatever clients do is bounded, in places, bytes, seconds and work, by the constants
below and those of `request.py`. If no place is free, a new connection takes that of the slowest client: so a probe
always has one.
"""

import asyncio
import socket
import threading
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus

from streamdedup.errors import ConfigError
from streamdedup.server.request import Exchange, Page, Refused, Request
from streamdedup.server.route import Route, Routes, answered

CONNECTIONS_MAX = 32
REQUEST_S_MAX = 5.0  # until it is whole
SEND_S_MAX = 5.0
SEND_BUFFER_BYTES = 128 << 10  # Linux holds twice as much of an answer that is not read
READ_REST_S = 0.1  # a request in parts is read ten times a second, however many parts there are

# What a refused client still sends is read, or its system would throw away our answer before it is read.
LEAVE_S_MAX, LEAVE_BYTES = 1.0, 64 << 10

# Together 200 connections a second, which take about 3 % of a processor; more than these wait, in their order.
ACCEPTS, ACCEPT_REST_S = 8, 0.04
WAITING_MAX = 128  # they are served within 0.64 s, and Kubernetes gives a probe a second

_TOO_SLOW = Page(
    HTTPStatus.REQUEST_TIMEOUT, f"the request was not whole within {REQUEST_S_MAX:g} s\n"
)

Places = dict[socket.socket, asyncio.Task[None]]


class Listener:
    """Serves `routes` from its creation until it is closed. `option` names the port in messages."""

    def __init__(
        self, host: str, port: int, routes: Routes, *, option: str = "server.port"
    ) -> None:
        """Start to listen. Blocking. ConfigError if nothing can listen there."""
        try:
            self._socket = _bound(host, port)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no host can have that name"
            raise ConfigError(
                f"{option} = {port}: cannot listen at {host}:{port} ({reason}); set another port (0 takes any free"
                " one) or another server.host"
            ) from None
        self.port = int(self._socket.getsockname()[1])
        self._routes = routes
        # The connections in the order in which they came: those that were refused and go, those whose request is not
        # whole yet, and the others. In this order they make room.
        self._leaving: Places = {}
        self._asking: Places = {}
        self._answering: Places = {}
        self._closing = asyncio.Event()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering soon. Returns at once."""
        self._loop.call_soon_threadsafe(self._closing.set)

    def join(self, within_s: float) -> None:
        """Wait until the thread has ended after `close`, for at most `within_s` seconds. This blocks."""
        self._thread.join(within_s)

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        """Serve until `close`; the runner then ends the conversations."""
        accepting = asyncio.create_task(self._accept())
        await self._closing.wait()
        accepting.cancel()
        await asyncio.wait([accepting])
        self._socket.close()

    async def _accept(self) -> None:
        """Give places to those who connect, at the pace of `ACCEPTS`."""
        while True:
            for _ in range(ACCEPTS):
                with suppress(OSError):  # the client has gone, or we have no descriptor left
                    connection, (peer, *_) = await self._loop.sock_accept(self._socket)
                    self._admit(connection, peer)
                await asyncio.sleep(0)  # so that a whole head is read before anyone takes its place
            await rest(ACCEPT_REST_S)

    def _admit(self, connection: socket.socket, peer: str) -> None:
        """Give a place to `connection`, that of the slowest client if none is free."""
        if len(self._leaving) + len(self._asking) + len(self._answering) >= CONNECTIONS_MAX:
            slowest = self._leaving or self._asking or self._answering
            slowest.pop(next(iter(slowest))).cancel()
        task = self._loop.create_task(self._converse(connection, peer))
        task.add_done_callback(lambda _: self._close(connection))
        self._asking[connection] = task

    def _close(self, connection: socket.socket) -> None:
        for places in (self._leaving, self._asking, self._answering):
            places.pop(connection, None)
        connection.close()

    async def _converse(self, connection: socket.socket, peer: str) -> None:
        """Serve one request. A client that goes away or reads too slowly is dropped: neither is a fault of ours."""
        exchange = Exchange(peer)
        with suppress(OSError):  # TimeoutError is one
            page = await self._page(connection, exchange)
            async with asyncio.timeout(SEND_S_MAX):
                for part in exchange.answer(page):
                    await self._loop.sock_sendall(connection, part)
            connection.shutdown(socket.SHUT_WR)
            if not exchange.is_read:
                self._leaving[connection] = self._answering.pop(connection)
                await self._hear_out(connection)

    async def _page(self, connection: socket.socket, exchange: Exchange) -> Page:
        """Return the answer to the request that comes. OSError if none comes."""
        refusal: Page | None = None
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                route, request = await self._asked(connection, exchange)
        except Refused as refused:
            refusal = refused.page
        except TimeoutError:
            if not exchange.has_begun:  # browsers connect before they know what to ask for
                raise
            refusal = _TOO_SLOW
        self._answering[connection] = self._asking.pop(connection)
        return refusal or await answered(route, request)

    async def _asked(self, connection: socket.socket, exchange: Exchange) -> tuple[Route, Request]:
        """Read a request, and its body only if it is served. Refused if it is not; OSError if the client goes away."""
        request = exchange.head(await self._received(connection, exchange.room))
        while request is None:
            await rest(READ_REST_S)
            request = exchange.head(await self._received(connection, exchange.room))
        route, request = self._routes.admit(request)
        body = exchange.body()
        if request.method != "POST":
            return route, request
        if body is None:
            await self._loop.sock_sendall(connection, exchange.go_on)
        while body is None:
            await rest(READ_REST_S)
            body = exchange.body(await self._received(connection, exchange.room))
        return route, replace(request, body=body)

    async def _received(self, connection: socket.socket, room: int) -> bytes:
        data = await self._loop.sock_recv(connection, room)
        if not data:
            raise ConnectionError("the client went away")
        return data

    async def _hear_out(self, connection: socket.socket) -> None:
        async with asyncio.timeout(LEAVE_S_MAX):
            while await self._loop.sock_recv(connection, LEAVE_BYTES):
                await rest(READ_REST_S)


async def rest(seconds: float) -> None:
    """Let clients wait, so that their number and their haste do not set how much work the server does."""
    await asyncio.sleep(seconds)


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens. OSError or UnicodeError if that is not possible."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        # Connections that were closed a moment ago do not block the port. A port in use is still refused.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(WAITING_MAX)
    except BaseException:
        listening.close()
        raise
    return listening
