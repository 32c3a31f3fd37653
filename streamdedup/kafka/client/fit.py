"""Whether the installed aiokafka is one that our seams know: one check, before any of them is imported.

`columns`, `responses` and `creation` name what they rely on. The check covers the version, and these names as far as
the classes show them.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import aiokafka
from aiokafka import client, conn
from aiokafka.consumer import fetcher
from aiokafka.protocol.metadata import MetadataRequest

from streamdedup.errors import ConfigError

KNOWN = "0.14."  # the versions of aiokafka that our seams were written for
CREATION_FLAG = "allow_auto_topic_creation"

_RECORDS_ARGUMENTS = (
    *("tp", "records", "aborted_transactions", "fetch_offset"),
    *("key_deserializer", "value_deserializer", "check_crcs", "isolation_level"),
)
_RECORDS_NAMES = ("_consume_aborted_up_to", "_unpack_records", "__next__")


def check() -> None:
    """ConfigError if the seams do not fit the installed aiokafka."""
    if reason := unfit():
        raise ConfigError(
            f"aiokafka {aiokafka.__version__} does not fit: {reason}",
            remedy=f"install one that this version of streamdedup"
            f" was made for: pip install 'aiokafka=={KNOWN}*'",
        )


def unfit() -> str | None:
    """Return why the seams cannot work with the installed aiokafka; None if they can."""
    if not aiokafka.__version__.startswith(KNOWN):
        return f"it is not one of the versions {KNOWN}x"
    return next(_lacking(), None)


def _lacking() -> Iterator[str]:
    records: Any = getattr(fetcher, "PartitionRecords", None)
    if not isinstance(records, type):
        yield "PartitionRecords is missing, or of another kind"
    elif tuple(inspect.signature(records).parameters) != _RECORDS_ARGUMENTS:
        yield "PartitionRecords takes other arguments"
    elif not all(hasattr(records, name) for name in _RECORDS_NAMES):
        yield "PartitionRecords lacks a name"
    used = {"PartitionRecords", "MemoryRecords", "has_next", "size_in_bytes"}
    yield from _changed(fetcher, "Fetcher._proc_fetch_request", used, copied=True)
    connection = "AIOKafkaConnection"
    if not hasattr(conn, "CloseReason"):
        yield "CloseReason is missing"
    on_closing = {"_reader", "_writer", "_read_task", "_on_close_cb"}
    yield from _changed(client, "AIOKafkaClient._get_conn", set())
    yield from _changed(conn, f"{connection}.close", on_closing)
    yield from _changed(conn, f"{connection}.connect", {"_protocol"})
    yield from _changed(conn, f"{connection}._handle_frame", {"io", "BytesIO"}, copied=True)
    yield from _changed(client, "AIOKafkaClient._metadata_update", {"MetadataRequest"}, copied=True)
    if CREATION_FLAG not in inspect.signature(MetadataRequest).parameters:
        yield f"MetadataRequest has no {CREATION_FLAG}"


def _changed(module: Any, name: str, uses: set[str], *, copied: bool = False) -> Iterator[str]:
    """Yield why a method is not as we know it: `uses` are names in its code, `copied` whether we run that code."""
    owner, _, method = name.partition(".")
    function = getattr(getattr(module, owner, None), method, None)
    code = getattr(function, "__code__", None)
    if code is None or (copied and method.startswith("_") and code.co_freevars):
        yield f"{name} is missing, or of another kind"
    elif not set(code.co_names) >= uses:
        yield f"{name} uses other names"
