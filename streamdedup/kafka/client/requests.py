"""Encode requests to produce in one piece.

aiokafka joins the bytes of each level of a request anew, so it copies a record batch six times before the request is
whole. Ours copies it once.

We rely on these names of aiokafka: `AIOKafkaClient.send(node_id, request)`; of `ProduceRequest`, `_CLASSES`, the
structs of its versions, of which `prepare` makes one; and of that, `encode()`, `SCHEMA`, and a field for each of its
names. A `Schema` has `names` and `fields`, an `Array` has `array_of`. Without `_CLASSES`, requests are encoded by
aiokafka.
"""

from collections.abc import Iterator
from typing import Any

from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.types import Array, Bytes, Int32, Schema


def encode_in_one_piece(client: Any) -> None:
    """Have `client`, an AIOKafkaClient, encode every request to produce in one piece from now on."""
    theirs = client.send

    async def send(node_id: int, request: Any, **options: Any) -> Any:
        if _CLASSES and isinstance(request, ProduceRequest):
            request._CLASSES = _CLASSES
        return await theirs(node_id, request, **options)

    client.send = send


def encoded(struct: Any) -> bytes:
    """Return the same bytes as the struct's own `encode`."""
    fields = [getattr(struct, name) for name in struct.SCHEMA.names]
    return b"".join(_pieces(struct.SCHEMA, fields))


def _pieces(kind: Any, value: Any) -> Iterator[bytes]:
    """Yield the encoding of `value`, which is of the type `kind`; byte strings as they are."""
    if isinstance(kind, Schema):
        for field, item in zip(kind.fields, value, strict=True):
            yield from _pieces(field, item)
    elif isinstance(kind, Array) and value is not None:
        yield Int32.encode(len(value))
        for item in value:
            yield from _pieces(kind.array_of, item)
    elif kind is Bytes and value is not None:
        yield Int32.encode(len(value))
        yield value
    else:
        yield kind.encode(value)


_CLASSES: Any = tuple(
    type(version.__name__, (version,), {"encode": encoded})
    for version in getattr(ProduceRequest, "_CLASSES", ())
)
