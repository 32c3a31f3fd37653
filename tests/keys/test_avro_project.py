"""Claims about the Avro project's own test data: keys are found in it, and what must be refused is.

`tests/data/avro_project.json` has its schemas, those that are none, records that its own writers wrote, and bytes that
every reader must refuse; its source and licence are in it.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pytest

from streamdedup.keys.formats import avro_schema
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import SchemaError
from tests.keys.avro import found, of_schema
from tests.registry.stand_ins import record

DATA: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "avro_project.json").read_text()
)
WRITTEN = {name: (each["schema"], each["hex"]) for name, each in DATA["written"].items()}
# A name that is none is in no value, so it does not matter.
LENIENT = ("invalid_avro_id",)
# No value of these has an end; or they are a union of nothing.
WITHOUT_VALUES = (
    "namespace_fullname",
    "namespace_null_record",
    "namespace_simple",
    "schema-tests.txt 016",
)
PRIMITIVES: Mapping[str, Callable[[Random], Any]] = {
    "null": lambda _: None,
    "boolean": lambda random: random.random() < 0.5,
    "int": lambda random: random.randrange(-(1 << 31), 1 << 31) >> random.randrange(31),
    "long": lambda random: random.randrange(-(1 << 63), 1 << 63) >> random.randrange(63),
    "float": lambda random: random.randrange(99) / 4,
    "double": lambda random: random.randrange(99) / 4,
    "bytes": lambda random: random.randbytes(random.randrange(9)),
    "string": lambda random: "".join(random.choices("aZ09é€ ", k=random.randrange(9))),
}
KINDS = {
    type(None): {FramedKind.NULL},
    bool: {FramedKind.BOOLEAN},
    float: {FramedKind.FLOAT},
    list: {FramedKind.ARRAY},
    dict: {FramedKind.RECORD, FramedKind.MAP},
}
VALUES = 20
DEPTH = 6


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


def drawn(  # noqa: PLR0911 - a return for each kind of type
    schema: Any, names: Mapping[str, Any], random: Random, depth: int = DEPTH
) -> Any:
    """Draw a value of a parsed schema. RecursionError if it has no end."""
    if depth < -DEPTH:
        raise RecursionError
    if isinstance(schema, list):
        simple = [each for each in schema if isinstance(each, str) and each not in names]
        branch = random.choice(schema if depth > 0 or not simple else simple)
        name = branch if isinstance(branch, str) else branch.get("name", branch["type"])
        return name, drawn(branch, names, random, depth - 1)
    if isinstance(schema, str):
        schema = names.get(schema, {"type": schema})
    if schema["type"] in PRIMITIVES:
        return PRIMITIVES[schema["type"]](random)
    count = random.randrange(3) if depth > 0 else 0
    match schema["type"]:
        case "record":
            fields = {each["name"]: each["type"] for each in schema["fields"]}
            return {name: drawn(of, names, random, depth - 1) for name, of in fields.items()}
        case "array":
            return [drawn(schema["items"], names, random, depth - 1) for _ in range(count)]
        case "map":
            values = (drawn(schema["values"], names, random, depth - 1) for _ in range(count))
            return {f"k{number}": value for number, value in enumerate(values)}
        case "enum":
            return random.choice(schema["symbols"])
    return random.randbytes(schema["size"])


def expected(value: Any, steps: tuple[str, ...]) -> bytes | set[FramedKind]:
    """Return the key that the steps lead to in a value that fastavro read, or what it may be instead."""
    for step in steps:
        if not isinstance(value, dict) or step not in value:
            return {FramedKind.MISSING}
        value = value[step]
    if type(value) in KINDS:
        return KINDS[type(value)]
    return value if isinstance(value, bytes) else str(value).encode()


def check(schema: Any, bodies: list[bytes]) -> int:
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


@pytest.mark.parametrize("name", DATA["schemas"])
def test_each_schema_is_read(name: str) -> None:
    """Values of it have the keys that fastavro reads in them, at every path."""
    plain, names = parsed(DATA["schemas"][name])
    random, bodies = Random(name), []
    for _ in range(0 if name.endswith(WITHOUT_VALUES) else VALUES):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, plain, drawn(plain, names, random))
        bodies.append(out.getvalue())
    check(DATA["schemas"][name], bodies)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_other_writers_wrote_is_read(name: str) -> None:
    """The records of the project's own files, which Java and others wrote."""
    schema, bodies = WRITTEN[name]
    assert check(schema, [bytes.fromhex(each) for each in bodies])


@pytest.mark.parametrize("name", DATA["no_schemas"])
def test_what_is_no_schema_is_refused(name: str) -> None:
    """With a reason; names alone are not looked at."""
    text = DATA["no_schemas"][name]
    if name.endswith(LENIENT):
        assert avro_schema.compiled(text, (), ("City",)).code
        return
    with pytest.raises(SchemaError):
        avro_schema.compiled(text, (), ("City",))


@pytest.mark.parametrize("name", DATA["rejections"])
def test_bytes_that_every_reader_must_refuse_are_refused(name: str) -> None:
    """Where the key is, and before it: there, an enum's number is not compared with its symbols."""
    schema, body = (DATA["rejections"][name][part] for part in ("schema", "hex"))
    steps = ("id",) if name.startswith("enum") else ("id", "other")
    for step in steps:
        schemas = of_schema(record([("id", schema)]), (step,))
        assert found(schemas, bytes.fromhex(body)) == [FramedKind.UNFIT]
