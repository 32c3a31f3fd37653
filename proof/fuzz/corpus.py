"""Small real inputs, one file each in `corpus/TARGET`: `python -m proof.fuzz.corpus` writes them anew.

Our own writers made them. Inputs that are fixtures of other tests are read from there: framings of record batches.
"""

import base64
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2

from proof.fuzz.targets import AVRO_SCHEMAS, ORIGIN_OF_OURS, PROTOBUF_FILE, THEN, headers_of
from proof.golden.lists import RECIPES, build
from proof.golden.wire import ENTRIES, NOTES, OLD_NOTES, VALUES
from proof.kafka.framings import FIXTURE, batch, record, varint
from proof.keys.json_texts import ODD, ORDINARY, WRONG
from streamdedup import filters
from streamdedup.events import Column, Fingerprint
from streamdedup.filters.base import Filter, Removable, Static
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kafka.records.codecs import CODECS
from streamdedup.kafka.records.encoding import BatchEncoder
from streamdedup.kafka.records.origin_header import ORIGIN
from streamdedup.keys.hashing import MURMUR3
from streamdedup.snapshot.files import content_of
from streamdedup.snapshot.header import Identity, Log
from tests.filters.cases import CASES, STATIC_KINDS

DIRECTORY = Path(__file__).with_name("corpus")
SIZE_BYTES_MAX = 210_000  # of all files
SAVED_AT = 1_700_000_000.0
LOG = Log(
    Identity(
        hash="murmur3",
        hash_check=MURMUR3.check,
        key={"from": "json", "fields": ["id"], "tombstones": "forward"},
        normalize="none",
        filter={"kind": "bloom", "capacity": 500, "error_rate": 0.01},
        topic="events-unique",
        partition=3,
        partitions=8,
        cluster_id="cluster",
        topic_id="topic",
    ),
    label=1000,
    counter=42,
    fingerprint=Fingerprint(
        offset=998, producer_id=4000, epoch=3, crc=0xDEADBEEF, stamped_ms=1_700_000_000_000
    ),
)
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
KEYS = [f"key {number}" for number in range(40)]


def read(target: str) -> list[bytes]:
    """Return the inputs of a target, in an order that stays."""
    files = [path.read_bytes() for path in sorted((DIRECTORY / target).iterdir())]
    return files + (framings() if target == "record-batches" else [])


def framings() -> list[bytes]:
    """Return the record batches that Kafka's own code was asked about."""
    return [bytes.fromhex(each["batch"]) for each in json.loads(FIXTURE.read_text())["framings"]]


def write(directory: Path = DIRECTORY) -> None:
    """Write the inputs of all targets."""
    shutil.rmtree(directory, ignore_errors=True)
    for target, inputs in _made().items():
        (directory / target).mkdir(parents=True)
        for name, data in inputs.items():
            (directory / target / name).write_bytes(data)


def _made() -> Mapping[str, Mapping[str, bytes]]:
    entries = [
        f"{entry}\n".encode() + value
        for entry in filter(None, ENTRIES)
        for value in VALUES[1:3]
        if value
    ]
    lists, stores = _lists()
    return {
        "record-batches": dict(_batches()),
        "headers": _numbered(_headers()),
        "origin": _numbered(_origins()),
        "json": _numbered([*ORDINARY, *ODD, *WRONG]),
        "avro": _numbered([*AVRO_VALUES, *(text.encode() for text in AVRO_SCHEMAS)]),
        "protobuf": _numbered([*PROTOBUF_MESSAGES, PROTOBUF_FILE.encode(), PROTOBUF_SERIALIZED]),
        "avro-schema": _numbered(
            [
                AVRO_SCHEMAS[which].encode() + THEN + value
                for which, value in zip((0, 1, 1, 2), AVRO_VALUES, strict=True)
            ]
        ),
        "protobuf-schema": _numbered(
            [_descriptor() + THEN + value for value in PROTOBUF_MESSAGES]
            + [PROTOBUF_SERIALIZED + THEN + PROTOBUF_MESSAGES[0]]
        ),
        "list": lists,
        "exact-store": stores,
        "snapshot": dict(_snapshots()),
        "note": _numbered([text.encode() for text in (*map(_encoded, NOTES), *OLD_NOTES)]),
        "control": _numbered([*entries[::2], b"key"]),
    }


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


def _encoded(name: str) -> str:
    return NOTES[name].encode()


def _numbered(inputs: list[bytes]) -> dict[str, bytes]:
    return {f"{number:03}": data for number, data in enumerate(inputs)}


def _batches() -> Iterator[tuple[str, bytes]]:
    body = record(0)[4:]
    for name, codec in CODECS.items():
        encoder = BatchEncoder(codec=codec, transactional=True, bytes_max=1 << 20)
        encoder.add(Column.of([body] * 12), np.arange(12, dtype=np.int64))
        (made,) = encoder.finish()
        made.stamp(7, 1, 3)
        yield name, bytes(made.data)
    marker = record(0, key=varint(4) + b"\0\0\0\0", value=varint(6) + bytes(6))
    control = 1 << 5 | 1 << 4
    yield "control", batch(marker, flags=control, count=1)
    yield "two", batch(record(0), count=1) + batch(record(0), count=1, base=8)
    yield "emptied", batch(b"", count=0, last=4)


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


def _lists() -> tuple[dict[str, bytes], dict[str, bytes]]:
    wanted = ("bloom", "fuse-siphash", "exact-email-strict", "bloom-email-store")
    lists, stores = {}, {}
    for recipe in (recipe for recipe in RECIPES if recipe.name in wanted):
        with TemporaryDirectory() as directory:
            made = build(recipe, Path(directory))
            lists[recipe.name] = made.read_bytes()
            if recipe.store:
                (store,) = made.with_name(f"{made.name}.exact").iterdir()
                stores[recipe.name] = store.read_bytes()
    return lists, stores


def _snapshots() -> Iterator[tuple[str, bytes]]:
    """Yield a snapshot of each kind, and of a filter that has grown."""
    seen = set[str]()
    for case in CASES:
        name = "grown" if case.growth > 1 else case.kind
        if name not in seen:
            seen.add(name)
            yield name, _saved(case.build(len(KEYS), case.error_rates[0]))
    for kind in STATIC_KINDS:
        static: Static = filters.kind_of(kind)
        yield kind, _saved(static.from_digests(MURMUR3.digests(KEYS), 0.01, MURMUR3))


def _saved(made: Filter) -> bytes:
    if isinstance(made, Windowed) and not made.clock.by_count:
        made.add_many(made.digests(KEYS), np.arange(len(KEYS)))
    elif isinstance(made, Removable) or hasattr(made, "add_many"):
        made.add_many(made.digests(KEYS))
    return b"".join(map(bytes, content_of(made, SAVED_AT, LOG, lambda: 1010)))


if __name__ == "__main__":
    write()
