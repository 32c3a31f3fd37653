"""Claims about requests to produce: encoded in one piece, they are aiokafka's to the byte."""

from typing import Any

import pytest
from aiokafka.protocol.group import HeartbeatRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.types import Bytes

from streamdedup.kafka.client.requests import encode_in_one_piece

VERSIONS = range(8)
TOPICS = [
    ("out", [(0, bytearray(b"a record batch")), (7, b"another")]),
    ("größe", [(3, b"")]),
    ("side", []),
    ("none", [(1, None)]),
]


class Client:
    """It keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, _node_id: int, request: Any, **_options: Any) -> None:
        """To nobody."""
        self.sent.append(request)


def produce(version: int) -> Any:
    """A request of a producer that is transactional where that version knows transactions."""
    name = "out/0" if version >= 3 else None
    return ProduceRequest(
        transactional_id=name, required_acks=-1, timeout=40_000, topics=list(TOPICS)
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_it_is_theirs_to_the_byte(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every version; and no record batch is encoded by itself, which would copy it."""
    client, versions = Client(), {ProduceRequest.API_KEY: (version, version)}
    expected = produce(version).prepare(versions).encode()
    encode_in_one_piece(client)
    await client.send(1, produce(version))
    made = client.sent[0].prepare(versions)
    asked, theirs = list[Any](), Bytes.encode

    def noted(cell: Any) -> Any:
        asked.append(cell)
        return theirs(cell)

    monkeypatch.setattr(Bytes, "encode", noted)
    message = b"header" + made.encode()
    assert len(message) == 6 + len(expected)
    assert b"size" + message == b"sizeheader" + expected
    assert asked == [None]
    assert version == made.API_VERSION


async def test_other_requests_are_not_touched() -> None:
    """They go as they are."""
    client, request = Client(), HeartbeatRequest("group", 1, "member")
    before = dict(vars(request))
    encode_in_one_piece(client)
    await client.send(1, request)
    assert client.sent == [request]
    assert vars(request) == before
