"""Read each answer of a broker into one buffer of ours, instead of through an asyncio stream.

A fetch brings megabytes. A stream copies them once for each chunk and once for each answer, and then moves what is
left. We decode an answer in the buffer: each of its fields is copied once; all records of a partition are one field.

We rely on these private names of aiokafka: of `AIOKafkaClient`, `_get_conn`, a coroutine function that returns a
connection or None; of `AIOKafkaConnection`, `_reader`, a StreamReader with a `_buffer` that is empty between two
answers, and None once the connection is closed; `_writer`; `_protocol`, which `_writer` waits with; `_read_task`,
which reads the answers, passes them to `_handle_frame(data)`, and is cancelled when the connection closes; and
`close(reason, exc)`. `_handle_frame` is a function without a closure that makes an `io.BytesIO` of the data, and
decoders call only `read(size)` of it.
"""

import asyncio
import weakref
from collections.abc import Callable
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

import structlog
from aiokafka import conn
from aiokafka.conn import AIOKafkaConnection
from typing_extensions import override

from streamdedup.kafka.client.connection import describe_error

log = structlog.get_logger(__name__)

SIZE_BYTES = 4
ENDED = "the connection ended"
LEAST_BYTES, KEPT_BYTES = 1 << 16, 32 << 20  # smallest and largest buffer kept between two answers
READ_BYTES = 1 << 20  # the most that is read in one turn of the loop: 1 ms, if the memory is fresh

Handle = Callable[[Any, memoryview], None]


def read_in_one_piece(client: Any) -> None:
    """Make every connection that `client` opens from now on read its answers through `Responses`."""
    theirs, handle = client._get_conn, _handle_in_place()

    async def get(_client: Any, *arguments: Any, **options: Any) -> Any:
        connection = await theirs(*arguments, **options)
        if connection is not None and isinstance(connection._read_task, asyncio.Task):
            # Nothing was awaited since the connection was made, so no request has been sent on it.
            Responses.take_over(connection, handle)
        return connection

    client._get_conn = MethodType(get, client)


def _handle_in_place() -> Handle:
    """Return aiokafka's `_handle_frame`, in which `io.BytesIO`, which would copy the whole answer, is an `Answer`."""
    theirs: Any = AIOKafkaConnection._handle_frame
    names = {**vars(conn), "io": SimpleNamespace(BytesIO=Answer)}
    return FunctionType(theirs.__code__, names, theirs.__name__)


class Answer:
    """The bytes of an answer, read where they lie."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, or as many as are left."""
        taken = bytes(self._data[self._at : self._at + size])
        self._at += len(taken)
        return taken


class Responses(asyncio.BufferedProtocol):
    """The reading half of a connection. The writing half stays with the protocol that the connection had before.

    `handle` takes the connection and a whole answer without its size field; the answer is valid until `handle` returns.
    """

    def __init__(self, connection: Any, writing: Any, handle: Handle) -> None:
        self._connection = weakref.ref(connection)
        self._writing, self._handle = writing, handle
        self._buffer = bytearray(LEAST_BYTES)
        self._have = 0
        # Of the answer in bytes, without its size field; -1 until that field is complete.
        self._size = -1

    @classmethod
    def take_over(cls, connection: Any, handle: Handle) -> None:
        """Read the answers of `connection` from now on. No request may be under way on it.

        If the connection has ended already, this closes it: the task that would notice the end is no longer awaited.
        """
        reader = connection._reader
        if reader is None:
            return
        if reader.at_eof() or reader._buffer or reader.exception() or connection._read_task.done():
            connection.close(reason=conn.CloseReason.CONNECTION_BROKEN, exc=EOFError(ENDED))
            return
        connection._read_task.cancel()
        connection._read_task = asyncio.get_running_loop().create_future()
        connection._writer.transport.set_protocol(cls(connection, connection._protocol, handle))

    @override
    def get_buffer(self, _sizehint: int) -> memoryview:
        # Never a byte of the answer after this one.
        end = min(SIZE_BYTES + max(self._size, 0), self._have + READ_BYTES)
        # Grow to at most twice what has arrived, and in short turns: the size is only a claim.
        if self._have == len(self._buffer) < end:
            self._buffer.extend(bytes(min(len(self._buffer), end - len(self._buffer))))
        return memoryview(self._buffer)[self._have : end]

    @override
    def buffer_updated(self, count: int) -> None:
        self._have += count
        if self._size < 0:
            if self._have < SIZE_BYTES:
                return
            self._size = int.from_bytes(self._buffer[:SIZE_BYTES], "big", signed=True)
            if self._size < 0:
                self._close(
                    ConnectionError(f"the broker announced an answer of {self._size} bytes")
                )
                return
        if self._have == SIZE_BYTES + self._size:
            with memoryview(self._buffer) as whole, whole[SIZE_BYTES : self._have] as answer:
                self._give(answer)
            self._have, self._size = 0, -1
            if len(self._buffer) > KEPT_BYTES:
                self._buffer = bytearray(LEAST_BYTES)

    @override
    def eof_received(self) -> None:
        self._close(EOFError(ENDED))

    @override
    def connection_lost(self, error: Exception | None) -> None:
        self._writing.connection_lost(error)  # wakes the tasks that wait to write, or for the close
        connection = self._connection()
        if connection is not None:
            connection.close(reason=conn.CloseReason.CONNECTION_BROKEN, exc=error)

    @override
    def pause_writing(self) -> None:
        self._writing.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._writing.resume_writing()

    def _give(self, answer: memoryview) -> None:
        connection = self._connection()
        if connection is None or _is_closing(connection):
            return
        try:
            self._handle(connection, answer)
        except Exception as error:
            log.warning("answer_unreadable", **describe_error(error))
            self._close(error)

    def _close(self, error: Exception | None) -> None:
        connection = self._connection()
        if connection is not None and not _is_closing(connection):
            connection.close(reason=conn.CloseReason.CONNECTION_BROKEN, exc=error)


def _is_closing(connection: Any) -> bool:
    """Return whether the connection is closed or being closed.

    This is also true during the call that closes it: TLS delivers the bytes that are left from within that call.
    """
    return connection._writer is None or bool(connection._writer.transport.is_closing())
