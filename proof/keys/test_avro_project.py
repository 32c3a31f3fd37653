"""Claims about the Avro project's own test data: keys are found in it, and what must be refused is.

`avro_project.json` has its schemas, those that are none, records that its own writers wrote, and bytes that
every reader must refuse; its source and licence are in it.
"""

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pytest

from streamdedup.keys.formats import avro_schema
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import SchemaError
from tests.keys.avro import found, of_schema
from tests.registry.stand_ins import record
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
        schemas = of_schema(record([("id", schema)]), (step,))
        assert found(schemas, bytes.fromhex(body)) == [FramedKind.UNFIT]
