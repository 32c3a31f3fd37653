"""No client of ours creates a topic: what an operator deletes stays deleted until an operator makes it again.

A client asks for the metadata of its topics every few minutes and after each error, and by default each such request
allows the broker to create a topic that is missing, with the broker's own number of partitions.

We rely on these private names of `AIOKafkaClient`: `_metadata_update`, a coroutine function, which alone asks for
topics by their names; and in it the global name `MetadataRequest`.
"""

import inspect
from functools import partial
from types import FunctionType, MethodType
from typing import Any, TypeVar

from aiokafka import client as theirs
from aiokafka.protocol.metadata import MetadataRequest

T = TypeVar("T")

_FLAG = "allow_auto_topic_creation"
_PLACES = ("client", "_client")  # where a producer, or a consumer and an admin client, keep theirs


def lacking() -> str | None:
    """Return which of the names above is missing, as far as the classes show it; None if none is missing."""
    update = getattr(theirs.AIOKafkaClient, "_metadata_update", None)
    if not inspect.iscoroutinefunction(update):
        return "AIOKafkaClient._metadata_update is missing or of another kind"
    if "MetadataRequest" not in update.__code__.co_names or update.__code__.co_freevars:
        return "AIOKafkaClient._metadata_update uses other names"
    if _FLAG not in inspect.signature(MetadataRequest).parameters:
        return f"MetadataRequest has no {_FLAG}"
    return None


def never_creating(made: T) -> T:
    """Have `made`, a client of aiokafka's that has not started, forbid brokers to create a topic; return it.

    Where `lacking` names a reason, it is returned as it is.
    """
    if lacking() is None:
        client: Any = next((getattr(made, at) for at in _PLACES if hasattr(made, at)), made)
        client._metadata_update = MethodType(_update(), client)
    return made


def _update() -> Any:
    """Return `AIOKafkaClient._metadata_update` with a request that forbids creation in place of its own."""
    code: Any = theirs.AIOKafkaClient._metadata_update
    own = {**vars(theirs), "MetadataRequest": partial(MetadataRequest, **{_FLAG: False})}
    return FunctionType(code.__code__, own, code.__name__, code.__defaults__)
