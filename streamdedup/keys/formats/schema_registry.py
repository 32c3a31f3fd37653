"""Recognizes data of a Confluent Schema Registry by its prefix: a zero byte and a schema id, big-endian."""

PREFIX_BYTES = 5
LOOKS_REGISTERED = "looks like Schema Registry data, schema id %d"  # in a reason
UNKNOWN_SCHEMA = "which the registry does not have"  # the end of a reason for such an event
UNREADABLE, GIVEN_UP = -1, -2  # in place of the address of a program, if a schema has none


def looks_registered(data: bytes) -> str | None:
    """Return, for a reason, what `data` looks like if it begins with that prefix; None otherwise."""
    if data[:1] != b"\0" or len(data) < PREFIX_BYTES:
        return None
    return LOOKS_REGISTERED % int.from_bytes(data[1:PREFIX_BYTES])
