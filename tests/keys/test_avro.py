"""Claims about keys in Avro values: they are what fastavro wrote, and no bytes make the kernel hang or guess."""

import json
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.events import Column
from streamdedup.keys.formats.avro_column import DEPTH_MAX
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import Schema
from streamdedup.keys.formats.schemas import Schemas
from tests.keys.avro import found, framed, of_schema, record, written
from tests.rows import table

pytestmark = pytest.mark.bounds
LONG = st.integers(-(2**63), 2**63 - 1)


def zigzag(number: int) -> bytes:
    """Return a long as Avro has it."""
    raw, out = (number << 1) ^ (number >> 63), b""
    while raw > 127:
        out, raw = out + bytes([raw & 127 | 128]), raw >> 7
    return out + bytes([raw])


def logical(of: str, name_of_it: str, **more: Any) -> dict[str, Any]:
    """Return the schema of a logical type."""
    return {"type": of, "logicalType": name_of_it, **more}


ENUM = {"type": "enum", "name": "C", "symbols": ["A", "B_b"]}
TYPES = [
    ("int", -7, b"-7"),
    ("string", "é", "é".encode()),
    ("bytes", b"\xff", b"\xff"),
    ("boolean", True, FramedKind.BOOLEAN),
    ("double", 1.5, FramedKind.FLOAT),
    (ENUM, "B_b", b"B_b"),
    ({"type": "array", "items": ENUM}, ["A"], FramedKind.ARRAY),
    ({"type": "map", "values": "long"}, {"k": 1}, FramedKind.MAP),
    (record(("n", "long"), name="R"), {"n": 1}, FramedKind.RECORD),
    (["null", ENUM, "string"], ("string", "a"), b"a"),
    (["null", ENUM, "string"], None, FramedKind.NULL),
    (logical("string", "uuid"), UUID(int=5), b"00000000-0000-0000-0000-000000000005"),
    (
        logical("fixed", "uuid", name="u", size=16),
        bytes(range(0xE0, 0xF0)),
        b"e0e1e2e3-e4e5-e6e7-e8e9-eaebecedeeef",
    ),
    (logical("bytes", "decimal", precision=4, scale=2), Decimal("1.25"), FramedKind.DECIMAL),
    (logical("fixed", "decimal", name="d", size=4, precision=4), Decimal(12), FramedKind.DECIMAL),
    (logical("fixed", "duration", name="d", size=12), bytes(12), FramedKind.DURATION),
    (logical("long", "timestamp-millis"), 1_700_000_000_000, b"1700000000000"),
    (logical("int", "date"), -7, b"-7"),
]


@table(TYPES)
def test_a_key_is_what_was_written(schema: Any, value: Any, key: Any) -> None:
    """Or what is there instead: decimals and durations are no keys; and no shorter or longer value fits."""
    whole = record(("x", "long"), ("id", schema), ("y", "string"))
    body = written(whole, {"x": 1, "id": value, "y": "z"})
    schemas = of_schema(whole, ("id",))
    assert found(schemas, body) == [key]
    wrong = [*(body[:at] for at in range(len(body))), body + b"\0"]
    assert found(schemas, *wrong) == [FramedKind.UNFIT] * len(wrong)


@given(LONG)
def test_an_integer_is_its_decimal_text(number: int) -> None:
    """As in JSON; a number beyond an int's 32 bits is no int."""
    assert found(of_schema(record(("id", "long")), ("id",)), zigzag(number)) == [b"%d" % number]
    fits = -(2**31) <= number < 2**31
    as_int = found(of_schema(record(("id", "int")), ("id",)), zigzag(number))
    assert as_int == [b"%d" % number if fits else FramedKind.UNFIT]


def test_blocks_that_say_their_size_are_skipped_by_it() -> None:
    """A negative count is followed by the bytes of the block."""
    schema = record(
        ("a", {"type": "array", "items": "string"}),
        ("m", {"type": "map", "values": "long"}),
        ("id", "string"),
    )
    array = zigzag(-2) + zigzag(4) + b"\2a\2b" + zigzag(1) + b"\2c" + b"\0"
    mapped = zigzag(-1) + zigzag(3) + b"\2k\2" + b"\0"
    assert found(of_schema(schema, ("id",)), array + mapped + b"\4ab") == [b"ab"]
    for size in (-1, 2**40, 2**63 - 1):
        body = zigzag(-2) + zigzag(size) + b"\2a\2b\0\0\4ab"
        assert found(of_schema(schema, ("id",)), body) == [FramedKind.UNFIT]


NULLS = {"type": "array", "items": "null"}
EMPTY = {"type": "array", "items": record(("n", "null"), name="N")}


@table([NULLS, EMPTY])
def test_items_without_bytes_cost_nothing(items: Any) -> None:
    """The largest count that there is of them is passed at once."""
    schema = record(("a", items), ("id", "string"))
    blocks = zigzag(2**63 - 1) * 50 + zigzag(-(2**63)) + zigzag(0) + b"\0"
    assert found(of_schema(schema, ("id",)), blocks + b"\4ab") == [b"ab"]


@table(["long", "double", "string", record(("s", "string"), name="S")])
def test_a_count_is_bounded_by_the_bytes_that_are_left(items: Any) -> None:
    """Each item has a byte at least."""
    schema = record(("a", {"type": "array", "items": items}), ("id", "string"))
    body = zigzag(2**62) + bytes(40)
    assert found(of_schema(schema, ("id",)), body) == [FramedKind.UNFIT]


TREE = record(("id", "string"), ("next", ["null", "E"]))


def test_recursion_ends_at_a_depth() -> None:
    """A list of records in each other is followed DEPTH_MAX deep."""
    schema = record(("list", TREE), ("id", "string"), name="W")
    at_most = b"\0\2" * (DEPTH_MAX - 1) + b"\0\0"
    assert found(of_schema(schema, ("id",)), at_most + b"\2k") == [b"k"]
    assert found(of_schema(schema, ("id",)), b"\0\2" + at_most + b"\2k") == [FramedKind.TOO_DEEP]
    assert found(of_schema(schema, ("list", "next", "id")), b"\0\2\2k\0\2x") == [b"k"]
    assert found(of_schema(schema, ("list", "next", "id")), b"\0\0\2x") == [FramedKind.MISSING]


def test_names_are_found_in_references_and_namespaces() -> None:
    """A registry keeps a shared record as a schema of its own."""
    user = {
        "type": "record",
        "name": "User",
        "namespace": "shared",
        "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "other", "type": "Kind"},
            {"name": "id", "type": "string"},
        ],
    }
    schema = record(("first", "shared.Kind"), ("user", "shared.User"))
    schemas = of_schema(schema, ("user", "id"), references=[user])
    assert found(schemas, b"\0\0\2\2k") == [b"k"]
    assert found(of_schema(schema, ("user", "other"), references=[user]), b"\0\0\2\2k") == [b"B"]


def test_no_text_is_taken_that_is_not_utf8() -> None:
    """A string's bytes are text, and those of bytes are not."""
    for kind, key in (("string", FramedKind.NOT_UTF8), ("bytes", b"\xff" * 9)):
        schema = record(("id", kind))
        assert found(of_schema(schema, ("id",)), zigzag(9) + b"\xff" * 9) == [key]


@table(
    [
        ("{", "it is not JSON"),
        ('{"type":"record"}', "it holds a type record without a name"),
        ('{"type":"record","name":"E"}', "it holds a record without fields"),
        ('{"type":"enum","name":"E"}', "it holds an enum without symbols"),
        ('{"type":"fixed","name":"E","size":-1}', "it holds a fixed without a size"),
        ('"Unknown"', "it uses a name that nothing in it or in its references defines"),
        ("7", "it holds something that is no type"),
        ("[" * 150 + "]" * 150, "it is nested deeper than 100"),
    ]
)
def test_a_schema_that_cannot_be_read_says_why(text: str, why: str) -> None:
    """Its values have no keys."""
    schemas = Schemas("avro", [("id",)])
    schemas.take(1, schemas.compiled(Schema("AVRO", text)))
    assert found(schemas, b"\0") == [FramedKind.UNREADABLE]
    assert schemas.known.why_not(1) == why


def test_a_schema_that_would_make_a_huge_program_is_refused() -> None:
    """A union of many records on each step of a path multiplies."""
    names = [f"R{number}" for number in range(40)]
    each = [record(("a", names[: at + 1]), name=name) for at, name in enumerate(names)]
    schemas = of_schema(each, ("a",) * 8)
    assert schemas.known.why_not(1) == "it is too large"


def test_a_primitive_stands_alone_without_quotes() -> None:
    """So older registries return it."""
    schemas = Schemas("avro", [("id",)])
    schemas.take(1, schemas.compiled(Schema("AVRO", "string")))
    assert found(schemas, b"\2a") == [FramedKind.MISSING]


def test_each_value_is_read_by_its_own_schema() -> None:
    """Of several ids in one column, and of more rows than one call of the kernel takes."""
    schemas = Schemas("avro", [("id",)])
    for number in (70_000, 3, 2**32 - 1):
        before = [("x", "string")] * (number % 3)
        fields = [(f"x{at}", of) for at, (_, of) in enumerate(before)]
        text = json.dumps(record(*fields, ("id", "long")))
        schemas.take(number, schemas.compiled(Schema("AVRO", text)))
    random, cells, keys = Random(1), list[bytes](), list[bytes]()
    for row in range(70_000):
        number = random.choice((70_000, 3, 2**32 - 1))
        keys.append(b"%d" % row)
        cells.append(framed(number, b"\2a" * (number % 3) + zigzag(row)))
    column, kinds = schemas.known.read(0, Column.of(cells))
    assert list(column) == keys
    assert not np.any(kinds)


def test_unknown_ids_are_reported_once_each() -> None:
    """In order, without what is not framed; and what was given up is not asked for until it is to be."""
    schemas = of_schema(record(("id", "string")), ("id",))
    values = Column.of(
        [framed(9, b""), b"{}", None, framed(1, b""), framed(2, b""), framed(9, b"")]
    )
    assert schemas.unresolved(values) == [2, 9]
    schemas.give_up([9])
    assert schemas.unresolved(values) == [2]
    kinds = schemas.known.read(0, values)[1]
    unknown, unframed = FramedKind.UNKNOWN, FramedKind.UNFRAMED
    assert kinds.tolist() == [unknown, unframed, unframed, FramedKind.UNFIT, unknown, unknown]
    schemas.ask_again()
    assert schemas.unresolved(values) == [2, 9]
    assert schemas.known.read(0, Column.of([framed(1, b"\2k")]))[0][0] == b"k"
