"""Claims about answers that are read in one piece: each whole, in order, however the bytes come; and about the end."""

import asyncio
import random
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.conn import CloseReason
from structlog.testing import capture_logs

from streamdedup.kafka.client.responses import KEPT_BYTES, LEAST_BYTES, READ_BYTES, Responses
from tests.local import until

Closed = tuple[CloseReason, BaseException | None]


class Connection:
    """What aiokafka's has of what is used."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader: asyncio.StreamReader | None = reader
        self._writer: Any = writer
        self._protocol = Writing()
        self._read_task: asyncio.Future[Any] = asyncio.create_task(asyncio.Event().wait())
        self.first_task = self._read_task
        self.answers: list[bytes] = []
        self.closed: list[Closed] = []
        self.wrong = b"(none)"

    def handle(self, data: memoryview) -> None:
        """Keep an answer, unless it is wrong."""
        if data == self.wrong:
            raise ValueError(data)
        self.answers.append(bytes(data))

    def close(self, reason: CloseReason, exc: BaseException | None) -> None:
        """Once, and in the order of theirs."""
        if self._reader is not None:
            self.closed.append((reason, exc))
            self._writer.close()
            self._writer = self._reader = None
            if not self._read_task.done():
                self._read_task.cancel()


class Writing:
    """The protocol of the writing half, which keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def pause_writing(self) -> None:
        """Kept."""
        self.told.append("pause")

    def resume_writing(self) -> None:
        """Kept."""
        self.told.append("resume")

    def connection_lost(self, error: BaseException | None) -> None:
        """Kept."""
        self.told.append(error)


class Peers:
    """A connection whose answers are read in one piece, and the broker's end of it."""

    def __init__(self, connection: Connection, broker: asyncio.StreamWriter) -> None:
        self.connection, self.broker = connection, broker
        self.transport = connection._writer.transport

    @property
    def protocol(self) -> Any:
        """What reads."""
        return self.transport.get_protocol()

    async def until(self, count: int) -> None:
        """Wait until so many answers were given, or it was closed."""
        there = self.connection
        await until(lambda: len(there.answers) >= count or there.closed, lambda: there.answers)


@pytest.fixture
async def fresh() -> AsyncIterator[Peers]:
    """Both ends, over a socket, as aiokafka makes a connection."""
    accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda _, writer: accepted.set_result(writer), "127.0.0.1")
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    connection, broker = Connection(reader, writer), await accepted
    yield Peers(connection, broker)
    for end in (broker, writer):
        end.close()
    server.close()


@pytest.fixture
async def peers(fresh: Peers) -> Peers:
    """The same, with answers read in one piece."""
    Responses.take_over(fresh.connection, Connection.handle)
    return fresh


def framed(*answers: bytes) -> bytes:
    """As a broker sends them."""
    return b"".join(len(answer).to_bytes(4, "big") + answer for answer in answers)


async def test_answers_of_every_size_come_whole_and_in_order(peers: Peers) -> None:
    """Small ones together, and some that are larger than what a connection keeps."""
    chance = random.Random(1)
    sizes = [1, 2, 3, 60_000, LEAST_BYTES - 4, LEAST_BYTES, 5_000_001]
    sizes += [4, KEPT_BYTES + 1, 7, 300_000]
    answers = [chance.randbytes(size) for size in sizes]
    peers.broker.write(framed(*answers))
    await peers.until(len(answers))
    assert peers.connection.answers == answers
    assert len(peers.protocol._buffer) <= KEPT_BYTES


async def test_a_turn_reads_a_bounded_part_of_an_answer(peers: Peers) -> None:
    """However much has come, and however large the buffer is since an answer before."""
    protocol = peers.protocol
    for _ in range(2):
        answer = bytes(5 * READ_BYTES + 3)
        sent, rooms = framed(answer), []
        while sent:
            room = protocol.get_buffer(-1)
            rooms.append(len(room))
            taken, sent = sent[: len(room)], sent[len(room) :]
            room[: len(taken)] = taken
            room.release()
            protocol.buffer_updated(len(taken))
        assert max(rooms) == READ_BYTES
        assert len(protocol._buffer) <= len(answer) + 4
    assert len(peers.connection.answers) == 2


async def test_answers_come_whole_wherever_they_are_cut(peers: Peers) -> None:
    """Each byte may come alone."""
    answers = [b"one", b"", b"three", bytes(range(256))]
    for byte in framed(*answers):
        peers.protocol.get_buffer(-1)[:1] = bytes([byte])
        peers.protocol.buffer_updated(1)
    assert peers.connection.answers == answers


async def test_the_task_that_read_before_is_ended(peers: Peers) -> None:
    """Nobody else takes bytes from the connection, and closing it finds something to cancel."""
    await asyncio.sleep(0)
    assert peers.connection.first_task.cancelled()
    assert not peers.connection._read_task.done()
    assert peers.connection._read_task.cancel()


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\5half"])
async def test_a_broker_that_hangs_up_breaks_the_connection(peers: Peers, sent: bytes) -> None:
    """Also within an answer; what was given before stays given. Those who wait for the end are told."""
    peers.broker.write(framed(b"before") + sent)
    peers.broker.close()
    await peers.until(2)
    assert peers.connection.answers == [b"before"]
    [(reason, error)] = peers.connection.closed
    assert reason == CloseReason.CONNECTION_BROKEN
    assert isinstance(error, EOFError)
    await until(lambda: peers.connection._protocol.told, lambda: "nobody is told")
    assert peers.connection._protocol.told == [None]


async def test_a_size_below_zero_breaks_the_connection(peers: Peers) -> None:
    """It is no broker, or we are out of step with it."""
    peers.broker.write(b"\xff\xff\xff\xffabc")
    await peers.until(1)
    assert [(reason, str(error)) for reason, error in peers.connection.closed] == [
        (CloseReason.CONNECTION_BROKEN, "the broker announced an answer of -1 bytes")
    ]


async def test_an_answer_that_cannot_be_read_breaks_the_connection(peers: Peers) -> None:
    """Nor is any after it given."""
    peers.connection.wrong = b"wrong"
    peers.broker.write(framed(b"right", b"wrong", b"right"))
    await peers.until(3)
    assert peers.connection.answers == [b"right"]
    [(reason, error)] = peers.connection.closed
    assert (reason, type(error)) == (CloseReason.CONNECTION_BROKEN, ValueError)


async def test_memory_is_taken_for_what_came_not_for_what_is_claimed(peers: Peers) -> None:
    """Who is no broker may begin with any four bytes: HTTP means 1.2 GB."""
    peers.broker.write(b"HTTP/1.1 400 Bad Request\r\n" * 10_000)
    await until(lambda: peers.protocol._have >= 260_000, lambda: peers.protocol._have)
    assert len(peers.protocol._buffer) <= 1 << 19


async def test_the_writing_half_is_told_when_to_pause(peers: Peers) -> None:
    """Or those who write would not wait for a slow broker."""
    peers.connection._writer.transport.set_write_buffer_limits(10, 0)
    peers.connection._writer.write(bytes(50_000_000))
    assert peers.connection._protocol.told == ["pause"]
    peers.protocol.resume_writing()
    assert peers.connection._protocol.told == ["pause", "resume"]


async def test_a_connection_that_is_gone_is_not_kept(peers: Peers) -> None:
    """Only a weak reference is, so that one which leaks can be told of; what comes for it is dropped."""
    protocol = peers.protocol
    del peers.connection
    protocol.get_buffer(-1)[:4] = framed(b"")
    protocol.buffer_updated(4)
    protocol.eof_received()


@pytest.mark.parametrize("how", ["ended", "broken", "answered", "read"])
async def test_a_connection_that_has_ended_already_is_closed(fresh: Peers, how: str) -> None:
    """Nobody would tell of its end any more, and a request would wait for its time-out."""
    reader = fresh.connection._reader
    assert reader is not None
    match how:
        case "ended":
            reader.feed_eof()
        case "broken":
            reader.set_exception(ConnectionResetError())
        case "answered":
            reader.feed_data(b"nobody asked for this")
        case "read":
            fresh.connection._read_task.cancel()
            await asyncio.wait([fresh.connection._read_task])
    Responses.take_over(fresh.connection, Connection.handle)
    [(reason, error)] = fresh.connection.closed
    assert (reason, type(error)) == (CloseReason.CONNECTION_BROKEN, EOFError)
    assert not isinstance(fresh.protocol, Responses)


async def test_a_connection_that_is_closed_already_stays_as_it_is(fresh: Peers) -> None:
    """As one to which the broker hangs up while it authenticates."""
    fresh.connection.close(CloseReason.CONNECTION_BROKEN, None)
    Responses.take_over(fresh.connection, Connection.handle)
    assert len(fresh.connection.closed) == 1


async def test_what_comes_while_it_closes_counts_no_more(peers: Peers) -> None:
    """TLS reads what is left within the call that closes, and finds the end: that is no second closing."""
    connection, protocol = peers.connection, peers.protocol
    closing: list[int] = []

    class Writer:
        transport = SimpleNamespace(is_closing=lambda: bool(closing))

        def close(self) -> None:
            closing.append(1)
            for byte in framed(b"late"):
                protocol.get_buffer(-1)[:1] = bytes([byte])
                protocol.buffer_updated(1)
            protocol.eof_received()

    connection._writer = Writer()
    connection.close(CloseReason.SHUTDOWN, None)
    assert connection.closed == [(CloseReason.SHUTDOWN, None)]
    assert connection.answers == []


async def test_what_cannot_be_read_is_told(peers: Peers) -> None:
    """By the type of the error and its place: its message may hold what is in the answer."""
    peers.connection.wrong = b"secret"
    with capture_logs() as lines:
        peers.broker.write(framed(b"secret"))
        await peers.until(1)
    [line] = lines
    assert line["event"] == "answer_unreadable"
    assert "ValueError" in str(line)
    assert "secret" not in str(line)
