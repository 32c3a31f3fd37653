"""Claims about keys of several parts: of headers and fields together, and of names that stand in for each other."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdedup.events import Column, Headers
from streamdedup.kafka.records.headers import RawHeaders
from streamdedup.keys.extract import Extractor, Keys, json_keys
from streamdedup.keys.formats.schema import Schema
from streamdedup.keys.join import joined
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.options import Format
from streamdedup.keys.parts import Part
from tests.kafka.test_headers import column_of, written
from tests.keys.avro import framed, record
from tests.keys.avro import written as avro
from tests.keys.test_extract import batch_of

AFTER, BEFORE = "after.id", "before.id"
DEBEZIUM = (Part("header", ("tenant",)), Part("json", (AFTER, BEFORE)))


def key(*parts: str) -> bytes:
    """These parts, joined as several fields are."""
    return b"".join(len(part).to_bytes(4, "little") + part.encode() for part in parts)


def extracted(
    parts: Sequence[Part], events: Sequence[tuple[Headers, Any]], *, raw: bool = False, **more: Any
) -> Keys:
    """The keys of events, each with headers and a value, by an extractor of these parts."""
    values: list[bytes | None] = [
        each if isinstance(each, bytes) else json.dumps(each).encode() for _, each in events
    ]
    headers: Any = [each for each, _ in events]
    if raw:
        cells = [[(name.encode(), value) for name, value in each] for each in headers]
        headers = RawHeaders(column_of([written(each) for each in cells]))
    extractor = Extractor.of_parts(tuple(parts), **more)
    return extractor.extract(batch_of(values, headers=headers))


@pytest.mark.parametrize("raw", [False, True], ids=["objects", "columns"])
def test_a_header_and_fields_that_stand_in_for_each_other(*, raw: bool) -> None:
    """A delete of Debezium, whose `after` is null, has the key of the insert; another tenant is another key."""
    acme: Headers = [("tenant", b"acme")]
    events: list[tuple[Headers, Any]] = [
        (acme, {"before": None, "after": {"id": 7}}),
        (acme, {"before": {"id": "7"}, "after": None}),
        (acme, {"before": {"id": 7}}),
        (acme, {"before": {"id": 8}, "after": {"id": "\n7"}}),
        ([("tenant", b"other")], {"after": {"id": 7}}),
        ([("tenant", b"")], {"after": {"id": None}, "before": {"id": ""}}),
        ([("tenant", b"acme"), ("x", b"y"), ("tenant", b"z")], {"before": {"id": 1}}),
        ([], {"after": {"id": 7}}),
        ([("tenant", None)], {"after": {}}),
        (acme, {"after": {"id": []}, "before": {"id": 7}}),
        (acme, {"after": {"id": None}, "before": {"id": 1.5}}),
        (acme, {"after": {}, "before": {"id": None}}),
        (acme, b'{"after":{"id":null},"before":{"id":7}'),
    ]
    found = extracted(DEBEZIUM, events, raw=raw)
    keys = [
        *[key("acme", "7")] * 3,
        *(key("acme", "\n7"), key("other", "7"), key("", ""), key("z", "1")),
    ]
    assert list(found.keys) == [*keys, *[None] * 6]
    assert found.malformed == {
        7: "the header tenant is missing",
        8: "the header tenant is null",
        9: "the field after.id is an array",
        10: "the field before.id is not an integer",
        11: "the field after.id is missing, and the field before.id is null",
        12: "the value is not valid JSON: it ends too early, at byte 39",
    }


USER = record(("id", ["null", "long", "string", "double"]), name="User")
AVRO = record(("after", ["null", USER]), ("before", ["null", "User"]), name="Change")
PROTOBUF = """syntax = "proto3"; message Change { User after = 1; User before = 2;
  message User { optional int64 id = 1; optional double x = 2; } }"""


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json_schema"])
def test_fields_stand_in_for_each_other_in_each_format(format_: Format) -> None:
    """The keys are those of JSON, also where values of several schemas and of none are in one batch."""
    changes: list[dict[str, Any]] = [
        {"before": None, "after": {"id": 7}},
        {"before": {"id": 7}, "after": None},
        {"before": {"id": 8}, "after": {"id": None}},
        {"before": None, "after": None},
    ]
    encoded = {
        "avro": [avro(AVRO, change) for change in changes],
        "protobuf": [b"\0\x0a\2\x08\7", b"\0\x12\2\x08\7", b"\0\x0a\0\x12\2\x08\x08", b"\0"],
        "json_schema": [json.dumps(change).encode() for change in changes],
    }[format_]
    values = [framed(1, each) for each in encoded] + [json.dumps(each).encode() for each in changes]
    extractor = Extractor.of_parts((*DEBEZIUM, Part("json", (BEFORE, "x", AFTER))), format_=format_)
    if extractor.schemas is not None:
        text = json.dumps(AVRO) if format_ == "avro" else PROTOBUF
        schema = Schema(extractor.schemas.type, text)
        extractor.schemas.take(1, extractor.schemas.compiled(schema))
    found = extractor.extract(batch_of([*values], headers=[[("tenant", b"t")]] * 8))
    wanted = [key("t", "7", "7"), key("t", "7", "7"), key("t", "8", "8"), None]
    assert list(found.keys) == wanted * 2
    assert list(found.malformed) == [3, 7]
    for reason in found.malformed.values():
        assert "the field after.id is" in reason
        assert "and the field before.id is" in reason


def test_another_type_does_not_go_on_in_a_framed_value() -> None:
    """Only what is missing or null does."""
    extractor = Extractor.of_parts((Part("json", (AFTER, BEFORE)),), format_="avro")
    assert extractor.schemas is not None
    schema = Schema("AVRO", json.dumps(AVRO))
    extractor.schemas.take(1, extractor.schemas.compiled(schema))
    value = avro(AVRO, {"before": {"id": 7}, "after": {"id": 1.5}})
    found = extractor.extract(batch_of([framed(1, value), framed(2, value)]))
    assert found.malformed == {0: "the field after.id is a float"}
    assert list(found.unknown) == [1]


def test_headers_stand_in_for_each_other() -> None:
    """The last of each name counts, as with one; and a key of one part is the part itself."""
    parts = [Part("header", ("id", "key"))]
    events: list[tuple[Headers, Any]] = [
        ([("key", b"k"), ("id", b"i")], {}),
        ([("key", b"k"), ("id", None)], {}),
        ([("key", b"j"), ("key", b"k")], {}),
        ([("key", None)], {}),
    ]
    for raw in (False, True):
        found = extracted(parts, events, raw=raw)
        assert list(found.keys) == [b"i", b"k", b"k", None]
        assert found.malformed == {3: "the header id is missing, and the header key is null"}


def test_each_part_is_normalized_and_what_is_no_address_does_not_go_on() -> None:
    """As several fields are: before they are joined."""
    events: list[tuple[Headers, Any]] = [
        ([("tenant", b" T ")], {"after": {"id": " A "}}),
        ([("tenant", b"t")], {"before": {"id": "a"}}),
        ([("tenant", b"t")], {"after": {"id": "\0"}, "before": {"id": "a"}}),
    ]
    found = extracted(DEBEZIUM, events, normalizer=normalizer("lowercase"))
    assert list(found.keys) == [key("t", "a"), key("t", "a"), None]
    assert "zero byte" in found.malformed[2]


VALUES = st.none() | st.text(max_size=3) | st.integers(-9, 9)
CHANGES = st.dictionaries(st.sampled_from("abc"), VALUES)


@given(st.lists(CHANGES, max_size=12), st.lists(st.permutations("abc"), min_size=1, max_size=3))
def test_any_fallbacks_of_any_documents(documents: list[Any], parts: list[list[str]]) -> None:
    """A part is the first name whose value is not null; parts are joined as fields are, and equal only if all are."""
    texts = Column.of([json.dumps(each).encode() for each in documents])
    keys, malformed = json_keys([tuple(names) for names in parts], texts)
    for row, document in enumerate(documents):
        firsts = [
            next((document[name] for name in names if document.get(name) is not None), None)
            for names in parts
        ]
        if None in firsts:
            assert keys[row] is None
            assert malformed[row].count("the field ") == 3
            continue
        wanted = [Column.of([str(each).encode()]) for each in firsts]
        assert keys[row] == (wanted[0] if len(wanted) == 1 else joined(wanted))[0]
    assert list(malformed) == [row for row in range(len(documents)) if keys[row] is None]


def test_parts_that_are_plain_fields_or_one_header_are_these() -> None:
    """So both ways to write them are one meaning."""
    fields = tuple(Part("json", (name,)) for name in ("a", "b.c"))
    assert Extractor.of_parts(fields) == Extractor("json", ("a", "b.c"))
    assert Extractor.of_parts((Part("header", ("h",)),)) == Extractor("header", ("h",))
    assert {Extractor.of_parts(parts).origin for parts in (DEBEZIUM, DEBEZIUM[1:])} == {"parts"}
