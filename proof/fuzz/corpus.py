"""Small real inputs of each target: our own writers make them, or made them as goldens."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2

from proof.fuzz import requests
from proof.fuzz.targets import AVRO_SCHEMAS, ORIGIN_OF_OURS, PROTOBUF_FILE, THEN, headers_of
from proof.golden.filters import DIRECTORY as GOLDEN
from proof.golden.wire import ENTRIES, NOTES, OLD_NOTES, VALUES
from proof.kafka.framings import FIXTURE, batch, record, varint
from proof.keys.json_texts import ODD, ORDINARY, WRONG
from streamdedup.events import Column
from streamdedup.kafka.records.codecs import CODECS
from streamdedup.kafka.records.encoding import BatchEncoder
from streamdedup.kafka.records.origin_header import ORIGIN

# A user in a user, and what stands around it: a list in two blocks, nulls, doubles, a map, an enum.
_IN = b"\2\0\6abc\6def"
_LISTED = (
    b"\4\2a\2b\1\4\2c\0" + b"\xfe\xff\xff\xff\x0f\0" + b"\2" + bytes(8) + b"\0" + b"\2\2k\2\2z\0"
)
AVRO_VALUES = [_IN, _LISTED + b"\2\0\7\xac\2\2", _LISTED + b"\0\0", _LISTED + b"\2\0\0"]
_MESSAGE = (
    b"\x12\3abc" + b"\x22\3\1\2\3" + b"\x0a\5\x12\3def" + b"\x9b\6\x08\1\x9c\6" + b"\x1d\0\0\0\0"
)
PROTOBUF_MESSAGES = [
    b"\0" + _MESSAGE,
    b"\0" + _MESSAGE + b"\x18\1" + _MESSAGE,
    b"\2\2\x0a\x05\x12\3abc\x12\2\x08\x7f\x1a\5\x0a\1k\x12\0",
    b"\4\2\0\x08\7\x10\x0d",
]
PROTOBUF_SERIALIZED = base64.b64encode(
    b"\x0a\5t.pro\x12\1p\x22\x13\x0a\1E\x12\x0e\x0a\2id\x18\1 \1(\x09R\2id"
)


@cache
def read(target: str) -> list[bytes]:
    """Return the inputs of a target, in an order that stays."""
    return made(target) + (_framings() if target == "record-batches" else [])


def made(target: str) -> list[bytes]:
    """Those of our own writers, which are not refused."""
    return list(_MAKERS[target]())


def _framings() -> list[bytes]:
    """Return the record batches that Kafka's own code was asked about."""
    return [bytes.fromhex(each["batch"]) for each in json.loads(FIXTURE.read_text())["framings"]]


def _golden(*patterns: str) -> list[bytes]:
    """Return the files that earlier versions wrote."""
    paths = (path for pattern in patterns for path in sorted(GOLDEN.glob(pattern)))
    return [path.read_bytes() for path in paths]


def _messages() -> list[bytes]:
    """Return messages of a control topic."""
    entries = [
        f"{entry}\n".encode() + value
        for entry in filter(None, ENTRIES)
        for value in VALUES[1:3]
        if value
    ]
    return [*entries[::2], b"key"]


def _avro_pairs() -> Iterator[bytes]:
    for which, value in zip((0, 1, 1, 2), AVRO_VALUES, strict=True):
        yield AVRO_SCHEMAS[which].encode() + THEN + value


def _protobuf_pairs() -> Iterator[bytes]:
    yield from (_descriptor() + THEN + value for value in PROTOBUF_MESSAGES)
    yield PROTOBUF_SERIALIZED + THEN + PROTOBUF_MESSAGES[0]


def _descriptor() -> bytes:
    """Return what PROTOBUF_FILE says, serialized, in base64."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="p")
    user, event = file.message_type.add(name="User"), file.message_type.add(name="Event")
    user.oneof_decl.add(name="which")
    kinds = descriptor_pb2.FieldDescriptorProto
    _add(user, "user", 1, kinds.TYPE_MESSAGE, type_name=".p.User")
    _add(user, "id", 2, kinds.TYPE_STRING, oneof_index=0)
    _add(user, "none", 3, kinds.TYPE_BOOL, oneof_index=0)
    _add(event, "user", 1, kinds.TYPE_MESSAGE, type_name=".p.User")
    _add(event, "id", 2, kinds.TYPE_MESSAGE, type_name=".google.protobuf.Int64Value")
    kind = event.enum_type.add(name="Kind")
    kind.value.add(name="A", number=0)
    kind.value.add(name="B", number=7)
    inner = event.nested_type.add(name="Inner")
    _add(inner, "id", 1, kinds.TYPE_ENUM, type_name=".p.Event.Kind")
    _add(inner, "user", 2, kinds.TYPE_SINT64)
    return base64.b64encode(file.SerializeToString())


def _add(message: Any, name: str, number: int, kind: int, **more: Any) -> None:
    message.field.add(name=name, number=number, type=kind, label=1, **more)


def _batches() -> Iterator[bytes]:
    body = record(0)[4:]
    for codec in CODECS.values():
        encoder = BatchEncoder(codec=codec, transactional=True, bytes_max=1 << 20)
        encoder.add(Column.of([body] * 12), np.arange(12, dtype=np.int64))
        (made,) = encoder.finish()
        made.stamp(7, 1, 3)
        yield bytes(made.data)
    marker = record(0, key=varint(4) + b"\0\0\0\0", value=varint(6) + bytes(6))
    control = 1 << 5 | 1 << 4
    yield batch(marker, flags=control, count=1)
    yield batch(record(0), count=1) + batch(record(0), count=1, base=8)
    yield batch(b"", count=0, last=4)


def _origins() -> list[bytes]:
    """Return headers that end with an origin of the group, of another one, with none, or with something like one."""
    name = ORIGIN.encode()
    values = (b"in/0/0/g", b"in/2147483647/9223372036854775807/g", b"in/00/1/g", b"in/1/2/other/g")
    return [
        ORIGIN_OF_OURS,
        headers_of(),
        headers_of((name, None)),
        headers_of((name, b"in/1/2/g"), (b"h", b"after")),
        headers_of(*[(b"n", b"v")] * 63, (name, b"x" * 249 + b"/7/8/g")),
        *(headers_of((name, value)) for value in values),
    ]


def _headers() -> list[bytes]:
    rows: list[list[tuple[bytes, bytes | None]]] = [
        [],
        [(b"h", b"of")],
        [(b"h", None), (b"h", b"2"), (b"", b"")],
        [("é".encode(), b"x" * 70), (b"\xff", b"y"), (b"streamdedup", b"duplicate")],
        [(b"n" * 130, b"v")] * 3,
    ]
    far = [varint(number, 5, above=3) for number in (1, 1, -1)]  # bits above the 32nd are dropped
    return [b"h".join((far[0] + far[1], far[2]))] + [headers_of(*row) for row in rows]


_MAKERS: Mapping[str, Callable[[], Iterable[bytes]]] = {
    "record-batches": _batches,
    "headers": _headers,
    "origin": _origins,
    "json": lambda: [*ORDINARY, *ODD, *WRONG],
    "avro": lambda: [*AVRO_VALUES, *(text.encode() for text in AVRO_SCHEMAS)],
    "protobuf": lambda: [*PROTOBUF_MESSAGES, PROTOBUF_FILE.encode(), PROTOBUF_SERIALIZED],
    "avro-schema": _avro_pairs,
    "protobuf-schema": _protobuf_pairs,
    "list": lambda: _golden("lists/*.list"),
    "exact-store": lambda: _golden("lists/*.exact/*"),
    "snapshot": lambda: _golden("snapshots/*.snapshot", "*.filter"),
    "note": lambda: [text.encode() for text in (*(n.encode() for n in NOTES.values()), *OLD_NOTES)],
    "requests": requests.made,
    "control": _messages,
}
