"""Data of a Confluent Schema Registry, told by its first bytes: a zero byte and a schema's number, big-endian."""

PREFIX_BYTES = 5


def looks_registered(data: bytes) -> str | None:
    """What `data` looks like, for a reason, if it begins so; None if not."""
    if data[:1] != b"\0" or len(data) < PREFIX_BYTES:
        return None
    number = int.from_bytes(data[1:PREFIX_BYTES])
    return f"looks like Schema Registry data, schema id {number}"
