"""Claims about keys in Avro values of generated schemas: they are what fastavro wrote, or what is there instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.keys.formats.framed_kinds import FramedKind
from tests.keys.avro import STEPS, Cells, found, of_schema, written

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


def expected(typed_schema: Any, value: Any, steps: Sequence[str]) -> Cells:
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


pytestmark = pytest.mark.bounds
MINUTE = 60_000  # for one example: a machine may be busy


@settings(deadline=MINUTE, max_examples=300)
@given(st.data())
def test_a_key_is_what_was_written_whatever_stands_around_it(data: st.DataObject) -> None:
    """Of any schema, the kernel finds the field or says what is there instead; no shorter or longer value fits."""
    typed = data.draw(records())
    values = data.draw(st.lists(typed.values, min_size=1, max_size=4))
    bodies = [written(typed.schema, value) for value in values]
    schemas = of_schema(typed.schema)
    assert found(schemas, *bodies) == [expected(typed.schema, value, STEPS) for value in values]
    cut = [body[:at] for body in bodies for at in range(len(body))]
    for wrong in (*cut, *(body + b"\0" for body in bodies)):
        assert found(schemas, wrong) == [FramedKind.UNFIT]
