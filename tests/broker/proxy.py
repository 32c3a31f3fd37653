"""A proxy in front of brokers that reads Kafka's frames: a rule says which are late, lost, changed, or cut off.

Brokers name their own addresses; in those answers the proxy puts its ports, so that a client that is given
`Proxy.bootstrap_servers` stays behind it. It runs in a thread, for workers in this process and in others.
"""

import asyncio
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from types import TracebackType
from typing import Self

from tests.broker.base import DEADLINE_S, free_ports

ANSWERED_S_MAX = 5.0
POLL_S = 0.01


class Api(IntEnum):
    """The requests that tests name, by Kafka's keys."""

    PRODUCE = 0
    FETCH = 1
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    SYNC_GROUP = 14
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    DESCRIBE_CLUSTER = 60


TELLING_ADDRESSES = {Api.METADATA, Api.FIND_COORDINATOR, Api.DESCRIBE_CLUSTER}


@dataclass(frozen=True, slots=True)
class Frame:
    """A request, or the answer to one. `number` counts those of its api and direction, `connection` clients, from 1."""

    api: int
    is_answer: bool
    version: int
    number: int
    connection: int
    message: bytes  # the whole frame but for its length

    @property
    def correlation_id(self) -> bytes:
        """The four bytes by which a client finds the request that is answered."""
        return self.message[:4] if self.is_answer else self.message[4:8]


@dataclass(frozen=True, slots=True)
class Delay:
    """Let it wait, and all that follows it on its way; it arrives although the client may be gone by then."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """As `Delay`, until the event is set, at most `DEADLINE_S`."""

    until: threading.Event


@dataclass(frozen=True, slots=True)
class Drop:
    """Swallow it: the connection stays open."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Swallow it and close the connection on both sides."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Pass on another message, with its correlation id."""

    message: bytes


Action = Delay | Hold | Drop | Cut | Replace
Rule = Callable[[Frame], Action | None]


def let_pass(_frame: Frame) -> None:
    """Be no more than a wire."""


class Proxy:
    """`with Proxy(bootstrap) as proxy:` give `proxy.bootstrap_servers` to clients; set `proxy.rule` at any time.

    The rule is asked in the proxy's thread, once a frame, in the order of their coming. Every broker of the cluster
    must be in `bootstrap`, or clients find their way around the proxy.
    """

    def __init__(self, bootstrap: str, rule: Rule = let_pass) -> None:
        self.rule = rule
        self.seen: Counter[tuple[int, bool]] = Counter()  # by api, and whether it is an answer
        self.acted: list[tuple[Frame, Action]] = []
        self._brokers = [_address(each) for each in bootstrap.split(",")]
        self._ports: list[int] = []  # once it listens
        self._pipes: set[_Pipe] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._listening, self._closing = threading.Event(), asyncio.Event()
        self._error: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        """What clients are to be given."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def cut_all(self) -> None:
        """Close every connection there is now."""
        self._loop.call_soon_threadsafe(self._abort_pipes)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(DEADLINE_S), "the proxy does not listen"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def judge(self, frame: Frame) -> Action | None:
        """What the rule says; an error in it ends the connection, and the test."""
        try:
            action = self.rule(frame)
        except BaseException as error:
            self._error = error
            return Cut()
        if action is not None:
            self.acted.append((frame, action))
        return action

    def number(self, api: int, is_answer: bool) -> int:
        """Count one more of them."""
        self.seen[api, is_answer] += 1
        return self.seen[api, is_answer]

    def readdressed(self, message: bytes) -> bytes:
        """The answer with our ports in the place of the brokers'; what stands before a port is its host."""
        for (host, port), ours in zip(self._brokers, self._ports, strict=True):
            for name in {host, "localhost", "127.0.0.1"}:
                there = name.encode()
                message = message.replace(
                    there + struct.pack(">i", port), there + struct.pack(">i", ours)
                )
        return message

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        servers = [await self._listen(*broker) for broker in self._brokers]
        self._listening.set()
        await self._closing.wait()
        for server in servers:
            for listener in server.sockets:
                self._loop.remove_reader(listener.fileno())
        await _turns()  # a server that closes would leak whom it is just letting in
        for server in servers:
            server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await _turns()  # until what was aborted is closed

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        """Serve as that broker, at a port of ours. Another process may take one between our look and our use of it."""
        while True:
            (ours,) = free_ports(1)
            try:
                server = await asyncio.start_server(
                    self._serve_client(host, port), "127.0.0.1", ours
                )
            except OSError:
                continue
            self._ports.append(ours)
            return server

    def _serve_client(
        self, host: str, port: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                upstream = await asyncio.open_connection(host, port)
                pipe = _Pipe(self, next(self._numbers), (reader, writer), upstream)
                self._pipes.add(pipe)
                try:
                    await pipe.run()
                finally:
                    pipe.abort()
                    self._pipes.discard(pipe)
            except OSError:  # the broker is down, and so are we
                return

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(serve(reader, writer))
            self._serving.add(task)  # the loop alone would let it be collected
            task.add_done_callback(self._serving.discard)
            task.add_done_callback(lambda _: writer.transport.abort())  # though it never began

        return begin

    def _abort_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.abort()


class _Pipe:
    """One client's connection and ours to the broker."""

    def __init__(
        self,
        proxy: Proxy,
        number: int,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy, self._number = proxy, number
        self._client, self._broker = client, broker
        self._asked: dict[bytes, tuple[int, int]] = {}  # correlation id -> api, version

    async def run(self) -> None:
        """Until both sides have ended; what the client sent before it went reaches the broker."""
        await asyncio.gather(self._requests(), self._answers())

    def abort(self) -> None:
        """End both connections now."""
        for _reader, writer in (self._client, self._broker):
            writer.transport.abort()

    async def _requests(self) -> None:
        (reader, _), (_, writer) = self._client, self._broker
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                message = await _read(reader)
                api, version = struct.unpack(">hh", message[:4])
                self._asked[message[4:8]] = api, version
                await self._pass_on(self._frame(api, False, version, message), writer)
        ends_at = asyncio.get_running_loop().time() + ANSWERED_S_MAX
        while self._asked and asyncio.get_running_loop().time() < ends_at:
            if writer.transport.is_closing():
                break
            await asyncio.sleep(POLL_S)  # a broker drops requests of a client that has gone
        writer.close()

    async def _answers(self) -> None:
        (reader, _), (_, writer) = self._broker, self._client
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                message = await _read(reader)
                api, version = self._asked.pop(message[:4], (-1, -1))
                if api in TELLING_ADDRESSES:
                    message = self._proxy.readdressed(message)
                await self._pass_on(self._frame(api, True, version, message), writer)
        writer.close()

    def _frame(self, api: int, is_answer: bool, version: int, message: bytes) -> Frame:
        number = self._proxy.number(api, is_answer)
        return Frame(api, is_answer, version, number, self._number, message)

    async def _pass_on(self, frame: Frame, writer: asyncio.StreamWriter) -> None:
        message = frame.message
        match self._proxy.judge(frame):
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Hold(until):
                await _wait(until)
            case Drop():
                return
            case Cut():
                self.abort()
                return
            case Replace(other):
                message = other
        if not writer.transport.is_closing():
            writer.write(struct.pack(">i", len(message)) + message)


async def _turns() -> None:
    for _ in range(10):  # a few for each connection, whatever they take
        await asyncio.sleep(0)


async def _read(reader: asyncio.StreamReader) -> bytes:
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


async def _wait(until: threading.Event) -> None:
    ends_at = asyncio.get_running_loop().time() + DEADLINE_S
    while not until.is_set() and asyncio.get_running_loop().time() < ends_at:
        await asyncio.sleep(POLL_S)


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.strip().rpartition(":")
    return host.removeprefix("PLAINTEXT://"), int(port)
