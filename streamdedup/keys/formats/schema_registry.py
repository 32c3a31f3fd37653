"""Recognizes data of a Confluent Schema Registry by its prefix: a zero byte and a schema id, big-endian."""

from typing import Literal

Framing = Literal["auto", "prefix", "header", "id64"]
VALUE_HEADER = "__value_schema_id"  # the header that names the schema of the value

PREFIX_BYTES, WIDE_BYTES = 5, 9  # with ids of four bytes, and of eight
GUID_BYTES = 16
HEAD_BYTES = 16  # of a value, which hold every prefix
NUMBER_MAX = (1 << 31) - 1  # of an id: registries have signed ones, and no larger one has a schema
NO_ID = (1 << 32) - 1  # in place of an id that no registry gives
LOOKS_REGISTERED = "looks like Schema Registry data, schema id %d"  # in a reason
UNKNOWN_SCHEMA = "which the registry does not have"  # the end of a reason for such an event
UNREADABLE, GIVEN_UP = -1, -2  # in place of the address of a program, if a schema has none


def looks_registered(data: bytes) -> str | None:
    """Return, for a reason, what `data` looks like if it begins with that prefix; None otherwise."""
    if data[:1] != b"\0" or len(data) < PREFIX_BYTES:
        return None
    return LOOKS_REGISTERED % int.from_bytes(data[1:PREFIX_BYTES])
