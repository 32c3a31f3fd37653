"""Claims about keys in Avro values of generated schemas: they are what fastavro reads, or what is there instead."""

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proof.keys.test_avro_project import compare
from streamdedup.keys.formats.framed_kinds import FramedKind
from tests.keys.avro import STEPS, found, of_schema, written

pytestmark = pytest.mark.bounds
MINUTE = 60_000  # for one example: a machine may be busy
TEXTS = st.text(max_size=12)
PRIMITIVES: Mapping[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=12),
    "string": TEXTS,
}
Typed = tuple[Any, st.SearchStrategy[Any]]  # a schema, and its values


def kind_of(schema: Any) -> str:
    """Return the name of a type, the same of all records."""
    return str(schema["type"] if isinstance(schema, dict) else schema)


@st.composite
def types(draw: st.DrawFn, depth: int, name: Any) -> Typed:
    """Draw a type of at most `depth` levels."""
    simple = ["primitive", "enum", "fixed"]
    kind = draw(st.sampled_from([*simple, *["array", "map", "record", "union"] * (depth > 0)]))
    named = {"type": kind, "name": f"n{next(name)}"}
    match kind:
        case "primitive":
            of: str = draw(st.sampled_from(list(PRIMITIVES)))
            return of, PRIMITIVES[of]
        case "enum":
            symbols = ["A", "B_b", "Z"]
            return {**named, "symbols": symbols}, st.sampled_from(symbols)
        case "fixed":
            size = draw(st.sampled_from([0, 1, 12]))
            return {**named, "size": size}, st.binary(min_size=size, max_size=size)
        case "record":
            return draw(records(depth, name))
        case "union":
            branch = types(depth - 1, name).filter(lambda each: not isinstance(each[0], list))
            several = st.lists(
                branch, min_size=1, max_size=3, unique_by=lambda one: kind_of(one[0])
            )
            branches = draw(several)
            return [schema for schema, _ in branches], st.one_of([each for _, each in branches])
    items, values = draw(types(depth - 1, name))
    all_of = {
        "array": st.lists(values, max_size=4),
        "map": st.dictionaries(TEXTS, values, max_size=3),
    }
    return {"type": kind, "items" if kind == "array" else "values": items}, all_of[kind]


@st.composite
def records(draw: st.DrawFn, depth: int = 3, name: Any = None) -> Typed:
    """Draw a record; one of its fields may be a step of the path."""
    name = name or count()
    steps = draw(st.lists(st.sampled_from(["a", "b", *STEPS]), max_size=4, unique=True))
    typed = {each: draw(types(depth - 1, name)) for each in steps}
    fields = [{"name": each, "type": schema} for each, (schema, _) in typed.items()]
    values = st.fixed_dictionaries({each: of for each, (_, of) in typed.items()})
    return {"type": "record", "name": f"n{next(name)}", "fields": fields}, values


@settings(deadline=MINUTE, max_examples=300)
@given(st.data())
def test_a_key_is_what_was_written_whatever_stands_around_it(data: st.DataObject) -> None:
    """Of any schema and path, what fastavro reads is found, or what is there instead; no other size fits."""
    schema, of = data.draw(records())
    bodies = [written(schema, value) for value in data.draw(st.lists(of, min_size=1, max_size=4))]
    compare(schema, bodies)
    cut = [body[:at] for body in bodies for at in range(len(body))]
    wrong = [*cut, *(body + b"\0" for body in bodies)]
    assert found(of_schema(schema), *wrong) == [FramedKind.UNFIT] * len(wrong)
