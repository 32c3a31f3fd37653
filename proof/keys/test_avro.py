"""Claims about keys in Avro values: of generated schemas, and of the Avro project's own test data.

`avro_project.json` has the schemas of the project, those that are none, records that its own writers wrote, and bytes
that every reader must refuse; its source and licence are in it.
"""

import io
import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.keys.formats import avro_schema
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import SchemaError
from tests.keys.avro import STEPS, found, of_schema, record, written
from tests.rows import table

DATA: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("avro_project.json").read_text(encoding="utf-8")
)
WRITTEN = {name: (each["schema"], each["hex"]) for name, each in DATA["written"].items()}
# A name that is none is in no value, so it does not matter.
LENIENT = ("invalid_avro_id",)
KINDS = {
    type(None): {FramedKind.NULL},
    bool: {FramedKind.BOOLEAN},
    float: {FramedKind.FLOAT},
    list: {FramedKind.ARRAY},
    dict: {FramedKind.RECORD, FramedKind.MAP},
}


def parsed(schema: Any) -> tuple[Any, dict[str, Any]]:
    """Return the schema with full names and without logical types, and what each name means."""
    names: dict[str, Any] = {}
    plain = json.loads(
        json.dumps(schema),
        object_hook=lambda each: {k: each[k] for k in each if k != "logicalType"},
    )
    return fastavro.parse_schema(plain, names), names


def paths(schema: Any, names: Mapping[str, Any], depth: int = 3) -> Iterator[tuple[str, ...]]:
    """Yield the paths to the fields of a schema, through records and unions."""
    schema = names.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        for branch in schema:
            yield from paths(branch, names, depth)
    elif isinstance(schema, dict) and schema["type"] == "record" and depth:
        for each in schema["fields"]:
            yield (each["name"],)
            yield from ((each["name"], *more) for more in paths(each["type"], names, depth - 1))


def expected(value: Any, steps: tuple[str, ...]) -> bytes | set[FramedKind]:
    """Return the key that the steps lead to in a value that fastavro read, or what it may be instead."""
    for step in steps:
        if not isinstance(value, dict) or step not in value:
            return {FramedKind.MISSING}
        value = value[step]
    if type(value) in KINDS:
        return KINDS[type(value)]
    return value if isinstance(value, bytes) else str(value).encode()


def compare(schema: Any, bodies: list[bytes]) -> int:
    """Compare the keys at all paths of the schema with what fastavro reads; return how many there are."""
    plain, names = parsed(schema)
    values = [fastavro.schemaless_reader(io.BytesIO(each), plain, None) for each in bodies]
    keys = 0
    for steps in {*paths(plain, names), ("no", "field")}:
        schemas = of_schema(schema, steps)
        for value, key in zip(values, found(schemas, *bodies), strict=True):
            wanted = expected(value, steps)
            assert key in wanted if isinstance(wanted, set) else key == wanted, steps
            keys += isinstance(key, bytes)
        assert found(schemas, *(each[:-1] for each in bodies if each)) == [FramedKind.UNFIT] * sum(
            map(bool, bodies)
        )
    return keys


@table(DATA["schemas"])
def test_each_schema_is_read(name: str) -> None:
    """Each has a program for every path of it, and knows of one that leads nowhere."""
    plain, names = parsed(DATA["schemas"][name])
    nowhere = ("no", "field")
    for steps in {*paths(plain, names), nowhere}:
        assert of_schema(DATA["schemas"][name], steps).known.has_field(0, 1) == (steps != nowhere)


@table(WRITTEN)
def test_what_other_writers_wrote_is_read(name: str) -> None:
    """The records of the project's own files, which Java and others wrote."""
    schema, bodies = WRITTEN[name]
    assert compare(schema, [bytes.fromhex(each) for each in bodies])


@table(DATA["no_schemas"])
def test_what_is_no_schema_is_refused(name: str) -> None:
    """With a reason; names alone are not looked at."""
    text = DATA["no_schemas"][name]
    if name.endswith(LENIENT):
        assert avro_schema.compiled(text, (), ("City",)).code
        return
    with pytest.raises(SchemaError):
        avro_schema.compiled(text, (), ("City",))


@table(DATA["rejections"])
def test_bytes_that_every_reader_must_refuse_are_refused(name: str) -> None:
    """Where the key is, and before it: there, an enum's number is not compared with its symbols."""
    schema, body = (DATA["rejections"][name][part] for part in ("schema", "hex"))
    steps = ("id",) if name.startswith("enum") else ("id", "other")
    for step in steps:
        schemas = of_schema(record(("id", schema), name="Event"), (step,))
        assert found(schemas, bytes.fromhex(body)) == [FramedKind.UNFIT]


# --- generated ---

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


@pytest.mark.bounds
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
