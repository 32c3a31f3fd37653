"""A TCP proxy between worker and broker that knows Kafka's frames, and does one fault at a time to the API it is told.

TCP keeps its order: what is delayed holds up all that follows in that direction, and a connection on which something
was dropped carries nothing further that way. A request that was delayed still arrives when its client has gone.
"""

import asyncio
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

HOST = "127.0.0.1"
HANGING_S = 5.0


class Api(Enum):
    """Requests by Kafka's API keys."""

    PRODUCE = 0
    FETCH = 1
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    JOIN_GROUP = 11
    HEARTBEAT = 12
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


class Harm(StrEnum):
    """What is done to a request or to its response."""

    CUT_REQUEST = "connection cut before the request"
    CUT_RESPONSE = "connection cut before the response"
    DROP_REQUEST = "request dropped"
    DROP_RESPONSE = "response dropped"
    DELAY_REQUEST = "request delayed within the deadline"
    DELAY_RESPONSE = "response delayed within the deadline"
    DELAY_REQUEST_LONG = "request delayed beyond the deadline"
    DELAY_RESPONSE_LONG = "response delayed beyond the deadline"

    @property
    def to_request(self) -> bool:
        """Whether it is the request that is harmed."""
        return self in _TO_REQUESTS


_TO_REQUESTS = {Harm.CUT_REQUEST, Harm.DROP_REQUEST, Harm.DELAY_REQUEST, Harm.DELAY_REQUEST_LONG}
_OF_PRODUCERS = {Api.PRODUCE.value, Api.END_TXN.value}
_CUTS = {Harm.CUT_REQUEST, Harm.CUT_RESPONSE}
_DROPS = {Harm.DROP_REQUEST, Harm.DROP_RESPONSE}


@dataclass
class Fault:
    """One harm to the next request of `api`; `done` is set when it has been done."""

    api: Api
    harm: Harm
    delay_s: float
    done: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Listens at `port`, leads to `target`; in a thread of its own."""

    def __init__(self, port: int, target: int) -> None:
        self._port, self._target = port, target
        self._fault: Fault | None = None
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._writing: set[asyncio.Task[None]] = set()  # those of them that belong to a producer
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accepted, HOST, port))

    def arm(self, api: Api, harm: Harm, delay_s: float) -> Fault:
        """Harm the next request of `api`, once."""
        fault = Fault(api, harm, delay_s)
        self._loop.call_soon_threadsafe(setattr, self, "_fault", fault)
        return fault

    def cut_producers(self) -> None:
        """Cut every connection that carried an event, or the end of a transaction."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._writing])

    def close(self) -> None:
        """End all connections."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANGING_S)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(HANGING_S)

    async def _close(self) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=HANGING_S)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        task.add_done_callback(self._writing.discard)
        try:
            there_reader, there_writer = await asyncio.open_connection(HOST, self._target)
        except OSError:  # the broker is away
            writer.close()
            return
        held: dict[int, Fault] = {}  # what is to be done to a response, by correlation id
        up = asyncio.create_task(self._requests(reader, there_writer, held, task))
        down = asyncio.create_task(self._responses(there_reader, writer, held))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            writer.close()
            down.cancel()
            if up.done() and up.exception() is None:
                return
            await asyncio.wait({up})  # what it holds still arrives
        except asyncio.CancelledError:
            up.cancel()
        finally:
            there_writer.close()
            writer.close()
            down.cancel()
            with suppress(
                asyncio.CancelledError
            ):  # a second one: asyncio's streams cannot take it from us
                await asyncio.gather(up, down, return_exceptions=True)

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        held: dict[int, Fault],
        connection: asyncio.Task[None],
    ) -> None:
        """Until the client has gone and all it sent was passed on; raises where the connection is to be cut."""
        dropping = False
        while (frame := await _frame(reader)) is not None:
            api, _version, correlation_id = struct.unpack_from(">hhi", frame, 4)
            if api in _OF_PRODUCERS:
                self._writing.add(connection)
            fault = self._take(api)
            if fault is not None and not fault.harm.to_request:
                held[correlation_id] = fault
            elif fault is not None:
                dropping |= await _harm(fault)
            if not dropping:
                writer.write(frame)

    async def _responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held: dict[int, Fault]
    ) -> None:
        dropping = False
        while (frame := await _frame(reader)) is not None:
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            if fault := held.pop(correlation_id, None):
                dropping |= await _harm(fault)
            if not dropping:
                writer.write(frame)

    def _take(self, api: int) -> Fault | None:
        fault = self._fault
        if fault is None or fault.api.value != api:
            return None
        self._fault = None
        return fault


async def _harm(fault: Fault) -> bool:
    """Do it; whether nothing may pass from now on. Raises ConnectionError for a cut."""
    fault.done.set()
    if fault.harm in _CUTS:
        raise ConnectionError(fault.harm)
    if fault.harm in _DROPS:
        return True
    await asyncio.sleep(fault.delay_s)
    return False


async def _frame(reader: asyncio.StreamReader) -> bytes | None:
    """A frame with its length; None at the end of the stream."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        head = await reader.readexactly(4)
        return head + await reader.readexactly(struct.unpack(">i", head)[0])
    return None
