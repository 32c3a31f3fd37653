"""Claims about frames that name a schema otherwise than by the prefix: the key is the same, whatever the frame is."""

import json
from collections.abc import Callable, Sequence
from itertools import product
from uuid import UUID

from streamdedup.events import Column, EventBatch, Headers
from streamdedup.keys.extract import Extractor
from streamdedup.keys.formats.schema import Schema
from streamdedup.keys.formats.schema_registry import NUMBER_MAX, VALUE_HEADER, Framing
from streamdedup.keys.options import Format
from streamdedup.keys.parts import Part
from tests.keys.avro import framed, record, written
from tests.keys.test_extract import batch_of
from tests.rows import table

USER = record(("email", ["null", "string"]), name="User")
AVRO = record(("id", "string"), ("user", ["null", USER]), name="Event")
PROTOBUF = 'syntax = "proto3"; message Event { string id = 1; User user = 2; message User { string email = 1; } }'
EMPTY = {
    "avro": written(AVRO, {"id": "a", "user": None}),
    "protobuf": b"\0",  # the first message of the file, without a field
}
FORMATS: tuple[Format, ...] = ("avro", "protobuf")
SCHEMAS = {"avro": Schema("AVRO", json.dumps(AVRO)), "protobuf": Schema("PROTOBUF", PROTOBUF)}
GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
WIDE = 0x0102030405060708

Event = tuple[bytes | None, bytes | None]  # the header, and the value
ID = Part("json", ("id",))


def body(format_: Format, key: str) -> tuple[bytes, bytes]:
    """Return the indexes of the message, and the value without a frame."""
    if format_ == "avro":
        return b"", written(AVRO, {"id": key, "user": None})
    return b"\0", b"\x0a" + bytes([len(key)]) + key.encode()


def prefix(format_: Format, number: int, key: str) -> Event:
    """Frame a value as Confluent's serializers do by default."""
    return None, b"\0" + number.to_bytes(4) + b"".join(body(format_, key))


def wide(format_: Format, number: int, key: str) -> Event:
    """Frame a value as Apicurio's do by default."""
    return None, b"\0" + number.to_bytes(8) + b"".join(body(format_, key))


def headed(format_: Format, which: int | UUID, key: str) -> Event:
    """Frame a value by a header."""
    indexes, value = body(format_, key)
    named = b"\0" + which.to_bytes(4) if isinstance(which, int) else b"\1" + which.bytes
    return named + indexes, value


def plain(key: str) -> Event:
    """Return an event in JSON."""
    return None, json.dumps({"id": key}).encode()


def batch(events: Sequence[Event]) -> EventBatch:
    """Return events as a batch, each with another header around."""
    headers: list[Headers] = [
        (("other", b"\0\0\0\0\7"), *([(VALUE_HEADER, header)] if header is not None else []))
        for header, _ in events
    ]
    return batch_of([value for _, value in events], headers=headers)


def extractor(format_: Format, framing: Framing, *numbers: int | UUID) -> Extractor:
    """Return what extracts `id` by the schema of the format, which has these ids."""
    made = Extractor.of_parts((ID,), format_=format_, framing=framing)
    assert made.schemas is not None
    for each in numbers:
        number = each if isinstance(each, int) else made.schemas.number_of(each.bytes)
        made.schemas.take(number, made.schemas.compiled(SCHEMAS[format_]))
    return made


@table(
    [
        ("auto", prefix),
        ("prefix", prefix),
        ("auto", wide),
        ("id64", wide),
        ("auto", headed),
        ("header", headed),
    ]
)
def test_an_id_is_read_in_each_frame(
    framing: Framing, make: Callable[[Format, int, str], Event]
) -> None:
    """Among JSON, tombstones and values with an id that is not known."""
    for format_, number in product(FORMATS, [1, 7, 65_536, NUMBER_MAX]):
        made = extractor(format_, framing, number)
        events = [
            plain("j"),
            make(format_, number, "a"),
            (None, None),
            make(format_, number, "bcd"),
            make(format_, 9, "x"),
        ]
        keys = made.extract(batch(events))
        assert list(keys.keys) == [b"j", b"a", None, b"bcd", None]
        assert keys.unknown == {4: "of schema 9, which the registry does not have"}
        assert (keys.malformed, list(keys.unjudged)) == ({}, [2])
        assert made.schemas is not None
        assert made.schemas.unresolved(made.heads(batch(events))) == [9]


@table(product(FORMATS, ["auto", "header"]))
def test_a_guid_is_read_and_named(format_: Format, framing: Framing) -> None:
    """Each has a number of its own, which no id of a prefix can have."""
    other = UUID(int=GUID.int ^ 1)
    made = extractor(format_, framing, GUID)
    events = [headed(format_, GUID, "a"), headed(format_, other, "b"), headed(format_, GUID, "c")]
    keys = made.extract(batch(events))
    assert list(keys.keys) == [b"a", None, b"c"]
    assert keys.unknown == {1: f"of schema {other}, which the registry does not have"}
    if framing == "auto":
        assert made.schemas is not None
        (number,) = (at for at, guid in made.schemas.guids.items() if guid == str(GUID))
        found = made.extract(batch([prefix(format_, number, "a")]))
        assert found.unknown == {
            0: f"of schema above {NUMBER_MAX}, which the registry does not have"
        }


@table(["auto", "header", "id64"])
def test_an_id_that_no_registry_gives_is_not_another(framing: Framing) -> None:
    """Of eight bytes, the lowest four are no id; a header of another length or version is none."""
    made = extractor("avro", framing, 7, WIDE & 0xFFFFFFFF)
    value = body("avro", "a")[1]
    heads = [b"", b"\0", b"\0\0\0\7", b"\2\0\0\0\7", b"\1" + bytes(15), b"\0\xff\xff\xff\xff"]
    events = [wide("avro", WIDE | 1 << 63, "a")] if framing != "header" else []
    events += [(head, value) for head in heads] if framing != "id64" else []
    if framing == "auto":
        events = events[1:]  # the first four of its bytes are an id of four
    keys = made.extract(batch(events))
    assert list(keys.keys) == [None] * len(events)
    assert all("registry does not have" in why for why in keys.unknown.values())
    assert len(keys.unknown) == len(events)


@table(
    [
        ("prefix", wide("avro", 7, "a")),
        ("prefix", headed("avro", 7, "a")),
        ("header", prefix("avro", 7, "a")),
        ("header", wide("avro", 7, "a")),
        ("id64", prefix("avro", 7, "a")),
        ("id64", headed("avro", 7, "a")),
    ]
)
def test_a_frame_that_is_not_the_named_one_gives_no_key(framing: Framing, event: Event) -> None:
    """Bytes of the event are no id."""
    made = extractor("avro", framing, 7)
    keys = made.extract(batch([event]))
    assert list(keys.keys) == [None]
    assert keys.malformed or keys.unknown


@table(
    [
        ("auto", b"\0\0\0\0\7", b"a"),
        ("prefix", b"\0\0\0\0\7", b"a"),
        ("auto", b"\0" + bytes(7) + b"\7", b"a"),
        ("id64", b"\0" + bytes(7) + b"\7", b"a"),
        ("header", b"", b"a"),
        ("auto", b"", b"a"),
        ("prefix", b"\0" + bytes(7) + b"\7", None),
        ("header", b"\0\0\0\0\7", None),
    ]
)
def test_a_frame_around_json_is_skipped(framing: Framing, value: bytes, key: bytes | None) -> None:
    """With key.format: json_schema, which needs no registry."""
    made = Extractor.of_parts((ID,), format_="json_schema", framing=framing)
    header = b"\0\0\0\0\7" if framing == "header" else None
    assert list(made.extract(batch([(header, value + b'{"id":"a"}')])).keys) == [key]


@table(
    [
        (b"\3\0" + GUID.bytes + b"\2a", "AWS Glue Schema Registry data"),
        (b"\3\5" + GUID.bytes + b"\2a", "AWS Glue Schema Registry data, compressed"),
        (b"\xc3\1" + bytes(8) + b"\2a", "a single object of Avro"),
        (b"Obj\1\4", "a file of Avro"),
    ]
)
def test_a_frame_that_is_not_read_is_named(value: bytes, what: str) -> None:
    """So it is not taken for broken JSON."""
    for among in [[], [prefix("avro", 7, "a")]]:
        keys = extractor("avro", "auto", 7).extract(batch([(None, value), *among]))
        assert keys.malformed == {0: f"the value looks like {what}, which is not read"}


def test_the_numbers_of_guids_that_were_given_up_are_free_again() -> None:
    """Whoever writes events may name any."""
    made = Extractor.of_parts((ID,), format_="avro")
    assert made.schemas is not None
    for at in range(50):
        events = batch([headed("avro", UUID(int=at * 100 + each), "a") for each in range(100)])
        made.schemas.give_up(made.schemas.unresolved(made.heads(events)))
        assert len(made.extract(events).unknown) == 100
        made.schemas.ask_again()
        assert not made.schemas.guids
    assert len(made.schemas.known.ids) == 0


@table(
    [
        ("user.email", True),
        ("user.mail", False),
        ("User.email", False),
        ("id.x", False),
        ("user.email.x", False),
    ]
)
def test_a_field_that_the_schema_lacks_is_told_from_one_that_the_value_lacks(
    field: str, is_there: bool
) -> None:
    """A misspelled path leads nowhere in any value of the schema, and the reason says so."""
    for format_ in FORMATS:
        extractor = Extractor.of_parts((Part("json", (field,)),), format_=format_)
        assert extractor.schemas is not None
        extractor.schemas.take(7, extractor.schemas.compiled(SCHEMAS[format_]))
        _, reasons = extractor.keys_of(Column.of([framed(7, EMPTY[format_])]))
        more = "" if is_there else ": schema 7 has no such field"
        assert reasons == {0: f"the field {field} is missing{more}"}
