"""Generated Avro schemas, values of them as fastavro writes them, and the key that a path leads to, by plain Python."""

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro

from streamdedup.events import Column
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import Reference, Schema
from streamdedup.keys.formats.schemas import Schemas

STEPS = ("user", "id")
Answer = bytes | FramedKind  # the key, or what is there instead


def framed(number: int, body: bytes) -> bytes:
    """Return the body as serializers frame it by a schema id."""
    return b"\0" + number.to_bytes(4) + body


def record(*fields: tuple[str, Any], name: str = "E") -> dict[str, Any]:
    """Return the schema of a record of these fields."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": of} for each, of in fields],
    }


def written(schema: Any, value: Any) -> bytes:
    """Return the bytes of a value, without a frame."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def of_schema(schema: Any, *paths: tuple[str, ...], references: Sequence[Any] = ()) -> Schemas:
    """Return the schemas that know this one by the number 1."""
    schemas = Schemas("avro", paths or (STEPS,))
    refer = tuple(Reference("", json.dumps(each)) for each in references)
    schemas.take(1, schemas.compiled(Schema("AVRO", json.dumps(schema), refer)))
    return schemas


def found(schemas: Schemas, *bodies: bytes, between: bytes = b"\2a\4") -> list[Answer]:
    """Return what is found in values of the schema 1 with these bodies, which stand between other bytes."""
    column = Column.of([cell for body in bodies for cell in (between, framed(1, body))] + [between])
    keys, kinds = schemas.known.read(0, column)
    return [
        key if key is not None else FramedKind(kind)
        for key, kind in list(zip(keys, kinds.tolist(), strict=True))[1::2]
    ]
