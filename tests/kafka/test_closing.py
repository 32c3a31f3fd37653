"""Claims about clients whose start or end is given up: no connection of theirs stays."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest
from aiokafka.client import AIOKafkaClient

from streamdedup.kafka.append import append
from streamdedup.kafka.client.closing import close_client, close_consumer
from streamdedup.kafka.client.connection import bootstrap
from streamdedup.kafka.client.patience import Patience
from streamdedup.kafka.large import LargeBatches
from streamdedup.kafka.log import committed_events
from streamdedup.kafka.options import KafkaOptions, SinkOptions
from streamdedup.kafka.sink import KafkaWriter
from streamdedup.kafka.source import KafkaMember
from streamdedup.kafka.topics import Topic, create
from tests.broker.base import DEADLINE_S

API_VERSIONS, METADATA = 18, 3
VERSIONS = struct.pack(">hi6h", 0, 2, METADATA, 0, 5, API_VERSIONS, 0, 0)


class Mute:
    """A broker that says which versions it knows, and answers nothing else."""

    def __init__(self) -> None:
        self.asked, self.came, self.answers = (asyncio.Event() for _ in range(3))
        self.answers.set()
        self.left: list[asyncio.Event] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until its client closes it."""
        left = asyncio.Event()
        self.left.append(left)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                self.came.set()
                await self.answers.wait()
                if request[:2] == struct.pack(">h", API_VERSIONS):
                    answer = request[4:8] + VERSIONS
                    writer.write(struct.pack(">i", len(answer)) + answer)
                else:
                    self.asked.set()
        left.set()
        writer.close()


@pytest.fixture
async def mute() -> AsyncIterator[tuple[Mute, KafkaOptions]]:
    """Give such a broker, and the options of its clients."""
    broker = Mute()
    server = await asyncio.start_server(broker.serve, "127.0.0.1")
    host, port = server.sockets[0].getsockname()
    yield broker, KafkaOptions(bootstrap_servers=f"{host}:{port}", group_id="group")
    server.close()


async def fold(options: KafkaOptions) -> None:
    """Read an output."""
    events = committed_events(options, "out", 0, 0, 1, stall_s=DEADLINE_S, large=LargeBatches())
    async for _ in events:
        pass


STARTS: dict[str, Callable[[KafkaOptions], Awaitable[object]]] = {
    "bare": bootstrap,
    "fold": fold,
    "append": lambda options: append(options, "control", [(b"key", None)]),
    "join": lambda options: KafkaMember(options, ["in"], Patience(), "a-meaning").start(),
    "fence": lambda options: KafkaWriter(
        options, SinkOptions(topic="out"), 0, Patience(), exactly_once=True
    ).fence(),
    "create": lambda options: create(options, [Topic("out", None, 1, 1)]),
}


@pytest.mark.parametrize("name", STARTS)
async def test_a_start_that_is_cancelled_leaves_no_connection(
    name: str, mute: tuple[Mute, KafkaOptions]
) -> None:
    """Not even the first one, which aiokafka forgets if its bootstrap is cancelled."""
    broker, options = mute
    starting = asyncio.ensure_future(STARTS[name](options))
    async with asyncio.timeout(DEADLINE_S):
        await broker.asked.wait()
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        for left in broker.left:
            await left.wait()


async def test_a_consumer_that_cannot_leave_its_group_leaves_no_connection() -> None:
    """Its client is closed even if the broker does not answer, or the end raises."""

    async def waits() -> None:
        await asyncio.Event().wait()

    async def fails() -> None:
        raise ConnectionError

    async def ends() -> None:
        pass

    closed = list[str]()
    for stop in (waits, fails, ends):

        async def close(name: str = stop.__name__) -> None:
            closed.append(name)

        client = SimpleNamespace(close=close, _conns={})
        consumer = SimpleNamespace(stop=stop, _client=client)
        assert await close_consumer(consumer, 0.01) == (stop is ends)
    assert closed == ["waits", "fails"]


async def test_a_connection_that_is_made_during_the_close_is_closed(
    mute: tuple[Mute, KafkaOptions],
) -> None:
    """Another task of the client may be connecting: aiokafka would keep what it gets after the close."""
    broker, options = mute
    client = AIOKafkaClient(bootstrap_servers=options.bootstrap_servers)
    host, port = options.bootstrap_servers.split(":")
    there = SimpleNamespace(host=host, port=int(port))
    client.cluster = SimpleNamespace(broker_metadata=lambda _node: there)
    broker.answers.clear()
    connecting = asyncio.ensure_future(client.ready(0))
    async with asyncio.timeout(DEADLINE_S):
        await broker.came.wait()
        await close_client(client)
        broker.answers.set()
        await connecting
        (left,) = broker.left
        await left.wait()


async def test_a_close_that_is_cancelled_leaves_no_connection() -> None:
    """A worker that is told to end while one of its clients ends closes that one all the same."""
    closed, stopping = asyncio.Event(), asyncio.Event()
    stopped = asyncio.Event()

    async def stop() -> None:
        stopping.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def close() -> None:
        closed.set()

    client = SimpleNamespace(close=close, _conns={})
    consumer = SimpleNamespace(stop=stop, _client=client)
    closing = asyncio.ensure_future(close_consumer(consumer))
    await stopping.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert closed.is_set()
    assert stopped.is_set()
