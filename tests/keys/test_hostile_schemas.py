"""Claims about schemas that somebody registered to do harm: each is read in time and memory that its size bounds."""

import base64
import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from streamdedup.keys.formats import protobuf_schema
from streamdedup.keys.formats import schema as schema_module
from streamdedup.keys.formats.avro_schema import compiled as of_avro
from streamdedup.keys.formats.schema import NAME_CHARS_MAX, Schema, SchemaError
from streamdedup.keys.formats.schemas import Schemas
from tests.keys.avro import found as found_in_avro
from tests.keys.avro import of_schema, record
from tests.keys.test_protobuf import F, found, of_text, piece
from tests.rows import every, table

COMPILED = {"avro": of_avro, "protobuf": protobuf_schema.compiled}


def serialized(file: Any) -> str:
    """Return a file as a registry keeps it in its serialized form."""
    return base64.b64encode(file.SerializeToString()).decode()


def why_not(kind: str, text: str, path: str = "id") -> str:
    """Return why no key can be found by a schema."""
    schemas = of_text(path, text) if kind == "protobuf" else of_schema(json.loads(text), (path,))
    return schemas.known.why_not(1)


@table([[], {}, 7, None])
def test_a_logical_type_that_is_no_text_is_none(logical: Any) -> None:
    """Avro has unknown ones ignored."""
    fixed = {"type": "fixed", "name": "F", "size": 2, "logicalType": logical}
    for kind in ({"type": "bytes", "logicalType": logical}, fixed):
        body = b"ab" if kind is fixed else b"\4ab"
        assert found_in_avro(of_schema(record(("id", kind)), ("id",)), body) == [b"ab"]


def test_a_name_is_defined_once() -> None:
    """What would read by the first definition, and what by the second, would find different keys."""
    twice = record(("a", record(("x", "int"), name="R")), ("b", record(("y", "string"), name="R")))
    assert why_not("avro", json.dumps(twice)) == "it defines a name twice"


def of_fields(*fields: tuple[str, int]) -> str:
    """Return a file of one message with these fields, serialized."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto")
    event = file.message_type.add(name="E")
    for name, number in fields:
        event.field.add(name=name, number=number, type=F.TYPE_STRING, label=1)
    return serialized(file)


ENUM = {"type": "enum", "name": "C", "symbols": ["A", "B", "A"]}
PROTO = 'syntax = "proto3"; message E { string id = 1; %s }'
REPEATED = [
    record(*[("id", "string")] * 200),
    record(("id", "string"), ("x", "int"), ("id", "bytes")),
    record(("id", record(("b", "int"), ("b", "int"), name="R"))),
    ["null", {**record(*[("id", "int")] * 2), "type": "error"}],
]


@table(
    [
        *(
            ("avro", json.dumps(each), "record that repeats the name of a field")
            for each in REPEATED
        ),
        ("avro", json.dumps({**record(), "fields": [{"type": "int"}]}), "field without a name"),
        ("avro", json.dumps(record(("id", ENUM))), "enum that repeats a symbol"),
        ("protobuf", of_fields(("id", 1), ("id", 2)), "message that repeats the name of a field"),
        ("protobuf", of_fields(("id", 1), ("b", 1)), "message that repeats the number of a field"),
        ("protobuf", PROTO % "bytes id = 2;", "message that repeats the name of a field"),
        (
            "protobuf",
            PROTO % "oneof a { int32 b = 1; }",
            "message that repeats the number of a field",
        ),
    ]
)
def test_what_repeats_a_name_is_no_schema(kind: str, text: str, why: str) -> None:
    """A value would have several keys, for one of which there is room."""
    assert why_not(kind, text) in (f"it holds a {why}", f"it holds an {why}")


STEPS = "it takes too long to read"


def test_the_work_of_a_schema_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what its text makes a reader do, whatever its length; comments cost nothing."""
    monkeypatch.setattr(schema_module, "STEPS_MAX", 10_000)

    def check(row: tuple[str, str, str | None]) -> None:
        kind, text, why = row
        try:
            assert COMPILED[kind](text, (), ("id",)).has_field
            assert why is None
        except SchemaError as error:
            assert str(error) == why

    message = "message E { string id = 1; }"
    every(
        [
            ("avro", json.dumps(record(("id", "int"), ("u", ["int"] * 100))), None),
            ("avro", json.dumps(record(("id", "int"), ("u", ["int"] * 10_000))), STEPS),
            ("avro", "[" + "[]," * 10_000 + "[]]", STEPS),
            ("protobuf", message + "/**/" * 1_000 + "//\n" * 1_000, None),
            ("protobuf", ";" * 10_000, STEPS),
            ("protobuf", "option a = {" + "a: 1, " * 10_000 + "};", STEPS),
            ("protobuf", of_fields(*((f"f{at}", at) for at in range(1, 10_000))), STEPS),
        ],
        check,
    )


def test_the_work_of_what_a_schema_imports_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text is short enough, and all together take too long."""
    monkeypatch.setattr(schema_module, "STEPS_MAX", 10_000)
    imported = "".join(f"message M{at} {{ string id = {at + 1}; }} " for at in range(60))
    text = "message E { string id = 1; }"
    for count, fits in ((2, True), (20, False)):
        references = [imported.replace("M", f"N{at}_") for at in range(count)]
        try:
            assert protobuf_schema.compiled(text, references, ("id",)).has_field
            assert fits
        except SchemaError as error:
            assert (str(error), fits) == (STEPS, False)


def test_a_comment_is_no_part_of_a_schema_but_a_text_is() -> None:
    """Of a string, nothing is taken away."""
    text = """// message E { int32 id = 1; } "
      message E /* message F {} */ { option (a) = "/* no comment"; string id = 1; // "
      option (b) = '//'; }/**/"""
    assert found(of_text("id", text), piece(1, b"k")) == [b"k"]


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_long_names_are_refused(kind: str) -> None:
    """A namespace is a part of every name in it; and each row of a batch has room for the longest symbol."""
    long, why = (
        "n" * (NAME_CHARS_MAX + 1),
        f"it holds a name of more than {NAME_CHARS_MAX} characters",
    )
    if kind == "avro":
        spaced = {**record(("x", record(("id", "int"), name="R"))), "namespace": long}
        symbols = record(("id", {"type": "enum", "name": "C", "symbols": [long]}))
        texts = [json.dumps(spaced), json.dumps(symbols)]
    else:
        texts = [
            f'syntax = "proto3"; package {long}; message E {{ string id = 1; }}',
            f'syntax = "proto3"; enum C {{ {long} = 0; }} message E {{ C id = 1; }}',
        ]
    for text in texts:
        assert why_not(kind, text) == why


def test_a_program_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Protobuf, too."""
    monkeypatch.setattr(protobuf_schema, "CODE_MAX", 100)
    text = "message E { string id = 1; } " * 20
    assert why_not("protobuf", text) == "it is too large"


def test_a_schema_that_was_not_read_is_no_other_one() -> None:
    """Whatever a snapshot says of its id, and no snapshot says anything by it."""
    schemas = Schemas("avro", [("id",)])
    schemas.expect({1: "0123456789abcdef"})
    schemas.take(1, schemas.compiled(Schema("", "", why_not="it has more than 4 MiB")))
    assert schemas.known.why_not(1) == "it has more than 4 MiB"
    assert schemas.met == {1: "0123456789abcdef"}
    schemas.take(2, schemas.compiled(Schema("", "", why_not="it has more than 4 MiB")))
    assert 2 not in schemas.met


def test_a_type_that_is_not_known_is_not_quoted() -> None:
    """A reason goes to logs and dead letters."""
    why = Schemas("avro", [("id",)]).compiled(Schema("a secret", "{}")).why_not
    assert why == "it is of type unknown, and key.format is avro"
