"""Encode requests to produce in one piece.

aiokafka joins the bytes of each level of a request anew, and adds a header and a size to the front of what it has, so
it copies a record batch eight times before the request is whole. Ours copies it once.

We rely on these names of aiokafka: `AIOKafkaClient.send(node_id, request)`; of `ProduceRequest`, `_CLASSES`, the
structs of its versions, of which `prepare` makes one; and of that, `encode()`, `SCHEMA`, and a field for each of its
names. A `Schema` has `names` and `fields`, an `Array` has `array_of`. `AIOKafkaConnection.send` puts the header and
then the size before what `encode` returns, each by `+`. Without `_CLASSES`, requests are encoded by aiokafka.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.types import Array, Bytes, Int32, Schema

HEADS = 2  # the header and the size


def encode_in_one_piece(client: Any) -> None:
    """Have `client`, an AIOKafkaClient, encode every request to produce in one piece from now on."""
    theirs = client.send

    async def send(node_id: int, request: Any, **options: Any) -> Any:
        if _CLASSES and isinstance(request, ProduceRequest):
            request._CLASSES = _CLASSES
        return await theirs(node_id, request, **options)

    client.send = send


class RequestBytes:
    """The bytes of a request in pieces. Adding bytes to the front `heads` times joins all of them to one `bytes`."""

    def __init__(self, pieces: Iterable[bytes], heads: int = HEADS) -> None:
        self._pieces, self._heads = tuple(pieces), heads

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def __radd__(self, head: bytes) -> "bytes | RequestBytes":
        pieces = head, *self._pieces
        return RequestBytes(pieces, self._heads - 1) if self._heads > 1 else b"".join(pieces)


def encoded(struct: Any) -> RequestBytes:
    """Return the same bytes as the struct's own `encode`, in pieces."""
    fields = [getattr(struct, name) for name in struct.SCHEMA.names]
    return RequestBytes(_pieces(struct.SCHEMA, fields))


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
