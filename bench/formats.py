"""`python -m bench formats`: what the key takes at the end of a record of twelve fields, in each format, by the kernel.

The same events in JSON, Avro and Protobuf; Avro and Protobuf are to take no longer than JSON.
"""

import io
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import fastavro
from fastavro.types import Schema as AvroSchema
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bench.harness import machine_text, seconds, verdict
from streamdedup.events import Column
from streamdedup.keys.extract import Extractor
from streamdedup.keys.formats.schema import Schema
from streamdedup.keys.options import Format
from streamdedup.keys.parts import Part

EVENTS, ROUNDS = 20_000, 25
FIELDS: dict[str, tuple[str, Callable[[int], object]]] = {
    "name": ("string", lambda _: "a visit"),
    "at": ("long", lambda number: 1_700_000_000_000 + number),
    "amount": ("double", lambda number: number / 8),
    "city": ("string", lambda _: "Wanne-Eickel"),
    "count": ("int", lambda number: number % 100),
    "is_new": ("boolean", lambda number: number % 2 == 0),
    "page": ("string", lambda number: f"/products/{number % 977}"),
    "referrer": ("string", lambda _: "https://search.example/?q=shoes"),
    "agent": ("string", lambda _: "Mozilla/5.0 (X11; Linux x86_64)"),
    "status": ("int", lambda _: 200),
    "session": ("string", lambda number: f"{number * 7919:016x}"),
    "id": ("string", lambda number: f"user-{number}@example.com"),
}
KINDS = {name: kind for name, (kind, _) in FIELDS.items()}
IN_PROTOBUF = {"long": "int64", "int": "int32", "boolean": "bool"}
FRAME = bytes(1) + (1).to_bytes(4)  # of the schema with the id 1


def event(number: int) -> dict[str, Any]:
    """Return the fields of an event."""
    return {name: value(number) for name, (_, value) in FIELDS.items()}


def written() -> Mapping[Format, tuple[list[bytes], Schema | None]]:
    """Return the events in each format, and their schema, which is the one of the id 0."""
    events = [event(number) for number in range(EVENTS)]
    fields = [{"name": name, "type": kind} for name, kind in KINDS.items()]
    avro = {"type": "record", "name": "Visit", "fields": fields}
    of_avro = fastavro.parse_schema(avro)
    lines = "".join(
        f"{IN_PROTOBUF.get(kind, kind)} {name} = {at};"
        for at, (name, kind) in enumerate(KINDS.items(), 1)
    )
    message = _message()
    return {
        "json": ([json.dumps(each).encode() for each in events], None),
        "avro": (
            [FRAME + _avro(of_avro, each) for each in events],
            Schema("AVRO", json.dumps(avro)),
        ),
        "protobuf": (
            [FRAME + bytes(1) + message(**each) for each in events],
            Schema("PROTOBUF", f'syntax = "proto3"; message Visit {{ {lines} }}'),
        ),
    }


def _avro(schema: AvroSchema, value: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def _message() -> Callable[..., bytes]:
    file = descriptor_pb2.FileDescriptorProto(name="visit.proto", syntax="proto3")
    made = file.message_type.add(name="Visit")
    for number, (name, kind) in enumerate(KINDS.items(), 1):
        field = descriptor_pb2.FieldDescriptorProto
        type_ = getattr(field, f"TYPE_{IN_PROTOBUF.get(kind, kind).upper()}")
        made.field.add(name=name, number=number, type=type_, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("Visit"))
    return lambda **fields: bytes(message(**fields).SerializeToString())


def measured() -> dict[str, float]:
    """Return the least nanoseconds an event takes in each format, over rounds that take turns."""
    calls: dict[str, Callable[[], object]] = {}
    for format_, (values, schema) in written().items():
        extractor = Extractor.of_parts((Part("json", ("id",)),), format_=format_)
        if extractor.schemas is not None and schema is not None:
            extractor.schemas.take(1, extractor.schemas.compiled(schema))
        extractor.warm_up()
        column = Column.of(values)
        keys, malformed = extractor.keys_of(column)
        if malformed or keys[EVENTS - 1] != event(EVENTS - 1)["id"].encode():
            raise AssertionError(f"{format_}: wrong keys")
        calls[format_] = partial(extractor.keys_of, column)
    found = seconds(calls, ROUNDS, time.perf_counter)
    return {format_: min(took) / EVENTS * 1e9 for format_, took in found.items()}


def main() -> None:
    """Print it; AssertionError if a key is wrong."""
    print(machine_text("numpy", "numba", "fastavro", "protobuf"))
    found = measured()
    for format_, ns in found.items():
        met = verdict(ns <= found["json"])
        print(
            f"{format_:<9}{ns:>6.0f} ns an event{ns / found['json']:>7.2f} of JSON, at most 1: {met}"
        )


if __name__ == "__main__":
    main()
