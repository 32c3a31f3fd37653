"""No client of ours creates a topic: what an operator deletes stays deleted until an operator makes it again.

A client asks for the metadata of its topics every few minutes and after each error, and by default each such request
allows the broker to create a topic that is missing, with the broker's own number of partitions.

We rely on these private names of `AIOKafkaClient`: `_metadata_update`, a coroutine function, which alone asks for
topics by their names; and in it the global name `MetadataRequest`.
"""

from functools import partial
from types import FunctionType, MethodType
from typing import Any, TypeVar

from aiokafka import client as theirs
from aiokafka.protocol.metadata import MetadataRequest

from streamdedup.kafka.client.fit import CREATION_FLAG

T = TypeVar("T")

_PLACES = ("client", "_client")  # where a producer, or a consumer and an admin client, keep theirs


def never_creating(made: T) -> T:
    """Have `made`, a client of aiokafka's that has not started, forbid brokers to create a topic; return it."""
    client: Any = next((getattr(made, at) for at in _PLACES if hasattr(made, at)), made)
    client._metadata_update = MethodType(_update(), client)
    return made


def _update() -> Any:
    """Return `AIOKafkaClient._metadata_update` with a request that forbids creation in place of its own."""
    code: Any = theirs.AIOKafkaClient._metadata_update
    own = {**vars(theirs), "MetadataRequest": partial(MetadataRequest, **{CREATION_FLAG: False})}
    return FunctionType(code.__code__, own, code.__name__, code.__defaults__)
