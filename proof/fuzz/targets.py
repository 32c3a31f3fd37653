"""The parsers of foreign bytes. Each target reads an input as the product does, and checks what was read.

A target returns None, or raises one of its `refusals`, the errors that its parser documents. Any other error is a
fault, an AssertionError among them: what was read contradicts itself, or another reader of ours.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from random import Random
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from proof.fuzz.mutations import (
    Mutator,
    mutated,
    mutated_base64,
    mutated_json,
    mutated_text,
    repeated_json,
)
from proof.fuzz.requests import mutated_request, requests_target
from proof.fuzz.sealing import mutated_batches, mutated_file
from proof.kafka.framings import batch, record, varint
from streamdedup.errors import ConfigError, MalformedError, SnapshotError
from streamdedup.events import Column, EventBatch
from streamdedup.filters.base import Addable, Removable
from streamdedup.filters.window.protocol import Windowed
from streamdedup.kafka.offsets import Note
from streamdedup.kafka.options import MARK
from streamdedup.kafka.records.decoding import first_of, sound_columns
from streamdedup.kafka.records.headers import RawHeaders, appended
from streamdedup.kafka.records.marks import marks_of
from streamdedup.kafka.records.origin_header import ORIGIN, found_in, marked, unmarked
from streamdedup.kafka.records.wire import (
    DamagedBatchError,
    Records,
    check_first,
    decode,
    is_abort,
    record_batches,
)
from streamdedup.keys.cells import each
from streamdedup.keys.extract import json_keys
from streamdedup.keys.formats.framed_kinds import FramedKind
from streamdedup.keys.formats.schema import Schema, SchemaError
from streamdedup.keys.formats.schemas import Schemas
from streamdedup.keys.hashing import Hash
from streamdedup.keys.normalizers import normalizer
from streamdedup.keys.normalizers.base import Normalizer
from streamdedup.keys.options import Normalization
from streamdedup.lists import key_list
from streamdedup.lists.control import read_change
from streamdedup.lists.exact_store import ExactStore
from streamdedup.lists.overlay import ADDED, REMOVED, UNCHANGED
from streamdedup.server.request import Refused
from streamdedup.snapshot.files import built
from streamdedup.snapshot.read import CopyingReader, MappedReader, SnapshotReader
from tests.filters.cases import HASH_KEY
from tests.kafka.test_origin_header import place_in, places_of
from tests.keys.exact import are_alike, exact_reader

FIELDS = ("id", "user.id", "/a.b/é", "/", "0", "user.0", "user.user.id")
AFTER = (b'"}', b'"}]}', b"0}", b'd":7}', b"\xa9", b"}", b',"id":1}')  # would complete what is cut
HEADER_NAMES = (MARK, "h", "", "é", "\ufffd")
PATHS = (("id",), ("user", "id"), ("user", "user", "id"))
_USER = '{"type":"record","name":"User","fields":[{"name":"user","type":["null","User"]},{"name":"id","type":"%s"}]}'
_AROUND = """{"type":"record","name":"E","fields":[
 {"name":"list","type":{"type":"array","items":"string"}}, {"name":"nulls","type":{"type":"array","items":"null"}},
 {"name":"even","type":{"type":"array","items":"double"}},
 {"name":"map","type":{"type":"map","values":["int","bytes"]}},
 {"name":"user","type":%s}, {"name":"id","type":{"type":"enum","name":"Kind","symbols":["A","B"]}}]}"""
AVRO_SCHEMAS = (
    _USER % "string",
    _AROUND % (_USER % "long"),
    _AROUND % '["null",{"type":"array","items":"E"}]',
)
PROTOBUF_FILE = """syntax = "proto3"; package p; import "google/protobuf/wrappers.proto";
message User { User user = 1; oneof which { string id = 2; bool none = 3; } repeated int32 list = 4; }
message Event { User user = 1; google.protobuf.Int64Value id = 2; map<string, User> map = 3;
  enum Kind { A = 0; B = 7; } message Inner { Kind id = 1; sint64 user = 2; } }"""
NORMALIZERS: tuple[Normalization, ...] = ("none", "trim", "lowercase", "email", "url")
KEYS = ("a@b.example", "key 1", "", "x" * 100, "a@sub.b.example", "ü@bücher.example")
OFFSET_MAX = (1 << 63) - 1
THEN = b"\xff\xff"  # between a schema, which is UTF-8, and a value of it
GROUP = "g"  # of the deployment whose copies are read


def headers_of(*cells: tuple[bytes, bytes | None]) -> bytes:
    """Return headers as a record has them."""
    return varint(len(cells)) + b"".join(
        varint(-1) if part is None else varint(len(part)) + part for pair in cells for part in pair
    )


ORIGIN_OF_OURS = headers_of((b"h", b"1"), (ORIGIN.encode(), b"in/3/1234567890123/g"))


@dataclass(frozen=True)
class Target:
    """A parser, how inputs for it are made, and how many `make test` plays: what it plays in a second or two."""

    run: Callable[[bytes], None]
    refusals: tuple[type[Exception], ...]
    inputs: int
    mutator: Mutator = field(default=mutated)


def record_batches_target(data: bytes) -> None:
    """Read a fetched set of record batches: heads, records, and what can be skipped of them."""
    try:
        check_first(data)
        batches = list(record_batches(data))
        for one in batches:
            if one.is_control:
                is_abort(one)
        at_once = first_of(batches)
        records = decode(batches)
    except DamagedBatchError as error:
        if error.damage is not None:
            assert 0 <= error.damage.first_offset <= error.damage.last_offset <= OFFSET_MAX
            assert bytes(error.damage.raw) in data
        raise
    _check_records(records)
    if at_once:
        taken, first = sound_columns(at_once)
        assert len(taken) == len(at_once)
        assert list(first.bodies) == list(records.bodies)[: len(first)]


def _check_records(records: Records) -> None:
    """Check that all columns lie in their buffer, and that offsets ascend."""
    size = len(records.bodies.buffer)
    assert records.counts.sum() == len(records)
    assert (np.diff(records.offsets) > 0).all()
    for column in (records.keys, records.values, records.bodies):
        there = column.sizes >= 0
        assert (column.starts[there] >= 0).all()
        assert (column.starts[there] + column.sizes[there] <= size).all()
    ends = records.bodies.starts + records.bodies.sizes
    assert (
        (records.bodies.starts <= records.header_starts) & (records.header_starts <= ends)
    ).all()
    _check_headers(_headers_of(records))


def _headers_of(records: Records) -> RawHeaders:
    ends = records.bodies.starts + records.bodies.sizes
    sizes = ends - records.header_starts
    return RawHeaders(Column(records.bodies.buffer, records.header_starts, sizes))


def _check_headers(headers: RawHeaders) -> None:
    """Check that every row can be read, and that the kernel finds in it what the reader does."""
    rows = list(headers)
    for name in HEADER_NAMES:
        for row, value in zip(rows, headers.located(name), strict=True):
            last = next((cell for found, cell in reversed(row) if found == name), None)
            assert value is None or value == last
    marks_of(headers)


def headers_target(data: bytes) -> None:
    """Read the bytes as the headers of a record between others, whose sound ones can be appended to."""
    rows = [record(0), record(1, headers=data), record(2)]
    records = decode(list(record_batches(batch(b"".join(rows)))))
    headers = _headers_of(records)
    _check_headers(headers)
    which, tail = np.zeros(len(records), dtype=np.int64), ((MARK, b"duplicate"), ("n", None))
    numbers = {"offset": records.offsets}
    rows_of_all = np.arange(len(records))
    _, longer = appended(records.bodies, records.header_starts, rows_of_all, [tail], which, numbers)
    for before, after, offset in zip(headers, longer, records.offsets, strict=True):
        assert after == (*before, *tail, ("offset", b"%d" % offset))


def origin_target(data: bytes) -> None:
    """Read the bytes as the headers of a copy in a middle topic, between copies of ours.

    The kernel and a reader of headers agree on whether it is ours, and on where its event lay. Marked once more, it is
    as it was when that is taken off.
    """
    rows = [
        record(at, headers=its) for at, its in enumerate((ORIGIN_OF_OURS, data, ORIGIN_OF_OURS))
    ]
    records = decode(list(record_batches(batch(b"".join(rows)))))
    columns = EventBatch(
        topic="middle",
        partition=0,
        offsets=records.offsets,
        timestamps=np.zeros(len(records), dtype=np.int64),
        keys=records.keys,
        values=records.values,
        headers=_headers_of(records),
        next_offset=len(records),
        bodies=records.bodies,
    )
    ours, stranger = unmarked(columns, GROUP)
    places = [place_in(its, GROUP) for its in columns.headers]
    named = list(takewhile(lambda place: place is not None, places))
    after = columns.offsets[len(named) :].tolist()
    assert stranger == next(iter(after), None)
    assert places_of(ours) == named
    assert list(ours.headers) == [its[:-1] for its in columns.headers[: len(named)]]
    assert _shown(ours) == _shown(columns.take(np.arange(len(named))))
    for row in range(len(columns)):
        ends = [name for name, _ in columns.headers[row]][-1:]
        assert (ORIGIN in ends) == ("no header" not in found_in(columns, row, GROUP))
    again, none = unmarked(marked(columns, np.arange(len(columns)), GROUP), GROUP)
    assert none is None
    assert _shown(again) == _shown(columns)
    assert list(again.headers) == list(columns.headers)


def _shown(batch: EventBatch) -> tuple[Any, ...]:
    return batch.offsets.tolist(), list(batch.keys), list(batch.values)


def json_target(data: bytes) -> None:
    """Find keys in a text between others. The kernel and the exact reader agree about each, reasons included."""
    texts = Column(
        b"".join((AFTER[0], data, *AFTER)), np.array([len(AFTER[0])]), np.array([len(data)])
    )
    for name in FIELDS:
        found, reasons = json_keys([name], texts)
        exact, exact_reasons = each(_exact(name), texts)
        assert list(found) == list(exact)
        assert are_alike(reasons.get(0), exact_reasons.get(0), len(data))
    json_keys(FIELDS[:2], texts, _normalizer("email"))


def _exact(name: str) -> Callable[[bytes | None], bytes]:
    read = exact_reader(name)
    return lambda cell: read(cell or b"")


def avro_target(data: bytes) -> None:
    """Find keys in a value by every schema of the corpus, and read the bytes as a schema themselves."""
    _find("avro", AVRO_SCHEMAS, data)


def protobuf_target(data: bytes) -> None:
    """Find keys in a message by a file of the corpus, and read the bytes as a file themselves."""
    _find("protobuf", (PROTOBUF_FILE,), data)


def _find(kind: str, texts: Sequence[str], data: bytes) -> None:
    """Each value has a key or a kind, whatever stands around it; a schema can be read, or says why it cannot."""
    schemas = _schemas(kind, tuple(texts))
    for prefix in (b"", *(b"\0" + number.to_bytes(4) for number in range(len(texts) + 1))):
        cells = [AFTER[0], prefix + data, *AFTER]
        for which in range(len(PATHS)):
            keys, kinds = schemas.known.read(which, Column.of(cells))
            assert (keys.sizes >= 0).tolist() == (kinds == FramedKind.KEY).tolist()
            alone, kind_alone = schemas.known.read(which, Column.of([prefix + data]))
            assert (alone[0], kind_alone[0]) == (keys[1], kinds[1])
    schemas.compiled(Schema(schemas.type, data.decode(errors="replace")))


def schema_and_value_target(kind: str, data: bytes) -> None:
    """Compile a schema, and run its program over a value. SchemaError if it cannot be read.

    `NUMBA_BOUNDSCHECK=1` has a program fail that writes or reads elsewhere (`proof/test_bounds.py`).
    """
    text, _, value = data.partition(THEN)
    schemas = Schemas(kind, PATHS)
    compiled = schemas.compiled(Schema(schemas.type, text.decode(errors="replace")))
    if compiled.why_not:
        raise SchemaError(compiled.why_not)
    schemas.take(1, compiled)
    for which in range(len(PATHS)):
        framed = b"\0\0\0\0\1" + value
        keys, kinds = schemas.known.read(which, Column.of([framed, *AFTER, framed]))
        assert (keys.sizes >= 0).tolist() == (kinds == FramedKind.KEY).tolist()
        assert keys[0] == keys[len(keys) - 1]
        assert len(keys[0] or b"") <= max(len(value), compiled.programs[which].room_bytes, 40)


def _mutated_pair(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    schema, _, value = data.partition(THEN)
    schemas, values = zip(*(each.partition(THEN)[::2] for each in others), strict=True)
    way = random.random()
    if way < 0.7:
        mutator = random.choice(
            (repeated_json, mutated_json) if schema[:1] == b"{" else (mutated_base64,)
        )
        schema = mutator(random, schema, schemas)
    if way > 0.5:
        value = mutated(random, value, values)
    return schema.replace(THEN, b"") + THEN + value


@cache
def _schemas(kind: str, texts: tuple[str, ...]) -> Schemas:
    schemas = Schemas(kind, PATHS)
    for number, text in enumerate(texts):
        schemas.take(number, schemas.compiled(Schema(schemas.type, text)))
    return schemas


def list_target(data: bytes) -> None:
    """Load a list, mapped and copied, and ask it about keys."""
    with _file(data) as path:
        for verify in (True, False):
            listed = key_list.load(path, hash_key=_hash_key(data), verify=verify)
            keys = Column.of([key.encode() for key in KEYS])
            listed.match(keys, listed.hash.of_column(keys))
            listed.summary()
            listed.header()
            listed.refuse_unless(listed.normalizer())


def store_target(data: bytes) -> None:
    """Open an exact store, and ask it about digests, all of its own among them."""
    with _file(data) as path:
        store = ExactStore(path)
        found = store.holds(Hash().digests(KEYS))
        assert found.shape == (len(KEYS),)
        assert store.entries * 16 <= len(data)


def snapshot_target(data: bytes) -> None:
    """Read a snapshot, copied and mapped. Use the filter as a worker does: look up, add, look up."""
    copied = CopyingReader(_reading(data), len(data))
    for reader in (copied, MappedReader(memoryview(data), verify=True)):
        _use(reader, data)


def _use(reader: SnapshotReader, data: bytes) -> None:
    contents = reader.contents()
    filter_: Any = built(reader.header, contents, _hash_key(data))
    digests = filter_.digests(KEYS)
    assert filter_.contains_many(digests).shape == (len(KEYS),)
    filter_.header()
    _ = len(filter_), filter_.fill_ratio, filter_.error_rate_now, filter_.size_bytes
    if isinstance(reader, MappedReader):
        return
    if isinstance(filter_, Windowed) and not filter_.clock.by_count:
        filter_.add_many(digests, np.arange(len(digests), dtype=np.int64))
    elif isinstance(filter_, Addable):
        filter_.add_many(digests)
        assert filter_.contains_many(digests).all()
    if isinstance(filter_, Removable):
        filter_.remove_many(digests)


def note_target(data: bytes) -> None:
    """Decode the metadata of a commit. A note has numbers that Kafka can have, and survives being written."""
    note = Note.decode(data.decode(errors="replace"))
    if note is None:
        return
    assert Note.decode(note.encode()) == note
    numbers = (note.label, note.watermark, note.partitions, note.born, note.floor, note.since)
    for number in numbers:
        assert number is None or (type(number) is int and -OFFSET_MAX - 1 <= number <= OFFSET_MAX)


def control_target(data: bytes) -> None:
    """Read a message of a control topic, its key up to the first newline; under each normalizer."""
    entry, line, value = data.partition(b"\n")
    refused = 0
    for name in NORMALIZERS:
        try:
            change = read_change(entry, value if line else None, _normalizer(name))
        except MalformedError:
            refused += 1
            continue
        assert change.change in (ADDED, REMOVED, UNCHANGED)
        assert change.keys
        assert all(change.keys)
    if refused == len(NORMALIZERS):
        raise MalformedError("no normalizer takes it")


def _mutated_message(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    entry, line, value = data.partition(b"\n")
    if random.random() < 0.5:
        return mutated(random, entry, others) + line + value
    return entry + b"\n" + mutated_json(random, value, others)


@cache
def _normalizer(name: Normalization) -> Normalizer | None:
    return normalizer(name)


def _hash_key(data: bytes) -> bytes:
    """Return the key that the file needs, if its header still says so."""
    return HASH_KEY if b'"hash":"siphash"' in data[: 1 << 14] else b""


@contextmanager
def _file(data: bytes) -> Iterator[Path]:
    with NamedTemporaryFile(prefix="streamdedup-fuzz-") as file:
        file.write(data)
        file.flush()
        yield Path(file.name)


def _reading(data: bytes) -> Callable[[memoryview], None]:
    rest = memoryview(data)

    def read_into(view: memoryview) -> None:
        nonlocal rest
        view[:] = rest[: len(view)]
        rest = rest[len(view) :]

    return read_into


TARGETS = {
    "record-batches": Target(record_batches_target, (DamagedBatchError,), 10_000, mutated_batches),
    "headers": Target(headers_target, (DamagedBatchError,), 10_000),
    "origin": Target(origin_target, (DamagedBatchError,), 3_000),
    "json": Target(json_target, (), 3_000, mutated_text),
    "avro": Target(avro_target, (), 1_000),
    "protobuf": Target(protobuf_target, (), 500),
    "avro-schema": Target(
        partial(schema_and_value_target, "avro"), (SchemaError,), 1_000, _mutated_pair
    ),
    "protobuf-schema": Target(
        partial(schema_and_value_target, "protobuf"), (SchemaError,), 1_000, _mutated_pair
    ),
    "list": Target(list_target, (SnapshotError, ConfigError), 2_000, mutated_file),
    "exact-store": Target(store_target, (SnapshotError,), 2_000, mutated_file),
    "snapshot": Target(snapshot_target, (SnapshotError, ConfigError), 2_000, mutated_file),
    "note": Target(note_target, (), 10_000, mutated_json),
    "requests": Target(requests_target, (Refused,), 3_000, mutated_request),
    "control": Target(control_target, (MalformedError,), 3_000, _mutated_message),
}
