"""Claims about the names that a wrong field is answered with: of fields that many events have, never of data."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from streamdedup.events import EventBatch
from streamdedup.kafka.records.records import Record, batch_of
from streamdedup.keys import field_names
from streamdedup.keys.extract import Extractor
from streamdedup.keys.field_names import SHOWN_CHARS_MAX, SHOWN_MAX, FieldNames
from streamdedup.keys.formats.field_paths import NAME_CHARS_MAX, NESTING_MAX
from streamdedup.keys.formats.schema import Schema
from streamdedup.keys.options import Format
from streamdedup.keys.parts import Part
from tests.keys.avro import framed, record, written


def extractor(format_: Format = "json") -> Extractor:
    """Return what looks for a field that no event has."""
    return Extractor.of_parts((Part("json", ("idd",)),), format_=format_)


def batch(values: Iterable[bytes | None]) -> EventBatch:
    """Return events of these values."""
    records = [Record.of(1, None, value) for value in values]
    return batch_of("events", 0, range(len(records)), records, len(records))


def common(events: Sequence[Any]) -> list[str]:
    """Return the names for events of these JSON values."""
    names = FieldNames(extractor())
    names.add(batch(json.dumps(event).encode() for event in events))
    return names.common().names


def test_fields_are_named_as_the_option_takes_them() -> None:
    """In the place of an object come its fields; a list stays closed; what a dotted path cannot say is a pointer."""
    event = {
        "id": 1,
        "user": {"email": "x", "by": {"n": None}},
        "a.b": {"c~/": 1},
        "": 2,
        "l": [{}],
    }
    assert common([event] * 5) == ["id", "/", "l", "user.email", "/a.b/c~0~1", "user.by.n"]


def test_a_name_needs_a_tenth_of_the_events_and_five() -> None:
    """One event fewer is too few."""
    events = [
        {"id": 1, **({"tenth": 1} if n < 10 else {"fewer": 1} if n < 19 else {})}
        for n in range(100)
    ]
    assert common(events) == ["id", "tenth"]
    assert common([{"four": 1, "id": 1}] * 4 + [{"id": 1}]) == ["id"]
    assert common([{"id": 1}] * 4) == []


@pytest.mark.parametrize("share", [1.0, 0.4, 0.2])
def test_a_map_keyed_by_data_stays_closed(share: float) -> None:
    """Be one of its keys as frequent as it may: an address is no name, and in a map a name needs half of the events."""
    events = [
        {
            "id": n,
            "by_address": {f"user{n}@example.org": 1, "s3cr3t@example.org": 2},
            "by_user": {
                f"user{n}": 1,
                f"other{n}": 1,
                **({"s3cr3t": 1} if n < share * 100 else {}),
            },
        }
        for n in range(100)
    ]
    found = common(events)
    assert found[:2] == ["id", "by_address"]
    assert found[2:] == (["by_user.s3cr3t"] if share == 1 else ["by_user"])


def test_names_that_begin_with_a_sign_are_names() -> None:
    """As of Logstash, and JSON-LD."""
    assert common([{"@timestamp": 1, "x@": 1}] * 9) == ["@timestamp", "x@"]


def test_names_are_few_and_short() -> None:
    """Of more than are shown, their number is; a long one is cut, and a very long one is data."""
    names = FieldNames(extractor())
    names.add(batch([json.dumps({f"field{n:03}": n for n in range(100)}).encode()] * 9))
    assert names.common() == ([f"field{n:03}" for n in range(SHOWN_MAX)], 100 - SHOWN_MAX)
    assert str(names.common()).endswith(", field019, and 80 more")
    [name] = common([{"n" * 60: 1, "d" * (NAME_CHARS_MAX + 1): 1}] * 9)
    assert name == "n" * (SHOWN_CHARS_MAX - 1) + "…"


def test_the_most_frequent_come_first() -> None:
    """Then in the order of the events."""
    assert common([{"b": 1, "a": 1}] * 10 + [{"a": 1}] * 2) == ["a", "b"]


def test_what_is_no_object_has_no_names() -> None:
    """It counts as an event: a tenth is of all that have a value."""
    names = FieldNames(extractor())
    names.add(batch([b'{"id":1}'] * 5 + [b"[1]", b"7", b"", b"{", b'"x"'] * 9 + [None] * 100))
    assert (names.common().names, names.events) == (["id"], 50)
    names.add(batch([b"7"]))
    assert str(names.common()) == "none"


def test_nesting_is_bounded() -> None:
    """Deeper objects stay closed."""
    event: Any = 1
    for _ in range(900):
        event = {"a": event}
    assert common([event] * 5) == [".".join("a" * NESTING_MAX)]


@pytest.mark.parametrize("limit", ["SAMPLED_MAX", "BYTES_MAX", "TEXT_BYTES_MAX", "FIELDS_MAX"])
def test_the_work_is_bounded(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """By events, bytes and fields; what is left out counts for nothing."""
    monkeypatch.setattr(field_names, limit, 100)
    names = FieldNames(extractor())
    values = [b'{"a":1,"b":"%b"}' % (b"x" * (n % 2 * 200)) for n in range(1000)]
    for start in range(0, 1000, 50):
        names.add(batch(values[start : start + 50]))
    read = {"SAMPLED_MAX": 100, "BYTES_MAX": 7, "TEXT_BYTES_MAX": 500, "FIELDS_MAX": 50}
    assert names.events == read[limit]
    assert names.common().names == ["a", "b"]


def test_very_many_names_are_forgotten_but_for_frequent_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory is bounded, and what many events have is found all the same."""
    monkeypatch.setattr(field_names, "COUNTED_MAX", 1000)
    names = FieldNames(extractor())
    for n in range(40):
        values = [
            json.dumps({f"k{n}-{m}-{i}": 1 for i in range(5)} | {"id": 1}) for m in range(100)
        ]
        names.add(batch(value.encode() for value in values))
    assert names.common().names == ["id"]
    assert len(names._having) < 2000


def test_a_sample_is_spread_over_what_will_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evenly, also over partitions: the first events do not stand for all."""
    monkeypatch.setattr(field_names, "SAMPLED_MAX", 100)
    names = FieldNames(extractor())
    for partition, events in enumerate((5000, 10)):
        names.spread(events, 2 - partition)
        values = [b'{"p%d-%d":1}' % (partition, n * 2 // events) for n in range(events)]
        for start in range(0, events, 7):
            names.add(batch(values[start : start + 7]))
    assert names.events == 60
    assert sorted(names.common().names) == ["p0-0", "p0-1"]


def test_fields_of_avro_are_those_of_the_schema() -> None:
    """Through unions, and into records that are used again; a plain value beside them is read as JSON."""
    inner = record(("x", "long"), ("m", {"type": "map", "values": "long"}), name="Inner")
    fields = [
        ("id", ["null", "string"]),
        ("in", ["null", inner]),
        ("again", "Inner"),
        ("self", ["null", "E"]),
    ]
    schema = record(*fields)
    reader = extractor("avro")
    names = FieldNames(reader)
    assert reader.schemas is not None
    reader.schemas.take(7, reader.schemas.compiled(Schema("AVRO", json.dumps(schema))))
    value = {"id": "s3cr3t", "in": None, "again": {"x": 1, "m": {}}, "self": None}
    body = framed(7, written(schema, value))
    names.add(batch([body] * 6 + [b'{"plain": 1}'] * 4 + [framed(8, b"?")] * 2))
    found = names.common().names
    assert names.events == 12
    assert found[:5] == ["id", "in.x", "in.m", "again.x", "again.m"]
    assert "self.self.in.x" in found
    assert "plain" not in found  # of four events


def test_fields_of_protobuf_are_those_of_the_message() -> None:
    """Of several in a file, the one that the value names; of JSON Schema, those of the values themselves."""
    text = """
        syntax = "proto3"; import "google/protobuf/wrappers.proto"; package p;
        message A { message B { string b_id = 1; A up = 2; } string id = 1; B one = 2; repeated B many = 3;
                    map<string, B> by = 4; google.protobuf.StringValue w = 5; Gone gone = 6; }
        message C { string c = 1; }
    """
    reader = extractor("protobuf")
    names = FieldNames(reader)
    assert reader.schemas is not None
    schema = Schema("PROTOBUF", text.replace("Gone gone = 6;", ""))
    reader.schemas.take(1, reader.schemas.compiled(schema))
    names.add(
        batch([framed(1, b"\0")] * 20 + [framed(1, b"\2\2")] * 10 + [framed(1, b"\4\0\0")] * 5)
    )
    found = names.common().names
    assert found[:5] == ["id", "many", "by", "w", "one.b_id"]
    assert {"c", "b_id"} <= {*found}
    names = FieldNames(extractor("json_schema"))
    names.add(batch([framed(9, b'{"id": 1}')] * 5))
    assert names.common().names == ["id"]


def test_a_schema_reads_as_before_if_its_fields_are_kept() -> None:
    """What no key needs may be wrong in it: a worker reads by it, so `try` does, too."""
    text = 'syntax = "proto3"; message A { string idd = 1; } message C { Gone c = 1; }'
    reader = extractor("protobuf")
    FieldNames(reader)
    assert reader.schemas is not None
    compiled = reader.schemas.compiled(Schema("PROTOBUF", text))
    assert compiled.programs
    assert not compiled.why_not
    assert reader.schemas.fields_of(1, (0,)) == ()
