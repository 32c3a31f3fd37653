"""Generated Avro schemas, values of them as fastavro writes them, and the key that a path leads to, by plain Python."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import fastavro
from hypothesis import strategies as st

from streamdedup.events import Column
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import Reference, Schema
from streamdedup.keys.formats.schemas import Schemas

STEPS = ("user", "id")
Found = bytes | FramedKind

_TEXTS = st.text(max_size=12)
_PRIMITIVES: Mapping[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=12),
    "string": _TEXTS,
}
_KINDS = {
    "null": FramedKind.NULL,
    "boolean": FramedKind.BOOLEAN,
    "float": FramedKind.FLOAT,
    "double": FramedKind.FLOAT,
    "array": FramedKind.ARRAY,
    "map": FramedKind.MAP,
    "record": FramedKind.RECORD,
}


@dataclass(frozen=True)
class Typed:
    """A type: its schema, a strategy of its values, and what kind it is."""

    schema: Any
    values: st.SearchStrategy[Any]
    kind: str


def primitive(kind: str) -> Typed:
    """Return a primitive type."""
    return Typed(kind, _PRIMITIVES[kind], kind)


@st.composite
def types(draw: st.DrawFn, depth: int = 3, *, name: Any = None) -> Typed:
    """Draw a type of at most `depth` levels."""
    name = name or count()
    simple = ["primitive", "enum", "fixed"]
    kind = draw(
        st.sampled_from(simple if not depth else [*simple, "array", "map", "record", "union"])
    )
    inner = types(depth - 1, name=name)
    match kind:
        case "enum":
            symbols = ["A", "B_b", "Z"]
            schema = {"type": "enum", "name": f"n{next(name)}", "symbols": symbols}
            return Typed(schema, st.sampled_from(symbols), "enum")
        case "fixed":
            size = draw(st.sampled_from([0, 1, 12]))
            fixed = {"type": "fixed", "name": f"n{next(name)}", "size": size}
            return Typed(fixed, st.binary(min_size=size, max_size=size), "fixed")
        case "array" | "map":
            items = draw(inner)
            schema = {"type": kind, "items" if kind == "array" else "values": items.schema}
            keyed = st.dictionaries(_TEXTS, items.values, max_size=3)
            listed = st.lists(items.values, max_size=4)
            return Typed(schema, listed if kind == "array" else keyed, kind)
        case "union":
            given = draw(st.lists(inner, min_size=1, max_size=3, unique_by=lambda each: each.kind))
            branches = [each for each in given if each.kind != "union"] or [primitive("null")]
            return Typed(
                [each.schema for each in branches],
                st.one_of([_tagged(each) for each in branches]),
                "union",
            )
    if kind == "record":
        return draw(records(depth, name=name))
    return primitive(draw(st.sampled_from(list(_PRIMITIVES))))


@st.composite
def records(draw: st.DrawFn, depth: int = 3, *, name: Any = None) -> Typed:
    """Draw a record; one of its fields may be a step of the path."""
    name = name or count()
    names = draw(st.lists(st.sampled_from(["a", "b", *STEPS]), max_size=4, unique=True))
    fields = [(each, draw(types(depth - 1, name=name))) for each in names]
    schema = {
        "type": "record",
        "name": f"n{next(name)}",
        "fields": [{"name": each, "type": of.schema} for each, of in fields],
    }
    return Typed(schema, st.fixed_dictionaries({each: of.values for each, of in fields}), "record")


def _tagged(branch: Typed) -> st.SearchStrategy[Any]:
    name = branch.schema["name"] if branch.kind in ("record", "enum", "fixed") else branch.kind
    return branch.values.map(lambda value: (name, value))


def framed(number: int, body: bytes) -> bytes:
    """Return the body as serializers frame it by a schema id."""
    return b"\0" + number.to_bytes(4) + body


def written(schema: Any, value: Any) -> bytes:
    """Return the bytes of a value, without a frame."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def expected(typed_schema: Any, value: Any, steps: Sequence[str]) -> Found:
    """Return the key that the steps lead to in a value, or why there is none."""
    schema = typed_schema
    if isinstance(schema, list):
        name, value = value
        schema = next(each for each in schema if name in (each, _name(each), _kind(each)))
    if steps:
        fields = schema["fields"] if _kind(schema) == "record" else ()
        for field in fields:
            if field["name"] == steps[0]:
                return expected(field["type"], value[steps[0]], steps[1:])
        return FramedKind.MISSING
    kind = _kind(schema)
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in ("bytes", "fixed"):
        return bytes(value)
    return str(value).encode()


def _kind(schema: Any) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _name(schema: Any) -> Any:
    return schema.get("name") if isinstance(schema, dict) else None


def of_schema(schema: Any, *paths: tuple[str, ...], references: Sequence[Any] = ()) -> Schemas:
    """Return the schemas that know this one by the number 1."""
    schemas = Schemas("avro", paths or (STEPS,))
    refer = tuple(Reference("", json.dumps(each)) for each in references)
    schemas.take(1, schemas.compiled(Schema("AVRO", json.dumps(schema), refer)))
    return schemas


def found(schemas: Schemas, *bodies: bytes, between: bytes = b"\2a\4") -> list[Found]:
    """Return what is found in values of the schema 1 with these bodies, which stand between other bytes."""
    column = Column.of([cell for body in bodies for cell in (between, framed(1, body))] + [between])
    keys, kinds = schemas.known.read(0, column)
    return [
        key if key is not None else FramedKind(kind)
        for key, kind in list(zip(keys, kinds.tolist(), strict=True))[1::2]
    ]


SPECIAL: Mapping[str, tuple[Any, Any, Found]] = {
    "UUID as a string": (
        {"type": "string", "logicalType": "uuid"},
        UUID(int=5),
        b"00000000-0000-0000-0000-000000000005",
    ),
    "UUID as a fixed": (
        {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"},
        bytes(range(0xE0, 0xF0)),
        b"e0e1e2e3-e4e5-e6e7-e8e9-eaebecedeeef",
    ),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        Decimal("1.25"),
        FramedKind.DECIMAL,
    ),
    "decimal as a fixed": (
        {"type": "fixed", "name": "d", "size": 4, "logicalType": "decimal", "precision": 4},
        Decimal(12),
        FramedKind.DECIMAL,
    ),
    "duration": (
        {"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"},
        bytes(12),
        FramedKind.DURATION,
    ),
    "time": (
        {"type": "long", "logicalType": "timestamp-millis"},
        1_700_000_000_000,
        b"1700000000000",
    ),
    "date": ({"type": "int", "logicalType": "date"}, -7, b"-7"),
}
