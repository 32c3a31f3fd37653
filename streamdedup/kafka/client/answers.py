"""Answers read in one piece: into a buffer of their own, not through a stream's that is filled, cut and moved.

A fetch brings megabytes, of which a stream makes a copy for each chunk, one for each answer, and moves the rest.

Of aiokafka's private names we rely on these: of `AIOKafkaClient`, `_get_conn`, a coroutine function that gives a
connection or None; of `AIOKafkaConnection`, `_reader`, a StreamReader with a `_buffer` that is empty between two
answers, None once it is closed; `_writer`; `_protocol`, which `_writer` waits with; `_read_task`, which is cancelled
when it closes, and reads the answers by `_handle_frame(data)`; and `close(reason, exc)`.
"""

import asyncio
import weakref
from types import MethodType
from typing import Any

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, CloseReason

from streamdedup.kafka.client.connection import describe_error

log = structlog.get_logger(__name__)

SIZE_BYTES = 4
ENDED = "the connection ended"
LEAST_BYTES, KEPT_BYTES = 1 << 16, 32 << 20  # of a connection's buffer, between two answers

_USED = {"_reader", "_writer", "_read_task", "_on_close_cb"}


def lacking() -> str | None:
    """What of the names above is not there, as far as a class shows; None where nothing is missing."""
    if not hasattr(AIOKafkaClient, "_get_conn") or not hasattr(AIOKafkaConnection, "_handle_frame"):
        return "AIOKafkaClient or AIOKafkaConnection lacks a name"
    if not set(AIOKafkaConnection.close.__code__.co_names) >= _USED:
        return "AIOKafkaConnection.close uses other names"
    if "_protocol" not in AIOKafkaConnection.connect.__code__.co_names:
        return "AIOKafkaConnection.connect uses other names"
    return None


def read_in_one_piece(client: Any) -> None:
    """All connections that `client` makes from here on read their answers so."""
    theirs = client._get_conn

    async def get(_client: Any, *arguments: Any, **options: Any) -> Any:
        connection = await theirs(*arguments, **options)
        if connection is not None and isinstance(connection._read_task, asyncio.Task):
            # Nothing was awaited since it was made: nobody has sent a request.
            Answers.take_over(connection)
        return connection

    client._get_conn = MethodType(get, client)


class Answers(asyncio.BufferedProtocol):
    """The reading half of a connection; the writing half stays with the protocol that it had."""

    def __init__(self, connection: Any, writing: Any) -> None:
        self._connection = weakref.ref(connection)
        self._writing = writing
        self._buffer = bytearray(LEAST_BYTES)
        self._have = 0
        self._size = -1  # of the answer; -1 while not even that is known

    @classmethod
    def take_over(cls, connection: Any) -> None:
        """Read what `connection` is answered from now on. There must be no request on its way.

        Where it has ended already it is closed: the task that knows of the end is not asked any more.
        """
        reader = connection._reader
        if reader is None:
            return
        if reader.at_eof() or reader._buffer or reader.exception() or connection._read_task.done():
            connection.close(reason=CloseReason.CONNECTION_BROKEN, exc=EOFError(ENDED))
            return
        connection._read_task.cancel()
        connection._read_task = asyncio.get_running_loop().create_future()
        connection._writer.transport.set_protocol(cls(connection, connection._protocol))

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Where the next bytes of this answer go; never those of the one after it."""
        end = SIZE_BYTES + max(self._size, 0)
        if self._have == len(self._buffer) < end:  # at most twice what came: a size is only a claim
            self._buffer.extend(bytes(min(len(self._buffer), end - len(self._buffer))))
        return memoryview(self._buffer)[self._have : end]

    def buffer_updated(self, count: int) -> None:
        """So many bytes came."""
        self._have += count
        if self._size < 0:
            if self._have < SIZE_BYTES:
                return
            self._size = int.from_bytes(self._buffer[:SIZE_BYTES], "big", signed=True)
            if self._size < 0:
                self._close(ConnectionError(f"an answer of {self._size} bytes"))
                return
        if self._have == SIZE_BYTES + self._size:
            answer = bytes(memoryview(self._buffer)[SIZE_BYTES : self._have])
            self._have, self._size = 0, -1
            if len(self._buffer) > KEPT_BYTES:
                self._buffer = bytearray(LEAST_BYTES)
            self._give(answer)

    def eof_received(self) -> None:
        """The broker has hung up."""
        self._close(EOFError(ENDED))

    def connection_lost(self, error: Exception | None) -> None:
        """Told to those who wait until it is closed, and who wait to write."""
        self._writing.connection_lost(error)
        connection = self._connection()
        if connection is not None:
            connection.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)

    def pause_writing(self) -> None:
        """As the protocol that writes has it."""
        self._writing.pause_writing()

    def resume_writing(self) -> None:
        """As the protocol that writes has it."""
        self._writing.resume_writing()

    def _give(self, answer: bytes) -> None:
        connection = self._connection()
        if connection is None or _is_closing(connection):
            return
        try:
            connection._handle_frame(answer)
        except Exception as error:
            log.warning("answer_unreadable", **describe_error(error))
            self._close(error)

    def _close(self, error: Exception | None) -> None:
        connection = self._connection()
        if connection is not None and not _is_closing(connection):
            connection.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)


def _is_closing(connection: Any) -> bool:
    """Also while it does: TLS reads what is left within the call that closes."""
    return connection._writer is None or bool(connection._writer.transport.is_closing())
