"""Claims about values of a Schema Registry, with a real one: confluent-kafka's serializers write, the worker reads."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from streamdedup.commands.audit import audit
from streamdedup.commands.trial import tried
from streamdedup.events import Verdict
from streamdedup.settings import load
from tests.broker.base import Broker
from tests.broker.topics import read_all, unique_name
from tests.deployment import Deployment
from tests.keys.avro import record
from tests.keys.test_protobuf import EVENT
from tests.local import Start

KEYS = [f"user-{number}@example.com" for number in range(40)]
NESTED = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "x", "type": "long", "default": 0}],
}
# Each can be read by the next: the field moves, others come around it, it becomes one of a union.
VERSIONS: Sequence[list[tuple[str, Any]]] = [
    [("id", "string"), ("n", "long")],
    [("n", "long"), ("id", "string")],
    [
        ("n", "long"),
        ("inner", NESTED),
        ("id", "string"),
        ("tags", {"type": "array", "items": "string"}),
    ],
    [("id", ["null", "string"]), ("n", "long"), ("map", {"type": "map", "values": "double"})],
    [("n", ["null", "long"]), ("id", ["string", "null", "long"])],
]
DEFAULTS = {"inner": {"x": 5}, "tags": ["a", "b"], "map": {"k": 1.5}}
Write = Callable[[str, int], bytes]


@pytest.fixture
def client(registry_url: str) -> Iterator[SchemaRegistryClient]:
    """Give Confluent's own client, to register schemas by."""
    with SchemaRegistryClient({"url": registry_url}) as made:
        yield made


def with_defaults(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a schema in which new fields may be left out by whoever wrote before."""
    empty: dict[str, Any] = {"inner": {"x": 0}, "tags": [], "map": {}}
    made = record(*fields, name="Event")
    for each in made["fields"]:
        if each["name"] in empty:
            each["default"] = empty[each["name"]]
    return made


def avro_writers(client: SchemaRegistryClient, topic: str) -> list[Write]:
    """Return what writes an event of a key and a number, in each version."""

    def writer(fields: list[tuple[str, Any]]) -> Write:
        serializer = AvroSerializer(client, json.dumps(with_defaults(fields)))
        where, names = SerializationContext(topic, MessageField.VALUE), [name for name, _ in fields]

        def write(key: str, number: int) -> bytes:
            event = {**DEFAULTS, "id": key, "n": number}
            return bytes(serializer({name: event[name] for name in names}, where) or b"")

        return write

    client.set_compatibility(f"{topic}-value", "BACKWARD")
    return [writer(fields) for fields in VERSIONS]


def plain(key: str, number: int) -> bytes:
    """Write an event as JSON."""
    return json.dumps({"n": number, "id": key}).encode()


def with_format(there: Deployment, url: str, format_: str, field: str = "id") -> Deployment:
    """Have the worker read that format."""
    there.config["key"] = {"format": format_, "field": field}
    if format_ != "json_schema":
        there.config["kafka"]["schema_registry"] = {"url": url}
    return there


async def settled(there: Deployment, start: Start, passed: Sequence[str]) -> None:
    """Work to the end, twice more by a fold, and once from a snapshot: each key is in the output once."""
    for forget in (False, False, True):
        if forget:
            there.delete_snapshots()
        worker = await start(there).to_the_end()
        assert not worker.lines("malformed")
        assert not worker.lines("snapshot_refused")
    output = await asyncio.to_thread(read_all, there.bootstrap, there.sink)
    assert len(output) == len(passed)
    report = await audit(load(there.write_config()))
    assert report.fine, report


async def test_a_topic_that_moves_from_json_through_versions_of_avro(
    broker: Broker,
    tmp_path: Path,
    start: Start,
    registry_url: str,
    client: SchemaRegistryClient,
) -> None:
    """JSON, then five versions of a schema: no duplicate passes; snapshots, folds and an audit agree."""
    there = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    there.config["key"] = {"field": "id"}
    there.feed([(0, None, plain(key, 0), [], None) for key in KEYS[:10]])
    await start(there).to_the_end()
    writers = [plain, *avro_writers(client, there.source)]
    with_format(there, registry_url, "avro")
    for number, write in enumerate(writers):
        new = KEYS[: 15 + 5 * number]
        there.feed([(0, None, write(key, number), [], None) for key in new])
        worker = await start(there).to_the_end()
        assert not worker.lines("keys_changed")
    await settled(there, start, KEYS)
    found = await tried(load(there.write_config()), 10_000)
    assert found.verdicts[Verdict.MALFORMED] == found.verdicts[Verdict.REJECTED] == 0
    assert found.distinct == len(KEYS)


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json_schema"])
async def test_a_wrong_field_is_answered_with_those_of_the_events(
    broker: Broker, tmp_path: Path, registry_url: str, client: SchemaRegistryClient, format_: str
) -> None:
    """Of a schema, all that it has; of JSON Schema, those of the values."""
    there = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    where = SerializationContext(there.source, MessageField.VALUE)
    if format_ == "protobuf":
        to_protobuf = ProtobufSerializer(EVENT, client)
        written = [to_protobuf(EVENT(user={"string_of": key}), where) for key in KEYS]
        expected = {"map_of", "list", "user.string_of", "plain"}  # of those that are shown
    elif format_ == "avro":
        written = [write(key, 1) for key in KEYS for write in avro_writers(client, there.source)]
        expected = {"id", "n", "inner.x", "tags", "map"}
    else:
        schema = {"title": "Event", "type": "object", "properties": {"id": {}, "never": {}}}
        to_json = JSONSerializer(json.dumps(schema), client)
        written = [to_json({"id": key, "by": {key: 1}}, where) for key in KEYS]
        expected = {"id", "by"}
    with_format(there, registry_url, format_, "idd")
    there.feed([(0, None, value, [], None) for value in written])
    found = await tried(load(there.write_config()), 10_000)
    assert found.verdicts == {Verdict.MALFORMED: len(written)}
    assert found.fields is not None
    fields = {*found.fields.names}
    assert fields >= expected if format_ == "protobuf" else fields == expected


async def test_protobuf_and_json_schema_have_the_same_keys(
    broker: Broker,
    tmp_path: Path,
    start: Start,
    registry_url: str,
    client: SchemaRegistryClient,
) -> None:
    """Each in a topic of its own, after plain JSON."""
    for format_, field in (("protobuf", "user.string_of"), ("json_schema", "id")):
        directory = tmp_path / format_
        directory.mkdir()
        there = Deployment(broker.bootstrap_servers, directory, partitions=1).create()
        where = SerializationContext(there.source, MessageField.VALUE)
        serializer: Any
        if format_ == "protobuf":
            serializer = ProtobufSerializer(EVENT, client)
            events: list[Any] = [EVENT(user={"string_of": key, "int64_of": 7}) for key in KEYS]
            before = [json.dumps({"user": {"string_of": key}}).encode() for key in KEYS[:20]]
        else:
            schema = {"title": "Event", "type": "object", "properties": {"id": {"type": "string"}}}
            serializer = JSONSerializer(json.dumps(schema), client)
            events = [{"id": key} for key in KEYS]
            before = [plain(key, 0) for key in KEYS[:20]]
        written = [bytes(serializer(event, where) or b"") for event in events]
        assert {value[0] for value in written} == {0}
        with_format(there, registry_url, format_, field)
        there.feed([(0, None, value, [], None) for value in [*before, *written, *before]])
        await settled(there, start, KEYS)


async def test_references_are_found(
    broker: Broker,
    tmp_path: Path,
    start: Start,
    registry_url: str,
    client: SchemaRegistryClient,
) -> None:
    """A record, and a file, that the registry keeps as schemas of their own."""
    subject = unique_name("shared")
    user = {"type": "record", "name": "shared.User", "fields": [{"name": "id", "type": "string"}]}
    client.register_schema(subject, Schema(json.dumps(user), "AVRO"))
    reference = SchemaReference("shared.User", subject, 1)
    there = Deployment(broker.bootstrap_servers, tmp_path, partitions=1).create()
    with_format(there, registry_url, "avro", "user.id")
    schema = Schema(
        json.dumps(record(("n", "long"), ("user", "shared.User"), name="Event")),
        "AVRO",
        [reference],
    )
    number = client.register_schema(f"{there.source}-value", schema)
    value = b"\0" + number.to_bytes(4) + b"\4\6abc"
    there.feed([(0, None, each, [], None) for each in (value, value, b'{"user":{"id":"abc"}}')])
    await settled(there, start, ["abc"])
