"""Claims about keys in Protobuf messages: they are what Google's reader finds, and no bytes make the kernel hang."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.events import Column
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import Reference, Schema
from streamdedup.keys.formats.schemas import Schemas
from tests.keys.avro import Answer, framed
from tests.rows import table

pytestmark = pytest.mark.bounds
MINUTE = 60_000  # for one example: a machine may be busy

F = descriptor_pb2.FieldDescriptorProto
SCALARS: Mapping[str, int] = {
    each: getattr(F, f"TYPE_{each.upper()}")
    for each in (
        *("string", "bytes", "bool", "float", "double", "fixed32", "fixed64", "sfixed32"),
        *("sfixed64", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    )
}
KINDS = {"bool": FramedKind.BOOLEAN, "float": FramedKind.FLOAT, "double": FramedKind.FLOAT}
_OF_EACH = "".join(f"  optional {name} {name}_of = {at};\n" for at, name in enumerate(SCALARS, 10))
# The message that all tests read: every type, in the message of a path, in and out of a oneof, and after its siblings.
TEXT = """
syntax = "proto3";
package test;
message Event {
  map<string, int32> map_of = 1;
  repeated string list = 2;
  User user = 3;
  oneof way {
    User first = 4;
    User second = 5;
    string plain = 6;
  }
  repeated User users = 7;
  repeated int64 packed = 8;
}
message User {
OF_EACH
  Color enum_of = 40;
  User user = 41;
  oneof id {
    string of_oneof = 42;
    int32 other = 43;
  }
  enum Color {
    option allow_alias = true;
    RED = 0;
    GREEN = 7;
    VERT = 7;
    BELOW = -3;
  }
}
""".replace("OF_EACH", _OF_EACH)


def event_file() -> Any:
    """Return what `TEXT` defines in Google's form, made without a compiler."""
    file = descriptor_pb2.FileDescriptorProto(name="test.proto", package="test", syntax="proto3")
    event, user = file.message_type.add(name="Event"), file.message_type.add(name="User")

    def add(to: Any, name: str, number: int, of: int, **more: Any) -> None:
        to.field.add(name=name, number=number, type=of, **{"label": F.LABEL_OPTIONAL, **more})

    entry = event.nested_type.add(name="MapOfEntry", options={"map_entry": True})
    add(entry, "key", 1, F.TYPE_STRING)
    add(entry, "value", 2, F.TYPE_INT32)
    repeated, of_user = {"label": F.LABEL_REPEATED}, {"type_name": ".test.User"}
    add(event, "map_of", 1, F.TYPE_MESSAGE, type_name=".test.Event.MapOfEntry", **repeated)
    add(event, "list", 2, F.TYPE_STRING, **repeated)
    add(event, "user", 3, F.TYPE_MESSAGE, **of_user)
    event.oneof_decl.add(name="way")
    for name, number in (("first", 4), ("second", 5)):
        add(event, name, number, F.TYPE_MESSAGE, oneof_index=0, **of_user)
    add(event, "plain", 6, F.TYPE_STRING, oneof_index=0)
    add(event, "users", 7, F.TYPE_MESSAGE, **repeated, **of_user)
    add(event, "packed", 8, F.TYPE_INT64, **repeated)
    user.oneof_decl.add(name="id")
    for at, (name, of) in enumerate(SCALARS.items()):
        add(user, f"{name}_of", at + 10, of, proto3_optional=True, oneof_index=at + 1)
    for name in SCALARS:
        user.oneof_decl.add(name=f"_{name}_of")
    color = user.enum_type.add(name="Color", options={"allow_alias": True})
    for name, number in (("RED", 0), ("GREEN", 7), ("VERT", 7), ("BELOW", -3)):
        color.value.add(name=name, number=number)
    add(user, "enum_of", 40, F.TYPE_ENUM, type_name=".test.User.Color")
    add(user, "user", 41, F.TYPE_MESSAGE, **of_user)
    add(user, "of_oneof", 42, F.TYPE_STRING, oneof_index=0)
    add(user, "other", 43, F.TYPE_INT32, oneof_index=0)
    return file


def event_type(file: Any) -> Any:
    """Return Google's class of an event."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Event"))


FILE = event_file()
EVENT = event_type(FILE)
PATHS = [
    *(f"user.{name}_of" for name in SCALARS),
    *("user.enum_of", "user.of_oneof", "first.of_oneof", "second.string_of", "plain"),
    "user.user.int64_of",
]
SYMBOLS = {0: "RED", 7: "GREEN", -3: "BELOW"}


def of_text(path: str, text: str = TEXT, references: Sequence[Reference] = ()) -> Schemas:
    """Return the schemas that know this text by the number 1."""
    schemas = Schemas("protobuf", [tuple(path.split("."))])
    schemas.take(1, schemas.compiled(Schema("PROTOBUF", text, tuple(references))))
    return schemas


SERIALIZED = base64.b64encode(FILE.SerializeToString()).decode()
OF_PATH = {path: of_text(path) for path in PATHS}
OF_SERIALIZED = {path: of_text(path, SERIALIZED) for path in PATHS}


def found(schemas: Schemas, *bodies: bytes, indexes: bytes = b"\0") -> list[Answer]:
    """Return what is found in these messages, which stand between other bytes."""
    between = b"\x0a\x04"
    cells = [cell for body in bodies for cell in (between, framed(1, indexes + body))]
    keys, kinds = schemas.known.read(0, Column.of([*cells, between]))
    every = list(zip(keys, kinds.tolist(), strict=True))[1::2]
    return [key if key is not None else FramedKind(kind) for key, kind in every]


def expected(body: bytes, path: str) -> Answer:
    """Return what Google's reader says of a message: a field that is not on the wire is missing."""
    message = EVENT()
    try:
        message.ParseFromString(body)
    except DecodeError:
        return FramedKind.UNFIT
    *outer, last = path.split(".")
    for step in outer:
        if not message.HasField(step):
            return FramedKind.MISSING
        message = getattr(message, step)
    if last == "enum_of":  # without presence: the default may be on the wire or not
        return SYMBOLS.get(message.enum_of, str(message.enum_of)).encode()
    if not message.HasField(last):
        return FramedKind.MISSING
    if (kind := KINDS.get(last.removesuffix("_of"))) is not None:
        return kind
    value = getattr(message, last)
    return value if isinstance(value, bytes) else str(value).encode()


def varint(number: int) -> bytes:
    """Return a number as a message has it."""
    number, out = number & (1 << 64) - 1, b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def tag(number: int, wire: int) -> bytes:
    """Return the tag of a field."""
    return varint(number << 3 | wire)


def piece(number: int, body: bytes) -> bytes:
    """Return a field of bytes."""
    return tag(number, 2) + varint(len(body)) + body


_VALUES = st.one_of(
    st.builds(
        lambda n, raw: tag(n, 0) + varint(raw), st.integers(1, 45), st.integers(0, 2**64 - 1)
    ),
    st.builds(
        lambda n, raw: tag(n, 1) + raw, st.integers(1, 45), st.binary(min_size=8, max_size=8)
    ),
    st.builds(
        lambda n, raw: tag(n, 5) + raw, st.integers(1, 45), st.binary(min_size=4, max_size=4)
    ),
    st.builds(piece, st.sampled_from([10, 11, 42]), st.text(max_size=6).map(str.encode)),
)


def _deeper(parts: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    joined = st.lists(parts, max_size=6).map(b"".join)
    grouped = st.builds(lambda n, body: tag(n, 3) + body + tag(n, 4), st.integers(50, 60), joined)
    return st.one_of(st.builds(piece, st.sampled_from([3, 3, 4, 5, 41, 55]), joined), grouped)


MESSAGES = st.lists(st.recursive(_VALUES, _deeper, max_leaves=12), max_size=6).map(b"".join)


@settings(deadline=MINUTE, max_examples=40)
@given(body=MESSAGES)
def test_a_key_is_what_googles_reader_finds(body: bytes) -> None:
    """The last one of several, merged messages, members of a oneof, unknown fields and groups, wrong types."""
    for path in PATHS:
        theirs = expected(body, path)
        ours, *_ = found(OF_PATH[path], body)
        assert found(OF_SERIALIZED[path], body) == [ours]
        if ours is FramedKind.MISSING and path.endswith("enum_of"):
            assert theirs in (b"RED", FramedKind.MISSING)
        # What it refuses inside other messages is not read here.
        elif theirs is not FramedKind.UNFIT:
            assert ours == theirs


FIRST, PLAIN, OTHER = piece(4, piece(42, b"a")), piece(6, b"p"), piece(3, tag(43, 0) + b"\1")


@table(SCALARS)
def test_each_type_has_the_text_of_json(name: str) -> None:
    """At its bounds."""
    bits = 32 if name.endswith("32") else 64
    low, high = (0, 2**bits - 1) if name[0] in "uf" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    values: list[Any] = [low, -1 if low else 1, 0, 1, high]
    if name in ("string", "bytes"):
        values = ["", "é" * 9] if name == "string" else [b"", b"\xff\0"]
    if name in KINDS:
        values = [1]
    for value in values:
        body = EVENT(user={f"{name}_of": value}).SerializeToString()
        key = KINDS.get(name) or (value if isinstance(value, bytes) else str(value).encode())
        assert found(OF_PATH[f"user.{name}_of"], body) == [key]


def test_what_is_no_key_says_what_it_is() -> None:
    """Lists, maps, messages; and what leads through them is missing."""
    body = EVENT(
        list=["a"], map_of={"k": 1}, user={"string_of": "a"}, packed=[1, 2]
    ).SerializeToString()
    kinds = FramedKind
    for path, kind in (
        ("list", kinds.ARRAY),
        ("map_of", kinds.MAP),
        ("packed", kinds.ARRAY),
        ("user", kinds.RECORD),
        ("list.x", kinds.MISSING),
        ("map_of.k", kinds.MISSING),
        ("nothing", kinds.MISSING),
        ("user.string_of.x", kinds.MISSING),
    ):
        assert found(of_text(path), body) == found(of_text(path, SERIALIZED), body) == [kind], path


def test_a_field_has_its_name_in_json_too() -> None:
    """So a path holds when a topic moves from JSON; the name in the file goes first."""
    text = """syntax = "proto3"; message E {
      string user_id = 1; string other = 2 [json_name = "Other"]; string userId = 3; }"""
    body = piece(1, b"1") + piece(2, b"2") + piece(3, b"3")
    keys = {path: found(of_text(path, text), body)[0] for path in ("user_id", "Other", "userId")}
    assert keys == {"user_id": b"1", "Other": b"2", "userId": b"3"}


WRAPPED = """syntax = "proto3"; import "google/protobuf/wrappers.proto";
message E { google.protobuf.StringValue id = 1; google.protobuf.Int64Value n = 2; google.protobuf.BoolValue b = 3;
  google.protobuf.Any any = 4; google.protobuf.Duration d = 5; google.protobuf.Timestamp t = 6; }"""


@table(
    [
        ("id", piece(1, piece(1, b"k")), b"k"),
        ("id.value", piece(1, piece(1, b"k")), b"k"),
        ("id", piece(1, b""), FramedKind.MISSING),
        ("id", b"", FramedKind.MISSING),
        ("n", piece(2, tag(1, 0) + varint(-5)), b"-5"),
        ("b", piece(3, tag(1, 0) + b"\1"), FramedKind.BOOLEAN),
        ("any", piece(4, b""), FramedKind.ANY),
        ("d", piece(5, b""), FramedKind.DURATION),
        ("t", piece(6, b""), FramedKind.RECORD),
    ]
)
def test_types_of_google_are_built_in(path: str, body: bytes, key: Answer) -> None:
    """A wrapper is its value; the others are no keys. A default is not on the wire: so it is missing."""
    assert found(of_text(path, WRAPPED), body) == [key]


def test_an_index_names_a_message() -> None:
    """Of the file, and of those within it; a map has none, as Java's serializer counts."""
    text = """syntax = "proto3"; package p;
    message A { string id = 1; }
    message B { string x = 1; string id = 2; map<string, string> m = 3;
      message C { string x = 1; string y = 2; string id = 3; } }"""
    schemas = of_text("id", text)
    body = piece(1, b"1") + piece(2, b"2") + piece(3, b"3")
    for indexes, key in ((b"\0", b"1"), (b"\2\0", b"1"), (b"\2\2", b"2"), (b"\4\2\0", b"3")):
        assert found(schemas, body, indexes=indexes) == [key]
    names = {"A": ("id",), "B": ("x", "id", "m")}
    file = descriptor_pb2.FileDescriptorProto(name="p.proto", package="p")
    for name, fields in names.items():
        message = file.message_type.add(name=name)
        for at, each in enumerate(fields, 1):
            message.field.add(name=each, number=at, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    serialized = of_text("id", base64.b64encode(file.SerializeToString()).decode())
    assert found(serialized, body, indexes=b"\2\2") == [b"2"]
    for wrong in (b"", b"\2", b"\2\4", b"\4\0\0", b"\1", b"\xff" * 9 + b"\1"):
        assert found(schemas, body if wrong else b"", indexes=wrong) == [FramedKind.UNFIT]


def test_names_are_found_in_imports_and_scopes() -> None:
    """The innermost one that has the name, as a compiler finds it."""
    shared = 'syntax = "proto3"; package shared.v1; message Id { string of = 1; }'
    text = """syntax = "proto3"; package shared.v2; import "id.proto";
    message Id { string x = 1; string of = 2; }
    message E { Id own = 1; v1.Id theirs = 2; .shared.v1.Id full = 3; Inner.Id inner = 4;
      message Inner { message Id { string x = 1; string y = 2; string of = 3; } } }"""
    body = b"".join(
        piece(n, b"".join(piece(m, b"%d" % m) for m in (1, 2, 3))) for n in (1, 2, 3, 4)
    )
    of = {"own": b"2", "theirs": b"1", "full": b"1", "inner": b"3"}
    for path, key in of.items():
        schemas = of_text(f"{path}.of", text, [Reference("id.proto", shared)])
        assert found(schemas, body, indexes=b"\2\2") == [key]


@table(
    [
        ("message", "it is no .proto file"),
        ("bm90aGluZw==", "it is no .proto file"),
        ("message E { string id 1; }", "it is no .proto file"),
        *(
            (f"message E {{ string id = {number}; }}", "it is no .proto file")
            for number in ("9" * 5_000, "0x" + "f" * 5_000, "0" + "7" * 9_000)
        ),
        (
            "message E { Other id = 1; }",
            "it uses a name that nothing in it or in its imports defines",
        ),
        (
            "enum K { A = 99999999999999999999; } message E { K id = 1; }",
            "it holds an enum whose number is wrong",
        ),
        ("message E { string id = 0; }", "it holds a field whose number is wrong"),
    ]
)
def test_a_schema_that_cannot_be_read_says_why(text: str, why: str) -> None:
    """Its values have no keys; nothing of it is printed."""
    schemas = of_text("id", text)
    assert found(schemas, b"") == [FramedKind.UNREADABLE]
    assert schemas.known.why_not(1) == why


def test_text_must_be_utf8() -> None:
    """As a reader of proto3 demands."""
    assert found(OF_PATH["plain"], piece(6, b"\xff")) == [FramedKind.NOT_UTF8]
