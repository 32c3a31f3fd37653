"""Claims about clients that forbid brokers to create topics: all of ours do."""

import ast
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.structs import BrokerMetadata

import streamdedup
from streamdedup.kafka.client.columns import ColumnarConsumer
from streamdedup.kafka.client.creation import never_creating

PACKAGE = Path(streamdedup.__file__).parent
CLIENTS = {
    *("AIOKafkaClient", "AIOKafkaProducer", "AIOKafkaAdminClient"),
    *("AIOKafkaConsumer", "ColumnarConsumer"),
}


class Connection:
    """Keeps the requests that it is given, as they would be sent, and answers that there are no brokers."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send(self, request: Any) -> Any:
        """Keep one."""
        self.sent.append(request.prepare({3: (0, 12)}))
        return SimpleNamespace(brokers=[])


MAKE: dict[str, Callable[[], Any]] = {
    "bare": lambda: never_creating(AIOKafkaClient()),
    "admin": lambda: never_creating(AIOKafkaAdminClient()),
    "consumer": lambda: never_creating(ColumnarConsumer()),
    "producer": lambda: never_creating(AIOKafkaProducer()),
}


@pytest.mark.parametrize("kind", MAKE)
async def test_no_request_for_topics_lets_the_broker_create_one(kind: str) -> None:
    """Whoever asks, and for whichever topics."""
    made = MAKE[kind]()
    made._closed = True  # it never starts, so nothing is to be closed
    client = next((getattr(made, at) for at in ("client", "_client") if hasattr(made, at)), made)
    connection = Connection()

    async def get(_node: object) -> Connection:
        return connection

    client._get_conn = get
    client.cluster._brokers = {1: BrokerMetadata(1, "localhost", 9092, None)}
    await client._metadata_update(ClusterMetadata(), {"in"})
    await client._metadata_update(ClusterMetadata(), set())
    assert [request.allow_auto_topic_creation for request in connection.sent] == [False, False]
    assert [request.topics for request in connection.sent] == [["in"], None]


@pytest.mark.rule(12)
def test_every_client_of_ours_goes_through_it() -> None:
    """Wherever one is made."""
    made = 0
    for path in PACKAGE.rglob("*.py"):
        if not any(name in (text := path.read_text("utf-8")) for name in CLIENTS):
            continue
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        named = {id(call): ast.unparse(call.func).split(".")[-1] for call in calls}
        forbidding = {
            id(argument)
            for call in calls
            if named[id(call)] == "never_creating"
            for argument in call.args
        }
        for call in calls:
            if (name := named[id(call)]) in CLIENTS:
                made += 1
                assert id(call) in forbidding, f"{path}:{call.lineno} makes an {name}"
    assert made == 6
